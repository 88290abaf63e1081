#include "kube/client/curl_transport.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <future>
#include <mutex>
#include <set>

#include "absl/time/clock.h"
#include "kube/client/kubeconfig.h"
#include "kube/client/scripted_server.h"
#include "kube/client/test_certificates.h"

namespace muster::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ClientConfig ConfigFor(const ScriptedServer& server, Identity identity = {}) {
  ClientConfig config;
  config.server = server.url();
  config.credentials = FixedCredentials(std::move(identity));
  return config;
}

std::unique_ptr<CurlTransport> Connect(ClientConfig config,
                                       const CurlTransportOptions& options = {}) {
  auto transport = CurlTransport::Create(std::move(config), options);
  EXPECT_TRUE(transport.ok()) << transport.status();
  return *std::move(transport);
}

Request Get(std::string path, absl::Duration timeout = absl::Seconds(10)) {
  Request request;
  request.path = std::move(path);
  request.timeout = timeout;
  return request;
}

absl::StatusOr<Response> SendAndWait(Transport& transport, Request request) {
  std::promise<absl::StatusOr<Response>> promise;
  transport.Send(std::move(request), [&promise](absl::StatusOr<Response> answer) {
    promise.set_value(std::move(answer));
  });
  return promise.get_future().get();
}

// What a watch delivered, from any thread.
struct Watched {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> lines;
  std::optional<absl::StatusOr<Response>> end;

  Transport::OnLine OnLine() {
    return [this](std::string_view line) {
      std::lock_guard lock(mutex);
      lines.emplace_back(line);
      changed.notify_all();
    };
  }
  Transport::OnEnd OnEnd() {
    return [this](absl::StatusOr<Response> answer) {
      std::lock_guard lock(mutex);
      end = std::move(answer);
      changed.notify_all();
    };
  }
  bool WaitForLines(size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(10), [&] { return lines.size() >= count; });
  }
  bool WaitForEnd() {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(10), [&] { return end.has_value(); });
  }
};

TEST(CurlTransport, SendsEachMethodWithItsBodyAndHeaders) {
  std::vector<ScriptedRequest> seen;
  ScriptedServer server([&](const ScriptedRequest& request, ScriptedConnection& connection) {
    seen.push_back(request);
    connection.Reply(200, R"({"ok":1})");
  });
  auto transport = Connect(ConfigFor(server, {.token = "sesame",
                                              .certificate_pem = "",
                                              .key_pem = "",
                                              .refresh_at = absl::InfiniteFuture()}));
  const std::vector<std::pair<Method, std::string>> methods = {
      {Method::kGet, "GET"}, {Method::kPost, "POST"},   {Method::kGet, "GET"},
      {Method::kPut, "PUT"}, {Method::kPatch, "PATCH"}, {Method::kDelete, "DELETE"},
      {Method::kGet, "GET"}};
  for (const auto& [method, name] : methods) {
    Request request = Get("/api/v1/pods");
    request.method = method;
    request.query = {{"labelSelector", "a=b,c in (d)"}, {"limit", "5"}};
    if (method != Method::kGet) {
      request.body = "{\"x\":\"" + name + "\"}";
      request.content_type = kMergePatch;
    }
    const auto answer = SendAndWait(*transport, request);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body, R"({"ok":1})");
    const ScriptedRequest& got = seen.back();
    EXPECT_EQ(got.method, name);
    EXPECT_EQ(got.target, "/api/v1/pods?labelSelector=a%3Db%2Cc%20in%20%28d%29&limit=5");
    EXPECT_EQ(got.headers.at("authorization"), "Bearer sesame");
    EXPECT_EQ(got.headers.at("accept"), "application/json");
    EXPECT_EQ(got.headers.at("user-agent"), "muster");
    EXPECT_EQ(got.body, request.body);
    EXPECT_EQ(got.headers.contains("content-type"), method != Method::kGet);
  }
  EXPECT_EQ(server.connections(), 1);
}

TEST(CurlTransport, AnHttpErrorIsAnAnswer) {
  ScriptedServer server([](const ScriptedRequest&, ScriptedConnection& connection) {
    connection.Reply(429, "slow down", "Retry-After: 7\r\n");
  });
  auto transport = Connect(ConfigFor(server));
  const auto answer = SendAndWait(*transport, Get("/api"));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 429);
  EXPECT_EQ(answer->body, "slow down");
  EXPECT_EQ(answer->retry_after, absl::Seconds(7));
}

TEST(CurlTransport, ARefusedConnectionSaysThatNothingWasDone) {
  int port = 0;
  {
    ScriptedServer gone([](const ScriptedRequest&, ScriptedConnection&) {});
    port = gone.port();
  }
  ClientConfig config;
  config.server = fmt::format("http://127.0.0.1:{}", port);
  config.credentials = FixedCredentials({});
  auto transport = Connect(config);
  const auto answer = SendAndWait(*transport, Get("/api"));
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("/api"));
}

TEST(CurlTransport, NoAnswerAfterSendingLeavesTheOutcomeOpen) {
  ScriptedServer server([](const ScriptedRequest& request, ScriptedConnection& connection) {
    if (request.path() == "/slow") {
      connection.WaitForClose();
    } else if (request.path() == "/half") {
      connection.WriteRaw("HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\nabc");
      connection.Close();
    } else {
      connection.Close();
    }
  });
  auto transport = Connect(ConfigFor(server));
  const absl::Time start = absl::Now();
  const auto slow = SendAndWait(*transport, Get("/slow", absl::Milliseconds(200)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(slow.status())) << slow.status();
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  const auto closed = SendAndWait(*transport, Get("/closed"));
  EXPECT_TRUE(absl::IsUnknown(closed.status())) << closed.status();
  const auto half = SendAndWait(*transport, Get("/half"));
  EXPECT_TRUE(absl::IsUnknown(half.status())) << half.status();
}

TEST(CurlTransport, BoundsWhatIsUnderWayAndWhatWaits) {
  std::atomic<int> under_way = 0;
  std::atomic<int> most = 0;
  std::promise<void> open;
  const auto gate = open.get_future().share();
  ScriptedServer server([&](const ScriptedRequest&, ScriptedConnection& connection) {
    const int now = ++under_way;
    most = std::max(most.load(), now);
    gate.wait();
    --under_way;
    connection.Reply(200, "");
  });
  CurlTransportOptions options;
  options.max_in_flight = 3;
  options.max_queued = 10;
  auto transport = Connect(ConfigFor(server), options);
  constexpr int kRequests = 30;
  std::atomic<int> answered = 0;
  std::atomic<int> rejected = 0;
  std::promise<void> all;
  std::atomic<int> left = kRequests;
  const auto done = [&](absl::StatusOr<Response> answer) {
    if (answer.ok()) ++answered;
    if (absl::IsResourceExhausted(answer.status())) ++rejected;
    if (--left == 0) all.set_value();
  };
  for (int i = 0; i < 3; ++i) transport->Send(Get("/x"), done);
  while (under_way < 3) absl::SleepFor(absl::Milliseconds(1));
  for (int i = 3; i < kRequests; ++i) transport->Send(Get("/x"), done);
  while (rejected < kRequests - 13) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(transport->Stats().queued, 10u);
  EXPECT_EQ(transport->Stats().in_flight, 3u);
  open.set_value();
  all.get_future().wait();
  EXPECT_EQ(answered, 13);
  EXPECT_EQ(rejected, kRequests - 13);
  EXPECT_EQ(most, 3);
  EXPECT_EQ(transport->Stats().rejected, 17u);
  EXPECT_EQ(server.connections(), 3);
}

TEST(CurlTransport, AnUrgentRequestDoesNotWaitBehindOthers) {
  std::promise<void> open;
  const auto gate = open.get_future().share();
  ScriptedServer server([&](const ScriptedRequest& request, ScriptedConnection& connection) {
    if (request.path() != "/urgent") gate.wait();
    connection.Reply(200, "");
  });
  CurlTransportOptions options;
  options.max_in_flight = 1;
  auto transport = Connect(ConfigFor(server), options);
  std::atomic<int> left = 20;
  for (int i = 0; i < 20; ++i) {
    transport->Send(Get("/bulk"), [&](absl::StatusOr<Response>) { --left; });
  }
  Request urgent = Get("/urgent");
  urgent.urgent = true;
  EXPECT_EQ(SendAndWait(*transport, urgent)->status, 200);
  EXPECT_EQ(left, 20);
  open.set_value();
  while (left > 0) absl::SleepFor(absl::Milliseconds(1));
}

TEST(CurlTransport, WhatWaitsTooLongIsNotSent) {
  ScriptedServer server(
      [](const ScriptedRequest&, ScriptedConnection& connection) { connection.WaitForClose(); });
  CurlTransportOptions options;
  options.max_in_flight = 1;
  auto transport = Connect(ConfigFor(server), options);
  std::promise<absl::StatusOr<Response>> first;
  transport->Send(Get("/first", absl::Seconds(2)),
                  [&](absl::StatusOr<Response> answer) { first.set_value(std::move(answer)); });
  const auto second = SendAndWait(*transport, Get("/second", absl::Milliseconds(100)));
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("was not sent"));
  EXPECT_TRUE(absl::IsDeadlineExceeded(first.get_future().get().status()));
  EXPECT_EQ(server.requests(), 1);
}

TEST(CurlTransport, AnAnswerThatIsTooLargeIsCutOff) {
  ScriptedServer server([](const ScriptedRequest&, ScriptedConnection& connection) {
    connection.Reply(200, std::string(100'000, 'x'));
  });
  CurlTransportOptions options;
  options.max_body_bytes = 99'999;
  auto transport = Connect(ConfigFor(server), options);
  const auto answer = SendAndWait(*transport, Get("/x"));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kDataLoss) << answer.status();
}

TEST(CurlTransport, DeliversAWatchLineByLine) {
  ScriptedServer server([](const ScriptedRequest& request, ScriptedConnection& connection) {
    EXPECT_EQ(request.query("watch"), "1");
    connection.StartStream();
    connection.Write("one\ntwo\nth");
    connection.Write("re");
    connection.Write("e\n\n" + std::string(300'000, 'x') + "\n");
    connection.Write("cut off");
    connection.EndStream();
  });
  auto transport = Connect(ConfigFor(server));
  Watched watched;
  Request request = Get("/api/v1/pods");
  request.query = {{"watch", "1"}};
  const auto stream = transport->Watch(request, watched.OnLine(), watched.OnEnd());
  ASSERT_TRUE(watched.WaitForEnd());
  ASSERT_EQ(watched.lines.size(), 4u);
  EXPECT_EQ(watched.lines[0], "one");
  EXPECT_EQ(watched.lines[1], "two");
  EXPECT_EQ(watched.lines[2], "three");
  EXPECT_EQ(watched.lines[3].size(), 300'000u);
  ASSERT_TRUE(watched.end->ok());
  EXPECT_EQ((*watched.end)->status, 200);
}

TEST(CurlTransport, EndsAWatchWhoseLineIsTooLong) {
  ScriptedServer server([](const ScriptedRequest&, ScriptedConnection& connection) {
    connection.StartStream();
    connection.WriteLine("fine");
    while (connection.Write(std::string(1000, 'x'))) {
    }
  });
  CurlTransportOptions options;
  options.max_line_bytes = 50'000;
  auto transport = Connect(ConfigFor(server), options);
  Watched watched;
  const auto stream = transport->Watch(Get("/w"), watched.OnLine(), watched.OnEnd());
  ASSERT_TRUE(watched.WaitForEnd());
  EXPECT_THAT(watched.lines, ElementsAre("fine"));
  EXPECT_EQ(watched.end->status().code(), absl::StatusCode::kDataLoss);
}

TEST(CurlTransport, AWatchEndsWithTheHttpErrorOrTheCut) {
  ScriptedServer server([](const ScriptedRequest& request, ScriptedConnection& connection) {
    if (request.path() == "/gone") {
      connection.Reply(410, "too\nold");
    } else {
      connection.StartStream();
      connection.WriteLine("one");
      connection.Write("tw");
      connection.Close();
    }
  });
  auto transport = Connect(ConfigFor(server));
  Watched gone;
  const auto first = transport->Watch(Get("/gone"), gone.OnLine(), gone.OnEnd());
  ASSERT_TRUE(gone.WaitForEnd());
  EXPECT_THAT(gone.lines, IsEmpty());
  ASSERT_TRUE(gone.end->ok());
  EXPECT_EQ((*gone.end)->status, 410);
  EXPECT_EQ((*gone.end)->body, "too\nold");
  Watched cut;
  const auto second = transport->Watch(Get("/cut"), cut.OnLine(), cut.OnEnd());
  ASSERT_TRUE(cut.WaitForEnd());
  EXPECT_THAT(cut.lines, ElementsAre("one"));
  EXPECT_FALSE(cut.end->ok());
}

TEST(CurlTransport, DestroyingAStreamEndsItAndItsCallbacks) {
  std::atomic<int> closed = 0;
  ScriptedServer server([&](const ScriptedRequest&, ScriptedConnection& connection) {
    connection.StartStream();
    while (connection.WriteLine("line")) {
    }
    ++closed;
  });
  auto transport = Connect(ConfigFor(server));
  for (int round = 0; round < 10; ++round) {
    auto watched = std::make_unique<Watched>();
    auto stream = transport->Watch(Get("/w"), watched->OnLine(), watched->OnEnd());
    ASSERT_TRUE(watched->WaitForLines(1));
    stream.reset();
    EXPECT_FALSE(watched->end);
    watched.reset();  // a late callback would touch freed memory
  }
  while (closed < 10) absl::SleepFor(absl::Milliseconds(1));
  while (transport->Stats().watches > 0) absl::SleepFor(absl::Milliseconds(1));
}

TEST(CurlTransport, ACallbackMayDestroyItsOwnStream) {
  ScriptedServer server([&](const ScriptedRequest&, ScriptedConnection& connection) {
    connection.StartStream();
    connection.Write("a\nb\nc\n");
    connection.WaitForClose();
  });
  auto transport = Connect(ConfigFor(server));
  std::unique_ptr<Stream> stream;
  std::mutex mutex;
  std::atomic<int> lines = 0;
  std::unique_lock lock(mutex);
  stream = transport->Watch(
      Get("/w"),
      [&](std::string_view) {
        std::lock_guard started(mutex);
        ++lines;
        stream.reset();
      },
      [](absl::StatusOr<Response>) { ADD_FAILURE() << "ended after it was destroyed"; });
  lock.unlock();
  while (transport->Stats().watches_started == 0 || transport->Stats().watches > 0) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(lines, 1);
}

TEST(CurlTransport, ClosingCompletesEverythingOnce) {
  ScriptedServer server(
      [](const ScriptedRequest&, ScriptedConnection& connection) { connection.WaitForClose(); });
  CurlTransportOptions options;
  options.max_in_flight = 2;
  auto transport = Connect(ConfigFor(server), options);
  std::atomic<int> cancelled = 0;
  for (int i = 0; i < 5; ++i) {
    transport->Send(Get("/x"), [&](absl::StatusOr<Response> answer) {
      if (absl::IsCancelled(answer.status())) ++cancelled;
    });
  }
  Watched watched;
  const auto stream = transport->Watch(Get("/w"), watched.OnLine(), watched.OnEnd());
  while (server.requests() < 3) absl::SleepFor(absl::Milliseconds(1));
  transport.reset();
  EXPECT_EQ(cancelled, 5);
  ASSERT_TRUE(watched.end);
  EXPECT_TRUE(absl::IsCancelled(watched.end->status()));
}

TEST(CurlTransport, NoCallbackRunsAfterItHasStopped) {
  ScriptedServer server(
      [](const ScriptedRequest&, ScriptedConnection& connection) { connection.WaitForClose(); });
  auto transport = Connect(ConfigFor(server));
  std::atomic<int> ended = 0;
  const auto end = [&](absl::StatusOr<Response> answer) {
    EXPECT_TRUE(absl::IsCancelled(answer.status())) << answer.status();
    ++ended;
  };
  transport->Send(Get("/x"), [&](absl::StatusOr<Response> answer) {
    end(answer);
    transport->Send(Get("/late"), end);
  });
  while (server.requests() < 1) absl::SleepFor(absl::Milliseconds(1));
  transport->Stop();
  EXPECT_EQ(ended, 2);
  transport->Send(Get("/later"), end);
  transport->Stop();
  absl::SleepFor(absl::Milliseconds(20));
  transport.reset();
  EXPECT_EQ(ended, 3);
}

TEST(CurlTransport, WritesDoNotWaitForAWatchsConsumerNorEventsForARequests) {
  ScriptedServer server([](const ScriptedRequest& request, ScriptedConnection& connection) {
    if (request.path() != "/w") return connection.Reply(200, "");
    connection.StartStream();
    while (connection.Write(std::string(10'000, 'x') + "\n")) {
    }
  });
  auto transport = Connect(ConfigFor(server));
  std::promise<void> busy;
  std::promise<void> open;
  std::atomic<int> lines = 0;
  const auto stream = transport->Watch(
      Get("/w"),
      [&, gate = open.get_future().share()](std::string_view) {
        if (++lines > 1) return;
        busy.set_value();
        gate.wait();
      },
      [](absl::StatusOr<Response>) {});
  busy.get_future().wait();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(SendAndWait(*transport, Get("/x")).ok());
  EXPECT_EQ(lines, 1);
  open.set_value();

  std::promise<void> slow_open;
  transport->Send(Get("/x"), [gate = slow_open.get_future().share()](absl::StatusOr<Response>) {
    gate.wait();
  });
  while (lines < 1000) absl::SleepFor(absl::Milliseconds(1));
  slow_open.set_value();
}

TEST(CurlTransport, WhatACallbackAsksForWhileItClosesEndsToo) {
  ScriptedServer server(
      [](const ScriptedRequest&, ScriptedConnection& connection) { connection.WaitForClose(); });
  for (int round = 0; round < 20; ++round) {
    auto transport = Connect(ConfigFor(server));
    Transport* const raw = transport.get();
    std::atomic<int> ended = 0;
    std::vector<std::unique_ptr<Stream>> streams;
    streams.push_back(raw->Watch(
        Get("/w"), [](std::string_view) {},
        [&](absl::StatusOr<Response>) {
          ++ended;
          raw->Send(Get("/late"), [&](absl::StatusOr<Response>) { ++ended; });
        }));
    raw->Send(Get("/x"), [&](absl::StatusOr<Response>) {
      ++ended;
      streams.push_back(raw->Watch(
          Get("/w"), [](std::string_view) {}, [&](absl::StatusOr<Response>) { ++ended; }));
    });
    if (round % 2 == 0) absl::SleepFor(absl::Milliseconds(2));
    transport.reset();
    EXPECT_EQ(ended, 4);
  }
}

TEST(CurlTransport, ReusesFewConnectionsForManyRequestsAndCountsThem) {
  ScriptedServer server([](const ScriptedRequest& request, ScriptedConnection& connection) {
    connection.Reply(request.path() == "/1" ? 404 : 201, "0123456789");
  });
  CurlTransportOptions options;
  options.max_in_flight = 8;
  auto transport = Connect(ConfigFor(server), options);
  constexpr int kRequests = 2000;
  std::promise<void> all;
  std::atomic<int> left = kRequests;
  for (int i = 0; i < kRequests; ++i) {
    Request request = Get(fmt::format("/{}", i));
    request.method = Method::kPost;
    request.body = "{}";
    request.content_type = kJson;
    transport->Send(request, [&](absl::StatusOr<Response> answer) {
      EXPECT_TRUE(answer.ok()) << answer.status();
      if (--left == 0) all.set_value();
    });
  }
  all.get_future().wait();
  EXPECT_LE(server.connections(), 8);
  const TransportStats stats = transport->Stats();
  EXPECT_EQ(stats.sent, 2000u);
  EXPECT_EQ(stats.answered[2], 1999u);
  EXPECT_EQ(stats.answered[4], 1u);
  EXPECT_EQ(stats.unanswered, 0u);
  EXPECT_EQ(stats.bytes_received, 20'000u);
  EXPECT_EQ(stats.connections, static_cast<size_t>(server.connections()));
  uint64_t counted = 0;
  for (const uint64_t count : stats.latency_counts) counted += count;
  EXPECT_EQ(counted, 2000u);
  EXPECT_GT(stats.latency_sum, absl::ZeroDuration());
}

// Credentials whose next identity the test chooses.
class ChangingCredentials : public Credentials {
 public:
  absl::StatusOr<Identity> Fetch() override {
    ++fetches;
    std::lock_guard lock(mutex);
    Identity identity;
    identity.token = token;
    identity.refresh_at = absl::Now() + absl::Hours(1);
    if (!error.ok()) return error;
    return identity;
  }

  std::mutex mutex;
  std::string token = "old";
  absl::Status error;
  std::atomic<int> fetches = 0;
};

TEST(CurlTransport, FetchesCredentialsAnewOn401AndSendsAgain) {
  ScriptedServer server([](const ScriptedRequest& request, ScriptedConnection& connection) {
    const bool known = request.headers.at("authorization") == "Bearer new";
    if (request.path() == "/w" && known) {
      connection.StartStream();
      connection.WriteLine("event");
      connection.EndStream();
    } else {
      connection.Reply(known ? 200 : 401, "");
    }
  });
  auto credentials = std::make_shared<ChangingCredentials>();
  ClientConfig config = ConfigFor(server);
  config.credentials = credentials;
  CurlTransportOptions options;
  options.refetch_interval = absl::ZeroDuration();
  auto transport = Connect(config, options);
  EXPECT_EQ(SendAndWait(*transport, Get("/a"))->status, 401);
  EXPECT_EQ(credentials->fetches, 2);
  {
    std::lock_guard lock(credentials->mutex);
    credentials->token = "new";
  }
  Watched watched;
  const auto stream = transport->Watch(Get("/w"), watched.OnLine(), watched.OnEnd());
  ASSERT_TRUE(watched.WaitForEnd());
  EXPECT_THAT(watched.lines, ElementsAre("event"));
  EXPECT_EQ(SendAndWait(*transport, Get("/a"))->status, 200);
  EXPECT_EQ(credentials->fetches, 3);
  EXPECT_EQ(transport->Stats().resent_after_401, 1u);
}

TEST(CurlTransport, FixedCredentialsAreNotTriedTwice) {
  ScriptedServer server(
      [](const ScriptedRequest&, ScriptedConnection& connection) { connection.Reply(401, ""); });
  auto transport = Connect(ConfigFor(server));
  EXPECT_EQ(SendAndWait(*transport, Get("/a"))->status, 401);
  EXPECT_EQ(server.requests(), 1);
}

TEST(CurlTransport, WithoutCredentialsNothingIsSentUntilTheyCome) {
  ScriptedServer server(
      [](const ScriptedRequest&, ScriptedConnection& connection) { connection.Reply(200, ""); });
  auto credentials = std::make_shared<ChangingCredentials>();
  credentials->error = absl::NotFoundError("no such plugin");
  ClientConfig config = ConfigFor(server);
  config.credentials = credentials;
  CurlTransportOptions options;
  options.refetch_interval = absl::Milliseconds(20);
  auto transport = Connect(config, options);
  const auto answer = SendAndWait(*transport, Get("/a"));
  EXPECT_TRUE(absl::IsUnavailable(answer.status()));
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("no such plugin"));
  EXPECT_EQ(server.requests(), 0);
  {
    std::lock_guard lock(credentials->mutex);
    credentials->error = absl::OkStatus();
  }
  while (!SendAndWait(*transport, Get("/a")).ok()) absl::SleepFor(absl::Milliseconds(5));
}

class Tls : public ::testing::Test {
 protected:
  static absl::StatusOr<Response> GetFrom(const ScriptedServer::Tls& tls, ClientConfig config,
                                          ScriptedRequest* seen = nullptr) {
    ScriptedServer server(
        [seen](const ScriptedRequest& request, ScriptedConnection& connection) {
          if (seen) *seen = request;
          connection.Reply(200, "secret");
        },
        &tls);
    config.server = server.url();
    if (!config.credentials) config.credentials = FixedCredentials({});
    auto transport = Connect(config);
    return SendAndWait(*transport, Get("/api"));
  }

  const TestCertificate authority_ = MakeTestAuthority("muster test authority");
  const TestCertificate other_authority_ = MakeTestAuthority("another authority");
  const TestCertificate by_ip_ = MakeTestCertificate("server", "IP:127.0.0.1", authority_);
  const TestCertificate by_name_ = MakeTestCertificate("server", "DNS:kubernetes", authority_);
};

TEST_F(Tls, VerifiesTheServerAgainstTheGivenAuthority) {
  ClientConfig config;
  config.ca_pem = authority_.certificate_pem;
  const auto good = GetFrom({by_ip_.certificate_pem, by_ip_.key_pem, ""}, config);
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->body, "secret");

  config.ca_pem = other_authority_.certificate_pem;
  const auto foreign = GetFrom({by_ip_.certificate_pem, by_ip_.key_pem, ""}, config);
  EXPECT_TRUE(absl::IsUnavailable(foreign.status())) << foreign.status();

  config.ca_pem = "";
  const auto unknown = GetFrom({by_ip_.certificate_pem, by_ip_.key_pem, ""}, config);
  EXPECT_TRUE(absl::IsUnavailable(unknown.status())) << unknown.status();

  config.ca_pem = authority_.certificate_pem;
  const auto misnamed = GetFrom({by_name_.certificate_pem, by_name_.key_pem, ""}, config);
  EXPECT_TRUE(absl::IsUnavailable(misnamed.status())) << misnamed.status();
}

TEST_F(Tls, VerifiesTheNameThatTheConfigGives) {
  ClientConfig config;
  config.ca_pem = authority_.certificate_pem;
  config.tls_server_name = "kubernetes";
  ScriptedRequest seen;
  const auto good = GetFrom({by_name_.certificate_pem, by_name_.key_pem, ""}, config, &seen);
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_THAT(seen.headers.at("host"), HasSubstr("127.0.0.1:"));
  config.tls_server_name = "elsewhere";
  EXPECT_FALSE(GetFrom({by_name_.certificate_pem, by_name_.key_pem, ""}, config).ok());
}

TEST_F(Tls, InsecureSkipsVerification) {
  ClientConfig config;
  config.insecure = true;
  EXPECT_TRUE(GetFrom({by_name_.certificate_pem, by_name_.key_pem, ""}, config).ok());
}

TEST_F(Tls, ShowsItsClientCertificate) {
  const TestCertificate client = MakeTestCertificate("muster-user", "", authority_);
  ClientConfig config;
  config.ca_pem = authority_.certificate_pem;
  Identity identity;
  identity.certificate_pem = client.certificate_pem;
  identity.key_pem = client.key_pem;
  config.credentials = FixedCredentials(identity);
  ScriptedRequest seen;
  const auto answer =
      GetFrom({by_ip_.certificate_pem, by_ip_.key_pem, authority_.certificate_pem}, config, &seen);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(seen.client_name, "muster-user");
}

TEST(CurlTransport, RejectsWhatIsNotAServerUrl) {
  for (const char* server : {"", "ftp://x", "https://", "https://user@host", "https://h?q=1"}) {
    ClientConfig config;
    config.server = server;
    config.credentials = FixedCredentials({});
    EXPECT_TRUE(absl::IsInvalidArgument(CurlTransport::Create(config).status())) << server;
  }
}

TEST(CurlTransport, KeepsThePathOfTheServerUrl) {
  std::string target;
  ScriptedServer server([&](const ScriptedRequest& request, ScriptedConnection& connection) {
    target = request.target;
    connection.Reply(200, "");
  });
  ClientConfig config = ConfigFor(server);
  config.server += "/clusters/one/";
  auto transport = Connect(config);
  EXPECT_TRUE(SendAndWait(*transport, Get("/api")).ok());
  EXPECT_EQ(target, "/clusters/one/api");
}

}  // namespace
}  // namespace muster::kube
