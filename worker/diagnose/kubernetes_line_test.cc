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

TEST(KubernetesLine, StatesStandInColumns) {
  EXPECT_TRUE(IsStateLine("      Reason:       OOMKilled"));
  EXPECT_TRUE(IsStateLine("train-0   0/1   RunContainerError   3 (2m ago)   5m"));
  EXPECT_FALSE(IsStateLine("Reason: the GPU is gone"));
  EXPECT_FALSE(IsStateLine("May  7 15:02:40 gpu-7 kubelet[80]: Reason"));
  EXPECT_TRUE(IsEndOfContainer("      Finished:     Thu, 01 Jan 2026 12:08:33 +0000"));
  EXPECT_FALSE(IsEndOfContainer("Finished: 12:08:33"));
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
  EXPECT_EQ(WrittenIn(R"({"log":"\n"})"), " ");
  EXPECT_EQ(WrittenIn(R"({"message":"step 1","kubernetes":{"pod_name":"a-0"}})"),
            "[pod/a-0/pod] step 1");
  EXPECT_EQ(
      WrittenIn(R"({"ts":"2026-01-01T12:08:32Z","msg":"step 1","pod":"a-0","container":"m"})"),
      "2026-01-01T12:08:32Z [pod/a-0/m] step 1");
  EXPECT_EQ(WrittenIn(R"({"message":"step 1"})"), "");
  EXPECT_EQ(WrittenIn(R"({"message":"step 1","rank":3,"pod":"a-0"})"), "");
  EXPECT_EQ(WrittenIn(R"({"log":1})"), "");
  EXPECT_EQ(WrittenIn(R"({"log":)"), "");
  EXPECT_EQ(WrittenIn("step 1"), "");
  EXPECT_EQ(WrittenIn(R"({"timestamp":1772452877500,"message":"step 1","ingestionTime":1})"),
            "2026-03-02T12:01:17.500Z step 1");
  EXPECT_EQ(WrittenIn(R"({"__REALTIME_TIMESTAMP":"1772452877500000","MESSAGE":"step 1"})"),
            "2026-03-02T12:01:17.500Z step 1");
  EXPECT_EQ(WrittenIn(R"({"textPayload":"step 1","resource":{"labels":{"pod_name":"a-0"}}})"),
            "[pod/a-0/pod] step 1");
  EXPECT_EQ(WrittenIn(R"(2026-03-02 12:01:17 kube.a: {"log":"step 1","stream":"stderr"})"),
            "step 1");
}

constexpr std::string_view kListed = "0s  Warning  FailedMount  pod/a-0  no \"v\"";

TEST(KubernetesLine, EventsAreReadAsTheirExportersWriteThem) {
  for (const char* record :
       {R"({"verb":"ADDED","event":{"type":"Warning","reason":"FailedMount","involvedObject":)"
        R"({"kind":"Pod","name":"a-0"},"message":"no \"v\""}})",
        R"({"reason":"FailedMount","message":"no \"v\"","type":"Warning","involvedObject":)"
        R"({"kind":"Pod","name":"a-0"}})",
        R"({"reason":"FailedMount","note":"no \"v\"","type":"Warning","regarding":)"
        R"({"kind":"Pod","name":"a-0"}})",
        R"({"jsonPayload":{"reason":"FailedMount","message":"no \"v\"","type":"Warning",)"
        R"("involvedObject":{"kind":"Pod","name":"a-0"}},"severity":"WARNING"})",
        R"({"ts":"x","type":"Warning","reason":"FailedMount","name":"a-0","message":"no \"v\""})",
        R"(time=x level=info type=Warning reason=FailedMount pod=a-0 msg="no \"v\"")",
        R"(name=a-0 kind=Pod reason=FailedMount type=Warning msg="no \"v\"")",
        R"(I0302 10:00:00 1 event.go:389] "Event occurred" object="ml/a-0" kind="Pod" )"
        R"(type="Warning" reason="FailedMount" message="no \"v\"")",
        R"(Event(v1.ObjectReference{Kind:"Pod", Namespace:"ml", Name:"a-0"}): type: 'Warning' )"
        R"(reason: 'FailedMount' no "v")"}) {
    EXPECT_EQ(WrittenIn(record), kListed) << record;
  }
  EXPECT_EQ(WrittenIn(R"({"reason":"it is late","message":"x"})"), "");
  EXPECT_EQ(WrittenIn("reason=late msg=x"), "");
}

TEST(KubernetesLine, EventsAreReadInOtherWords) {
  for (const char* line :
       {"[Warning] FailedMount pod/a-0: no \"v\"", "Warning: FailedMount: pod/a-0: no \"v\"",
        "2026-03-02 10:00:00 evt Warning FailedMount a-0 no \"v\"",
        "event(Pod/a-0) FailedMount: no \"v\"", "10:00   FailedMount   a-0   no \"v\""}) {
    EXPECT_TRUE(MayTellOfEvent(line)) << line;
    EXPECT_EQ(AsListed(line, line), kListed) << line;
  }
  for (const char* line :
       {"4m2s   Warning   FailedMount   pod/a-0   no", "  Warning  FailedMount  3m  kubelet  no",
        "web-0   0/1   ImagePullBackOff   0   3h", "Killing the worker", "Evicted 3 entries"}) {
    EXPECT_EQ(AsListed(line, line), "") << line;
  }
  EXPECT_FALSE(MayTellOfEvent("step 1 loss 2.2"));
  EXPECT_TRUE(IsEvent("level=info msg=\"0/9 nodes are available: 9 Insufficient cpu\""));
  EXPECT_EQ(ListedObject("10:00   Warning   FailedMount   a-0   no"), "a-0");
}

TEST(KubernetesLine, ObjectsInYamlAndJsonHaveKeys) {
  EXPECT_EQ(KeyedValue("    name: a-0", "name"), "a-0");
  EXPECT_EQ(KeyedValue("    \"name\": \"a-0\",", "name"), "a-0");
  EXPECT_EQ(KeyedValue("    names: a-0", "name"), "");
  EXPECT_TRUE(IsStateLine("    reason: OOMKilled"));
  EXPECT_TRUE(IsStateLine("    \"reason\": \"OOMKilled\","));
  EXPECT_FALSE(IsStateLine("reason: the GPU is gone"));
}

}  // namespace
}  // namespace muster::worker
