#include "extender/admission_lint.h"

#include <gtest/gtest.h>

#include <string>

namespace muster::extender {
namespace {

constexpr const char* kPod = R"json({
  "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team"},
  "spec": {"schedulerName": "coscheduling", "nodeSelector": {"karpenter.sh/nodepool": "gpu"},
           "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}})json";

std::string PoolOf(const std::string& type) {
  return R"json({"metadata": {"name": "gpu"}, "spec": {"template": {"spec": {"requirements": [
      {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [")json" +
         type + R"json("]}]}}}})json";
}

kube::ObjectHeader Named(const std::string& name) {
  kube::ObjectHeader header;
  header.name = name;
  return header;
}

std::string RulesOf(const lint::ObjectLint& lint) {
  std::string rules;
  for (const lint::Finding& finding : lint.findings) rules += std::string(finding.rule) + " ";
  return rules;
}

TEST(AdmissionLint, LooksAtTheNodePoolsThatAreWatched) {
  AdmissionLint lint({}, [] { return true; });
  EXPECT_EQ(RulesOf(lint.Check("team", kPod)), "");
  lint.Upsert("nodepools", Named("gpu"), PoolOf("g6.2xlarge"));
  EXPECT_EQ(RulesOf(lint.Check("team", kPod)), "gpu-count-too-large ");
  lint.Upsert("nodes", Named("gpu"), "{}");
  lint.Upsert("nodepools", Named("gpu"), PoolOf("p5.48xlarge"));
  EXPECT_EQ(RulesOf(lint.Check("team", kPod)), "");
  lint.Upsert("nodepools", Named("gpu"), PoolOf("g6.2xlarge"));
  lint.Remove("nodes", Named("gpu"));
  EXPECT_EQ(RulesOf(lint.Check("team", kPod)), "gpu-count-too-large ");
  lint.Remove("nodepools", Named("gpu"));
  EXPECT_EQ(RulesOf(lint.Check("team", kPod)), "");
}

TEST(AdmissionLint, KnowsTheTypesThatItIsGiven) {
  cluster::InstanceTypes types = cluster::InstanceTypes::BuiltIn();
  ASSERT_TRUE(types.Add("g99.large  8  32Gi  1  0  0  l99", "ours.txt").ok());
  coscheduling::EngineOptions options;
  options.instance_types = types;
  AdmissionLint lint(options, [] { return true; });
  lint.Upsert("nodepools", Named("gpu"), PoolOf("g99.large"));
  EXPECT_EQ(RulesOf(lint.Check("team", kPod)), "gpu-count-too-large ");
}

TEST(AdmissionLint, SaysNothingOfNodePoolsWhileSomeMayNotBeKnown) {
  bool whole = false;
  AdmissionLint lint({}, [&] { return whole; });
  lint.Upsert("nodepools", Named("gpu"), PoolOf("g6.2xlarge"));
  EXPECT_EQ(RulesOf(lint.Check("team", kPod)), "");
  whole = true;
  EXPECT_EQ(RulesOf(lint.Check("team", kPod)), "gpu-count-too-large ");
}

// A gang of plain pods, each of which is looked at with all of them.
TEST(AdmissionLint, ALargeGangThatIsCreatedPodByPodCostsABoundedTime) {
  AdmissionLint lint({}, [] { return true; });
  kube::ObjectHeader group = Named("g");
  group.name_space = "team";
  lint.Upsert("podgroups", group,
              R"json({"metadata": {"name": "g", "namespace": "team"},
                      "spec": {"minMember": 500}})json");
  std::string pod = kPod;
  pod.replace(pod.find(R"("namespace")"), 0,
              R"("labels": {"scheduling.x-k8s.io/pod-group": "g"}, )");
  int looked = 0, skipped = 0;
  for (int i = 0; i < 10'000; ++i) ++(lint.Check("team", pod).skipped ? skipped : looked);
  EXPECT_GT(looked, 1);
  EXPECT_GT(skipped, looked);
  EXPECT_FALSE(lint.Check("other", pod).skipped);
}

}  // namespace
}  // namespace muster::extender
