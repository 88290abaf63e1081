// The real kubectl against the front: what a user types, and what they see.
//
// kubectl is $MUSTER_KUBECTL, or the one on PATH; without one these tests fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "kube/embedded/http_front.h"
#include "kube/embedded/test_client.h"

namespace muster::kube::embedded {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr const char* kGang = R"(
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: job}
spec: {minMember: 2, scheduleTimeoutSeconds: 600}
---
apiVersion: v1
kind: Pod
metadata:
  name: job-0
  labels: {scheduling.x-k8s.io/pod-group: job, tier: "1"}
spec:
  schedulerName: coscheduling
  schedulingGates: [{name: muster.dev/admission}]
  containers:
  - name: main
    image: example/train:1
    env: [{name: RANK, value: "0"}]
    resources: {limits: {nvidia.com/gpu: "8"}}
)";

struct Output {
  int status = -1;
  std::string text;  // both streams
};

class KubectlTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const char* named = getenv("MUSTER_KUBECTL");
    kubectl_ = named != nullptr ? named : "kubectl";
    std::string folder = std::filesystem::temp_directory_path() / "embedded-kubectl-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    HttpFrontOptions options;
    options.tls = GetParam();
    auto front = HttpFront::Start(&server_, options);
    ASSERT_TRUE(front.ok()) << front.status();
    front_ = *std::move(front);
    std::ofstream(folder_ / "config") << front_->Kubeconfig();
    Output version = Kubectl("version -o json");
    ASSERT_EQ(version.status, 0) << "kubectl is needed, on PATH or as $MUSTER_KUBECTL: "
                                 << version.text;
  }

  void TearDown() override { std::filesystem::remove_all(folder_); }

  Output Kubectl(const std::string& arguments, const std::string& input = "") {
    std::ofstream(folder_ / "input") << input;
    std::string command = "HOME='" + folder_.string() + "' KUBECONFIG='" +
                          (folder_ / "config").string() + "' '" + kubectl_ +
                          "' --request-timeout=20s " + arguments + " <'" +
                          (folder_ / "input").string() + "' 2>&1";
    Output output;
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return output;
    char bytes[4096];
    while (size_t count = fread(bytes, 1, sizeof(bytes), pipe)) output.text.append(bytes, count);
    int status = pclose(pipe);
    output.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return output;
  }

  void Expect(const std::string& arguments, const std::string& input,
              const ::testing::Matcher<const std::string&>& text, int status = 0) {
    Output output = Kubectl(arguments, input);
    EXPECT_EQ(output.status, status) << arguments << ": " << output.text;
    EXPECT_THAT(output.text, text) << arguments;
  }

  Response Patch(const std::string& path, const TestJson& patch) {
    return server_.Handle({Method::kPatch, path, {}, std::string(kMergePatch), patch.dump()});
  }

  std::string kubectl_;
  std::filesystem::path folder_;
  ApiServer server_;
  std::unique_ptr<HttpFront> front_;
};

TEST_P(KubectlTest, ApplyGetDescribeDelete) {
  Expect(
      "apply -f -", kGang,
      AllOf(HasSubstr("podgroup.scheduling.x-k8s.io/job created"), HasSubstr("pod/job-0 created")));
  Expect("apply -f -", kGang,
         AllOf(HasSubstr("podgroup.scheduling.x-k8s.io/job unchanged"),
               HasSubstr("pod/job-0 unchanged")));
  std::string changed = kGang;
  changed.replace(changed.find("minMember: 2"), 12, "minMember: 3");
  changed.replace(changed.find("train:1"), 7, "train:2");
  changed.replace(changed.find(", tier: \"1\""), 11, "");
  Expect("apply -f -", changed,
         AllOf(HasSubstr("podgroup.scheduling.x-k8s.io/job configured"),
               HasSubstr("pod/job-0 configured")));
  Expect(
      "get pod job-0 -o jsonpath='{.spec.containers[0].image} {.spec.containers[0].env[0].name}"
      " {.metadata.labels}'",
      "", AllOf(HasSubstr("example/train:2 RANK"), Not(HasSubstr("tier"))));
  Expect("get pods", "",
         HasSubstr("NAME    READY   STATUS            RESTARTS   AGE\n"
                   "job-0   0/1     SchedulingGated   0 "));
  Expect("get podgroups", "",
         AllOf(HasSubstr("NAME   PHASE   MINMEMBER   SCHEDULED   RUNNING"),
               HasSubstr("job            3")));
  Expect("get pods -l scheduling.x-k8s.io/pod-group=job -o name", "", "pod/job-0\n");
  Expect("describe pod job-0", "",
         AllOf(HasSubstr("nvidia.com/gpu:  8"), HasSubstr("PodScheduled   False"),
               HasSubstr("Status:           Pending")));
  Expect("delete -f -", kGang,
         AllOf(HasSubstr("podgroup.scheduling.x-k8s.io \"job\" deleted"),
               HasSubstr("pod \"job-0\" deleted")));
  Expect("get pods,podgroups", "", HasSubstr("No resources found"));
}

TEST_P(KubectlTest, ShowsNodesAndEvents) {
  TestJson node = MakeNode("gpu-1");
  node["metadata"]["labels"] = {{"node.kubernetes.io/instance-type", "p5.48xlarge"},
                                {"topology.kubernetes.io/zone", "us-west-2a"}};
  node["status"]["allocatable"] = node["status"]["capacity"];
  node["status"]["allocatable"]["nvidia.com/gpu"] = "7";
  Expect("apply -f -", node.dump(), HasSubstr("node/gpu-1 created"));
  Expect("get nodes -o wide", "",
         AllOf(HasSubstr("gpu-1   Ready    <none>"), HasSubstr("7/8"), HasSubstr("p5.48xlarge"),
               HasSubstr("us-west-2a")));
  Expect("cordon gpu-1", "", HasSubstr("node/gpu-1 cordoned"));
  Expect("get nodes", "", HasSubstr("Ready,SchedulingDisabled"));
  Expect("describe node gpu-1", "",
         AllOf(HasSubstr("nvidia.com/gpu:  7"), HasSubstr("Conditions")));
  Expect("apply -f -", kGang, HasSubstr("created"));
  Output uid = Kubectl("get podgroup job -o jsonpath={.metadata.uid}");
  TestJson event = {{"apiVersion", "v1"},
                    {"kind", "Event"},
                    {"metadata", {{"name", "e1"}, {"namespace", "default"}}},
                    {"involvedObject",
                     {{"apiVersion", "scheduling.x-k8s.io/v1alpha1"},
                      {"kind", "PodGroup"},
                      {"namespace", "default"},
                      {"name", "job"},
                      {"uid", uid.text}}},
                    {"reason", "WaitingForMembers"},
                    {"message", "1 of 2 members exist"},
                    {"source", {{"component", "muster"}}},
                    {"count", 1},
                    {"type", "Normal"}};
  Expect("create -f -", event.dump(), HasSubstr("event/e1 created"));
  Expect("describe podgroup job", "",
         AllOf(HasSubstr("Min Member:                2"), HasSubstr("WaitingForMembers"),
               HasSubstr("1 of 2 members exist")));
  Expect("get events", "", HasSubstr("podgroup/job   1 of 2 members exist"));
}

TEST_P(KubectlTest, ValidatesOnTheServer) {
  Expect("apply --dry-run=server -f -", kGang, HasSubstr("job created (server dry run)"));
  Expect("get podgroup job", "", HasSubstr("podgroups.scheduling.x-k8s.io \"job\" not found"), 1);
  std::string typo = kGang;
  typo.replace(typo.find("image:"), 6, "imagee:");
  Expect("apply -f -", typo, HasSubstr("unknown field \"spec.containers[0].imagee\""), 1);
  Expect("apply -f - --validate=ignore", typo, HasSubstr("spec.containers[0].image: Required"), 1);
  std::string zero = kGang;
  zero.replace(zero.find("minMember: 2"), 12, "minMember: 0");
  Expect("apply -f -", zero,
         HasSubstr("spec.minMember in body should be greater than or equal to 1"), 1);
}

TEST_P(KubectlTest, AppliesOnTheServer) {
  Expect("apply --server-side -f -", kGang,
         AllOf(HasSubstr("podgroup.scheduling.x-k8s.io/job serverside-applied"),
               HasSubstr("pod/job-0 serverside-applied")));
  std::string changed = kGang;
  changed.replace(changed.find("minMember: 2"), 12, "minMember: 3");
  Expect("apply --server-side --field-manager=other -f -", changed,
         HasSubstr("conflict with \"kubectl\": .spec.minMember"), 1);
  Expect("apply --server-side --field-manager=other --force-conflicts -f -", changed,
         HasSubstr("podgroup.scheduling.x-k8s.io/job serverside-applied"));
  Expect("get podgroup job -o jsonpath={.spec.minMember}", "", HasSubstr("3"));
}

TEST_P(KubectlTest, NamespacesPatchesAndWaits) {
  Expect("apply -f -", R"({"apiVersion":"v1","kind":"Namespace","metadata":{"name":"team"}})",
         HasSubstr("namespace/team created"));
  Expect("apply -n team -f -", kGang, HasSubstr("pod/job-0 created"));
  Expect("get pods -A", "", HasSubstr("team        job-0"));
  Expect("label -n team pod job-0 a=b", "", HasSubstr("pod/job-0 labeled"));
  Expect("annotate -n team pod job-0 c=d", "", HasSubstr("pod/job-0 annotated"));
  Expect("patch -n team pod job-0 -p '{\"spec\":{\"schedulingGates\":null}}'", "",
         HasSubstr("pod/job-0 patched"));
  Expect("patch -n team podgroup job --type=merge -p '{\"spec\":{\"minMember\":1}}'", "",
         HasSubstr("patched"));
  EXPECT_EQ(Patch("/api/v1/namespaces/team/pods/job-0/status",
                  {{"status", {{"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}})
                .status,
            200);
  Expect("wait -n team --for=condition=Ready pod/job-0 --timeout=10s", "",
         HasSubstr("pod/job-0 condition met"));
  Expect("delete namespace team", "", HasSubstr("namespace \"team\" deleted"));
  Expect("get pods -A", "", HasSubstr("No resources found"));
}

TEST_P(KubectlTest, ShippedPodGroupDefinition) {
  Expect("apply -f deploy/crds/scheduling.x-k8s.io_podgroups.yaml", "",
         HasSubstr("customresourcedefinition.apiextensions.k8s.io/podgroups.scheduling.x-k8s.io"));
  Expect("wait --for=condition=Established crd/podgroups.scheduling.x-k8s.io --timeout=10s", "",
         HasSubstr("condition met"));
  Expect("apply -f -", kGang, HasSubstr("podgroup.scheduling.x-k8s.io/job created"));
  Expect("get pg job", "", HasSubstr("job"));
}

TEST_P(KubectlTest, ADefinitionOfOnesOwn) {
  const char* definition = R"({
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "trainjobs.example.com"},
    "spec": {"group": "example.com", "scope": "Namespaced",
      "names": {"kind": "TrainJob", "plural": "trainjobs", "shortNames": ["tj"]},
      "versions": [{"name": "v1", "served": true, "storage": true,
        "additionalPrinterColumns": [{"name": "Nodes", "type": "integer",
                                      "jsonPath": ".spec.numNodes"}],
        "schema": {"openAPIV3Schema": {"type": "object",
          "properties": {"spec": {"type": "object",
            "properties": {"numNodes": {"type": "integer"}}}}}}}]}})";
  Expect("apply -f -", definition, HasSubstr("trainjobs.example.com created"));
  const char* job = R"({"apiVersion": "example.com/v1", "kind": "TrainJob",
                        "metadata": {"name": "t"}, "spec": {"numNodes": 4}})";
  Expect("apply -f -", job, HasSubstr("trainjob.example.com/t created"));
  Expect("get tj", "", HasSubstr("NAME   NODES\nt      4"));
  Expect("delete crd trainjobs.example.com", "", HasSubstr("deleted"));
  Expect("get tj", "", HasSubstr("the server could not find the requested resource"), 1);
}

TEST_P(KubectlTest, Discovery) {
  Expect("version", "", HasSubstr("Server Version: v1.34.2"));
  Expect("api-resources --no-headers", "",
         AllOf(HasSubstr("podgroups"), HasSubstr("poddisruptionbudgets"), HasSubstr("nodeclaims"),
               Not(HasSubstr("error"))));
  Expect("get --raw /readyz", "", "ok");
  Expect("explain podgroup", "", HasSubstr("KIND:       PodGroup"));
}

INSTANTIATE_TEST_SUITE_P(, KubectlTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Tls" : "Plain"; });

}  // namespace
}  // namespace muster::kube::embedded
