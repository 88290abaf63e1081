#include "kube/objects/pod.h"

#include <gtest/gtest.h>

#include <vector>

#include "kube/objects/node.h"

namespace muster::kube {
namespace {

struct TolerationCase {
  const char* name;
  Toleration toleration;
  Taint taint;
  bool want;
};

TEST(Toleration, ToleratesAsKubernetesDoes) {
  using enum TaintEffect;
  const std::vector<TolerationCase> cases = {
      {"Equal with key, value and effect",
       {"gpu", false, "yes", kNoSchedule},
       {"gpu", "yes", kNoSchedule},
       true},
      {"Equal with another value",
       {"gpu", false, "no", kNoSchedule},
       {"gpu", "yes", kNoSchedule},
       false},
      {"Equal with another key",
       {"cpu", false, "yes", kNoSchedule},
       {"gpu", "yes", kNoSchedule},
       false},
      {"Equal with another effect",
       {"gpu", false, "yes", kNoExecute},
       {"gpu", "yes", kNoSchedule},
       false},
      {"without an effect: every effect",
       {"gpu", false, "yes", {}},
       {"gpu", "yes", kNoExecute},
       true},
      {"Equal without values on both sides",
       {"gpu", false, "", {}},
       {"gpu", "", kNoSchedule},
       true},
      {"Exists ignores the value",
       {"gpu", true, "", kNoSchedule},
       {"gpu", "yes", kNoSchedule},
       true},
      {"Exists with another key", {"cpu", true, "", {}}, {"gpu", "yes", kNoSchedule}, false},
      {"Exists without a key: everything", {"", true, "", {}}, {"gpu", "yes", kNoExecute}, true},
      {"Exists without a key, with an effect",
       {"", true, "", kNoSchedule},
       {"gpu", "yes", kNoExecute},
       false},
  };
  for (const TolerationCase& c : cases) {
    EXPECT_EQ(c.toleration.Tolerates(c.taint), c.want) << c.name;
  }
}

TEST(Taint, PrintsAsKubectlTakesIt) {
  EXPECT_EQ((Taint{"gpu", "yes", TaintEffect::kNoSchedule}.ToString()), "gpu=yes:NoSchedule");
  EXPECT_EQ((Taint{"karpenter.sh/unregistered", "", TaintEffect::kNoExecute}.ToString()),
            "karpenter.sh/unregistered:NoExecute");
}

TEST(Pod, KnowsItsGates) {
  Pod pod;
  pod.scheduling_gates = {"muster.dev/admission"};
  EXPECT_TRUE(pod.HasGate("muster.dev/admission"));
  EXPECT_FALSE(pod.HasGate("other"));
}

TEST(NodeClaim, ReadsConditionsByStatus) {
  NodeClaim claim;
  claim.conditions["Launched"].status = "True";
  claim.conditions["Registered"].status = "Unknown";
  EXPECT_TRUE(claim.IsTrue("Launched"));
  EXPECT_FALSE(claim.IsTrue("Registered"));
  EXPECT_FALSE(claim.IsTrue("Initialized"));
}

}  // namespace
}  // namespace muster::kube
