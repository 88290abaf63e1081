#include "extender/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cluster/snapshot.h"
#include "coscheduling/engine.h"
#include "fmt/format.h"
#include "kube/client/fake_transport.h"
#include "kube/client/manual_timer.h"

namespace muster::extender {
namespace {

using coscheduling::NumberedAction;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const coscheduling::ObjectRef kPod = {"team", "job-0", "uid-0", "42"};
constexpr size_t kMaxInFlight = 16;
// Of these: what gate lifts and signals may take, the rest, and what reports.
constexpr size_t kLifts = 14;
constexpr size_t kRest = 8;
constexpr size_t kReports = 2;

std::string PodJson(const std::string& uid, const std::string& version) {
  return json{
      {"apiVersion", "v1"},
      {"kind", "Pod"},
      {"metadata",
       {{"name", "job-0"}, {"namespace", "team"}, {"uid", uid}, {"resourceVersion", version}}},
      {"spec", {{"schedulerName", "coscheduling"}, {"containers", json::array()}}}}
      .dump();
}

class ExecutorTest : public ::testing::Test {
 protected:
  ExecutorTest() {
    engine_.SetSynced();
    Make({.least = kMaxInFlight, .first = kMaxInFlight, .most = kMaxInFlight});
  }
  void Make(const kube::ConcurrencyOptions& concurrency) {
    executor_ = std::make_unique<Executor>(
        transport_, timer_, concurrency,
        [this](EngineTask task) { tasks_.push_back(std::move(task)); },
        [this](std::string_view kind, const absl::Status& status, absl::Duration) {
          outcomes_.push_back(std::string(kind) + " " + absl::StatusCodeToString(status.code()));
        });
  }

  std::vector<std::string> Paths() const {
    std::vector<std::string> paths;
    for (const auto& sent : transport_.sent) paths.push_back(sent->request.path);
    return paths;
  }
  // Runs what was posted, as the engine's thread would.
  size_t RunTasks() {
    std::vector<EngineTask> tasks = std::exchange(tasks_, {});
    for (EngineTask& task : tasks) task(engine_, timer_.Now());
    return tasks.size();
  }
  const kube::Pod* Seen(const std::string& uid) { return engine_.snapshot().FindPod(uid); }

  kube::FakeTransport transport_;
  kube::ManualTimer timer_{absl::FromUnixSeconds(1'700'000'000)};
  coscheduling::Engine engine_{coscheduling::EngineOptions{}};
  std::vector<EngineTask> tasks_;
  std::vector<std::string> outcomes_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(ExecutorTest, BindingsGoFirstThenGatesAndReportsLast) {
  coscheduling::UpdatePodGroupStatus status;
  status.group.name_space = "team";
  status.group.name = "job";
  executor_->CarryOut({{1, status},
                       {2, coscheduling::SignalPod{kPod, "Unschedulable", "waits"}},
                       {3, coscheduling::LiftGate{kPod}},
                       {4, coscheduling::BindPod{kPod, "n1"}}});
  EXPECT_THAT(Paths(), ElementsAre("/api/v1/namespaces/team/pods/job-0/binding",
                                   "/api/v1/namespaces/team/pods/job-0",
                                   "/api/v1/namespaces/team/pods/job-0/status",
                                   HasSubstr("/podgroups/job/status")));
}

std::vector<NumberedAction> GateLifts(size_t count) {
  std::vector<NumberedAction> lifts;
  for (size_t i = 0; i < count; ++i) {
    lifts.push_back(
        {100 + i, coscheduling::LiftGate{{"team", fmt::format("gated-{}", i), "", ""}}});
  }
  return lifts;
}

coscheduling::UpdatePodGroupStatus StatusOf(const std::string& gang) {
  coscheduling::UpdatePodGroupStatus status;
  status.group.name_space = "team";
  status.group.name = gang;
  return status;
}

TEST_F(ExecutorTest, MoreThanMayBeUnderWayWaitsForAPlace) {
  executor_->CarryOut(GateLifts(kLifts + 2));
  EXPECT_EQ(transport_.sent.size(), kLifts);
  transport_.sent[3]->Answer(200, PodJson("uid-0", "43"));
  EXPECT_EQ(transport_.sent.size(), kLifts + 1);
  // One that failed keeps its place until its object has been read.
  transport_.sent[0]->Answer(409);
  ASSERT_EQ(transport_.sent.size(), kLifts + 2);
  EXPECT_EQ(transport_.sent.back()->request.method, kube::Method::kGet);
  transport_.sent.back()->Answer(200, PodJson("uid-0", "44"));
  ASSERT_EQ(transport_.sent.size(), kLifts + 3);
  EXPECT_THAT(Paths().back(), HasSubstr("gated-15"));
}

TEST_F(ExecutorTest, ReportsAndOtherWritesThatAreSlowHoldUpNoBinding) {
  std::vector<NumberedAction> slow;
  for (uint64_t i = 0; i < 100; ++i) slow.push_back({i, StatusOf(fmt::format("job-{}", i))});
  executor_->CarryOut(std::move(slow));
  EXPECT_EQ(transport_.sent.size(), kReports);
  for (uint64_t i = 0; i < 100; ++i) {
    coscheduling::AnnotatePod wake;
    wake.pod = kPod;
    executor_->CarryOut({{100 + i, wake}});
  }
  EXPECT_EQ(transport_.sent.size(), kRest);
  executor_->CarryOut(GateLifts(100));
  EXPECT_EQ(transport_.sent.size(), kLifts);
  executor_->CarryOut(
      {{1, coscheduling::BindPod{kPod, "n1"}}, {2, coscheduling::BindPod{kPod, "n1"}}});
  EXPECT_EQ(transport_.sent.size(), kMaxInFlight);
  EXPECT_THAT(Paths().back(), HasSubstr("/job-0/binding"));
}

TEST_F(ExecutorTest, APauseBeforeAnotherAttemptTakesNoPlace) {
  executor_->CarryOut(GateLifts(kLifts + 5));
  ASSERT_EQ(transport_.sent.size(), kLifts);
  for (size_t i = 0; i < kLifts; ++i) {
    transport_.sent[i]->Answer(kube::Response{429, "", absl::Seconds(2)});
  }
  EXPECT_EQ(transport_.sent.size(), kLifts + 5);
  EXPECT_EQ(executor_->stats().in_flight, 5u);
  EXPECT_EQ(executor_->stats().pausing, kLifts);
  // They go first when their pause is over, as far as there is room.
  timer_.Advance(absl::Seconds(3));
  EXPECT_EQ(transport_.sent.size(), 2 * kLifts);
  EXPECT_EQ(executor_->stats().waiting, 5u);
}

TEST_F(ExecutorTest, WhoseTimeIsUpWhenItGetsAPlaceEndsWithTheAnswerItHas) {
  executor_->CarryOut(GateLifts(kLifts + 1));
  transport_.sent[0]->Answer(kube::Response{429, R"({"message":"too busy"})", absl::Seconds(1)});
  timer_.Advance(absl::Seconds(60));  // its place is another's, and nobody gives one up
  EXPECT_EQ(executor_->stats().waiting, 1u);
  transport_.sent[1]->Answer(200, PodJson("uid-0", "43"));
  timer_.Advance(absl::Milliseconds(1));
  EXPECT_THAT(outcomes_, ElementsAre("gate-lift OK", "gate-lift RESOURCE_EXHAUSTED"));
  EXPECT_EQ(transport_.sent.back()->request.method, kube::Method::kGet) << "its object is read";
}

TEST_F(ExecutorTest, WhatAFenceHoldsBackIsNotReadBack) {
  executor_->CarryOut(GateLifts(kLifts + 1));
  transport_.sent[0]->Answer(absl::FailedPreconditionError("not sent: this process doesn't lead"));
  EXPECT_EQ(RunTasks(), 1u);
  EXPECT_THAT(outcomes_, ElementsAre("gate-lift FAILED_PRECONDITION"));
  EXPECT_NE(transport_.sent.back()->request.method, kube::Method::kGet);
}

TEST_F(ExecutorTest, WhoWaitsForAPlaceHasAllItsTimeOnceItIsSent) {
  executor_->CarryOut(GateLifts(kLifts + 1));
  const absl::Duration whole = transport_.sent[0]->request.timeout;
  timer_.Advance(absl::Minutes(1));
  transport_.sent[0]->Answer(200, PodJson("uid-0", "43"));
  ASSERT_EQ(transport_.sent.size(), kLifts + 1);
  EXPECT_EQ(transport_.sent.back()->request.timeout, whole);
}

TEST_F(ExecutorTest, BindingsAndThenRecordsOvertakeWhatWaits) {
  executor_->CarryOut(GateLifts(kLifts + 1));
  coscheduling::WriteRecord record;
  record.group.name_space = "team";
  record.group.name = "job";
  for (int i = 0; i < 2; ++i) executor_->CarryOut({{9, coscheduling::BindPod{kPod, "n1"}}});
  executor_->CarryOut({{1, StatusOf("job")}, {2, record}});
  executor_->CarryOut({{3, coscheduling::BindPod{kPod, "n1"}}});
  const size_t before = transport_.sent.size();
  ASSERT_EQ(before, kMaxInFlight);
  for (size_t i = 0; i < 6; ++i) transport_.sent[i]->Answer(200, PodJson("uid-0", "43"));
  std::vector<std::string> paths = Paths();
  paths.erase(paths.begin(), paths.begin() + static_cast<std::ptrdiff_t>(before));
  EXPECT_THAT(paths, ElementsAre(HasSubstr("/job-0/binding"), HasSubstr("/podgroups/job"),
                                 HasSubstr("gated-14"), HasSubstr("/podgroups/job/status")));
}

// A gang's record waits for the write of its status.
// What hundreds wait for is written beside it, but nobody's job waits for that.
TEST_F(ExecutorTest, AJobIsResumedBeforeWorkloadsSayWhatTheyWaitFor) {
  std::vector<NumberedAction> waiting;
  for (uint64_t i = 0; i < 100; ++i) {
    waiting.push_back(
        {i, coscheduling::ApplyWorkloadStatus{{"team", fmt::format("w-{}", i), "u", "1"}, {}, {}}});
  }
  executor_->CarryOut(std::move(waiting));
  const size_t before = transport_.sent.size();
  ASSERT_LT(before, 100u);
  executor_->CarryOut(
      {{100, coscheduling::SuspendJob{"batch/v1", "Job", {"team", "job", "j-1", "7"}, false, {}}}});
  ASSERT_EQ(transport_.sent.size(), before + 1);
  EXPECT_THAT(Paths().back(), HasSubstr("/jobs/job"));
}

TEST_F(ExecutorTest, NamespacesTakeTurns) {
  std::vector<NumberedAction> many;
  for (uint64_t i = 0; i < 100; ++i) many.push_back({i, StatusOf(fmt::format("job-{}", i))});
  executor_->CarryOut(std::move(many));
  coscheduling::UpdatePodGroupStatus others = StatusOf("first");
  others.group.name_space = "others";
  executor_->CarryOut({{100, others}});
  others.group.name = "second";
  executor_->CarryOut({{101, others}});
  ASSERT_EQ(transport_.sent.size(), kReports);
  for (size_t i = 0; i < 4; ++i) transport_.sent[i]->Answer(200, "{}");
  std::vector<std::string> paths = Paths();
  paths.erase(paths.begin(), paths.begin() + kReports);
  EXPECT_THAT(paths, ElementsAre(HasSubstr("/others/podgroups/first/"), HasSubstr("/team/"),
                                 HasSubstr("/others/podgroups/second/"), HasSubstr("/team/")));
}

TEST_F(ExecutorTest, BindingsGoInTheOrderInWhichTheyWereAskedFor) {
  std::vector<NumberedAction> bindings;
  for (uint64_t i = 0; i < kMaxInFlight; ++i) {
    bindings.push_back({i, coscheduling::BindPod{kPod, "n1"}});
  }
  executor_->CarryOut(std::move(bindings));
  for (const char* name_space : {"b", "b", "a"}) {
    executor_->CarryOut({{99, coscheduling::BindPod{{name_space, "p", "", ""}, "n1"}}});
  }
  for (size_t i = 0; i < 3; ++i) transport_.sent[i]->Answer(200, "{}");
  std::vector<std::string> paths = Paths();
  paths.erase(paths.begin(), paths.begin() + kMaxInFlight);
  EXPECT_THAT(paths, ElementsAre(HasSubstr("/b/"), HasSubstr("/b/"), HasSubstr("/a/")));
}

TEST_F(ExecutorTest, EachThirtySecondPlaceIsForWhatReports) {
  executor_->CarryOut(GateLifts(60));
  executor_->CarryOut({{1, StatusOf("job")}});
  size_t next = 0;
  while (transport_.sent.size() < 31) transport_.sent[next++]->Answer(200, PodJson("uid-0", "43"));
  EXPECT_THAT(Paths().back(), HasSubstr("gated-30"));
  transport_.sent[next++]->Answer(200, PodJson("uid-0", "43"));
  EXPECT_THAT(Paths().back(), HasSubstr("job/status"));
  transport_.sent[next]->Answer(200, PodJson("uid-0", "43"));
  EXPECT_THAT(Paths().back(), HasSubstr("gated-31"));
}

TEST_F(ExecutorTest, AnswersAndEventsAreNotRequests) {
  executor_->CarryOut({{1, coscheduling::AnswerBind{7, ""}}, {2, coscheduling::EmitEvent{}}});
  EXPECT_TRUE(transport_.sent.empty());
}

TEST_F(ExecutorTest, WhatAWriteReturnsIsSeenByTheEngine) {
  executor_->CarryOut({{1, coscheduling::LiftGate{kPod}}});
  ASSERT_EQ(transport_.sent.size(), 1u);
  transport_.sent[0]->Answer(200, PodJson("uid-0", "43"));
  EXPECT_EQ(RunTasks(), 1u);
  ASSERT_NE(Seen("uid-0"), nullptr);
  EXPECT_EQ(Seen("uid-0")->meta.resource_version, "43");
  EXPECT_THAT(outcomes_, ElementsAre("gate-lift OK"));
}

TEST_F(ExecutorTest, AfterAConflictTheObjectIsReadBeforeTheOutcomeIsTold) {
  executor_->CarryOut({{1, coscheduling::BindPod{kPod, "n1"}}});
  transport_.sent[0]->Answer(409, R"({"kind":"Status","reason":"Conflict","message":"too late"})");
  EXPECT_EQ(RunTasks(), 0u);
  ASSERT_EQ(transport_.sent.size(), 2u);
  EXPECT_EQ(transport_.sent[1]->request.method, kube::Method::kGet);
  EXPECT_EQ(transport_.sent[1]->request.path, "/api/v1/namespaces/team/pods/job-0");
  // Another pod of the same name has taken its place.
  transport_.sent[1]->Answer(200, PodJson("uid-1", "50"));
  EXPECT_EQ(RunTasks(), 1u);
  EXPECT_NE(Seen("uid-1"), nullptr);
  EXPECT_THAT(outcomes_, ElementsAre("binding ABORTED"));
}

TEST_F(ExecutorTest, AFailureIsToldAlsoIfTheObjectIsGone) {
  executor_->CarryOut({{1, coscheduling::LiftGate{kPod}}});
  transport_.sent[0]->Answer(404, R"({"kind":"Status","reason":"NotFound","message":"gone"})");
  transport_.sent[1]->Answer(404, R"({"kind":"Status","reason":"NotFound","message":"gone"})");
  EXPECT_EQ(RunTasks(), 1u);
  EXPECT_THAT(outcomes_, ElementsAre("gate-lift NOT_FOUND"));
}

TEST_F(ExecutorTest, ServerThatIsTooBusyIsAskedAgainAfterItsPause) {
  executor_->CarryOut({{1, coscheduling::LiftGate{kPod}}});
  transport_.sent[0]->Answer(kube::Response{429, "", absl::Seconds(1)});
  EXPECT_EQ(transport_.sent.size(), 1u);
  timer_.Advance(absl::Milliseconds(900));
  EXPECT_EQ(transport_.sent.size(), 1u);
  timer_.Advance(absl::Seconds(2));
  ASSERT_EQ(transport_.sent.size(), 2u);
  EXPECT_EQ(transport_.sent[1]->request.body, transport_.sent[0]->request.body);
  transport_.sent[1]->Answer(200, PodJson("uid-0", "43"));
  EXPECT_EQ(RunTasks(), 1u);
  EXPECT_THAT(outcomes_, ElementsAre("gate-lift OK"));
}

TEST_F(ExecutorTest, AServerThatHasTooMuchIsSentFewerAtOnce) {
  Make({.least = 4, .first = 16, .most = 16});
  std::vector<NumberedAction> bindings;
  for (uint64_t i = 0; i < 40; ++i) bindings.push_back({i, coscheduling::BindPod{kPod, "n1"}});
  executor_->CarryOut(std::move(bindings));
  ASSERT_EQ(transport_.sent.size(), 16u);
  timer_.Advance(absl::Milliseconds(10));
  transport_.sent[0]->Answer(429);
  EXPECT_EQ(executor_->stats().places, 8u);
  for (size_t i = 1; i < 9; ++i) transport_.sent[i]->Answer(201, "{}");
  EXPECT_EQ(transport_.sent.size(), 17u) << "the first whose place is another's";
  EXPECT_EQ(executor_->stats().in_flight, 8u);
}

TEST_F(ExecutorTest, AnswersAfterItsEndGoNowhere) {
  executor_->CarryOut({{1, coscheduling::LiftGate{kPod}}});
  executor_.reset();
  transport_.sent[0]->Answer(200, PodJson("uid-0", "43"));
  EXPECT_EQ(RunTasks(), 0u);
}

TEST(CrashAfterDeathTest, EndsTheProcessAfterTheNthSuccess) {
  absl::StatusOr<CrashAfter> crash = CrashAfter::Parse("binding:2");
  ASSERT_TRUE(crash.ok());
  crash->OnSuccess("binding");
  crash->OnSuccess("signal");
  EXPECT_EXIT(crash->OnSuccess("binding"), ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_TRUE(CrashAfter::Parse("").ok());
  for (const char* bad : {"binding", "binding:", "binding:0", "binding:x", "binding:1x"}) {
    EXPECT_THAT(std::string(CrashAfter::Parse(bad).status().message()), HasSubstr("want kind:n"))
        << bad;
  }
}

}  // namespace
}  // namespace muster::extender
