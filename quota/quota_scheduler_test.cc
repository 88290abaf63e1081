// Queues: who is next, who waits for what, and what is said about it.
#include "quota/quota_scheduler.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quota/testing/quota_world.h"

namespace muster::quota {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using namespace testing;  // NOLINT(google-build-using-namespace): the words of these tests

kube::ClusterQueue Strict(kube::ClusterQueue queue) {
  queue.strategy = kube::QueueingStrategy::kStrictFifo;
  return queue;
}

TEST(Admission, NamesFlavorsAndCountsWhatPodsRequest) {
  QuotaWorld world;
  world.Add(Queue("q", {{"h100", 8}})).Enqueue(Gang("a", "q", 3));
  EXPECT_THAT(world.Schedule(), ElementsAre("a"));
  const Admission& admission = world.admissions.at("a");
  EXPECT_EQ(admission.cluster_queue, "q");
  EXPECT_EQ(admission.reserved_at, At(1));
  ASSERT_EQ(admission.pod_sets.size(), 1u);
  EXPECT_EQ(admission.pod_sets[0].name, "worker");
  EXPECT_EQ(admission.pod_sets[0].count, 3);
  EXPECT_EQ(admission.pod_sets[0].usage.ToString(), "nvidia.com/gpu=3");
  EXPECT_TRUE(admission.surplus.empty());
  EXPECT_EQ(world.Reserved("q"), 3);
}

TEST(Admission, NeedsAQueueThoughThereIsNone) {
  QuotaWorld world;
  world.Enqueue(Gang("a", "q", 1)).Enqueue(Gang("b", "", 1));
  EXPECT_THAT(world.Schedule(), IsEmpty());
  EXPECT_EQ(world.Code("a"), WaitCode::kQueueNotFound);
  EXPECT_EQ(world.Code("b"), WaitCode::kQueueNotFound);
  world.Add(Queue("q", {{"h100", 1}}));
  EXPECT_THAT(world.Schedule(), ElementsAre("a"));
}

// A Workload in the LocalQueue of this name that an earlier process might yet reserve.
kube::Workload Untaken(const std::string& queue) {
  kube::Workload workload;
  workload.meta.name_space = "ns";
  workload.queue = queue;
  return workload;
}

TEST(Hold, KeepsTheTreesInWhichSomebodyMightBeReservedAndNoOther) {
  QuotaWorld world;
  world.Add(Queue("a", {{"h100", 8}}, "team")).Add(Queue("b", {{"h100", 8}}, "team"));
  world.Add(Queue("c", {{"h100", 8}}));
  const kube::Workload untaken = Untaken("a");
  EXPECT_FALSE(world.scheduler.Hold({&untaken}));
  EXPECT_TRUE(world.scheduler.HoldsAny());
  world.Enqueue(Gang("x", "b", 1)).Enqueue(Gang("y", "c", 1));
  EXPECT_TRUE(world.scheduler.NeedsSchedule());
  EXPECT_THAT(world.Schedule(), ElementsAre("y"));
  EXPECT_FALSE(world.scheduler.NeedsSchedule());
  EXPECT_TRUE(world.scheduler.Hold({}));
  EXPECT_FALSE(world.scheduler.Hold({}));
  EXPECT_FALSE(world.scheduler.HoldsAny());
  EXPECT_TRUE(world.scheduler.NeedsSchedule());
  EXPECT_THAT(world.Schedule(), ElementsAre("x"));
}

TEST(Hold, FollowsAQueueThatIsMovedToAnotherCohort) {
  QuotaWorld world;
  world.Add(Queue("a", {{"h100", 8}}, "team")).Add(Queue("b", {{"h100", 8}}, "others"));
  world.Add(Queue("a", {{"h100", 8}}, "others")).Enqueue(Gang("x", "b", 1));
  const kube::Workload untaken = Untaken("a");
  world.scheduler.Hold({&untaken});
  EXPECT_THAT(world.Schedule(), IsEmpty());
}

// Any number of them would hold up everybody else.
TEST(Hold, KeepsNothingForAQueueThatLeadsNowhere) {
  kube::LocalQueue astray = Local("astray");
  astray.cluster_queue = "none";
  for (const char* queue : {"none", "astray"}) {
    QuotaWorld world;
    world.Add(Queue("a", {{"h100", 8}}));
    world.scheduler.Upsert(astray);
    const kube::Workload untaken = Untaken(queue);
    world.scheduler.Hold({&untaken});
    world.Enqueue(Gang("x", "a", 1));
    EXPECT_TRUE(world.scheduler.NeedsSchedule());
    EXPECT_THAT(world.Schedule(), ElementsAre("x")) << queue;
  }
}

TEST(Unadmitted, CountsAgainstItsOwnNamespaceAlone) {
  QuotaWorld world;
  world.Add(Queue("q", {{"h100", 8}}));
  Workload theirs = Gang("theirs", "q", 8, 0, 2);
  theirs.name_space = "other";
  kube::LocalQueue local;
  local.meta.name = "q";
  local.meta.name_space = "other";
  local.cluster_queue = "q";
  world.scheduler.Upsert(local);
  world.Enqueue(Gang("mine", "q", 4, 0, 1));
  world.scheduler.SetUnadmitted("ns", "old", {{{"h100", kGpu}, 5}, {{"a", "b"}, 1}});
  EXPECT_THAT(world.Schedule(), IsEmpty());
  EXPECT_EQ(world.Code("mine"), WaitCode::kQuotaTooSmall);
  EXPECT_THAT(world.scheduler.WhyWaiting("mine").message,
              HasSubstr("9 nvidia.com/gpu asked for, 5 nvidia.com/gpu of them for what runs"));
  EXPECT_EQ(world.Reserved("q"), 0);
  world.Enqueue(theirs);
  EXPECT_THAT(world.Schedule(), ElementsAre("theirs"));
  world.scheduler.Withdraw("theirs");
  world.scheduler.SetUnadmitted("ns", "old", {{{"h100", kGpu}, 4}});
  EXPECT_THAT(world.Schedule(), ElementsAre("mine"));
  EXPECT_EQ(world.Reserved("q"), 4);
}

TEST(Unadmitted, OfANodeCountsUntilTheNodeHasItNoMore) {
  QuotaWorld world;
  world.Add(Queue("q", {{"h100", 8}}));
  world.scheduler.SetUnadmittedOn(
      "n1", {{"ns", {{{"h100", kGpu}, 2}}}, {"other", {{{"h100", kGpu}, 8}}}});
  world.scheduler.SetUnadmittedOn("n2", {{"ns", {{{"h100", kGpu}, 3}}}});
  world.Enqueue(Gang("mine", "q", 4));
  EXPECT_THAT(world.Schedule(), IsEmpty());
  EXPECT_THAT(world.scheduler.WhyWaiting("mine").message,
              HasSubstr("9 nvidia.com/gpu asked for, 5 nvidia.com/gpu of them for what runs"));
  world.scheduler.SetUnadmittedOn("n2", {{"ns", {{{"h100", kGpu}, 2}}}});
  EXPECT_THAT(world.Schedule(), ElementsAre("mine"));
  world.Enqueue(Gang("next", "q", 4));
  EXPECT_THAT(world.Schedule(), IsEmpty());
  world.scheduler.SetUnadmittedOn("n1", {{"other", {{{"h100", kGpu}, 8}}}});
  world.scheduler.SetUnadmittedOn("n2", {});
  EXPECT_THAT(world.Schedule(), ElementsAre("next"));
}

TEST(Admission, FillsUpByPriorityThenAge) {
  QuotaWorld world;
  world.Add(Queue("q", {{"h100", 3}}));
  world.Enqueue(Gang("young", "q", 1, 0, 30)).Enqueue(Gang("old", "q", 1, 0, 10));
  world.Enqueue(Gang("high", "q", 1, 5, 40)).Enqueue(Gang("middle", "q", 1, 0, 20));
  EXPECT_THAT(world.Schedule(), ElementsAre("high", "old", "middle"));
  EXPECT_EQ(world.Code("young"), WaitCode::kQuotaInUse);
}

TEST(Admission, IsGivenBackByWithdrawAndByEnqueueingAgain) {
  QuotaWorld world;
  world.Add(Queue("q", {{"h100", 4}}));
  world.Admit({Gang("a", "q", 4)});
  world.Enqueue(Gang("b", "q", 4, 0, 1));
  EXPECT_THAT(world.Schedule(), IsEmpty());
  world.scheduler.Withdraw("a");
  EXPECT_THAT(world.Schedule(), ElementsAre("b"));
  world.Enqueue(Gang("b", "q", 2, 0, 1));
  EXPECT_EQ(world.Reserved("q"), 0);
  EXPECT_THAT(world.Schedule(), ElementsAre("b"));
  EXPECT_EQ(world.Reserved("q"), 2);
}

TEST(Admission, OfARecordCountsOnceItsQueueExists) {
  QuotaWorld world;
  Admission admission;
  admission.cluster_queue = "q";
  admission.pod_sets.push_back({"worker", 3, {{kGpu, "h100"}}, {}});
  admission.pod_sets[0].usage.Set(kGpu, 3);
  world.scheduler.SetAdmitted(Gang("a", "q", 3), admission);
  world.Add(Queue("q", {{"h100", 4}}));
  EXPECT_EQ(world.Reserved("q"), 3);
  world.Enqueue(Gang("b", "q", 2, 0, 1));
  EXPECT_THAT(world.Schedule(), IsEmpty());
  EXPECT_EQ(world.Code("a"), WaitCode::kNone);
}

TEST(BestEffort, LetsOthersPassWhatDoesntFit) {
  QuotaWorld world;
  world.Add(Queue("q", {{"h100", 4}}));
  world.Admit({Gang("a", "q", 2)});
  world.Enqueue(Gang("large", "q", 4, 0, 1)).Enqueue(Gang("small", "q", 2, 0, 2));
  EXPECT_THAT(world.Schedule(), ElementsAre("small"));
  EXPECT_EQ(world.Code("large"), WaitCode::kQuotaInUse);
  world.scheduler.Withdraw("a");
  world.scheduler.Withdraw("small");
  EXPECT_THAT(world.Schedule(), ElementsAre("large"));
}

TEST(StrictFifo, HoldsAllBehindItsHead) {
  QuotaWorld world;
  world.Add(Strict(Queue("q", {{"h100", 4}})));
  world.Admit({Gang("a", "q", 2)});
  world.Enqueue(Gang("large", "q", 4, 0, 1)).Enqueue(Gang("small", "q", 2, 0, 2));
  EXPECT_THAT(world.Schedule(), IsEmpty());
  EXPECT_EQ(world.Code("large"), WaitCode::kQuotaInUse);
  const Wait wait = world.scheduler.WhyWaiting("small");
  EXPECT_EQ(wait.code, WaitCode::kBehindOthers);
  EXPECT_THAT(wait.message, HasSubstr("ns/large"));
  EXPECT_THAT(world.scheduler.ClusterQueues(9)[0].pending_ids, ElementsAre("large", "small"));
  world.scheduler.Withdraw("large");
  EXPECT_THAT(world.Schedule(), ElementsAre("small"));
}

TEST(StrictFifo, IsntHeldByWhatNoNodeCanTake) {
  QuotaWorld world;
  world.Add(Strict(Queue("q", {{"h100", 4}})));
  world.Enqueue(Gang("stuck", "q", 4, 0, 1)).Enqueue(Gang("small", "q", 4, 0, 2));
  const Feasibility feasible = [](const Workload& workload, const PodSet&,
                                  const kube::ResourceFlavor&) {
    return workload.id == "stuck" ? "no NodePool has it" : "";
  };
  EXPECT_THAT(world.Schedule(feasible), ElementsAre("small"));
  const Wait wait = world.scheduler.WhyWaiting("stuck");
  EXPECT_EQ(wait.code, WaitCode::kNotPlaceable);
  EXPECT_THAT(wait.message, HasSubstr("no NodePool has it"));
  EXPECT_EQ(world.Reserved("q"), 4) << "it holds nothing";
}

// What its victim gave back still runs for a moment.
TEST(Unadmitted, OfAVictimThatGoesCostsNobodyElse) {
  QuotaWorld world;
  kube::ClusterQueue team = Queue("team", {{"h100", 4}}, "all");
  team.preemption.reclaim_within_cohort = kube::ReclaimPolicy::kAny;
  world.Add(team).Add(Queue("others", {{"h100", 0}}, "all"));
  world.Enqueue(Gang("a", "others", 2)).Enqueue(Gang("b", "others", 1));
  world.Enqueue(Gang("c", "others", 1, 5));
  EXPECT_THAT(world.Schedule(), UnorderedElementsAre("a", "b", "c"));
  world.Enqueue(Gang("next", "team", 3));
  EXPECT_THAT(world.Schedule(), ElementsAre("next<-a,b"));
  world.scheduler.Withdraw("a");
  world.scheduler.SetUnadmitted("ns", "a", {{{"h100", kGpu}, 1}});
  EXPECT_THAT(world.Schedule(), IsEmpty());
  world.scheduler.Withdraw("b");
  EXPECT_THAT(world.Schedule(), ElementsAre("next<-c")) << "it may run for long";
  world.scheduler.SetUnadmitted("ns", "a", {});
  EXPECT_THAT(world.Schedule(), ElementsAre("next"));
}

// What it takes back would go to and fro for ever.
TEST(StrictFifo, KeepsWhatItsNextOneWaitsForWhileItLooksAgainAtWhoStepsAside) {
  QuotaWorld world;
  kube::ClusterQueue team = Strict(Queue("team", {{"h100", 4}}, "all"));
  team.preemption.reclaim_within_cohort = kube::ReclaimPolicy::kAny;
  world.Add(team).Add(Queue("others", {{"h100", 0}}, "all"));
  const Workload a = Gang("a", "others", 2);
  const Workload b = Gang("b", "others", 1);
  Workload more = Gang("more", "team", 1, 1);
  more.surplus = {Pods("worker", 1, 8)};
  world.Enqueue(more).Enqueue(a).Enqueue(b);
  EXPECT_THAT(world.Schedule(), UnorderedElementsAre("more", "a", "b"));
  world.Enqueue(Gang("stuck", "team", 3, 0, 1)).Enqueue(Gang("next", "team", 3, 0, 2));
  const Feasibility feasible = [](const Workload& workload, const PodSet&,
                                  const kube::ResourceFlavor&) {
    return workload.id == "stuck" ? "no NodePool has it" : "";
  };
  EXPECT_THAT(world.Schedule(feasible), ElementsAre(HasSubstr("next<-")));
  world.scheduler.Withdraw("a");
  world.Enqueue(a).scheduler.InvalidatePlacement();
  EXPECT_THAT(world.Schedule(feasible), IsEmpty());
  world.scheduler.Withdraw("b");
  world.Enqueue(b).scheduler.InvalidatePlacement();
  EXPECT_THAT(world.Schedule(feasible), ElementsAre("next"));
}

TEST(Feasibility, RejectsAFlavorLikeAMismatch) {
  QuotaWorld world;
  world.Add(Queue("q", {{"spot", 4}, {"reserved", 4}})).Enqueue(Gang("a", "q", 4));
  const Feasibility no_spot = [](const Workload&, const PodSet&,
                                 const kube::ResourceFlavor& flavor) {
    return flavor.meta.name == "spot" ? "no spot today" : "";
  };
  EXPECT_THAT(world.Schedule(no_spot), ElementsAre("a"));
  EXPECT_EQ(world.FlavorOf("a"), "reserved");
}

TEST(Feasibility, MayAskWhatElseThereIs) {
  QuotaWorld world;
  world.Add(Queue("q", {{"spot", 4}, {"reserved", 4}, {"few", 3}})).Enqueue(Gang("a", "q", 4));
  std::vector<std::string> others;
  const Feasibility feasible = [&](const Workload& workload, const PodSet& set,
                                   const kube::ResourceFlavor& flavor) {
    if (flavor.meta.name != "spot") return "";
    for (const kube::ResourceFlavor* other :
         world.scheduler.OtherFlavors(workload.id, set.name, flavor.meta.name)) {
      others.push_back(other->meta.name);
    }
    return "another one is preferred";
  };
  EXPECT_THAT(world.Schedule(feasible), ElementsAre("a"));
  EXPECT_EQ(world.FlavorOf("a"), "reserved");
  EXPECT_THAT(others, ElementsAre("reserved")) << "of the third there is never enough";
  EXPECT_THAT(world.scheduler.OtherFlavors("a", "main", "spot"), IsEmpty()) << "it has its flavor";
}

TEST(OtherFlavors, CanBeAskedForWhoeverDoesNotWait) {
  QuotaWorld world;
  world.Add(Queue("q", {{"spot", 4}, {"reserved", 4}, {"few", 3}}));
  const auto others = [&](const std::string& queue, const std::string& pod_set) {
    std::vector<std::string> names;
    for (const kube::ResourceFlavor* other :
         world.scheduler.OtherFlavors(Gang("a", queue, 4), pod_set, "spot")) {
      names.push_back(other->meta.name);
    }
    return names;
  };
  EXPECT_THAT(others("q", "worker"), ElementsAre("reserved"));
  EXPECT_THAT(others("q", "master"), IsEmpty()) << "no such pod set";
  EXPECT_THAT(others("nowhere", "worker"), IsEmpty());
  world.Enqueue(Gang("b", "q", 4));
  EXPECT_THAT(world.Schedule(), ElementsAre("b"));
  EXPECT_THAT(others("q", "worker"), ElementsAre("reserved")) << "used or not, it could be had";
}

TEST(Feasibility, IsAskedAgainOnlyOnceItIsInvalid) {
  QuotaWorld world;
  world.Add(Queue("q", {{"h100", 4}})).Enqueue(Gang("a", "q", 4));
  int asked = 0;
  bool possible = false;
  const Feasibility feasible = [&](const Workload&, const PodSet&, const kube::ResourceFlavor&) {
    ++asked;
    return possible ? "" : "not yet";
  };
  EXPECT_THAT(world.Schedule(feasible), IsEmpty());
  world.Enqueue(Gang("other", "q", 100, 0, 1));
  EXPECT_THAT(world.Schedule(feasible), IsEmpty());
  EXPECT_EQ(asked, 1);
  possible = true;
  EXPECT_FALSE(world.scheduler.NeedsSchedule());
  world.scheduler.InvalidatePlacement();
  EXPECT_TRUE(world.scheduler.NeedsSchedule());
  EXPECT_THAT(world.Schedule(feasible), ElementsAre("a"));
}

TEST(Feasibility, IsAskedAgainOfTheOneItIsInvalidFor) {
  QuotaWorld world;
  world.Add(Queue("q", {{"h100", 12}}));
  for (const char* name : {"a", "b", "c"}) world.Enqueue(Gang(name, "q", 4));
  std::vector<std::string> asked;
  bool possible = false;
  const Feasibility feasible = [&](const Workload& workload, const PodSet&,
                                   const kube::ResourceFlavor&) {
    asked.push_back(workload.id);
    return possible ? "" : "not yet";
  };
  EXPECT_THAT(world.Schedule(feasible), IsEmpty());
  EXPECT_THAT(asked, ElementsAre("a", "b", "c"));
  asked.clear();
  possible = true;
  world.scheduler.InvalidatePlacement("b");
  EXPECT_TRUE(world.scheduler.NeedsSchedule());
  EXPECT_THAT(world.Schedule(feasible), ElementsAre("b"));
  EXPECT_THAT(asked, ElementsAre("b"));
  world.scheduler.InvalidatePlacement("gone");
  EXPECT_FALSE(world.scheduler.NeedsSchedule());
}

TEST(Evictability, IsAskedAgainWhereItIsInvalid) {
  bool evictable = false;
  QuotaWorld world({.may_evict = [&](std::string_view, bool) { return evictable; }});
  kube::ClusterQueue queue = Queue("q", {{"h100", 4}});
  queue.preemption.within_cluster_queue = kube::WithinQueuePolicy::kLowerPriority;
  world.Add(queue);
  world.Admit({Gang("low", "q", 4)});
  world.Enqueue(Gang("high", "q", 4, 1));
  EXPECT_THAT(world.Schedule(), IsEmpty());
  evictable = true;
  EXPECT_FALSE(world.scheduler.NeedsSchedule());
  world.scheduler.InvalidateEviction("low");
  EXPECT_TRUE(world.scheduler.NeedsSchedule());
  EXPECT_THAT(world.Schedule(), ElementsAre("high<-low"));
}

TEST(Change, IsNeededForAnotherPass) {
  QuotaWorld world;
  EXPECT_FALSE(world.scheduler.NeedsSchedule());
  world.Add(Queue("q", {{"h100", 4}}));
  world.Admit({Gang("a", "q", 4)});
  EXPECT_FALSE(world.scheduler.NeedsSchedule());
  world.Enqueue(Gang("b", "q", 4, 0, 1));
  EXPECT_TRUE(world.scheduler.NeedsSchedule());
  EXPECT_THAT(world.Schedule(), IsEmpty());
  EXPECT_FALSE(world.scheduler.NeedsSchedule());
  // What is known already, and the echo of an own record, change nothing.
  world.scheduler.Upsert(Flavor("h100"));
  world.scheduler.SetAdmitted(Gang("a", "q", 4), world.admissions.at("a"));
  EXPECT_FALSE(world.scheduler.NeedsSchedule());
  world.scheduler.Upsert(Queue("q", {{"h100", 8}}));
  EXPECT_TRUE(world.scheduler.NeedsSchedule());
  EXPECT_THAT(world.Schedule(), ElementsAre("b"));
}

TEST(Change, IsWhatADecisionDependsOn) {
  QuotaWorld world;
  kube::ClusterQueue queue = Queue("q", {{"h100", 3}});
  EXPECT_TRUE(world.scheduler.Upsert(queue));
  queue.meta.resource_version = "7";  // its status was written
  EXPECT_FALSE(world.scheduler.Upsert(queue));
  queue.admission_checks = {"provisioning"};
  EXPECT_TRUE(world.scheduler.Upsert(queue));
  queue.meta.uid = "made-anew";
  EXPECT_TRUE(world.scheduler.Upsert(queue));
}

TEST(Surplus, IsCountedAsFarAsItFits) {
  QuotaWorld world;
  world.Add(Queue("q", {{"h100", 8}}));
  world.Enqueue(WithSurplus(Gang("a", "q", 4), 6));
  EXPECT_THAT(world.Schedule(), ElementsAre("a"));
  ASSERT_EQ(world.admissions.at("a").surplus.size(), 1u);
  EXPECT_EQ(world.admissions.at("a").surplus[0].count, 4);
  EXPECT_EQ(world.Reserved("q"), 8);
  EXPECT_EQ(world.Code("a"), WaitCode::kQuotaInUse) << "for two more";
}

TEST(Surplus, ComesAfterGangsThatAreAheadOfIt) {
  QuotaWorld world;
  world.Add(Queue("q", {{"h100", 8}}));
  world.Enqueue(WithSurplus(Gang("a", "q", 4, 0, 1), 4));
  world.Enqueue(Gang("urgent", "q", 4, 9, 2));
  EXPECT_THAT(world.Schedule(), ElementsAre("urgent", "a"));
  EXPECT_TRUE(world.admissions.at("a").surplus.empty());
}

TEST(Surplus, NeverHoldsAQueueUp) {
  QuotaWorld world;
  world.Add(Strict(Queue("q", {{"h100", 8}})));
  world.Enqueue(WithSurplus(Gang("a", "q", 4, 0, 1), 100));
  EXPECT_THAT(world.Schedule(), ElementsAre("a"));
  world.scheduler.Withdraw("a");
  Workload later = WithSurplus(Gang("a", "q", 4, 0, 1), 0);
  world.Admit({later});
  later.surplus = {Pods("large", 1, 100)};
  world.scheduler.EnqueueSurplus(later);
  world.Enqueue(Gang("b", "q", 4, 0, 2));
  EXPECT_THAT(world.Schedule(), ElementsAre("b"));
}

TEST(Surplus, IsAddedLaterAndNamedAsSuch) {
  QuotaWorld world;
  world.Add(Queue("q", {{"spot", 6}, {"reserved", 20}}));
  world.Admit({Gang("a", "q", 4)});
  world.scheduler.EnqueueSurplus(WithSurplus(Gang("a", "q", 4), 3));
  EXPECT_THAT(world.Schedule(), ElementsAre("+a"));
  const Admission& admission = world.admissions.at("a");
  EXPECT_EQ(admission.pod_sets[0].count, 4);
  EXPECT_EQ(admission.surplus[0].count, 2) << "only its gang's flavor will do";
  EXPECT_EQ(admission.surplus[0].flavors.at(kGpu), "spot");
}

TEST(Overflow, IsNeverAdmittedAndLeavesOthersAlone) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  QuotaWorld world;
  world.Add(Queue("q", {{"h100", kMax}}, "c")).Add(Queue("r", {{"h100", kMax}}, "c"));
  Workload huge = Gang("huge", "q", 3);
  huge.pod_sets = {Pods("worker", kMax, kMax)};
  world.Enqueue(huge).Enqueue(Gang("small", "q", 1, 0, 1));
  EXPECT_THAT(world.Schedule(), ElementsAre("small"));
  EXPECT_EQ(world.Code("huge"), WaitCode::kQuotaTooSmall);
  // Of two pod sets that only overflow together.
  huge.pod_sets = {Pods("a", 1, kMax - 1), Pods("b", 1, kMax - 1)};
  world.Enqueue(huge);
  EXPECT_THAT(world.Schedule(), IsEmpty());
  EXPECT_EQ(world.Reserved("q"), 1);
}

TEST(Overflow, OfSumsOfUsageIsExact) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() - 1;
  QuotaWorld world;
  for (const char* name : {"q", "r", "s"}) world.Add(Queue(name, {{"h100", kMost}}, "c"));
  for (const char* name : {"q", "r", "s"}) {
    Workload gang = Gang(name, "q", 1);
    gang.pod_sets = {Pods("worker", 1, kMost)};
    world.Enqueue(gang);
  }
  EXPECT_THAT(world.Schedule(), ElementsAre("q", "r", "s"));
  for (const char* name : {"q", "r", "s"}) world.scheduler.Withdraw(name);
  EXPECT_EQ(world.Reserved("q"), 0);
}

}  // namespace
}  // namespace muster::quota
