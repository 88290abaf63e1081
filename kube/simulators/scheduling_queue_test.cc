#include "kube/simulators/scheduling_queue.h"

#include <gtest/gtest.h>

namespace muster::kube::simulators {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1'000'000);

absl::Time At(double seconds) { return kStart + absl::Seconds(seconds); }

SchedulingQueueOptions Plain() {
  SchedulingQueueOptions options;
  options.pop_from_backoff = false;
  return options;
}

TEST(SchedulingQueueTest, PodsComeByPriorityThenByTime) {
  SchedulingQueue queue({});
  queue.Add("late", 0, At(2));
  queue.Add("early", 0, At(1));
  queue.Add("urgent", 10, At(3));
  EXPECT_EQ(queue.Pop(At(3)), "urgent");
  EXPECT_EQ(queue.Pop(At(3)), "early");
  EXPECT_EQ(queue.Pop(At(3)), "late");
  EXPECT_EQ(queue.Pop(At(3)), std::nullopt);
}

TEST(SchedulingQueueTest, ARejectedPodWaitsForAnEventAndItsBackoff) {
  SchedulingQueue queue(Plain());
  queue.Add("pod", 0, At(0));
  ASSERT_TRUE(queue.Pop(At(0)));
  queue.Reject("pod", RejectedBy::kExtender, At(0));
  EXPECT_EQ(queue.NextWake(At(0)), At(300));
  EXPECT_FALSE(queue.Pop(At(200)));
  queue.OnClusterEvent(ClusterEvent::kOther, At(0.5));
  EXPECT_FALSE(queue.Pop(At(0.5)));
  EXPECT_EQ(queue.NextWake(At(0.5)), At(1));
  EXPECT_TRUE(queue.Pop(At(1)));
}

TEST(SchedulingQueueTest, BackoffDoublesUpToItsLimit) {
  SchedulingQueue queue(Plain());
  queue.Add("pod", 0, At(0));
  double now = 0;
  for (double backoff : {1, 2, 4, 8, 10, 10}) {
    ASSERT_TRUE(queue.Pop(At(now)));
    queue.Fail("pod", At(now));
    EXPECT_EQ(queue.NextWake(At(now)), At(now + backoff));
    now += backoff;
  }
}

TEST(SchedulingQueueTest, WithNothingElseToDoAWokenPodDoesntWaitButAnErrorStillDoes) {
  SchedulingQueue queue({});
  queue.Add("rejected", 0, At(0));
  queue.Add("failed", 0, At(0.1));
  ASSERT_EQ(queue.Pop(At(0.2)), "rejected");
  queue.Reject("rejected", RejectedBy::kExtender, At(0.2));
  ASSERT_EQ(queue.Pop(At(0.2)), "failed");
  queue.Fail("failed", At(0.2));
  queue.OnClusterEvent(ClusterEvent::kRoom, At(0.3));
  EXPECT_EQ(queue.Pop(At(0.3)), "rejected");
  EXPECT_FALSE(queue.Pop(At(0.3)));
  // Ends of backoffs are rounded to windows of a second.
  EXPECT_EQ(queue.NextWake(At(0.3)), At(2));
  EXPECT_EQ(queue.Pop(At(2)), "failed");
}

TEST(SchedulingQueueTest, APodThatPluginsTurnedAwayIsWokenByRoomOnly) {
  SchedulingQueue queue(Plain());
  queue.Add("pod", 0, At(0));
  ASSERT_TRUE(queue.Pop(At(0)));
  queue.Reject("pod", RejectedBy::kPlugins, At(0));
  queue.OnClusterEvent(ClusterEvent::kOther, At(5));
  queue.OnUpdate("pod", ClusterEvent::kOther, At(5));
  EXPECT_FALSE(queue.Pop(At(5)));
  queue.OnClusterEvent(ClusterEvent::kRoom, At(6));
  EXPECT_TRUE(queue.Pop(At(6)));
}

TEST(SchedulingQueueTest, APluginsTimesGoBeforeArrivalAndEqualOnesByName) {
  SchedulingQueue queue({});
  queue.Add("b-0", 0, At(1), At(0));
  queue.Add("b-1", 0, At(2), At(0));
  queue.Add("a-0", 0, At(3), At(0));
  queue.Add("old", 0, At(4), At(-10));
  for (const char* next : {"old", "a-0", "b-0", "b-1"}) EXPECT_EQ(queue.Pop(At(5)), next);
  queue.Reject("b-0", RejectedBy::kGang, At(5));
  queue.Reject("b-1", RejectedBy::kGang, At(4));
  queue.OnClusterEvent(ClusterEvent::kOther, At(20));
  EXPECT_EQ(queue.Pop(At(20)), "b-0") << "a try doesn't change a pod's place";
}

TEST(SchedulingQueueTest, RoomThatWasGivenUpIsTriedAfterTheBackoffUnlessThereIsMoreRoom) {
  SchedulingQueue queue({});
  for (const char* pod : {"a", "b"}) {
    queue.Add(pod, 0, At(0));
    ASSERT_TRUE(queue.Pop(At(0)));
    queue.Reject(pod, RejectedBy::kPlugins, At(0));
  }
  queue.OnClusterEvent(ClusterEvent::kGivenUp, At(0));
  EXPECT_FALSE(queue.Pop(At(0))) << "though there is nothing else to do";
  EXPECT_EQ(queue.NextWake(At(0)), At(2));
  queue.OnClusterEvent(ClusterEvent::kRoom, At(0.5));
  EXPECT_EQ(queue.Pop(At(0.5)), "a");
  EXPECT_EQ(queue.Pop(At(0.5)), "b");
}

TEST(SchedulingQueueTest, APodThatItsGangTurnedAwayWaitsForOthersNotForItself) {
  SchedulingQueue queue({});
  queue.Add("pod", 0, At(0));
  ASSERT_TRUE(queue.Pop(At(0)));
  queue.Reject("pod", RejectedBy::kGang, At(0));
  queue.OnUpdate("pod", ClusterEvent::kOther, At(1));
  queue.OnClusterEvent(ClusterEvent::kGivenUp, At(1));
  EXPECT_FALSE(queue.Pop(At(1)));
  queue.OnClusterEvent(ClusterEvent::kOther, At(1));
  EXPECT_TRUE(queue.Pop(At(1)));
}

TEST(SchedulingQueueTest, APluginMayAskForAPodAtOnce) {
  SchedulingQueue queue(Plain());
  queue.Add("pod", 0, At(0));
  ASSERT_TRUE(queue.Pop(At(0)));
  queue.Activate("pod");
  EXPECT_FALSE(queue.Pop(At(0))) << "it is being tried";
  queue.Reject("pod", RejectedBy::kPlugins, At(0));
  queue.Activate("pod");
  EXPECT_TRUE(queue.Pop(At(0)));
}

TEST(SchedulingQueueTest, AfterFiveMinutesAPodIsTriedThoughNothingHappened) {
  SchedulingQueue queue({});
  queue.Add("pod", 0, At(0));
  ASSERT_TRUE(queue.Pop(At(0)));
  queue.Reject("pod", RejectedBy::kPlugins, At(0));
  EXPECT_FALSE(queue.Pop(At(299)));
  EXPECT_TRUE(queue.Pop(At(300)));
}

}  // namespace
}  // namespace muster::kube::simulators
