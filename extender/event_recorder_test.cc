#include "extender/event_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kube/client/fake_transport.h"
#include "kube/client/manual_timer.h"

namespace muster::extender {
namespace {

using coscheduling::EmitEvent;
using nlohmann::json;

EmitEvent Waiting(const std::string& message, const std::string& name = "job") {
  return {"PodGroup", "team", name, "uid-of-" + name, true, "CapacityShort", message};
}

class EventRecorderTest : public ::testing::Test {
 protected:
  void Start(EventRecorderOptions options) {
    recorder_ = std::make_unique<EventRecorder>(transport_, timer_, std::move(options));
  }
  json Body(size_t i) const { return json::parse(transport_.sent.at(i)->request.body); }

  kube::FakeTransport transport_;
  kube::ManualTimer timer_{absl::FromUnixSeconds(1'700'000'000)};
  std::unique_ptr<EventRecorder> recorder_;
};

TEST_F(EventRecorderTest, EqualEventsAreOneThatIsCounted) {
  Start({.max_in_flight = 10, .instance = "me"});
  recorder_->Record(Waiting("3 of 4"));
  const json first = Body(0);
  EXPECT_EQ(transport_.sent[0]->request.path, "/api/v1/namespaces/team/events");
  EXPECT_EQ(first["involvedObject"]["apiVersion"], "scheduling.x-k8s.io/v1alpha1");
  EXPECT_EQ(first["involvedObject"]["uid"], "uid-of-job");
  EXPECT_EQ(first["type"], "Warning");
  EXPECT_EQ(first["reportingInstance"], "me");
  EXPECT_EQ(first["count"], 1);
  timer_.Advance(absl::Seconds(5));
  recorder_->Record(Waiting("3 of 4"));
  EXPECT_EQ(transport_.sent[1]->request.method, kube::Method::kPatch);
  EXPECT_EQ(transport_.sent[1]->request.path,
            "/api/v1/namespaces/team/events/" + first["metadata"]["name"].get<std::string>());
  EXPECT_EQ(Body(1), json({{"count", 2}, {"lastTimestamp", "2023-11-14T22:13:25Z"}}));
  recorder_->Record(Waiting("2 of 4"));
  EXPECT_EQ(transport_.sent[2]->request.method, kube::Method::kPost);
}

TEST_F(EventRecorderTest, EventThatTheServerForgotBeginsAnew) {
  Start({});
  recorder_->Record(Waiting("3 of 4"));
  transport_.sent[0]->Answer(201);
  recorder_->Record(Waiting("3 of 4"));
  transport_.sent[1]->Answer(404);
  ASSERT_EQ(transport_.sent.size(), 3u);
  EXPECT_EQ(transport_.sent[2]->request.method, kube::Method::kPost);
  transport_.sent[2]->Answer(403);
  EXPECT_EQ(transport_.sent.size(), 3u);
  EXPECT_EQ(recorder_->stats().failed, 1u);
}

TEST_F(EventRecorderTest, WhatIsToldOfANamespaceThatGoesIsNoLoss) {
  Start({.burst = 10, .max_in_flight = 10});
  recorder_->Record(Waiting("3 of 4"));
  recorder_->Record(Waiting("2 of 4"));
  recorder_->Record(Waiting("1 of 4"));
  transport_.sent[0]->Answer(
      403, R"({"reason":"Forbidden","details":{"causes":[{"reason":"NamespaceTerminating"}]}})");
  transport_.sent[1]->Answer(404);
  EXPECT_EQ(recorder_->stats().failed, 0u);
  transport_.sent[2]->Answer(403, R"({"reason":"Forbidden"})");
  EXPECT_EQ(recorder_->stats().failed, 1u);
}

TEST_F(EventRecorderTest, RateAndQueueAreBounded) {
  Start({.per_second = 10, .burst = 2, .max_in_flight = 10, .max_waiting = 3});
  for (int i = 0; i < 10; ++i) recorder_->Record(Waiting(std::to_string(i)));
  EXPECT_EQ(transport_.sent.size(), 2u);
  EXPECT_EQ(recorder_->stats().waiting, 3u);
  EXPECT_EQ(recorder_->stats().dropped, 5u);
  timer_.Advance(absl::Milliseconds(110));
  EXPECT_EQ(transport_.sent.size(), 3u);
  timer_.Advance(absl::Seconds(1));
  EXPECT_EQ(transport_.sent.size(), 5u);
  EXPECT_EQ(recorder_->stats().waiting, 0u);
}

TEST_F(EventRecorderTest, FewAreUnderWayAtOnce) {
  Start({.burst = 100, .max_in_flight = 2});
  for (int i = 0; i < 5; ++i) recorder_->Record(Waiting(std::to_string(i)));
  EXPECT_EQ(transport_.sent.size(), 2u);
  timer_.Advance(absl::Seconds(10));
  EXPECT_EQ(transport_.sent.size(), 2u);
  transport_.sent[1]->Answer(201);
  transport_.sent[0]->Answer(500);
  ASSERT_EQ(transport_.sent.size(), 4u);
  EXPECT_EQ(Body(3)["message"], "3");
  EXPECT_EQ(recorder_->stats().waiting, 1u);
  EXPECT_EQ(recorder_->stats().failed, 1u);
}

// Thousands may wait: the gang that somebody looks at is the one that came last.
TEST_F(EventRecorderTest, TheNewestGoesFirstDatedWhenItHappenedAndTheOldestIsDropped) {
  Start({.per_second = 1, .burst = 1, .max_waiting = 2});
  for (const char* message : {"a", "b", "c", "d"}) {
    recorder_->Record(Waiting(message));
    timer_.Advance(absl::Milliseconds(100));
  }
  const std::string happened = Body(0)["firstTimestamp"];
  for (size_t i = 0; i < transport_.sent.size() && i < 3; ++i) {
    transport_.sent[i]->Answer(201);
    timer_.Advance(absl::Seconds(2));
  }
  ASSERT_EQ(transport_.sent.size(), 3u);
  EXPECT_EQ(Body(1)["message"], "d");
  EXPECT_EQ(Body(2)["message"], "c");
  EXPECT_EQ(Body(2)["lastTimestamp"], happened);
  EXPECT_EQ(recorder_->stats().dropped, 1u);
}

TEST_F(EventRecorderTest, AnEqualOneThatIsToldLateDoesntSetTheClockBack) {
  Start({.per_second = 0.1, .burst = 1});
  for (const char* message : {"first", "equal", "equal"}) {
    recorder_->Record(Waiting(message));
    timer_.Advance(absl::Seconds(2));
  }
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_GT(transport_.sent.size(), i);
    transport_.sent[i]->Answer(201);
    timer_.Advance(absl::Seconds(11));
  }
  EXPECT_EQ(Body(2)["count"], 2);
  EXPECT_EQ(Body(2)["lastTimestamp"], Body(1)["lastTimestamp"]);
}

TEST_F(EventRecorderTest, WhatIsRememberedIsBounded) {
  Start({.max_in_flight = 10, .max_remembered = 2});
  for (const char* message : {"a", "b", "c", "a"}) recorder_->Record(Waiting(message));
  for (const auto& sent : transport_.sent) EXPECT_EQ(sent->request.method, kube::Method::kPost);
  recorder_->Record(Waiting("c"));
  EXPECT_EQ(transport_.sent.back()->request.method, kube::Method::kPatch);
}

TEST_F(EventRecorderTest, AStandbyKeepsNothingOfWhatTheLeaderTold) {
  Start({.per_second = 1, .burst = 1});
  for (const char* message : {"a", "b", "c"}) recorder_->Record(Waiting(message));
  EXPECT_EQ(recorder_->stats().waiting, 2u);
  recorder_->Forget();
  EXPECT_EQ(recorder_->stats().waiting, 0u);
  EXPECT_EQ(recorder_->stats().remembered, 0u);
  EXPECT_EQ(recorder_->stats().dropped, 2u);
  transport_.sent[0]->Answer(201);
  timer_.Advance(absl::Minutes(1));
  EXPECT_EQ(transport_.sent.size(), 1u);
}

TEST_F(EventRecorderTest, LongAndDamagedTextIsMadeToFit) {
  Start({});
  std::string korean;
  while (korean.size() < 2000) korean += "\xEB\x85\xB8";  // three bytes each
  recorder_->Record(Waiting(korean, std::string(219, 'n') + "--" + std::string(30, 'x')));
  const json body = Body(0);
  EXPECT_EQ(body["message"].get<std::string>().size(), 1023u);
  const std::string name = body["metadata"]["name"];
  EXPECT_LE(name.size(), 253u);
  EXPECT_EQ(name.substr(0, 220), std::string(219, 'n') + ".");
  recorder_->Record(Waiting("worker said \xFF\xEB\x85"));
  EXPECT_EQ(Body(1)["message"], "worker said \xEF\xBF\xBD\xEF\xBF\xBD");
}

}  // namespace
}  // namespace muster::extender
