// Reflectors over real connections to a server that goes wrong in every way it can: whatever
// happens, the picture in the end is the server's.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <random>

#include "absl/time/clock.h"
#include "kube/client/curl_transport.h"
#include "kube/client/reflector.h"
#include "kube/client/scripted_server.h"

namespace muster::kube {
namespace {

// Objects with a log of their changes, served as an API server does, and badly with probability
// `badness` for each line or page.
class FaultyApi {
 public:
  FaultyApi(uint64_t seed, bool has_watch_list, double badness)
      : random_(seed), has_watch_list_(has_watch_list), badness_(badness) {}

  ScriptedServer::Script Script() {
    return [this](const ScriptedRequest& request, ScriptedConnection& connection) {
      if (request.query("watch").empty()) {
        ServeList(request, connection);
      } else {
        ServeWatch(request, connection);
      }
    };
  }

  void Change() {
    std::lock_guard lock(mutex_);
    const std::string name = fmt::format("o{}", random_() % 30);
    const auto at = objects_.find(name);
    ++version_;
    if (at == objects_.end()) {
      objects_[name] = {version_, version_};
      log_.push_back({version_, Event("ADDED", name)});
    } else if (random_() % 3 == 0) {
      at->second.version = version_;
      log_.push_back({version_, Event("DELETED", name)});
      objects_.erase(at);
    } else {
      at->second.version = version_;
      log_.push_back({version_, Event("MODIFIED", name)});
    }
    if (log_.size() > 200) log_.erase(log_.begin(), log_.begin() + 150);
    changed_.notify_all();
  }

  // Ends the faults.
  void Behave() {
    std::lock_guard lock(mutex_);
    badness_ = 0;
  }

  std::map<std::string, std::string> Picture() const {
    std::lock_guard lock(mutex_);
    std::map<std::string, std::string> picture;
    for (const auto& [name, object] : objects_) {
      picture[name] = fmt::format("{}@{}", object.uid, object.version);
    }
    return picture;
  }

 private:
  struct Object {
    int uid = 0;
    int version = 0;
  };
  struct Logged {
    int version;
    std::string line;
  };

  std::string Json(const std::string& name) const {
    const Object& object = objects_.at(name);
    return fmt::format(R"({{"metadata":{{"name":"{}","uid":"{}","resourceVersion":"{}"}}}})", name,
                       object.uid, object.version);
  }
  std::string Event(const std::string& type, const std::string& name) const {
    return fmt::format(R"({{"type":"{}","object":{}}})", type, Json(name));
  }
  static std::string Bookmark(int version, bool last) {
    return fmt::format(
        R"({{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{}"{}}}}}}})", version,
        last ? R"(,"annotations":{"k8s.io/initial-events-end":"true"})" : "");
  }

  // False if the stream has been spoilt.
  bool Send(ScriptedConnection& connection, const std::string& line) {
    int fault = -1;
    {
      std::lock_guard lock(mutex_);
      if (std::uniform_real_distribution<double>(0, 1)(random_) < badness_) fault = random_() % 7;
    }
    switch (fault) {
      case 0:
        connection.Close();
        return false;
      case 1:
        connection.Write(line.substr(0, line.size() / 2));
        connection.Close();
        return false;
      case 2:
        connection.WriteLine(line.substr(0, line.size() / 2));
        return false;
      case 3:
        connection.WriteLine(R"({"type":"ERROR","object":{"code":410,"message":"expired"}})");
        return false;
      case 4:
        connection.WriteLine(R"({"type":"ERROR","object":{"code":500,"message":"broken"}})");
        return false;
      case 5:
        connection.WriteLine(std::string(5000, 'x'));
        return false;
      case 6:
        for (const char byte : line) {
          if (!connection.Write(std::string(1, byte))) return false;
        }
        return connection.Write("\n");
      default:
        return connection.WriteLine(line);
    }
  }

  void ServeWatch(const ScriptedRequest& request, ScriptedConnection& connection) {
    std::unique_lock lock(mutex_);
    int version = version_;
    std::vector<std::string> lines;
    if (request.query("sendInitialEvents") == "true") {
      if (!has_watch_list_) {
        lock.unlock();
        return connection.Reply(422, R"({"message":"no WatchList here"})");
      }
      for (const auto& [name, object] : objects_) lines.push_back(Event("ADDED", name));
      lines.push_back(Bookmark(version, true));
    } else {
      version = std::stoi(request.query("resourceVersion"));
      if (!log_.empty() && version + 1 < log_.front().version) {
        lock.unlock();
        return connection.Reply(410, R"({"message":"too old"})");
      }
    }
    lock.unlock();
    connection.StartStream();
    for (const std::string& line : lines) {
      if (!Send(connection, line)) return connection.Close();
    }
    const absl::Time end = absl::Now() + absl::Seconds(std::stoi(request.query("timeoutSeconds")));
    while (absl::Now() < end) {
      lock.lock();
      changed_.wait_for(lock, std::chrono::milliseconds(20));
      lines.clear();
      const bool missed = !log_.empty() && version + 1 < log_.front().version;
      for (const Logged& logged : log_) {
        if (logged.version > version) lines.push_back(logged.line);
      }
      version = version_;
      lock.unlock();
      if (missed) return connection.Close();
      if (lines.empty()) lines.push_back(Bookmark(version, false));
      for (const std::string& line : lines) {
        if (!Send(connection, line)) return connection.Close();
      }
    }
    connection.EndStream();
  }

  void ServeList(const ScriptedRequest& request, ScriptedConnection& connection) {
    std::unique_lock lock(mutex_);
    const double luck = std::uniform_real_distribution<double>(0, 1)(random_);
    if (luck < badness_) {
      const int status = luck < badness_ / 2 ? 503 : 429;
      lock.unlock();
      return connection.Reply(status, "");
    }
    // A token is "VERSION:FIRST NAME"; a list whose version is no longer the newest has expired.
    const std::string token = request.query("continue");
    const std::string first = token.empty() ? "" : token.substr(token.find(':') + 1);
    if (!token.empty() && std::stoi(token) != version_) {
      lock.unlock();
      return connection.Reply(410, "");
    }
    std::vector<std::string> items;
    std::string next;
    for (auto at = objects_.lower_bound(first); at != objects_.end(); ++at) {
      if (items.size() == 7) {
        next = fmt::format("{}:{}", version_, at->first);
        break;
      }
      items.push_back(Json(at->first));
    }
    const std::string page =
        fmt::format(R"({{"metadata":{{"resourceVersion":"{}","continue":"{}"}},"items":[{}]}})",
                    version_, next, fmt::join(items, ","));
    lock.unlock();
    connection.Reply(200, page);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  const bool has_watch_list_;
  double badness_;
  int version_ = 1;
  std::map<std::string, Object> objects_;
  std::vector<Logged> log_;
};

class Picture : public ReflectorSink {
 public:
  void Upsert(const ObjectHeader& header, std::string_view) override {
    std::lock_guard lock(mutex_);
    auto& object = objects_[header.name];
    // A change of UID has to be announced by a removal.
    if (!object.empty()) {
      EXPECT_EQ(object.substr(0, object.find('@')), header.uid);
    }
    object = fmt::format("{}@{}", header.uid, header.resource_version);
  }
  void Remove(const ObjectHeader& header) override {
    std::lock_guard lock(mutex_);
    EXPECT_EQ(objects_.erase(header.name), 1u);
  }
  void StateChanged(ReflectorState, const absl::Status&) override {}

  std::map<std::string, std::string> Get() const {
    std::lock_guard lock(mutex_);
    return objects_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> objects_;
};

class ReflectorFaults : public ::testing::TestWithParam<std::tuple<bool, uint64_t>> {};

TEST_P(ReflectorFaults, ThePictureComesOutRight) {
  const auto [has_watch_list, seed] = GetParam();
  FaultyApi api(seed, has_watch_list, 0.05);
  ScriptedServer server(api.Script());
  ClientConfig config;
  config.server = server.url();
  config.credentials = FixedCredentials({});
  CurlTransportOptions transport_options;
  transport_options.max_line_bytes = 4000;
  auto transport = CurlTransport::Create(config, transport_options);
  ASSERT_TRUE(transport.ok());
  ThreadTimer timer;
  Picture picture;
  ReflectorOptions options;
  options.path = "/apis/x/v1/things";
  options.page_size = 7;
  options.shortest_watch = absl::Seconds(1);
  options.backoff = {absl::Milliseconds(1), absl::Milliseconds(20), 2};
  options.seed = seed;
  Reflector reflector(**transport, timer, options, picture);
  reflector.Start();
  // Until there was enough of each fault, however slow the machine is.
  const absl::Time patience = absl::Now() + absl::Seconds(60);
  const auto enough = [&] {
    return reflector.Stats().failures > 10 && reflector.Stats().syncs > 3;
  };
  for (int i = 0; i < 600 || (!enough() && absl::Now() < patience); ++i) {
    api.Change();
    absl::SleepFor(absl::Milliseconds(3));
  }
  api.Behave();
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (picture.Get() != api.Picture() && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(picture.Get(), api.Picture());
  const ReflectorStats stats = reflector.Stats();
  EXPECT_GT(stats.failures, 10u);
  EXPECT_GT(stats.syncs, 3u);
  EXPECT_EQ(stats.state, ReflectorState::kSynced);
}

// The connection stays up, but nothing comes any more.
TEST(ReflectorStall, AWatchThatStallsIsOpenedAnewAndHoldsNoWriteUp) {
  std::atomic<int> watches = 0;
  const std::string a = R"({"metadata":{"name":"a","uid":"1","resourceVersion":"1"}})";
  const std::string b = R"({"metadata":{"name":"b","uid":"2","resourceVersion":"2"}})";
  ScriptedServer server([&](const ScriptedRequest& request, ScriptedConnection& connection) {
    if (request.query("watch").empty()) return connection.Reply(200, "{}");
    const int number = ++watches;
    if (number == 2) return connection.WaitForClose();  // not even a header
    connection.StartStream();
    if (number == 1) {
      connection.WriteLine(R"({"type":"ADDED","object":)" + a + "}");
      connection.WriteLine(R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1",)"
                           R"("annotations":{"k8s.io/initial-events-end":"true"}}}})");
      connection.Write(R"({"type":"ADDED","object":{"metadata":{"na)");
    } else {
      EXPECT_EQ(request.query("resourceVersion"), "1");
      connection.WriteLine(R"({"type":"ADDED","object":)" + b + "}");
    }
    connection.WaitForClose();
  });
  ClientConfig config;
  config.server = server.url();
  config.credentials = FixedCredentials({});
  auto transport = CurlTransport::Create(config);
  ASSERT_TRUE(transport.ok());
  ThreadTimer timer;
  Picture picture;
  ReflectorOptions options;
  options.path = "/apis/x/v1/things";
  options.stale_after = absl::Milliseconds(200);
  options.answer_patience = absl::Milliseconds(300);
  options.longest_silence = absl::Milliseconds(300);
  options.backoff = {absl::Milliseconds(1), absl::Milliseconds(20), 2};
  Reflector reflector(**transport, timer, options, picture);
  reflector.Start();
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (picture.Get().size() < 2 && absl::Now() < deadline) {
    std::promise<absl::StatusOr<Response>> write;
    Request request;
    request.method = Method::kPost;
    request.path = "/apis/x/v1/others";
    (*transport)->Send(request, [&](absl::StatusOr<Response> answer) {
      write.set_value(std::move(answer));
    });
    EXPECT_TRUE(write.get_future().get().ok());
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_EQ(picture.Get().size(), 2u);
  EXPECT_GE(watches, 3);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ReflectorFaults,
                         ::testing::Combine(::testing::Bool(), ::testing::Values(1, 2, 3)));

}  // namespace
}  // namespace muster::kube
