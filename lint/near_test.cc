#include "lint/near.h"

#include <gtest/gtest.h>

#include <utility>

#include "lint/kinds.h"

namespace muster::lint {
namespace {

TEST(Near, NamesOfUsersDifferByLessThanWordsOfAnApi) {
  EXPECT_TRUE(IsNearName("research", "resaerch"));
  EXPECT_TRUE(IsNearName("datasets", "dataset"));
  EXPECT_TRUE(IsNearName("torch-gpu", "torchgpu"));
  EXPECT_TRUE(IsNearName("high-priority", "high-pryority"));
  EXPECT_FALSE(IsNearName("research", "research"));
  EXPECT_FALSE(IsNearName("team-a", "team-b"));
  EXPECT_FALSE(IsNearName("data", "data2"));
  EXPECT_FALSE(IsNearName("gpu-a10", "gpu-a100"));
  EXPECT_FALSE(IsNearName("east", "west"));
  EXPECT_FALSE(IsNearName("l4", "h4"));
}

TEST(Near, TheNearestOfSeveralIsMeant) {
  EXPECT_EQ(Nearest("onFailure", {"Always", "OnFailure", "Never"}), "OnFailure");
  EXPECT_EQ(Nearest("subnetSelector", {"subnetSelectorTerms", "role"}), "subnetSelectorTerms");
  EXPECT_EQ(Nearest("volcano", {"Always", "Never"}), "");
}

TEST(Near, KeysAreKnownByTheirDomains) {
  EXPECT_EQ(KeyMeant("karpenter.sh/node-pool"), "karpenter.sh/nodepool");
  EXPECT_EQ(KeyMeant("karpenter.sh/provisioner-name"), "karpenter.sh/nodepool");
  EXPECT_EQ(KeyMeant("karpenter.k8s.aws/instance-type"), "node.kubernetes.io/instance-type");
  EXPECT_EQ(KeyMeant("karpenter.sh/instance-family"), "karpenter.k8s.aws/instance-family");
  EXPECT_EQ(KeyMeant("karpenter.k8s.aws/gpu-name"), "karpenter.k8s.aws/instance-gpu-name");
  EXPECT_EQ(KeyMeant("kubernetes.io/zone"), "topology.kubernetes.io/zone");
  EXPECT_EQ(KeyMeant("kueue.x-k8s.io/queue"), "kueue.x-k8s.io/queue-name");
  EXPECT_EQ(KeyMeant("kueue.x-k8s.io/pod-group"), "kueue.x-k8s.io/pod-group-name");
  for (const char* right :
       {"karpenter.sh/nodepool", "app.kubernetes.io/name", "beta.kubernetes.io/arch",
        "node-role.kubernetes.io/gpu", "kubernetes.io/metadata.name", "karpenter.sh/nodepool-hash",
        "karpenter.k8s.aws/instance-new-thing", "eks.amazonaws.com/instance-family", "zone",
        "topology.k8s.aws/network-node-layer-4", "nvidia.com/gpu", "example.com/instance-type"}) {
    EXPECT_EQ(KeyMeant(right), "") << right;
  }
}

TEST(Kinds, VersionsThatAreGoneAndKindsThatAreMeant) {
  EXPECT_EQ(KindMeant("v1", "Job").api_version, "batch/v1");
  EXPECT_EQ(KindMeant("karpenter.sh/v1beta1", "NodePool").api_version, "karpenter.sh/v1");
  EXPECT_EQ(KindMeant("karpenter.k8s.aws/v1", "NodePool").api_version, "karpenter.sh/v1");
  EXPECT_EQ(KindMeant("kubeflow.org/v1", "TrainJob").api_version, "trainer.kubeflow.org/v1alpha1");
  EXPECT_EQ(KindMeant("kubeflow.org/v1", "PytorchJob").kind, "PyTorchJob");
  EXPECT_EQ(KindMeant("karpenter.sh/v1alpha5", "Provisioner").kind, "NodePool");
  EXPECT_EQ(KindMeant("extensions/v1beta1", "Deployment").api_version, "apps/v1");
  for (const auto& [version, kind] : {std::pair{"batch.volcano.sh/v1alpha1", "Job"},
                                      {"scheduling.volcano.sh/v1beta1", "PodGroup"},
                                      {"jobset.x-k8s.io/v1", "JobSet"},
                                      {"kubeflow.org/v1", "MPIJob"},
                                      {"v1", "Secret"},
                                      {"scheduling.k8s.io/v1alpha1", "Workload"},
                                      {"rbac.authorization.k8s.io/v1", "Role"},
                                      {"kueue.x-k8s.io/v1beta3", "ClusterQueue"}}) {
    EXPECT_EQ(KindMeant(version, kind).api_version, "") << version << " " << kind;
  }
}

}  // namespace
}  // namespace muster::lint
