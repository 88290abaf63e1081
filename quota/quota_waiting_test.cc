// What is said about those who wait, and what is shown of queues.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quota/quota_scheduler.h"
#include "quota/testing/quota_world.h"

namespace muster::quota {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace testing;  // NOLINT(google-build-using-namespace): the words of these tests

void ExpectWait(const QuotaWorld& world, const std::string& id, WaitCode code,
                const std::vector<std::string>& parts, const std::string& fix) {
  const Wait wait = world.scheduler.WhyWaiting(id);
  EXPECT_EQ(wait.code, code) << wait.message;
  for (const std::string& part : parts) EXPECT_THAT(wait.message, HasSubstr(part));
  EXPECT_THAT(wait.fix, HasSubstr(fix));
}

TEST(Waiting, ForAQueueThatIsMissing) {
  QuotaWorld world;
  world.Add(Queue("q", {{"h100", 4}}));
  world.Enqueue(Gang("a", "nothing", 1)).Enqueue(Gang("b", "", 1)).Enqueue(Gang("c", "r", 1));
  world.scheduler.Upsert(Local("r"));
  EXPECT_THAT(world.Schedule(), IsEmpty());
  ExpectWait(world, "a", WaitCode::kQueueNotFound, {"LocalQueue ns/nothing"}, "create LocalQueue");
  ExpectWait(world, "b", WaitCode::kQueueNotFound, {"no LocalQueue"}, "queue-name");
  ExpectWait(world, "c", WaitCode::kQueueNotFound, {"ClusterQueue r"}, "create");
  world.Add(Queue("r", {{"h100", 4}}));
  EXPECT_THAT(world.Schedule(), ElementsAre("c"));
}

TEST(Waiting, ForAnInvalidObjectStopsItsQueuesOnly) {
  QuotaWorld world;
  world.Add(Queue("good", {{"h100", 4}}));
  kube::ClusterQueue bad = Queue("bad", {{"h100", 4}});
  bad.error = "spec.resourceGroups[0].coveredResources is empty";
  world.Add(bad).Add(Queue("flavorless", {{"h200", 4}}));
  world.scheduler.Remove(Flavor("h200"));
  world.Enqueue(Gang("a", "bad", 1)).Enqueue(Gang("b", "flavorless", 1));
  world.Enqueue(Gang("c", "good", 1));
  EXPECT_THAT(world.Schedule(), ElementsAre("c"));
  ExpectWait(world, "a", WaitCode::kQueueInvalid,
             {"ClusterQueue bad", "spec.resourceGroups[0].coveredResources is empty"},
             "correct ClusterQueue bad");
  ExpectWait(world, "b", WaitCode::kQueueInvalid, {"ResourceFlavor h200", "doesn't exist"},
             "create ResourceFlavor h200");
  world.Add(Flavor("h200"));
  EXPECT_THAT(world.Schedule(), ElementsAre("b"));
}

TEST(Waiting, ForACycleOfCohortsIsNamedAlikeEverywhere) {
  QuotaWorld world;
  world.Add(MakeCohort("a", "b")).Add(MakeCohort("b", "c")).Add(MakeCohort("c", "a"));
  world.Add(MakeCohort("below", "b"));
  world.Add(Queue("q", {{"h100", 4}}, "below")).Add(Queue("r", {{"h100", 4}}, "c"));
  world.Add(Queue("free", {{"h100", 4}}));
  world.Enqueue(Gang("x", "q", 1)).Enqueue(Gang("y", "r", 1)).Enqueue(Gang("z", "free", 1));
  EXPECT_THAT(world.Schedule(), ElementsAre("z"));
  for (const char* id : {"x", "y"}) {
    ExpectWait(world, id, WaitCode::kQueueInvalid, {"a -> b -> c -> a"}, "spec.parentName");
  }
  world.Add(MakeCohort("c"));
  EXPECT_THAT(world.Schedule(), ElementsAre("x", "y"));
}

TEST(Waiting, ForAStoppedQueue) {
  QuotaWorld world;
  kube::ClusterQueue held = Queue("held", {{"h100", 4}}, "c");
  world.Add(held).Add(Queue("other", {{"h100", 0}}, "c"));
  world.Admit({Gang("running", "held", 2)});
  held.stop_policy = kube::StopPolicy::kHold;
  world.Add(held);
  kube::LocalQueue local = Local("other-local");
  local.cluster_queue = "other";
  local.stop_policy = kube::StopPolicy::kHoldAndDrain;
  world.scheduler.Upsert(local);
  world.Enqueue(Gang("a", "held", 1)).Enqueue(Gang("b", "other-local", 1));
  world.Enqueue(Gang("c", "other", 3, 0, 1)).Enqueue(Gang("d", "other", 2, 0, 2));
  EXPECT_THAT(world.Schedule(), ElementsAre("d")) << "a held queue still lends and counts";
  ExpectWait(world, "a", WaitCode::kQueueStopped, {"ClusterQueue held", "Hold"}, "to None");
  ExpectWait(world, "b", WaitCode::kQueueStopped, {"ns/other-local", "HoldAndDrain"}, "to None");
  EXPECT_THAT(world.scheduler.ToDrain(), IsEmpty());
  held.stop_policy = kube::StopPolicy::kHoldAndDrain;
  world.Add(held);
  EXPECT_THAT(world.scheduler.ToDrain(),
              ElementsAre(::testing::Pair("running", "ClusterQueueStopped")));
}

TEST(Waiting, ForANamespaceThatIsntSelected) {
  QuotaWorld world;
  kube::ClusterQueue queue = Queue("q", {{"h100", 4}});
  queue.namespace_selector->requirements = {{"team", kube::SelectorOperator::kIn, {"blue"}}};
  kube::ClusterQueue none = Queue("none", {{"h100", 4}});
  none.namespace_selector.reset();
  world.Add(queue).Add(none).Enqueue(Gang("a", "q", 1)).Enqueue(Gang("b", "none", 1));
  EXPECT_THAT(world.Schedule(), IsEmpty());
  ExpectWait(world, "a", WaitCode::kNamespaceNotSelected, {"spec.namespaceSelector", "ns"},
             "label");
  ExpectWait(world, "b", WaitCode::kNamespaceNotSelected, {"no spec.namespaceSelector"}, "{}");
  world.scheduler.Upsert(NamespaceNamed("ns", {{"team", "blue"}}));
  EXPECT_THAT(world.Schedule(), ElementsAre("a"));
}

TEST(Waiting, ForQuotaNamesFlavorsAndNumbers) {
  QuotaWorld world;
  world.Add(Flavor("a100", {{"model", "a100"}})).Add(Flavor("h100", {{"model", "h100"}}));
  world.Add(Queue("q", {{"a100", 2}, {"h100", 8}}));
  world.Admit({Gang("running", "q", 1)});
  world.Enqueue(Gang("large", "q", 9, 0, 1));
  Workload picky = Gang("picky", "q", 1, 0, 2);
  kube::PodSpec spec;
  spec.node_selector["model"] = "b200";
  picky.pod_sets = {Pods("worker", 1, 1, spec)};
  world.Enqueue(picky);
  Workload other = Gang("other", "q", 1, 0, 3);
  other.pod_sets = {Pods("worker", 1, 1, {}, "example.com/fpga")};
  world.Enqueue(other);
  Workload selective = Gang("selective", "q", 2, 0, 4);
  spec.node_selector["model"] = "a100";
  selective.pod_sets = {Pods("worker", 2, 1, spec)};
  world.Enqueue(selective);
  EXPECT_THAT(world.Schedule(), IsEmpty());
  ExpectWait(world, "large", WaitCode::kQuotaTooSmall,
             {"ClusterQueue q", "9 pods",
              "flavor h100 could give at most 8 nvidia.com/gpu of the 9 nvidia.com/gpu"},
             "raise nominalQuota");
  ExpectWait(world, "picky", WaitCode::kFlavorMismatch,
             {"flavor a100", "nodeSelector asks for model=b200", "model=h100"}, "nodeSelector");
  ExpectWait(world, "other", WaitCode::kResourceNotCovered, {"covers example.com/fpga"},
             "add example.com/fpga");
  ExpectWait(world, "selective", WaitCode::kQuotaInUse,
             {"flavor a100 has 1 nvidia.com/gpu unused of the 2 nvidia.com/gpu"}, "wait");
}

TEST(Status, ShowsUsageAndTheLine) {
  QuotaWorld world;
  world.Add(Queue("q", {{"h100", 4}}, "c")).Add(Queue("r", {{"h100", 4}}, "c"));
  world.Admit({Gang("a", "q", 6)});
  world.Enqueue(Gang("c", "q", 4, 0, 3)).Enqueue(Gang("b", "q", 4, 0, 2));
  EXPECT_THAT(world.Schedule(), IsEmpty());
  const std::vector<QueueStatus> queues = world.scheduler.ClusterQueues(1);
  ASSERT_EQ(queues.size(), 2u);
  EXPECT_EQ(queues[0].name, "q");
  EXPECT_EQ(queues[0].cohort, "c");
  EXPECT_EQ(queues[0].pending, 2);
  EXPECT_EQ(queues[0].admitted, 1);
  EXPECT_THAT(queues[0].pending_ids, ElementsAre("b"));
  ASSERT_EQ(queues[0].usage.size(), 1u);
  EXPECT_EQ(queues[0].usage[0].nominal, 4);
  EXPECT_EQ(queues[0].usage[0].reserved, 6);
  EXPECT_EQ(queues[0].usage[0].borrowed, 2);
  const std::vector<QueueStatus> locals = world.scheduler.LocalQueues(9);
  ASSERT_EQ(locals.size(), 2u);
  EXPECT_EQ(locals[0].name, "ns/q");
  EXPECT_THAT(locals[0].pending_ids, ElementsAre("b", "c"));
  EXPECT_EQ(locals[0].usage[0].reserved, 6);
}

TEST(Status, SaysWhichQueuesAreStopped) {
  QuotaWorld world;
  kube::ClusterQueue queue = Queue("q", {{"h100", 4}});
  world.Add(queue);
  EXPECT_EQ(world.scheduler.ClusterQueues(0)[0].stopped, "");
  EXPECT_EQ(world.scheduler.LocalQueues(0)[0].stopped, "");
  queue.stop_policy = kube::StopPolicy::kHold;
  world.scheduler.Upsert(queue);
  EXPECT_EQ(world.scheduler.ClusterQueues(0)[0].stopped, "Stopped");
  EXPECT_EQ(world.scheduler.LocalQueues(0)[0].stopped, "ClusterQueueIsInactive");
}

TEST(Status, SaysInKueuesWordsWhatQueuesLack) {
  QuotaWorld world;
  world.scheduler.Upsert(Queue("q", {{"h100", 4}}));
  kube::LocalQueue local = Local("q");
  world.scheduler.Upsert(local);
  EXPECT_EQ(world.scheduler.ClusterQueues(0)[0].stopped, "FlavorNotFound");
  EXPECT_EQ(world.scheduler.LocalQueues(0)[0].stopped, "ClusterQueueIsInactive");
  local.cluster_queue = "r";
  world.scheduler.Upsert(local);
  EXPECT_EQ(world.scheduler.LocalQueues(0)[0].stopped, "ClusterQueueDoesNotExist");
  local.stop_policy = kube::StopPolicy::kHold;
  world.scheduler.Upsert(local);
  EXPECT_EQ(world.scheduler.LocalQueues(0)[0].stopped, "Stopped");
}

TEST(Status, ShowsSharesUnderFairSharing) {
  QuotaWorld world({.fair_sharing = true});
  kube::ClusterQueue queue = Queue("q", {{"h100", 4}}, "c");
  queue.fair_weight_milli = 2000;
  world.Add(queue).Add(Queue("r", {{"h100", 4}}, "c"));
  world.Admit({Gang("a", "q", 6)});
  // Two borrowed of eight lendable, by weight 2.
  EXPECT_EQ(world.scheduler.ClusterQueues(0)[0].fair_share, 125);
  EXPECT_EQ(world.scheduler.ClusterQueues(0)[1].fair_share, 0);
}

}  // namespace
}  // namespace muster::quota
