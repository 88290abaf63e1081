// Where quota/ deliberately decides unlike Kueue v0.19.2: the reproducers of README.md's table.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quota/fair_share.h"
#include "quota/judgement.h"
#include "quota/quota_scheduler.h"
#include "quota/testing/quota_world.h"

namespace muster::quota {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace testing;  // NOLINT(google-build-using-namespace): the words of these tests

kube::FlavorFungibility LeastBorrowing() {
  kube::FlavorFungibility fungibility;
  fungibility.when_can_borrow = kube::FungibilityPolicy::kTryNextFlavor;
  fungibility.when_can_preempt = kube::FungibilityPolicy::kTryNextFlavor;
  fungibility.preference = kube::FungibilityPreference::kPreemptionOverBorrowing;
  return fungibility;
}

// Kueue calls it Fit as cpu, which is borrowed, is there: it takes no victims for memory, finds in
// each cycle that it doesn't fit, and keeps its place at the head.
TEST(UnlikeKueue, WhatNeedsPreemptionForOneResourceIsNotCalledFit) {
  QuotaWorld world;
  kube::ClusterQueue queue = Queue("q", {{"f0", 2}}, "c");
  kube::ResourceGroup& group = queue.resource_groups.front();
  group.covered_resources = {"cpu", "memory"};
  group.flavors.front().resources = {{"cpu", 2, std::nullopt, std::nullopt},
                                     {"memory", 8, std::nullopt, std::nullopt}};
  queue.fungibility = LeastBorrowing();
  queue.preemption.within_cluster_queue = kube::WithinQueuePolicy::kLowerPriority;
  kube::ClusterQueue lender = Queue("lender", {{"f0", 8}}, "c");
  lender.resource_groups = Quotas({{"f0", 8}}, "cpu");
  world.Add(queue).Add(lender);
  Workload low = Gang("low", "q", 1);
  low.pod_sets = {Pods("worker", 1, 8, {}, "memory")};
  world.Admit({low});
  Workload high = Gang("high", "q", 1, 5);
  kube::PodSpec spec;
  spec.requests.Set("cpu", 4);
  high.pod_sets = {Pods("worker", 1, 8, spec, "memory")};
  EXPECT_EQ(Judge::Alone(world.scheduler, high, {}).mode, AssignmentMode::kPreempt);
  world.Enqueue(high);
  EXPECT_THAT(world.Schedule(), ElementsAre("high<-low"));
}

// 3 of 7 on one side and 9 of 7 by weight 3 on the other are equal, so rule LessThanOrEqual holds.
// In floating point they differ in the last digit, and Kueue passes this victim over.
TEST(UnlikeKueue, EqualSharesAreEqual) {
  const Share own = {3000, 7000, 1000};
  const Share other = {9000, 7000, 3000};
  EXPECT_EQ(CompareShares(own, other), 0);
  EXPECT_NE(3000 * 1000.0 / 7000, 9000 * 1000.0 / 7000 / 3.0);
}

// What Kueue preempts for leaves the count of pods out
// (pkg/scheduler/flavorassigner/flavorassigner.go:713 clones the requests before it adds them): it
// names one victim, finds that two pods still don't fit, and stays there.
TEST(UnlikeKueue, VictimsMakeRoomForThePodsToo) {
  QuotaWorld world;
  kube::ClusterQueue queue = Queue("q", {});
  queue.resource_groups = Quotas({{"f0", 2}}, "pods");
  queue.preemption.within_cluster_queue = kube::WithinQueuePolicy::kLowerPriority;
  world.Add(queue);
  const auto pods = [](const char* id, int64_t count, int64_t priority) {
    Workload workload = Gang(id, "q", count, priority);
    workload.pod_sets = {Pods("worker", count, -1)};
    return workload;
  };
  world.Admit({pods("a", 1, 0), pods("b", 1, 0)});
  world.Enqueue(pods("high", 2, 5));
  EXPECT_THAT(world.Schedule(), ElementsAre("high<-b,a"));
}

// Kueue wakes nobody for quota that is given back in a stopped LocalQueue, which its queue manager
// no longer knows (pkg/cache/queue/manager.go:864): b would wait there until something else
// happens.
TEST(UnlikeKueue, QuotaGivenBackInAStoppedLocalQueueIsUsed) {
  QuotaWorld world;
  world.Add(Queue("q", {{"f0", 4}}, "c")).Add(Queue("other", {{"f0", 0}}, "c"));
  world.Admit({Gang("a", "q", 4)});
  world.Enqueue(Gang("b", "other", 4));
  EXPECT_THAT(world.Schedule(), IsEmpty());
  kube::LocalQueue stopped = Local("q");
  stopped.stop_policy = kube::StopPolicy::kHold;
  world.scheduler.Upsert(stopped);
  world.scheduler.Withdraw("a");
  EXPECT_THAT(world.Schedule(), ElementsAre("b"));
}

// Kueue wakes those in the tree that a queue comes to, and nobody in the tree that it leaves
// (pkg/cache/queue/manager.go:431): b would wait though all is free.
TEST(UnlikeKueue, QuotaThatAQueueTakesAlongIsFreeForTheTreeItLeaves) {
  QuotaWorld world;
  world.Add(Queue("q", {{"f0", 4}}, "c")).Add(Queue("r", {{"f0", 0}}, "c"));
  world.Add(Queue("lender", {{"f0", 4}}, "c"));
  world.Admit({Gang("a", "r", 8)});
  world.Enqueue(Gang("b", "q", 4));
  EXPECT_THAT(world.Schedule(), IsEmpty());
  world.Add(Queue("r", {{"f0", 0}}));
  EXPECT_THAT(world.Schedule(), ElementsAre("b"));
}

// c was refused, so Kueue doesn't try a, which is like it (pkg/cache/queue/cluster_queue.go:444);
// but a is older than b and may have its place.
TEST(UnlikeKueue, WhoComesBackIsTriedThoughItsLikeWasRefused) {
  QuotaWorld world;
  kube::ClusterQueue queue = Queue("q", {{"f0", 4}});
  queue.preemption.within_cluster_queue = kube::WithinQueuePolicy::kLowerOrNewerEqualPriority;
  world.Add(queue).Admit({Gang("b", "q", 4, 0, 2)});
  world.Enqueue(Gang("c", "q", 4, 0, 3));
  EXPECT_THAT(world.Schedule(), IsEmpty());
  world.Enqueue(Gang("a", "q", 4, 0, 1));
  EXPECT_THAT(world.Schedule(), ElementsAre("a<-b"));
}

// Kueue tries all again after any edit of a spec (pkg/cache/queue/manager.go:431), and may preempt
// for somebody whom it had refused before others were admitted.
TEST(UnlikeKueue, AnEditThatSaysNothingNewWakesNobody) {
  QuotaWorld world;
  kube::ClusterQueue queue = Queue("q", {{"f0", 4}});
  world.Add(queue).Admit({Gang("a", "q", 4)});
  world.Enqueue(Gang("b", "q", 4));
  EXPECT_THAT(world.Schedule(), IsEmpty());
  queue.stop_policy = kube::StopPolicy::kNone;
  EXPECT_FALSE(world.scheduler.Upsert(queue));
  EXPECT_FALSE(world.scheduler.NeedsSchedule());
}

// The same after any end (pkg/controller/core/workload_controller.go:1346). b is refused, as one
// pod set takes in f0 what the other can only have there; once a has f0, the first would go to f1.
TEST(UnlikeKueue, TheEndOfWhoOnlyWaitedWakesNobody) {
  QuotaWorld world;
  world.Add(Flavor("f0", {{"zone", "a"}})).Add(Flavor("f1", {{"zone", "b"}}));
  kube::ClusterQueue queue = Queue("q", {{"f0", 0}, {"f1", 0}}, "c");
  queue.preemption.within_cluster_queue = kube::WithinQueuePolicy::kLowerPriority;
  queue.preemption.reclaim_within_cohort = kube::ReclaimPolicy::kLowerPriority;
  queue.preemption.borrow_from_lower_priority = true;
  queue.fungibility.when_can_borrow = kube::FungibilityPolicy::kTryNextFlavor;
  queue.fungibility.when_can_preempt = kube::FungibilityPolicy::kTryNextFlavor;
  world.Add(queue).Add(Queue("lender", {{"f0", 4}, {"f1", 2}}, "c"));
  kube::PodSpec in_a;
  in_a.node_selector["zone"] = "a";
  Workload b = Gang("b", "q", 2, 5);
  b.pod_sets.push_back(Pods("server", 4, 1, in_a));
  Workload a = Gang("a", "q", 4);
  a.pod_sets = {Pods("worker", 4, 1, in_a)};
  world.Enqueue(b).Enqueue(a).Enqueue(Gang("c", "q", 4));
  EXPECT_THAT(world.Schedule(), ElementsAre("a"));
  world.scheduler.Withdraw("c");
  EXPECT_THAT(world.Schedule(), IsEmpty());
  world.scheduler.InvalidatePlacement();
  EXPECT_THAT(world.Schedule(), ElementsAre("b<-a"));
}

// The queue manager has forgotten a LocalQueue on Hold, and with it where its workloads are
// (pkg/controller/core/workload_controller.go:753): Kueue leaves them running.
TEST(UnlikeKueue, AClusterQueueDrainsItsLocalQueuesOnHoldToo) {
  QuotaWorld world;
  kube::ClusterQueue queue = Queue("q", {{"f0", 4}});
  world.Add(queue).Admit({Gang("a", "q", 4)});
  kube::LocalQueue held = Local("q");
  held.stop_policy = kube::StopPolicy::kHold;
  queue.stop_policy = kube::StopPolicy::kHoldAndDrain;
  world.Add(queue);
  world.scheduler.Upsert(held);
  EXPECT_THAT(world.scheduler.ToDrain(), ElementsAre(::testing::Pair("a", "ClusterQueueStopped")));
}

// Kueue takes a pod set that asks for nothing that counts for the last one
// (pkg/scheduler/flavorassigner/flavorassigner.go:842), and admits the gang without the others.
TEST(UnlikeKueue, APodSetThatAsksForNoneOfAResourceEndsNothing) {
  QuotaWorld world;
  world.Add(Queue("q", {{"f0", 4}}));
  Workload gang = Gang("a", "q", 1);
  gang.pod_sets = {Pods("launcher", 1, 0, {}, "example.com/fpga"),
                   Pods("worker", 1, 1, {}, "example.com/fpga")};
  world.Enqueue(gang);
  EXPECT_THAT(world.Schedule(), IsEmpty());
  EXPECT_EQ(world.Code("a"), WaitCode::kResourceNotCovered);
}

// One pod set of b fits in f0 and the other doesn't fit beside a. Kueue leaves f0 out for the first
// in the next cycle, and f1 for the second in the one after that, and so on for ever
// (pkg/cache/queue/cluster_queue.go:679): c never has its turn.
TEST(UnlikeKueue, FlavorsAreNotTriedForEver) {
  QuotaWorld world;
  world.Add(Flavor("f0", {{"zone", "a"}})).Add(Flavor("f1", {{"zone", "b"}}));
  world.Add(Queue("q", {{"f0", 4}, {"f1", 4}}));
  Workload a = Gang("a", "q", 2, 9);
  kube::PodSpec in_b;
  in_b.node_selector["zone"] = "b";
  a.pod_sets = {Pods("worker", 2, 1, in_b)};
  world.Admit({a});
  Workload b = Gang("b", "q", 4, 5);
  b.pod_sets.push_back(Pods("server", 4, 1));
  world.Enqueue(b);
  EXPECT_THAT(world.Schedule(), IsEmpty());
  world.Enqueue(Gang("c", "q", 2));
  EXPECT_THAT(world.Schedule(), ElementsAre("c"));
}

// The same of two heads at once, the second of which begins a pass later: neither waits for the
// other to come to an end of it.
TEST(UnlikeKueue, FlavorsOfTwoHeadsAreNotTriedForEver) {
  QuotaWorld world;
  world.Add(Flavor("f0", {{"zone", "a"}})).Add(Flavor("f1", {{"zone", "b"}}));
  kube::PodSpec in_b;
  in_b.node_selector["zone"] = "b";
  for (const char* name : {"q", "r"}) {
    kube::ClusterQueue queue = Queue(name, {{"f0", 4, 0}, {"f1", 4, 0}}, "c");
    queue.strategy = kube::QueueingStrategy::kStrictFifo;
    Workload running = Gang(std::string("a-") + name, name, 2, 9);
    running.pod_sets = {Pods("worker", 2, 1, in_b)};
    world.Add(queue).Admit({running});
    Workload waiting = Gang(std::string("b-") + name, name, 4, 5);
    waiting.pod_sets.push_back(Pods("server", 4, 1));
    world.Enqueue(waiting);
  }
  Workload next = Gang("next", "r", 1, 8);
  next.pod_sets = {Pods("worker", 1, 1, in_b)};
  world.Enqueue(next);
  EXPECT_THAT(world.Schedule(), ElementsAre("next"));
}

// In one cycle p names v, s takes what is free, and Kueue admits r into what v still uses
// (pkg/scheduler/scheduler.go:758): 10 of 8 are used until v is gone.
TEST(UnlikeKueue, NobodyIsAdmittedBesideVictimsThatStillRun) {
  QuotaWorld world;
  kube::ClusterQueue queue = Queue("q", {{"f0", 4}}, "c");
  queue.preemption.reclaim_within_cohort = kube::ReclaimPolicy::kAny;
  world.Add(queue).Add(Queue("r", {{"f0", 2}}, "c")).Add(Queue("s", {{"f0", 2}}, "c"));
  world.Add(Queue("x", {{"f0", 0}}, "c"));
  world.Admit({Gang("v", "x", 6)});
  world.Enqueue(Gang("p", "q", 4, 9)).Enqueue(Gang("s", "s", 2, 0, 1));
  world.Enqueue(Gang("r", "r", 2, 0, 2));
  EXPECT_THAT(world.Schedule(), ElementsAre("p<-v", "s"));
  world.scheduler.Withdraw("v");
  EXPECT_THAT(world.Schedule(), ElementsAre("p", "r"));
}

}  // namespace
}  // namespace muster::quota
