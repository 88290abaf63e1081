#include "kube/embedded/direct_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kube/embedded/test_client.h"

namespace muster::kube::embedded {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Request Create(const std::string& name) {
  return {Method::kPost, kPods, {}, std::string(kJson), MakePod(name).dump()};
}

Request WatchPods() {
  Request request;
  request.path = kPods;
  request.query = {{"watch", "1"}};
  return request;
}

// A server, a transport onto it, and a log of what came back.
struct Rig {
  void Make(DirectTransportOptions options = {}) {
    transport = std::make_unique<DirectTransport>(&server.server(), &faults, options);
  }
  Transport::Done Log(const std::string& name) {
    return [this, name](absl::StatusOr<Response> answer) {
      log.push_back(name + " " +
                    (answer.ok() ? std::to_string(answer->status)
                                 : absl::StatusCodeToString(answer.status().code())));
    };
  }
  std::unique_ptr<Stream> Watch() {
    return transport->Watch(
        WatchPods(),
        [this](std::string_view line) {
          TestJson event = TestJson::parse(line);
          log.push_back(event["type"].get<std::string>() + " " +
                        event["object"]["metadata"].value("name", ""));
        },
        Log("end"));
  }
  std::vector<std::string> TakeLog() { return std::exchange(log, {}); }

  TestServer server;
  Faults faults;
  std::unique_ptr<DirectTransport> transport;
  std::vector<std::string> log;
};

class DirectTransportTest : public ::testing::Test, protected Rig {};

TEST_F(DirectTransportTest, NothingHappensBeforePump) {
  Make();
  auto stream = Watch();
  transport->Send(Create("a"), Log("create a"));
  EXPECT_THAT(log, IsEmpty());
  EXPECT_EQ(server.Get(std::string(kPods) + "/a").status, 404);
  EXPECT_EQ(transport->NextDue(), server.now());
  transport->Pump();
  EXPECT_THAT(TakeLog(), ElementsAre("create a 201", "ADDED a"));
  EXPECT_EQ(transport->Pump(), 0u);
}

TEST_F(DirectTransportTest, CallbacksMayAskForMore) {
  Make();
  std::unique_ptr<Stream> stream;
  transport->Send(Create("a"), [&](absl::StatusOr<Response>) {
    log.emplace_back("a");
    transport->Send(Create("b"), Log("b"));
    stream = Watch();
  });
  transport->Pump();
  EXPECT_THAT(TakeLog(), ElementsAre("a", "b 201", "ADDED a", "ADDED b"));
}

TEST_F(DirectTransportTest, AStreamThatIsGoneStaysSilent) {
  Make();
  auto stream = Watch();
  transport->Send(Create("a"), Log("a"));
  transport->Send(Create("b"), Log("b"));
  while (log.empty() || log.back() != "ADDED a") ASSERT_TRUE(transport->PumpOne());
  stream.reset();
  transport->Pump();
  EXPECT_THAT(log, ::testing::Not(::testing::Contains("ADDED b")));
  EXPECT_THAT(log, ::testing::Not(::testing::Contains(HasSubstr("end"))));
}

TEST_F(DirectTransportTest, AStreamMayGoFromItsOwnCallback) {
  Make();
  std::unique_ptr<Stream> stream;
  stream = transport->Watch(WatchPods(), [&](std::string_view) { stream.reset(); }, Log("end"));
  transport->Send(Create("a"), Log("a"));
  transport->Send(Create("b"), Log("b"));
  transport->Pump();
  EXPECT_THAT(TakeLog(), ElementsAre("a 201", "b 201"));
}

TEST_F(DirectTransportTest, TimePasses) {
  Make();
  Request watch = WatchPods();
  watch.query.emplace_back("timeoutSeconds", "90");
  watch.query.emplace_back("allowWatchBookmarks", "true");
  auto stream = transport->Watch(
      watch,
      [this](std::string_view line) {
        log.push_back(TestJson::parse(line)["type"].get<std::string>());
      },
      Log("end"));
  transport->Pump();
  EXPECT_EQ(transport->NextDue(), server.now() + absl::Seconds(60));
  server.Advance(absl::Seconds(60));
  transport->Pump();
  EXPECT_THAT(TakeLog(), ElementsAre("BOOKMARK"));
  server.Advance(absl::Seconds(30));
  transport->Pump();
  EXPECT_THAT(TakeLog(), ElementsAre("end 200"));
  EXPECT_EQ(transport->NextDue(), absl::InfiniteFuture());
}

TEST_F(DirectTransportTest, ARefusedWatchEndsWithTheAnswer) {
  Make();
  Request watch = WatchPods();
  watch.query.emplace_back("resourceVersion", "99999");
  auto stream = transport->Watch(watch, [](std::string_view) {}, Log("end"));
  transport->Pump();
  EXPECT_THAT(TakeLog(), ElementsAre("end 504"));
}

TEST_F(DirectTransportTest, ItsEndDropsWhatWaits) {
  Make();
  auto stream = Watch();
  transport->Pump();
  transport->Send(Create("a"), Log("a"));
  ASSERT_TRUE(transport->PumpOne());
  transport->Send(Create("b"), Log("b"));
  transport.reset();
  EXPECT_THAT(TakeLog(), ElementsAre("a 201"));
  EXPECT_EQ(server.Get(std::string(kPods) + "/a").status, 200);
  EXPECT_EQ(server.Get(std::string(kPods) + "/b").status, 404);
  server.Post(kPods, MakePod("c"));
  stream.reset();
}

TEST_F(DirectTransportTest, TheQueueIsBounded) {
  DirectTransportOptions options;
  options.max_queued = 2;
  Make(options);
  for (const char* name : {"a", "b", "c"}) transport->Send(Create(name), Log(name));
  EXPECT_THAT(TakeLog(), ElementsAre("c RESOURCE_EXHAUSTED"));
  transport->Pump();
  EXPECT_THAT(TakeLog(), ElementsAre("a 201", "b 201"));
}

TEST_F(DirectTransportTest, ShufflingReordersAndSeedsRepeat) {
  auto run = [](uint64_t seed) {
    Rig rig;
    DirectTransportOptions options;
    options.shuffle_seed = seed;
    rig.Make(options);
    auto stream = rig.Watch();
    for (const char* name : {"a", "b", "c", "d"}) {
      rig.transport->Send(Create(name), rig.Log(name));
    }
    rig.transport->Pump();
    EXPECT_EQ(rig.log.size(), 8u);
    return rig.log;
  };
  EXPECT_EQ(run(7), run(7));
  std::set<std::vector<std::string>> different;
  for (uint64_t seed = 0; seed < 10; ++seed) different.insert(run(seed));
  EXPECT_GT(different.size(), 5u);
}

TEST_F(DirectTransportTest, Faults) {
  Make();
  FaultRule rule;
  rule.path = "*/pods*";
  rule.count = 1;
  rule.status = 409;
  faults.Add(rule);
  rule.action = FaultRule::Action::kRefuse;
  faults.Add(rule);
  rule.action = FaultRule::Action::kDropAnswer;
  faults.Add(rule);
  for (const char* name : {"a", "b", "c", "d"}) transport->Send(Create(name), Log(name));
  transport->Pump();
  EXPECT_THAT(TakeLog(), ElementsAre("a 409", "b UNAVAILABLE", "c UNAVAILABLE", "d 201"));
  EXPECT_EQ(server.Get(std::string(kPods) + "/a").status, 404);
  EXPECT_EQ(server.Get(std::string(kPods) + "/b").status, 404);
  EXPECT_EQ(server.Get(std::string(kPods) + "/c").status, 200) << "took effect unseen";
}

TEST_F(DirectTransportTest, DelaysFollowTheClock) {
  Make();
  FaultRule rule;
  rule.action = FaultRule::Action::kDelay;
  rule.delay = absl::Seconds(5);
  rule.count = 1;
  faults.Add(rule);
  transport->Send(Create("slow"), Log("slow"));
  transport->Send(Create("fast"), Log("fast"));
  transport->Pump();
  EXPECT_THAT(TakeLog(), ElementsAre("fast 201"));
  EXPECT_EQ(transport->NextDue(), server.now() + absl::Seconds(5));
  server.Advance(absl::Seconds(5));
  transport->Pump();
  EXPECT_THAT(TakeLog(), ElementsAre("slow 201"));

  rule.delay = absl::Minutes(5);
  faults.Add(rule);
  transport->Send(Create("lost"), Log("lost"));
  transport->Pump();
  EXPECT_EQ(transport->NextDue(), server.now() + absl::Seconds(30)) << "the request's timeout";
  server.Advance(absl::Seconds(30));
  transport->Pump();
  EXPECT_THAT(TakeLog(), ElementsAre("lost DEADLINE_EXCEEDED"));
}

TEST_F(DirectTransportTest, FaultsOfStreams) {
  Make();
  for (const char* name : {"a", "b"}) server.Post(kPods, MakePod(name));
  FaultRule rule;
  rule.target = FaultRule::Target::kWatches;
  rule.count = 1;
  rule.action = FaultRule::Action::kCutStream;
  rule.after_items = 1;
  faults.Add(rule);
  rule.action = FaultRule::Action::kExpireStream;
  faults.Add(rule);
  rule.action = FaultRule::Action::kAnswer;
  rule.status = 410;
  faults.Add(rule);
  auto cut = Watch();
  transport->Pump();
  EXPECT_THAT(TakeLog(), ElementsAre("ADDED a", "end 200"));
  auto expired = Watch();
  transport->Pump();
  EXPECT_THAT(TakeLog(), ElementsAre("ADDED a", "ERROR ", "end 200"));
  auto refused = Watch();
  transport->Pump();
  EXPECT_THAT(TakeLog(), ElementsAre("end 410"));
  auto whole = Watch();
  transport->Pump();
  EXPECT_THAT(TakeLog(), ElementsAre("ADDED a", "ADDED b"));
}

TEST(FaultsTest, CountsSkipsAndDraws) {
  Request request;
  request.path = "/api/v1/nodes";
  Faults faults(3);
  FaultRule rule;
  rule.skip = 1;
  rule.count = 2;
  int number = faults.Add(rule);
  std::string struck;
  for (int i = 0; i < 5; ++i) struck += faults.Decide(request, false).answer ? 'x' : '.';
  EXPECT_EQ(struck, ".xx..");
  EXPECT_EQ(faults.Struck(number), 2u);
  faults.Remove(number);
  rule = FaultRule();
  rule.probability = 0.5;
  rule.method = Method::kGet;
  number = faults.Add(rule);
  for (int i = 0; i < 1000; ++i) faults.Decide(request, false);
  EXPECT_NEAR(static_cast<double>(faults.Struck(number)), 500, 80);
  request.method = Method::kPost;
  EXPECT_FALSE(faults.Decide(request, false).answer);
  faults.Clear();
  EXPECT_EQ(faults.Struck(number), 0u);
}

TEST(FaultsTest, Patterns) {
  EXPECT_TRUE(MatchesPattern("*", ""));
  EXPECT_TRUE(MatchesPattern("/api/*/pods", "/api/v1/namespaces/x/pods"));
  EXPECT_FALSE(MatchesPattern("/api/*/pods", "/api/v1/pods/a"));
  EXPECT_TRUE(MatchesPattern("*/pods/*/binding", "/api/v1/namespaces/x/pods/a/binding"));
  EXPECT_FALSE(MatchesPattern("/api", "/api/v1"));
  EXPECT_TRUE(MatchesPattern("a*b*c", "aXbXbXc"));
}

}  // namespace
}  // namespace muster::kube::embedded
