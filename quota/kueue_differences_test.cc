// Where quota/ deliberately decides unlike Kueue v0.15.2: the reproducers of README.md's table.
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
  fungibility.preference = kube::FungibilityPreference::kBorrowingOverPreemption;
  return fungibility;
}

// Kueue takes f0, which nobody can be made to give back, and waits for ever (kueue#13607).
TEST(UnlikeKueue, AFlavorWithoutVictimsIsNotPreferredToOneThatFits) {
  QuotaWorld world;
  kube::ClusterQueue queue = Queue("q", {{"f0", 2}, {"f1", 0}}, "c");
  queue.fungibility = LeastBorrowing();
  world.Add(queue).Add(Queue("lender", {{"f1", 4}}, "c"));
  world.Admit({Gang("running", "q", 2)});
  ASSERT_EQ(world.FlavorOf("running"), "f0");
  world.Enqueue(Gang("a", "q", 2, 0, 1));
  EXPECT_THAT(world.Schedule(), ElementsAre("a"));
  EXPECT_EQ(world.FlavorOf("a"), "f1");
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

// Kueue's preemptor ends in a nil pointer here (mended by kueue#10891).
TEST(UnlikeKueue, FairSharingWithoutACohortFindsNoVictims) {
  QuotaWorld world({.fair_sharing = true});
  kube::ClusterQueue queue = Queue("q", {{"f0", 4}});
  queue.preemption.within_cluster_queue = kube::WithinQueuePolicy::kLowerPriority;
  world.Add(queue);
  world.Admit({Gang("low", "q", 1, 0), Gang("high", "q", 3, 9)});
  world.Enqueue(Gang("a", "q", 4, 5));
  EXPECT_THAT(world.Schedule(), IsEmpty());
  EXPECT_EQ(world.Code("a"), WaitCode::kQuotaInUse);
}

}  // namespace
}  // namespace muster::quota
