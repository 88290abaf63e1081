// Who must give quota back, and that nobody counts on the same victim twice. What the choice is for
// all the policies is held to Kueue's own in differential_test.cc.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quota/quota_scheduler.h"
#include "quota/testing/quota_world.h"

namespace muster::quota {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using namespace testing;  // NOLINT(google-build-using-namespace): the words of these tests

kube::ClusterQueue Preempting(std::string name, int64_t nominal, std::string cohort = "") {
  kube::ClusterQueue queue = Queue(std::move(name), {{"h100", nominal}}, std::move(cohort));
  queue.preemption.within_cluster_queue = kube::WithinQueuePolicy::kLowerPriority;
  queue.preemption.reclaim_within_cohort = kube::ReclaimPolicy::kAny;
  return queue;
}

TEST(Preemption, TakesTheFewestOfTheLowest) {
  QuotaWorld world;
  world.Add(Preempting("q", 8));
  world.Admit({Gang("low", "q", 2, 1), Gang("lowest", "q", 4, 0), Gang("high", "q", 2, 5)});
  world.Enqueue(Gang("urgent", "q", 4, 9));
  EXPECT_THAT(world.Schedule(), ElementsAre("urgent<-lowest"));
  const Wait wait = world.scheduler.WhyWaiting("urgent");
  EXPECT_EQ(wait.code, WaitCode::kPreempting);
  EXPECT_THAT(wait.message, HasSubstr("ns/lowest"));
}

TEST(Preemption, IsNamedOnceAndEndsInAdmission) {
  QuotaWorld world;
  world.Add(Preempting("q", 8));
  world.Admit({Gang("a", "q", 4, 0), Gang("b", "q", 4, 0)});
  world.Enqueue(Gang("urgent", "q", 8, 9));
  EXPECT_THAT(world.Schedule(), ElementsAre("urgent<-b,a"));
  EXPECT_FALSE(world.scheduler.NeedsSchedule());
  EXPECT_THAT(world.Schedule(), IsEmpty());
  world.scheduler.Withdraw("a");
  EXPECT_THAT(world.Schedule(), IsEmpty()) << "the other was named before";
  EXPECT_EQ(world.Code("urgent"), WaitCode::kPreempting);
  world.scheduler.Withdraw("b");
  EXPECT_THAT(world.Schedule(), ElementsAre("urgent"));
}

TEST(Preemption, TakesFirstWhatIsDrainedAnyway) {
  QuotaWorld world;
  world.Add(Preempting("q", 4, "c")).Add(Preempting("x", 0, "c")).Add(Preempting("y", 0, "c"));
  world.Admit({Gang("of-x", "x", 2), Gang("of-y", "y", 2)});
  kube::LocalQueue stopped = Local("x");
  stopped.stop_policy = kube::StopPolicy::kHoldAndDrain;
  world.scheduler.Upsert(stopped);
  world.Enqueue(Gang("a", "q", 2));
  EXPECT_THAT(world.Schedule(), ElementsAre("a<-of-x")) << "of-y was admitted last";
}

TEST(Preemption, KeepsWhatItWaitsForFromThoseBehind) {
  QuotaWorld world;
  world.Add(Preempting("q", 8));
  world.Admit({Gang("a", "q", 6, 0)});
  world.Enqueue(Gang("urgent", "q", 8, 9)).Enqueue(Gang("small", "q", 2, 0, 5));
  EXPECT_THAT(world.Schedule(), ElementsAre("urgent<-a"));
  EXPECT_EQ(world.Code("small"), WaitCode::kBehindOthers);
  world.scheduler.Withdraw("a");
  EXPECT_THAT(world.Schedule(), ElementsAre("urgent"));
}

TEST(Preemption, KeepsItsTurnOverAStopOfItsClusterQueueAlone) {
  for (const bool of_cluster_queue : {true, false}) {
    QuotaWorld world;
    kube::ClusterQueue queue = Preempting("q", 3);
    world.Add(queue).Admit({Gang("low", "q", 3)});
    world.Enqueue(Gang("high", "q", 3, 1));
    EXPECT_THAT(world.Schedule(), ElementsAre("high<-low"));
    kube::LocalQueue local = Local("q");
    const auto stop = [&](kube::StopPolicy policy) {
      (of_cluster_queue ? queue.stop_policy : local.stop_policy) = policy;
      world.Add(queue);
      world.scheduler.Upsert(local);
    };
    stop(kube::StopPolicy::kHold);
    world.Enqueue(Gang("highest", "q", 3, 2));
    EXPECT_THAT(world.Schedule(), IsEmpty());
    stop(kube::StopPolicy::kNone);
    world.scheduler.Withdraw("low");
    EXPECT_EQ(world.Schedule().front(), of_cluster_queue ? "high" : "highest");
  }
}

TEST(Preemption, GivesNoTurnBeforeOthersOnceItsQueueIsStrict) {
  QuotaWorld world;
  kube::ClusterQueue queue = Preempting("q", 4);
  world.Add(queue).Admit({Gang("low", "q", 4)});
  world.Enqueue(Gang("high", "q", 4, 1));
  EXPECT_THAT(world.Schedule(), ElementsAre("high<-low"));
  queue.strategy = kube::QueueingStrategy::kStrictFifo;
  world.Add(queue).Enqueue(Gang("highest", "q", 4, 2));
  EXPECT_THAT(world.Schedule(), ElementsAre("highest<-low"));
  world.scheduler.Withdraw("low");
  EXPECT_THAT(world.Schedule(), ElementsAre("highest"));
}

// Once `own` is gone "a" borrows nothing, and comes before "b", which would take all that is free.
TEST(Preemption, RanksByWhatItBorrowsByNow) {
  QuotaWorld world;
  kube::ClusterQueue queue = Preempting("q", 4, "c");
  kube::ClusterQueue rival = Preempting("r", 2, "c");
  for (kube::ClusterQueue* each : {&queue, &rival}) {
    each->preemption.borrow_from_lower_priority = true;
    world.Add(*each);
  }
  world.Add(Queue("lender", {{"h100", 4}}, "c")).Add(Queue("s", {{"h100", 0}}, "c"));
  world.Add(Queue("x", {{"h100", 0}}, "c"));
  world.Admit({Gang("own", "q", 1, 99), Gang("of-lender", "lender", 4, 99), Gang("v", "x", 4)});
  world.Enqueue(Gang("a", "q", 4, 1));
  EXPECT_THAT(world.Schedule(), ElementsAre("a<-v"));
  world.Enqueue(Gang("b", "r", 6, 9));
  EXPECT_THAT(world.Schedule(), IsEmpty());
  world.scheduler.Withdraw("own");
  world.Enqueue(Gang("small", "s", 1));
  EXPECT_THAT(world.Schedule(), ElementsAre("small"));
}

// "b" would have fitted without victims had "a" not been before it, and goes on with the flavor
// after that; refused there too, it is tried with the first one again.
TEST(Preemption, InAFlavorThatAnotherTookInTheSamePass) {
  QuotaWorld world;
  kube::ClusterQueue queue = Preempting("q", 4, "c");
  queue.resource_groups[0].flavors.push_back(
      Queue("any", {{"h200", 0}}).resource_groups[0].flavors[0]);
  world.Add(queue).Add(Queue("r", {{"h100", 4}}, "c"));
  world.Admit({Gang("low", "q", 4, 0)});
  world.Enqueue(Gang("a", "r", 4)).Enqueue(Gang("b", "q", 4, 1));
  EXPECT_THAT(world.Schedule(), ElementsAre("a", "b<-low"));
}

// The same where nobody took it: it was only kept in that pass for "big", whom nobody can help.
TEST(Preemption, AFlavorThatWasOnlyKeptForAPassIsTriedAgain) {
  QuotaWorld world;
  kube::ClusterQueue big = Preempting("r", 6, "c");
  big.preemption.reclaim_within_cohort = kube::ReclaimPolicy::kLowerPriority;
  world.Add(big).Add(Queue("lender", {{"h100", 4}}, "c"));
  world.Add(Queue("q", {{"h100", 0}, {"h200", 1}}, "c"));
  world.Admit({Gang("o", "lender", 8, 9)});
  world.Enqueue(Gang("big", "r", 6)).Enqueue(Gang("small", "q", 2));
  EXPECT_THAT(world.Schedule(), ElementsAre("small"));
}

TEST(Preemption, OfTwoInOnePassNeverCountsOnTheSameVictims) {
  QuotaWorld world;
  world.Add(Preempting("q", 4, "c")).Add(Preempting("r", 4, "c")).Add(Preempting("s", 0, "c"));
  world.Admit({Gang("one", "s", 4, 0), Gang("two", "s", 4, 0)});
  world.Enqueue(Gang("a", "q", 4, 0, 1)).Enqueue(Gang("b", "r", 4, 0, 2));
  EXPECT_THAT(world.Schedule(), ElementsAre("a<-two"));
  world.scheduler.Withdraw("two");
  EXPECT_THAT(world.Schedule(), ElementsAre("a", "b<-one"));
  world.scheduler.Withdraw("one");
  EXPECT_THAT(world.Schedule(), ElementsAre("b"));
}

// Once the first victim is gone its queue borrows nothing any more, so that the second would be no
// candidate: Kueue names a third instead.
TEST(Preemption, NamesNobodyElseWhileTheVictimsLeaveOneAfterTheOther) {
  for (const char* first : {"b", "c"}) {
    QuotaWorld world;
    kube::ClusterQueue borrows = Preempting("q", 9, "cohort");
    borrows.preemption.borrow_from_lower_priority = true;
    borrows.preemption.borrow_max_priority_threshold = 20;
    world.Add(borrows).Add(Preempting("r", 7, "cohort"));
    world.Admit({Gang("a", "q", 1, 30), Gang("d", "q", 4, 20), Gang("e", "r", 4, 20),
                 Gang("b", "r", 4, 10), Gang("c", "r", 3, 10)});
    ASSERT_EQ(world.Reserved("q") + world.Reserved("r"), 16);
    world.Enqueue(Gang("urgent", "q", 5, 1000));
    EXPECT_THAT(world.Schedule(), ElementsAre("urgent<-c,b"));
    world.scheduler.Withdraw(first);
    EXPECT_THAT(world.Schedule(), IsEmpty()) << "after " << first;
    EXPECT_EQ(world.Code("urgent"), WaitCode::kPreempting);
    world.scheduler.Withdraw(*first == 'b' ? "c" : "b");
    EXPECT_THAT(world.Schedule(), ElementsAre("urgent"));
  }
}

// Once c is gone the first pod set would fit in f1, and the second nowhere: Kueue would have
// evicted all three for nothing, admits c again, and starts over.
TEST(Preemption, KeepsItsFlavorsWhileTheVictimsLeave) {
  QuotaWorld world;
  kube::ClusterQueue queue = Queue("q", {{"f0", 6}, {"f1", 4}});
  queue.preemption.within_cluster_queue = kube::WithinQueuePolicy::kLowerPriority;
  world.Add(queue);
  world.Admit({Gang("top", "q", 4, 9), Gang("a", "q", 2), Gang("b", "q", 2), Gang("c", "q", 2)});
  Workload urgent = Gang("urgent", "q", 1, 5);
  urgent.pod_sets.push_back(Pods("server", 4, 1));
  world.Enqueue(urgent);
  EXPECT_THAT(world.Schedule(), ElementsAre("urgent<-c,b,a"));
  for (const char* victim : {"c", "b"}) {
    world.Enqueue(Gang(victim, "q", 2));
    EXPECT_THAT(world.Schedule(), IsEmpty());
  }
  world.Enqueue(Gang("a", "q", 2));
  EXPECT_THAT(world.Schedule(), ElementsAre("urgent"));
}

// Once both are gone the first pod set would fit in f1 as well, and then z would have to go for the
// second.
TEST(Preemption, KeepsItsFlavorsWhenTheVictimsAreGone) {
  QuotaWorld world;
  kube::ClusterQueue queue = Queue("q", {{"f1", 5}, {"f0", 4}}, "c");
  queue.preemption.within_cluster_queue = kube::WithinQueuePolicy::kLowerPriority;
  queue.preemption.reclaim_within_cohort = kube::ReclaimPolicy::kAny;
  queue.preemption.borrow_from_lower_priority = true;
  world.Add(queue).Add(Queue("r", {{"f0", 0}}, "c"));
  world.Admit({Gang("a", "q", 5), Gang("x", "r", 2), Gang("z", "q", 2)});
  Workload urgent = Gang("urgent", "q", 2, 5);
  urgent.pod_sets.push_back(Pods("server", 4, 1));
  world.Enqueue(urgent);
  EXPECT_THAT(world.Schedule(), ElementsAre("urgent<-x,a"));
  world.scheduler.Withdraw("x");
  world.scheduler.Withdraw("a");
  EXPECT_THAT(world.Schedule(), ElementsAre("urgent"));
  EXPECT_EQ(world.FlavorOf("urgent"), "f0");
}

// In each pass the one that reaches less far goes first, so that the other waits for it again.
TEST(Preemption, NamesAgainWhoWasAdmittedAgain) {
  QuotaWorld world;
  kube::ClusterQueue queue = Preempting("q", 0, "d");
  queue.preemption.borrow_from_lower_priority = true;
  kube::Cohort root = MakeCohort("c");
  root.resource_groups = Quotas({{"h100", 2}});
  kube::Cohort below = MakeCohort("d", "c");
  below.resource_groups = Quotas({{"h100", 2}});
  world.Add(root).Add(below).Add(queue).Add(Queue("r", {{"h100", 2}}, "d"));
  world.Admit({Gang("v", "r", 4)});
  world.Enqueue(Gang("high", "q", 6, 3));
  EXPECT_THAT(world.Schedule(), ElementsAre("high<-v"));
  world.Enqueue(Gang("v", "r", 4));
  EXPECT_THAT(world.Schedule(), ElementsAre("v", "high<-v"));
}

TEST(Preemption, NamesOthersOnceAnotherHasItsVictimUnlessThatIsEnoughForBoth) {
  for (const bool is_enough : {true, false}) {
    QuotaWorld world;
    kube::ClusterQueue queue = Queue("q", {{"f0", 0}, {"f1", 4}}, "c");
    queue.preemption.reclaim_within_cohort = kube::ReclaimPolicy::kAny;
    queue.preemption.borrow_from_lower_priority = true;
    queue.fungibility.when_can_preempt = kube::FungibilityPolicy::kMayStopSearch;
    kube::ClusterQueue owner = Queue("owner", {{"f0", 4}}, "c");
    owner.preemption = queue.preemption;
    world.Add(queue).Add(owner).Add(Queue("lender", {{"f0", is_enough ? 4 : 0}}, "c"));
    world.Add(Queue("x", {{"f0", 0}, {"f1", 0}}, "c"));
    world.Admit({Gang("v", "x", is_enough ? 8 : 4), Gang("u", "x", 4)});
    world.Enqueue(Gang("a", "q", 4, 5));
    EXPECT_THAT(world.Schedule(), ElementsAre("a<-v"));
    world.Enqueue(Gang("b", "owner", 4));
    const std::vector<std::string> words = world.Schedule();
    if (is_enough) {
      EXPECT_THAT(words, ElementsAre("b<-v"));
    } else {
      EXPECT_THAT(words, ElementsAre("b<-v", "a<-u"));
      world.scheduler.Withdraw("u");
    }
    world.scheduler.Withdraw("v");
    EXPECT_THAT(world.Schedule(), UnorderedElementsAre("a", "b"));
  }
}

TEST(Preemption, NamesOthersOnceTheVictimsThatAreLeftDontSuffice) {
  QuotaWorld world;
  world.Add(Preempting("q", 8));
  world.Admit({Gang("a", "q", 4, 0), Gang("b", "q", 2, 0), Gang("c", "q", 2, 5)});
  world.Enqueue(Gang("urgent", "q", 6, 9));
  EXPECT_THAT(world.Schedule(), ElementsAre("urgent<-b,a"));
  Admission admission = world.admissions.at("b");
  world.scheduler.Withdraw("b");
  admission.reserved_at += absl::Hours(1);
  world.scheduler.SetAdmitted(Gang("sudden", "q", 2, 5), admission);
  EXPECT_THAT(world.Schedule(), ElementsAre("urgent<-a,sudden"));
}

TEST(Preemption, TakesSurplusBeforeWholeGangsOfTheSamePriority) {
  QuotaWorld world;
  world.Add(Preempting("q", 8));
  world.Admit({WithSurplus(Gang("elastic", "q", 2), 2), Gang("rigid", "q", 4)});
  ASSERT_EQ(world.Reserved("q"), 8);
  world.Enqueue(Gang("urgent", "q", 2, 9));
  EXPECT_THAT(world.Schedule(), ElementsAre("urgent<-elastic*"));
  EXPECT_THAT(world.scheduler.WhyWaiting("urgent").message, HasSubstr("beyond its minMember"));
  Admission smaller = world.admissions.at("elastic");
  smaller.surplus.clear();
  world.scheduler.SetAdmitted(Gang("elastic", "q", 2), smaller);
  EXPECT_THAT(world.Schedule(), ElementsAre("urgent"));
}

TEST(Preemption, TakesLowerGangsBeforeSurplusOfHigherOnes) {
  QuotaWorld world;
  world.Add(Preempting("q", 8));
  world.Admit({WithSurplus(Gang("elastic", "q", 2, 5), 2), Gang("rigid", "q", 4, 0)});
  world.Enqueue(Gang("urgent", "q", 2, 9));
  EXPECT_THAT(world.Schedule(), ElementsAre("urgent<-rigid"));
}

TEST(Preemption, OfWholeGangsIncludesTheirSurplusOnce) {
  QuotaWorld world;
  world.Add(Preempting("q", 8));
  world.Admit({WithSurplus(Gang("elastic", "q", 2), 2), Gang("rigid", "q", 4, 5)});
  world.Enqueue(Gang("urgent", "q", 4, 4));
  EXPECT_THAT(world.Schedule(), ElementsAre("urgent<-elastic"));
}

TEST(Preemption, GivesNoSurplusToWhatIsBeingTakenBack) {
  QuotaWorld world;
  world.Add(Preempting("q", 8));
  world.Admit({Gang("a", "q", 4, 0), Gang("b", "q", 2, 5)});
  world.Enqueue(Gang("urgent", "q", 6, 9));
  EXPECT_THAT(world.Schedule(), ElementsAre("urgent<-a"));
  world.scheduler.EnqueueSurplus(WithSurplus(Gang("a", "q", 4, 0), 2));
  EXPECT_THAT(world.Schedule(), IsEmpty());
  EXPECT_THAT(world.scheduler.WhyWaiting("a").message, HasSubstr("taken back"));
}

TEST(Reclaim, TakesBackWhatOthersBorrowed) {
  QuotaWorld world;
  world.Add(Preempting("owner", 4, "c")).Add(Preempting("borrower", 4, "c"));
  world.Admit({Gang("own", "borrower", 4, 9), Gang("borrowed", "borrower", 4, 9)});
  world.Enqueue(Gang("a", "owner", 4, 0));
  std::vector<Decision> decisions = world.scheduler.Schedule(At(50), {});
  ASSERT_EQ(decisions.size(), 1u);
  ASSERT_EQ(decisions[0].victims.size(), 1u);
  EXPECT_EQ(decisions[0].victims[0].id, "borrowed");
  EXPECT_EQ(decisions[0].victims[0].reason, VictimReason::kReclamation);
}

TEST(FairSharing, AdmitsWhoHasTheSmallestShareFirst) {
  QuotaWorld world({.fair_sharing = true});
  for (const char* name : {"q", "r"}) world.Add(Queue(name, {{"h100", 2}}, "c"));
  world.Add(Queue("lender", {{"h100", 6}}, "c"));
  world.Admit({Gang("q0", "q", 4)});
  // Each pass takes one of each queue. q borrows 2 already, so its priority doesn't help.
  for (int i = 1; i <= 3; ++i) {
    world.Enqueue(Gang("q" + std::to_string(i), "q", 2, 9, i));
    world.Enqueue(Gang("r" + std::to_string(i), "r", 2, 0, i));
  }
  EXPECT_THAT(world.Schedule(), ElementsAre("r1", "q1", "r2"));
}

TEST(FairSharing, TakesFromTheLargestShare) {
  QuotaWorld world({.fair_sharing = true});
  for (const char* name : {"q", "r", "s"}) world.Add(Preempting(name, 4, "c"));
  world.Admit({Gang("q0", "q", 4), Gang("q1", "q", 4), Gang("r0", "r", 4)});
  world.Enqueue(Gang("a", "s", 4));
  EXPECT_THAT(world.Schedule(), ElementsAre("a<-q1"));
}

// "a" finds no victims before "x" gives the cohort r the larger share. "b" would find one then,
// only to go for "a" as soon as that is tried again: it isn't tried before.
TEST(FairSharing, NobodyPassesAnOlderOneLikeIt) {
  QuotaWorld world({.fair_sharing = true});
  kube::ClusterQueue queue = Preempting("q", 0, "c");
  queue.preemption.within_cluster_queue = kube::WithinQueuePolicy::kLowerOrNewerEqualPriority;
  world.Add(queue).Add(MakeCohort("r", "c")).Add(Queue("lender", {{"h100", 14}}, "c"));
  world.Add(Queue("r0", {{"h100", 0}}, "r")).Add(Queue("r2", {{"h100", 2}}, "r"));
  world.Admit({Gang("v", "r0", 8), Gang("o", "lender", 4)});
  world.Enqueue(Gang("a", "q", 7, 0, 1)).Enqueue(Gang("b", "q", 7, 0, 2));
  world.Enqueue(Gang("x", "r2", 2));
  EXPECT_THAT(world.Schedule(), ElementsAre("x"));
  world.scheduler.InvalidatePlacement();
  EXPECT_THAT(world.Schedule(), ElementsAre("a<-v"));
}

}  // namespace
}  // namespace muster::quota
