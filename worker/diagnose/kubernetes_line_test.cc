#include "worker/diagnose/kubernetes_line.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

TEST(KubernetesLine, EventsStandByThemselvesOrAfterAnAge) {
  EXPECT_TRUE(IsEvent("  Warning  Unhealthy  3m  kubelet  Liveness probe failed"));
  EXPECT_TRUE(IsEvent("4m2s   Normal   Killing   pod/a-0   Stopping container main"));
  EXPECT_FALSE(IsEvent("a Warning about this"));
}

TEST(KubernetesLine, NamesTheObjectThatIsListed) {
  EXPECT_EQ(ListedObject("4m2s   Normal   Killing   pod/a-0   Stopping container main"), "a-0");
  EXPECT_EQ(ListedObject("ml   train-0   0/1   OOMKilled   3 (2m ago)   5m"), "train-0");
  EXPECT_EQ(ListedObject("  Normal   Killing   3m   kubelet   Stopping container main"), "");
}

TEST(KubernetesLine, StatusLinesAreThoseOfObjects) {
  EXPECT_TRUE(IsStatusLine("      Reason:       OOMKilled"));
  EXPECT_TRUE(IsListedPod("train-0   0/1   RunContainerError   3 (2m ago)   5m"));
  EXPECT_FALSE(IsStatusLine("step 1 loss 2.2"));
  EXPECT_FALSE(IsListedPod("epoch 1/8 loss=2.2"));
}

TEST(KubernetesLine, NodesOfTheControlPlaneAreMeantForNoJob) {
  EXPECT_EQ(WithoutControlPlane("0/6 nodes are available: 1 node(s) had untolerated taint "
                                "{node-role.kubernetes.io/control-plane: }, 5 Insufficient cpu. x"),
            "0/6 nodes are available: 5 Insufficient cpu. x");
  EXPECT_EQ(
      WithoutControlPlane("0/6 nodes are available: 3 Insufficient cpu, 3 node(s) had taint "
                          "{node-role.kubernetes.io/master: }, that the pod didn't tolerate."),
      "0/6 nodes are available: 3 Insufficient cpu.");
  for (const char* as_it_is :
       {"0/1 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/master: "
        "}. preemption: none",
        "0/1 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/",
        "0/2 nodes are available: 2 node(s) had untolerated taint {team: a}, 1 Insufficient cpu",
        "no nodes"}) {
    EXPECT_EQ(WithoutControlPlane(as_it_is), as_it_is);
  }
}

TEST(KubernetesLine, RecordsHoldALineAndItsTime) {
  EXPECT_EQ(WrittenIn(R"({"log":"step 1\n","stream":"stderr","time":"2026-01-01T12:08:32.5Z"})"),
            "2026-01-01T12:08:32.5Z step 1");
  EXPECT_EQ(WrittenIn(R"({"log":"step 1"})"), "step 1");
  EXPECT_EQ(WrittenIn(R"({"log":"a\nb"})"), "");
  EXPECT_EQ(WrittenIn(R"({"log":1})"), "");
  EXPECT_EQ(WrittenIn(R"({"log":)"), "");
  EXPECT_EQ(WrittenIn("step 1"), "");
}

}  // namespace
}  // namespace muster::worker
