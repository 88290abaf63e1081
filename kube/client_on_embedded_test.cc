// The client against the embedded API server: over HTTPS with faults, and in virtual time.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>

#include "absl/time/clock.h"
#include "kube/client/curl_transport.h"
#include "kube/client/lease_runner.h"
#include "kube/client/manual_timer.h"
#include "kube/client/retry.h"
#include "kube/client/typed_sink.h"
#include "kube/embedded/api_server.h"
#include "kube/embedded/direct_transport.h"
#include "kube/embedded/faults.h"
#include "kube/embedded/http_front.h"
#include "kube/objects/decode.h"

namespace muster::kube {
namespace {

using embedded::ApiServer;
using embedded::ApiServerOptions;
using embedded::DirectTransport;
using embedded::FaultRule;
using embedded::Faults;
using embedded::HttpFront;
using ::testing::ElementsAre;

constexpr const char* kPodsPath = "/api/v1/namespaces/default/pods";

Request PodCreation(const std::string& name) {
  Request request;
  request.method = Method::kPost;
  request.path = kPodsPath;
  request.content_type = kJson;
  request.body = fmt::format(R"({{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{}"}},)"
                             R"("spec":{{"containers":[{{"name":"c","image":"i"}}]}}}})",
                             name);
  return request;
}

Request PodDeletion(const std::string& name) {
  Request request;
  request.method = Method::kDelete;
  request.path = fmt::format("{}/{}", kPodsPath, name);
  request.content_type = kJson;
  request.body = R"({"gracePeriodSeconds":0})";
  return request;
}

Request PodTouch(const std::string& name, int value) {
  Request request;
  request.method = Method::kPatch;
  request.path = fmt::format("{}/{}", kPodsPath, name);
  request.content_type = kMergePatch;
  request.body = fmt::format(R"({{"metadata":{{"labels":{{"v":"{}"}}}}}})", value);
  return request;
}

using Picture = std::map<std::string, std::string>;  // name -> "uid@version"

std::string Entry(const ObjectHeader& header) {
  return fmt::format("{}@{}", header.uid, header.resource_version);
}

Picture TruthOf(ApiServer& server) {
  Request list;
  list.path = kPodsPath;
  const Response response = server.Handle(list);
  const auto page = DecodeListPage(response.body);
  EXPECT_TRUE(page.ok()) << page.status();
  Picture picture;
  for (const auto& item : page->items) picture[item.header.name] = Entry(item.header);
  return picture;
}

bool Eventually(const std::function<bool()>& condition,
                absl::Duration patience = absl::Minutes(1)) {
  const absl::Time deadline = absl::Now() + patience;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

// Keeps the picture that a reflector paints.
class Canvas : public ReflectorSink {
 public:
  void Upsert(const ObjectHeader& header, std::string_view json) override {
    EXPECT_TRUE(Decode<Pod>(json).ok());
    std::lock_guard lock(mutex_);
    picture_[header.name] = Entry(header);
  }
  void Remove(const ObjectHeader& header) override {
    std::lock_guard lock(mutex_);
    EXPECT_EQ(picture_.erase(header.name), 1u);
  }
  void StateChanged(ReflectorState state, const absl::Status&) override {
    std::lock_guard lock(mutex_);
    states_.push_back(state);
  }
  Picture picture() const {
    std::lock_guard lock(mutex_);
    return picture_;
  }
  std::vector<ReflectorState> states() const {
    std::lock_guard lock(mutex_);
    return states_;
  }

 private:
  mutable std::mutex mutex_;
  Picture picture_;
  std::vector<ReflectorState> states_;
};

class OverHttps : public ::testing::Test {
 protected:
  void SetUp() override {
    embedded::HttpFrontOptions options;
    options.tls = true;
    options.faults = &faults_;
    auto front = HttpFront::Start(&server_, options);
    ASSERT_TRUE(front.ok()) << front.status();
    front_ = *std::move(front);
    ClientConfig config;
    config.server = front_->url();
    config.ca_pem = front_->ca_pem();
    config.credentials = FixedCredentials({});
    auto transport = CurlTransport::Create(config);
    ASSERT_TRUE(transport.ok()) << transport.status();
    transport_ = *std::move(transport);
  }
  ReflectorOptions Options(bool watch_list) const {
    ReflectorOptions options;
    options.path = kPodsPath;
    options.use_watch_list = watch_list;
    options.page_size = 5;
    options.backoff = {absl::Milliseconds(2), absl::Milliseconds(20), 2};
    options.seed = 3;
    return options;
  }
  void Change(std::mt19937_64& random) {
    const std::string name = fmt::format("p{}", random() % 40);
    switch (random() % 4) {
      case 0:
        server_.Handle(PodDeletion(name));
        break;
      case 1:
        server_.Handle(PodTouch(name, static_cast<int>(random() % 1000)));
        break;
      default:
        server_.Handle(PodCreation(name));
    }
  }
  absl::StatusOr<Response> Retried(Request request, RetryPolicy policy) {
    RetryingSender sender(*transport_, timer_);
    std::promise<absl::StatusOr<Response>> promise;
    sender.Send(std::move(request), policy, [&promise](absl::StatusOr<Response> answer) {
      promise.set_value(std::move(answer));
    });
    return promise.get_future().get();
  }

  Faults faults_{11};
  ApiServer server_;
  std::unique_ptr<HttpFront> front_;
  std::unique_ptr<CurlTransport> transport_;
  ThreadTimer timer_;
};

class ReflectorOverHttps : public OverHttps, public ::testing::WithParamInterface<bool> {};

TEST_P(ReflectorOverHttps, SurvivesFaultsOfEveryKind) {
  const bool watch_list = GetParam();
  std::mt19937_64 random(5);
  for (int i = 0; i < 60; ++i) Change(random);
  using Action = FaultRule::Action;
  std::vector<int> rules;
  const auto add = [&](FaultRule::Target target, Action action, double probability, int status = 0,
                       size_t after_items = 0) {
    FaultRule rule;
    rule.target = target;
    rule.action = action;
    rule.probability = probability;
    rule.status = status;
    rule.after_items = after_items;
    rules.push_back(faults_.Add(rule));
  };
  // Some watches end within their first picture, of up to 40 objects, others after it. None is left
  // in peace: it would stay open for minutes.
  add(FaultRule::Target::kWatches, Action::kAnswer, 0.1, 503);
  add(FaultRule::Target::kWatches, Action::kAnswer, 0.1, 429);
  add(FaultRule::Target::kWatches, Action::kAnswer, 0.1, 410);
  add(FaultRule::Target::kWatches, Action::kRefuse, 0.1);
  add(FaultRule::Target::kWatches, Action::kCutStream, 0.2, 0, 7);
  add(FaultRule::Target::kWatches, Action::kCutStream, 0.5, 0, 45);
  add(FaultRule::Target::kWatches, Action::kExpireStream, 1.0, 0, 50);
  if (!watch_list) {
    add(FaultRule::Target::kRequests, Action::kAnswer, 0.1, 500);
    add(FaultRule::Target::kRequests, Action::kDropAnswer, 0.1);
  }
  Canvas canvas;
  Reflector reflector(*transport_, timer_, Options(watch_list), canvas);
  reflector.Start();
  // Goes on until each fault has happened, however long that takes on this machine.
  const auto each_has_struck = [&] {
    return std::all_of(rules.begin(), rules.end(),
                       [&](int rule) { return faults_.Struck(rule) >= 2; });
  };
  const absl::Time patience = absl::Now() + absl::Minutes(1);
  for (int i = 1; !each_has_struck() && absl::Now() < patience; ++i) {
    for (int change = 0; change < 3; ++change) Change(random);
    if (i % 150 == 0) server_.CompactHistory();
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_TRUE(each_has_struck());
  faults_.Clear();
  EXPECT_TRUE(Eventually([&] { return canvas.picture() == TruthOf(server_); }));
  EXPECT_EQ(canvas.picture(), TruthOf(server_));
  EXPECT_GT(reflector.Stats().failures, 10u);
  EXPECT_GT(reflector.Stats().syncs, 1u);
}

INSTANTIATE_TEST_SUITE_P(WatchListOrNot, ReflectorOverHttps, ::testing::Bool());

TEST_F(OverHttps, ALostAnswerIsAskedForAgainOnlyWithAPrecondition) {
  FaultRule drop;
  drop.method = Method::kPost;
  drop.action = FaultRule::Action::kDropAnswer;
  drop.count = 1;
  faults_.Add(drop);
  const auto plain = Retried(PodCreation("plain"), {});
  EXPECT_FALSE(plain.ok());
  EXPECT_TRUE(TruthOf(server_).contains("plain"));

  faults_.Add(drop);
  RetryPolicy guarded;
  guarded.carries_precondition = true;
  const auto again = Retried(PodCreation("guarded"), guarded);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(absl::IsAlreadyExists(ToStatus(*again)));
  EXPECT_TRUE(TruthOf(server_).contains("guarded"));
}

TEST_F(OverHttps, RetriesGetThroughABusyServer) {
  FaultRule busy;
  busy.status = 429;
  busy.count = 3;
  const int rule = faults_.Add(busy);
  const auto answer = Retried(PodCreation("p"), {});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 201);
  EXPECT_EQ(faults_.Struck(rule), 3u);
}

TEST_F(OverHttps, ARequestThatIsNeverAnsweredEndsInTimeAndIsTriedAgain) {
  FaultRule hang;
  hang.action = FaultRule::Action::kDelay;
  hang.delay = absl::Hours(1);
  hang.count = 2;
  const int rule = faults_.Add(hang);
  server_.Handle(PodCreation("p"));
  Request touch = PodTouch("p", 7);
  touch.timeout = absl::Seconds(1);
  RetryPolicy once;
  once.max_attempts = 1;
  const absl::Time start = absl::Now();
  EXPECT_TRUE(absl::IsDeadlineExceeded(Retried(touch, once).status()));
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  const auto answer = Retried(touch, {});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(faults_.Struck(rule), 2u);
}

TEST_F(OverHttps, AReflectorGetsPastWatchesThatAreNeverAnswered) {
  FaultRule hang;
  hang.action = FaultRule::Action::kDelay;
  hang.target = FaultRule::Target::kWatches;
  hang.delay = absl::Hours(1);
  hang.count = 3;
  const int rule = faults_.Add(hang);
  server_.Handle(PodCreation("p"));
  Canvas canvas;
  ReflectorOptions options = Options(/*watch_list=*/true);
  options.stale_after = absl::Milliseconds(200);
  options.watch_list_patience = absl::Milliseconds(300);
  options.longest_silence = absl::Milliseconds(300);
  Reflector reflector(*transport_, timer_, options, canvas);
  reflector.Start();
  ASSERT_TRUE(Eventually([&] { return canvas.picture().size() == 1; }));
  server_.Handle(PodCreation("q"));
  EXPECT_TRUE(Eventually([&] { return canvas.picture().size() == 2; }));
  EXPECT_EQ(faults_.Struck(rule), 3u);
}

TEST_F(OverHttps, AManyfoldBurstIsAnsweredInFull) {
  constexpr int kPods = 500;
  std::atomic<int> created = 0;
  std::atomic<int> left = kPods;
  std::promise<void> all;
  for (int i = 0; i < kPods; ++i) {
    transport_->Send(PodCreation(fmt::format("b{}", i)), [&](absl::StatusOr<Response> answer) {
      if (answer.ok() && answer->status == 201) ++created;
      if (--left == 0) all.set_value();
    });
  }
  all.get_future().wait();
  EXPECT_EQ(created, kPods);
  EXPECT_EQ(TruthOf(server_).size(), static_cast<size_t>(kPods));
}

// Nobody listens for a while, and what happened meanwhile can't be watched any more.
TEST(Restart, APictureAndAWriteSurviveIt) {
  ApiServer server;
  embedded::HttpFrontOptions front_options;
  auto front = HttpFront::Start(&server, front_options);
  ASSERT_TRUE(front.ok()) << front.status();
  front_options.port = (*front)->port();
  ClientConfig config;
  config.server = (*front)->url();
  config.credentials = FixedCredentials({});
  const auto transport = CurlTransport::Create(config);
  ASSERT_TRUE(transport.ok()) << transport.status();
  ThreadTimer timer;
  server.Handle(PodCreation("kept"));
  server.Handle(PodCreation("deleted"));
  Canvas canvas;
  ReflectorOptions options;
  options.path = kPodsPath;
  options.stale_after = absl::Milliseconds(100);
  options.backoff = {absl::Milliseconds(10), absl::Milliseconds(100), 2};
  Reflector reflector(**transport, timer, options, canvas);
  reflector.Start();
  ASSERT_TRUE(Eventually([&] { return canvas.picture().size() == 2; }));

  front->reset();
  RetryingSender sender(**transport, timer);
  RetryPolicy policy;
  policy.max_attempts = 1000;
  policy.budget = absl::Minutes(1);
  policy.backoff = {absl::Milliseconds(10), absl::Milliseconds(100), 2};
  std::promise<absl::StatusOr<Response>> written;
  sender.Send(PodCreation("written"), policy,
              [&](absl::StatusOr<Response> answer) { written.set_value(std::move(answer)); });
  EXPECT_TRUE(Eventually(
      [&] { return sender.retries() > 0 && canvas.states().back() == ReflectorState::kStale; }));
  server.Handle(PodDeletion("deleted"));
  server.Handle(PodCreation("new"));
  server.CompactHistory();

  front = HttpFront::Start(&server, front_options);
  ASSERT_TRUE(front.ok()) << front.status();
  const auto answer = written.get_future().get();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 201);
  EXPECT_TRUE(Eventually([&] { return canvas.picture() == TruthOf(server); }));
  EXPECT_TRUE(canvas.picture().contains("new") && canvas.picture().contains("written"));
  EXPECT_TRUE(Eventually([&] { return canvas.states().back() == ReflectorState::kSynced; }));
  EXPECT_GE(reflector.Stats().syncs, 2u);
}

TEST(InVirtualTime, AReflectorFollowsADefinitionThatComesAndGoes) {
  ManualTimer timer(absl::FromUnixSeconds(1'700'000'000));
  ApiServer server(ApiServerOptions{.clock = [&timer] { return timer.Now(); }});
  DirectTransport transport(&server, nullptr);
  const auto pass = [&](absl::Duration time) {
    const absl::Time until = timer.Now() + time;
    transport.Pump();
    while (timer.Now() < until) {
      timer.Advance(absl::Milliseconds(100));
      transport.Pump();
    }
  };
  Canvas canvas;
  ReflectorOptions options;
  options.path = "/apis/example.com/v1/things";
  options.may_be_absent = true;
  options.seed = 1;
  Reflector reflector(transport, timer, options, canvas);
  reflector.Start();
  pass(absl::Seconds(1));
  EXPECT_THAT(canvas.states(), ElementsAre(ReflectorState::kSyncing, ReflectorState::kAbsent));

  Request definition;
  definition.method = Method::kPost;
  definition.path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
  definition.content_type = kJson;
  definition.body = R"({"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
    "metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
    "names":{"kind":"Thing","plural":"things"},"versions":[{"name":"v1","served":true,
    "storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}})";
  ASSERT_EQ(server.Handle(definition).status, 201);
  Request thing;
  thing.method = Method::kPost;
  thing.path = "/apis/example.com/v1/namespaces/default/things";
  thing.content_type = kJson;
  thing.body = R"({"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"t"}})";
  ASSERT_EQ(server.Handle(thing).status, 201);
  pass(absl::Seconds(11));
  EXPECT_EQ(canvas.states().back(), ReflectorState::kSynced);
  EXPECT_EQ(canvas.picture().size(), 1u);

  definition.method = Method::kDelete;
  definition.path += "/things.example.com";
  definition.body.clear();
  definition.content_type.clear();
  ASSERT_EQ(server.Handle(definition).status, 200);
  pass(absl::Minutes(12));
  EXPECT_EQ(canvas.states().back(), ReflectorState::kAbsent);
  EXPECT_TRUE(canvas.picture().empty());
}

TEST(InVirtualTime, AReflectorReadsTheVersionThatTheServerHas) {
  ManualTimer timer(absl::FromUnixSeconds(1'700'000'000));
  for (const std::string served : {"v1beta1", "v1beta2"}) {
    ApiServer server(ApiServerOptions{.clock = [&timer] { return timer.Now(); }});
    DirectTransport transport(&server, nullptr);
    const auto post = [&server](const std::string& path, const std::string& body) {
      Request request;
      request.method = Method::kPost;
      request.path = path;
      request.content_type = kJson;
      request.body = body;
      return server.Handle(request).status;
    };
    ASSERT_EQ(post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                   fmt::format(
                       R"({{"apiVersion":"apiextensions.k8s.io/v1",)"
                       R"("kind":"CustomResourceDefinition",)"
                       R"("metadata":{{"name":"things.example.com"}},"spec":{{)"
                       R"("group":"example.com","scope":"Cluster",)"
                       R"("names":{{"kind":"Thing","plural":"things"}},"versions":[{{"name":"{}",)"
                       R"("served":true,"storage":true,)"
                       R"("schema":{{"openAPIV3Schema":{{"type":"object"}}}}}}]}}}})",
                       served)),
              201);
    const std::string path = fmt::format("/apis/example.com/{}/things", served);
    ASSERT_EQ(post(path, fmt::format(R"({{"apiVersion":"example.com/{}","kind":"Thing",)"
                                     R"("metadata":{{"name":"t"}}}})",
                                     served)),
              201);

    Canvas canvas;
    ReflectorOptions options;
    options.path = "/apis/example.com/v1beta1/things";
    options.alternative_path = "/apis/example.com/v1beta2/things";
    options.may_be_absent = true;
    Reflector reflector(transport, timer, options, canvas);
    reflector.Start();
    for (int i = 0; i < 10; ++i) transport.Pump();
    EXPECT_THAT(canvas.states(), ElementsAre(ReflectorState::kSyncing, ReflectorState::kSynced));
    EXPECT_EQ(canvas.picture().size(), 1u);
    EXPECT_EQ(reflector.Stats().path, path);
  }
}

// Several candidates for one Lease, each behind a network of its own that fails in every way.
class LeaseContention : public ::testing::TestWithParam<uint64_t> {};

TEST_P(LeaseContention, NeverHasTwoLeadersAndAlmostAlwaysOne) {
  std::mt19937_64 random(GetParam());
  ManualTimer timer(absl::FromUnixSeconds(1'700'000'000));
  ApiServer server(ApiServerOptions{.clock = [&timer] { return timer.Now(); }});
  struct Candidate {
    std::unique_ptr<Faults> faults;
    std::unique_ptr<DirectTransport> transport;
    std::unique_ptr<LeaseRunner> runner;
  };
  int started = 0;
  const auto start = [&](Candidate& candidate) {
    candidate.runner.reset();
    candidate.transport.reset();
    candidate.faults = std::make_unique<Faults>(random());
    candidate.transport = std::make_unique<DirectTransport>(&server, candidate.faults.get());
    LeaseOptions options;
    options.name_space = "default";
    options.name = "lock";
    options.identity = fmt::format("c{}", ++started);
    candidate.runner =
        std::make_unique<LeaseRunner>(*candidate.transport, timer, options, [](bool) {}, random());
  };
  std::vector<Candidate> candidates(3);
  for (Candidate& candidate : candidates) start(candidate);

  int led = 0;
  constexpr int kSteps = 12'000;  // 20 minutes
  std::set<std::string> leaders;
  for (int step = 0; step < kSteps; ++step) {
    if (random() % 200 == 0) {
      FaultRule rule;
      rule.action = static_cast<FaultRule::Action>(random() % 4);
      rule.status = random() % 2 == 0 ? 500 : 429;
      rule.delay = absl::Seconds(random() % 20);
      rule.count = 1 + random() % 8;
      candidates[random() % candidates.size()].faults->Add(rule);
    }
    if (random() % 1000 == 0) start(candidates[random() % candidates.size()]);  // crash
    if (random() % 1000 == 0) candidates[random() % candidates.size()].runner->Stop();
    if (random() % 100 == 0) {
      for (Candidate& candidate : candidates) {
        if (candidate.runner->AwaitStopped(absl::ZeroDuration())) start(candidate);
      }
    }
    for (Candidate& candidate : candidates) candidate.transport->Pump();
    int leading = 0;
    for (const Candidate& candidate : candidates) {
      if (!candidate.runner->IsLeader()) continue;
      ++leading;
      leaders.insert(candidate.runner->Status().holder);
    }
    ASSERT_LE(leading, 1) << "at step " << step;
    led += leading;
    timer.Advance(absl::Milliseconds(100));
  }
  EXPECT_GT(led, kSteps / 2);
  EXPECT_GT(leaders.size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, LeaseContention, ::testing::Range<uint64_t>(1, 13));

}  // namespace
}  // namespace muster::kube
