#include "tests/bench/engine_objects.h"

#include <array>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/str_replace.h"
#include "coscheduling/labels.h"
#include "fmt/format.h"
#include "kube/objects/decode.h"
#include "kube/objects/well_known.h"

namespace muster::bench {
namespace {

constexpr char kNode[] = R"({
"metadata":{"name":"n","uid":"u","creationTimestamp":"2026-01-01T00:00:00Z",
"labels":{"beta.kubernetes.io/arch":"amd64","beta.kubernetes.io/instance-type":"p5.48xlarge",
"beta.kubernetes.io/os":"linux","eks.amazonaws.com/capacityType":"CAPACITY_BLOCK",
"eks.amazonaws.com/nodegroup":"training-p5","eks.amazonaws.com/nodegroup-image":"ami-0f3c7d07486cad139",
"eks.amazonaws.com/sourceLaunchTemplateId":"lt-0e0dc5ae23f1f2a6b",
"eks.amazonaws.com/sourceLaunchTemplateVersion":"3","failure-domain.beta.kubernetes.io/region":"us-west-2",
"failure-domain.beta.kubernetes.io/zone":"us-west-2a","k8s.io/cloud-provider-aws":"4c9d7d1a2b6f3e805c1d9a7b4e2f6083",
"kubernetes.io/arch":"amd64","kubernetes.io/hostname":"n","kubernetes.io/os":"linux",
"node.kubernetes.io/instance-type":"p5.48xlarge","nvidia.com/gpu.count":"8","nvidia.com/gpu.present":"true",
"nvidia.com/gpu.product":"NVIDIA-H100-80GB-HBM3","nvidia.com/gpu.memory":"81559","nvidia.com/mig.capable":"true",
"topology.ebs.csi.aws.com/zone":"us-west-2a","topology.k8s.aws/network-node-layer-1":"nn-1111111111111111",
"topology.k8s.aws/network-node-layer-2":"nn-2222222222222222","topology.k8s.aws/network-node-layer-3":"nn-3333333333333333",
"topology.k8s.aws/zone-id":"usw2-az1","topology.kubernetes.io/region":"us-west-2",
"topology.kubernetes.io/zone":"us-west-2a","vpc.amazonaws.com/efa.present":"true"},
"annotations":{"alpha.kubernetes.io/provided-node-ip":"10.0.0.1",
"csi.volume.kubernetes.io/nodeid":"{\"ebs.csi.aws.com\":\"i-0123456789abcdef0\",\"fsx.csi.aws.com\":\"ip-10-0-0-1\"}",
"node.alpha.kubernetes.io/ttl":"15","volumes.kubernetes.io/controller-managed-attach-detach":"true"}},
"spec":{"providerID":"aws:///us-west-2a/i-0123456789abcdef0",
"taints":[{"key":"nvidia.com/gpu","value":"true","effect":"NoSchedule"}]},
"status":{"capacity":{"cpu":"192","ephemeral-storage":"3145714668Ki","hugepages-1Gi":"0","hugepages-2Mi":"42242Mi",
"memory":"2097152Mi","nvidia.com/gpu":"8","pods":"250","vpc.amazonaws.com/efa":"32"},
"allocatable":{"cpu":"191450m","ephemeral-storage":"2898068692Ki","hugepages-1Gi":"0","hugepages-2Mi":"42242Mi",
"memory":"2050000Mi","nvidia.com/gpu":"8","pods":"250","vpc.amazonaws.com/efa":"32"},
"conditions":[{"type":"MemoryPressure","status":"False"},{"type":"DiskPressure","status":"False"},
{"type":"PIDPressure","status":"False"},
{"type":"Ready","status":"True","reason":"KubeletReady","lastTransitionTime":"2026-01-01T00:02:00Z"}]}})";

constexpr char kTenant[] = R"({
"metadata":{"name":"p","namespace":"research","uid":"u","creationTimestamp":"2026-01-01T01:00:00Z",
"labels":{"app.kubernetes.io/managed-by":"argo-workflows","batch.kubernetes.io/controller-uid":"5b0e6a4f-0a4d-4a2e-9a43-5c9f9f5b0c11",
"batch.kubernetes.io/job-name":"pretrain-baseline","controller-uid":"5b0e6a4f-0a4d-4a2e-9a43-5c9f9f5b0c11","job-name":"pretrain-baseline"},
"annotations":{"karpenter.sh/do-not-disrupt":"true","prometheus.io/port":"9400","prometheus.io/scrape":"true",
"example.com/launched-by":"research-platform@example.com, run 2026-01-01T00:59:31Z, image digest sha256:6d1ef012b5674ad8a127ecfa9b5e6f5178d171b90ee462846974177fd9bdd39f"},
"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"pretrain-baseline","uid":"5b0e6a4f-0a4d-4a2e-9a43-5c9f9f5b0c11","controller":true}],
"finalizers":["batch.kubernetes.io/job-tracking"]},
"spec":{"schedulerName":"default-scheduler","nodeName":"n","nodeSelector":{"node.kubernetes.io/instance-type":"p5.48xlarge"},
"tolerations":[{"key":"nvidia.com/gpu","operator":"Exists","effect":"NoSchedule"},
{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},
{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],
"containers":[{"name":"main","image":"i","resources":{
"requests":{"cpu":"150","memory":"1800Gi","nvidia.com/gpu":"8","vpc.amazonaws.com/efa":"32","hugepages-2Mi":"5120Mi"},
"limits":{"memory":"1800Gi","nvidia.com/gpu":"8","vpc.amazonaws.com/efa":"32","hugepages-2Mi":"5120Mi"}}}]},
"status":{"phase":"Running","conditions":[{"type":"PodScheduled","status":"True"},{"type":"Ready","status":"True"}],
"containerStatuses":[{"name":"main","started":true,"state":{"running":{"startedAt":"2026-01-01T01:00:30Z"}}}]}})";

// With @ for the daemon's name, * for its controller's UID.
constexpr char kDaemon[] = R"({
"metadata":{"name":"p","namespace":"kube-system","uid":"u","creationTimestamp":"2026-01-01T00:02:00Z",
"labels":{"app.kubernetes.io/instance":"@","app.kubernetes.io/name":"@","controller-revision-hash":"6f8c7d9b5c",
"k8s-app":"@","pod-template-generation":"4"},
"annotations":{"kubectl.kubernetes.io/default-container":"@","prometheus.io/scrape":"true"},
"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"@","uid":"*","controller":true}]},
"spec":{"schedulerName":"default-scheduler","nodeName":"n","priority":2000001000,"priorityClassName":"system-node-critical",
"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
{"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}]}]}}},
"tolerations":[{"operator":"Exists"},
{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute"},
{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute"},
{"key":"node.kubernetes.io/disk-pressure","operator":"Exists","effect":"NoSchedule"},
{"key":"node.kubernetes.io/memory-pressure","operator":"Exists","effect":"NoSchedule"},
{"key":"node.kubernetes.io/pid-pressure","operator":"Exists","effect":"NoSchedule"},
{"key":"node.kubernetes.io/unschedulable","operator":"Exists","effect":"NoSchedule"}],
"containers":[{"name":"@","image":"i","resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"memory":"512Mi"}}}]},
"status":{"phase":"Running","conditions":[{"type":"PodScheduled","status":"True"},{"type":"Ready","status":"True"}],
"containerStatuses":[{"name":"@","started":true,"state":{"running":{"startedAt":"2026-01-01T00:02:20Z"}}}]}})";

constexpr char kDaemonSet[] = R"({
"metadata":{"name":"@","namespace":"kube-system","uid":"*"},
"spec":{"selector":{"matchLabels":{"k8s-app":"@"}},"template":{"metadata":{"labels":{"k8s-app":"@"}},
"spec":{"priorityClassName":"system-node-critical","tolerations":[{"operator":"Exists"}],
"containers":[{"name":"@","image":"i","resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"memory":"512Mi"}}}]}}}})";

constexpr char kService[] = R"({
"metadata":{"name":"p","namespace":"monitoring","uid":"u","creationTimestamp":"2026-01-01T02:00:00Z",
"labels":{"app.kubernetes.io/component":"query","app.kubernetes.io/instance":"dashboards","app.kubernetes.io/name":"dashboards",
"app.kubernetes.io/version":"11.2.0","helm.sh/chart":"dashboards-8.5.1","pod-template-hash":"7d9c5b8f66"},
"annotations":{"checksum/config":"4b86a1e0ff3c5b0a5d2a6d3b1c9d8c2f6c2f41c0f5b7b5d4a4a6a1d9ad7c9b30","prometheus.io/port":"3000","prometheus.io/scrape":"true"},
"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"dashboards-7d9c5b8f66","uid":"0c6c2c3e-6b3b-4e0e-8c0a-4f7c21d1c0f8","controller":true}]},
"spec":{"schedulerName":"default-scheduler","nodeName":"n",
"tolerations":[{"key":"nvidia.com/gpu","operator":"Exists"},
{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},
{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],
"containers":[{"name":"main","image":"i","resources":{"requests":{"cpu":"250m","memory":"256Mi"},"limits":{"cpu":"1","memory":"512Mi"}}}]},
"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True"}]}})";

// With @ for the role.
constexpr char kMember[] = R"({
"metadata":{"name":"p","namespace":"t","uid":"u","creationTimestamp":"2026-01-01T03:00:00Z",
"labels":{"scheduling.x-k8s.io/pod-group":"g","training.kubeflow.org/job-name":"g","training.kubeflow.org/job-role":"@",
"training.kubeflow.org/operator-name":"pytorchjob-controller","training.kubeflow.org/replica-index":"0","training.kubeflow.org/replica-type":"@"},
"annotations":{"sidecar.istio.io/inject":"false"},
"ownerReferences":[{"apiVersion":"example.com/v1","kind":"TrainingRun","name":"g","uid":"o","controller":true}]},
"spec":{"schedulerName":"coscheduling","schedulingGates":[{"name":"muster.dev/admission"}],
"nodeSelector":{"node.kubernetes.io/instance-type":"p5.48xlarge"},
"tolerations":[{"key":"nvidia.com/gpu","operator":"Exists","effect":"NoSchedule"},
{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},
{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],
"containers":[{"name":"pytorch","image":"i","resources":{
"requests":{"cpu":"8","memory":"512Gi","nvidia.com/gpu":"8","vpc.amazonaws.com/efa":"32"},
"limits":{"memory":"512Gi","nvidia.com/gpu":"8","vpc.amazonaws.com/efa":"32"}}}]},
"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"SchedulingGated",
"message":"Scheduling is blocked due to non-empty scheduling gates"}]}})";

constexpr char kGroup[] = R"({
"metadata":{"name":"g","namespace":"t","uid":"u","creationTimestamp":"2026-01-01T03:00:00Z",
"labels":{"app.kubernetes.io/managed-by":"training-platform"},
"ownerReferences":[{"apiVersion":"example.com/v1","kind":"TrainingRun","name":"g","uid":"o","controller":true}]},
"spec":{"minMember":2,"scheduleTimeoutSeconds":604800}})";

constexpr std::array<const char*, kDaemons> kDaemonNames = {"aws-node",
                                                            "kube-proxy",
                                                            "nvidia-device-plugin-daemonset",
                                                            "aws-efa-k8s-device-plugin",
                                                            "dcgm-exporter",
                                                            "aws-for-fluent-bit"};

template <typename T>
T Read(std::string_view json) {
  absl::StatusOr<T> object = kube::Decode<T>(json);
  if (object.ok()) return *std::move(object);
  std::cerr << "engine_objects: " << object.status() << "\n";
  std::exit(2);
}

template <typename T>
T Named(T object, const std::string& name, const std::string& uid, uint64_t version) {
  object.meta.name = name;
  object.meta.uid = uid;
  object.meta.resource_version = std::to_string(version);
  return object;
}

std::string DaemonUid(int daemon) { return fmt::format("7e4f0f5a-0000-4000-8000-{:012}", daemon); }

std::string DaemonJson(const char* json, int daemon) {
  return absl::StrReplaceAll(json, {{"@", kDaemonNames[daemon]}, {"*", DaemonUid(daemon)}});
}

void GiveOwnSpec(kube::Pod& pod, const std::function<void(kube::PodSpec&)>& change) {
  kube::PodSpec spec = *pod.spec;
  change(spec);
  pod.spec = std::make_shared<const kube::PodSpec>(std::move(spec));
}

void KeepAsItIs(kube::PodSpec&) {}

}  // namespace

std::string NodeName(int number) {
  return fmt::format("ip-10-{}-{}-{}.us-west-2.compute.internal", number / 65'536,
                     number / 256 % 256, number % 256);
}

kube::Node NodeObject(int number, uint64_t version) {
  static const kube::Node prototype = Read<kube::Node>(kNode);
  const std::string name = NodeName(number);
  kube::Node node =
      Named(prototype, name, fmt::format("2b1c8a50-1111-4000-8000-{:012}", number), version);
  const std::string zone = fmt::format("us-west-2{}", "abc"[number % 3]);
  kube::StringMap& labels = node.meta.labels;
  for (const char* key : {kube::kZoneLabel, "failure-domain.beta.kubernetes.io/zone",
                          "topology.ebs.csi.aws.com/zone"}) {
    labels[key] = zone;
  }
  labels[kube::kHostnameLabel] = name;
  // Sixteen nodes to a leaf of the network, as many leaves to a spine.
  labels["topology.k8s.aws/network-node-layer-2"] = fmt::format("nn-2{:015x}", number / 256);
  labels["topology.k8s.aws/network-node-layer-3"] = fmt::format("nn-3{:015x}", number / 16);
  node.provider_id = fmt::format("aws:///{}/i-{:017x}", zone, number);
  return node;
}

kube::Pod TenantPod(const std::string& uid, const std::string& node, uint64_t version) {
  static const kube::Pod prototype = Read<kube::Pod>(kTenant);
  kube::Pod pod = Named(prototype, "pretrain-baseline-" + uid, uid, version);
  pod.node_name = node;
  GiveOwnSpec(pod, KeepAsItIs);
  return pod;
}

kube::Pod DaemonPod(int daemon, const std::string& node, uint64_t version) {
  static const std::array<kube::Pod, kDaemons> prototypes = [] {
    std::array<kube::Pod, kDaemons> pods;
    for (int i = 0; i < kDaemons; ++i) pods[i] = Read<kube::Pod>(DaemonJson(kDaemon, i));
    return pods;
  }();
  const std::string name = fmt::format("{}-{}", kDaemonNames[daemon], node);
  kube::Pod pod = Named(prototypes[daemon], name, name, version);
  pod.node_name = node;
  GiveOwnSpec(pod, [&](kube::PodSpec& spec) {
    spec.affinity.required_node_terms->front().match_fields.front().values = {node};
  });
  return pod;
}

kube::DaemonSet DaemonSetObject(int daemon) {
  return Read<kube::DaemonSet>(DaemonJson(kDaemonSet, daemon));
}

kube::Pod ServicePod(const std::string& uid, const std::string& node, bool running,
                     uint64_t version) {
  static const kube::Pod prototype = Read<kube::Pod>(kService);
  kube::Pod pod = Named(prototype, "dashboards-7d9c5b8f66-" + uid, uid, version);
  pod.node_name = node;
  if (node.empty()) pod.scheduled_status = "False";
  if (running) {
    pod.phase = kube::PodPhase::kRunning;
    pod.started = pod.ready = true;
  }
  GiveOwnSpec(pod, KeepAsItIs);
  return pod;
}

int NodesOf(int shape) { return shape < kShapes ? 1 << (shape % 4) : shape - kShapes; }
int MembersOf(int shape) { return std::max(2, NodesOf(shape)); }
std::string NamespaceOf(const std::string& gang) {
  return fmt::format("team-{}", std::hash<std::string>()(gang) % 20);
}

kube::Pod MemberPod(int shape, const std::string& gang, int member, const MemberState& state,
                    absl::Time created, uint64_t version) {
  static const kube::Pod master = Read<kube::Pod>(absl::StrReplaceAll(kMember, {{"@", "master"}}));
  static const kube::Pod worker = Read<kube::Pod>(absl::StrReplaceAll(kMember, {{"@", "worker"}}));
  const bool is_alike = shape >= kShapes;
  const int worker_number = is_alike ? member : member - 1;
  const bool is_master = member == 0 && !is_alike;
  const std::string role = is_master ? "master-0" : fmt::format("worker-{}", worker_number);
  kube::Pod pod = Named(is_master ? master : worker, fmt::format("{}-{}", gang, role),
                        fmt::format("{}-{}", gang, member), version);
  pod.meta.name_space = NamespaceOf(gang);
  pod.meta.creation_time = created;
  pod.meta.labels[kube::kPodGroupLabel] = gang;
  pod.meta.labels["training.kubeflow.org/job-name"] = gang;
  pod.meta.labels["training.kubeflow.org/replica-index"] =
      std::to_string(is_master ? 0 : worker_number);
  pod.meta.owners.front().name = gang;
  pod.meta.owners.front().uid = "run-" + gang;
  for (const auto& [key, value] : state.annotations) pod.meta.annotations[key] = value;
  const bool shares = NodesOf(shape) == 1;
  GiveOwnSpec(pod, [&](kube::PodSpec& spec) {
    if (is_alike) return;
    spec.requests.Set(kube::kCpu, 1000 * (8 + shape / 4 + (is_master ? 2 : 0)));
    if (!shares) return;
    spec.requests.Set(kube::kNvidiaGpu, kGpusPerNode / 2);
    spec.requests.Set(kube::kEfa, 16);
  });
  if (!state.gated) pod.scheduling_gates.clear();
  pod.nominated_node_name = state.nominated;
  if (!state.scheduled_reason.empty()) {
    pod.scheduled_reason = state.scheduled_reason;
    pod.scheduled_message = state.scheduled_message;
  }
  if (!state.node.empty()) {
    pod.node_name = state.node;
    pod.scheduled_status = "True";
    pod.scheduled_reason.clear();
    pod.scheduled_message.clear();
  }
  return pod;
}

kube::PodGroup GroupObject(int shape, const std::string& gang, absl::Time created,
                           uint64_t version) {
  static const kube::PodGroup prototype = Read<kube::PodGroup>(kGroup);
  kube::PodGroup group = Named(prototype, gang, "group-" + gang, version);
  group.meta.name_space = NamespaceOf(gang);
  group.meta.creation_time = created;
  group.meta.owners.front().name = gang;
  group.meta.owners.front().uid = "run-" + gang;
  group.min_member = MembersOf(shape);
  return group;
}

}  // namespace muster::bench
