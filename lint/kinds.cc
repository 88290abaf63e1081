#include "lint/kinds.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "kube/embedded/compact_schema.h"
#include "kube/embedded/custom_types.h"
#include "lint/near.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

using kube::embedded::CompactSchemas;
using kube::embedded::CoreSchema;
using kube::embedded::Schema;

// In the notation of core_schema.cc. JobSet v0.10 to v0.12, training operator v1.8, Trainer v2.0 to
// v2.2, MPI operator v0.6, KubeRay v1.4, Karpenter for AWS v1.8, and kinds of Kubernetes v1.34 that
// core_schema.cc doesn't have: the fields of all of them. The MPIJob of kubeflow.org/v1 has others.
constexpr std::string_view kTypes = R"(
JobSet apiVersion:s kind:s metadata:ObjectMeta spec:JobSetSpec status:?
JobSetSpec coordinator:Coordinator failurePolicy:FailurePolicy managedBy:s network:Network
  replicatedJobs:*ReplicatedJob startupPolicy:StartupPolicy successPolicy:SuccessPolicy suspend:b
  ttlSecondsAfterFinished:i volumeClaimPolicies:*?
Coordinator jobIndex:i podIndex:i replicatedJob:s
ReplicatedJob dependsOn:*DependsOn groupName:s name+:s replicas:i template+:JobTemplate
DependsOn name+:s status+:s=Ready|Complete
Network enableDNSHostnames:b publishNotReadyAddresses:b subdomain:s
SuccessPolicy operator+:s=All|Any targetReplicatedJobs:*s
FailurePolicy maxRestarts:i restartStrategy:s=Recreate|BlockingRecreate|InPlaceRestart rules:*FailurePolicyRule
FailurePolicyRule
  action+:s=FailJobSet|RestartJobSet|RestartJobSetAndIgnoreMaxRestarts|RestartJob|RestartJobAndIgnoreMaxRestarts|RecreateJob
  name:s onJobFailureMessagePatterns:*s onJobFailureReasons:*s targetReplicatedJobs:*s
StartupPolicy startupPolicyOrder+:s=AnyOrder|InOrder
JobTemplate metadata:ObjectMeta spec:JobSpec
PyTorchJob apiVersion:s kind:s metadata:ObjectMeta spec:PyTorchJobSpec status:?
PyTorchJobSpec elasticPolicy:ElasticPolicy nprocPerNode:s pytorchReplicaSpecs+:%ReplicaSpec
  runPolicy:RunPolicy
ElasticPolicy maxReplicas:i maxRestarts:i metrics:*? minReplicas:i nProcPerNode:i
  rdzvBackend:s=c10d|etcd|etcd-v2 rdzvConf:*? rdzvHost:s rdzvId:s rdzvPort:i standalone:b
ReplicaSpec replicas:i restartPolicy:s=Always|OnFailure|Never|ExitCode template:PodTemplateSpec
RunPolicy activeDeadlineSeconds:l backoffLimit:i cleanPodPolicy:s=All|Running|None managedBy:s
  schedulingPolicy:SchedulingPolicy suspend:b ttlSecondsAfterFinished:i
SchedulingPolicy minAvailable:i minResources:%q priorityClass:s queue:s scheduleTimeoutSeconds:i
MPIJob apiVersion:s kind:s metadata:ObjectMeta spec:MPIJobSpec status:?
MPIJobSpec launcherCreationPolicy:s=AtStartup|WaitForWorkersReady
  mpiImplementation:s=OpenMPI|Intel|MPICH mpiReplicaSpecs+:%ReplicaSpec runLauncherAsWorker:b
  runPolicy:RunPolicy slotsPerWorker:i sshAuthMountPath:s
TrainJob apiVersion:s kind:s metadata:ObjectMeta spec:TrainJobSpec status:?
TrainJobSpec activeDeadlineSeconds:l annotations:%s initializer:? labels:%s managedBy:s
  podSpecOverrides:*? podTemplateOverrides:*? runtimePatches:*? runtimeRef+:RuntimeRef suspend:b
  trainer:Trainer
RuntimeRef apiGroup:s kind:s=ClusterTrainingRuntime|TrainingRuntime name+:s
Trainer args:*s command:*s env:*EnvVar image:s numNodes:i numProcPerNode:x
  resourcesPerNode:ResourceRequirements
TrainingRuntime apiVersion:s kind:s metadata:ObjectMeta spec:TrainingRuntimeSpec status:?
TrainingRuntimeSpec mlPolicy:MLPolicy podGroupPolicy:PodGroupPolicy template+:JobSetTemplate
MLPolicy flux:? jax:? mpi:MPIPolicy numNodes:i torch:TorchPolicy xgboost:?
MPIPolicy mpiImplementation:s=OpenMPI|Intel|MPICH numProcPerNode:i runLauncherAsNode:b
  sshAuthMountPath:s
TorchPolicy elasticPolicy:? numProcPerNode:x
PodGroupPolicy coscheduling:GangPolicy volcano:?
GangPolicy scheduleTimeoutSeconds:i
JobSetTemplate metadata:ObjectMeta spec:JobSetSpec
RayCluster apiVersion:s kind:s metadata:ObjectMeta spec:RayClusterSpec status:?
RayClusterSpec authOptions:? autoscalerOptions:RayAutoscaler enableInTreeAutoscaling:b
  gcsFaultToleranceOptions:? headGroupSpec+:RayHead headServiceAnnotations:%s managedBy:s rayVersion:s
  suspend:b upgradeStrategy:? workerGroupSpecs:*RayWorkers
RayAutoscaler args:*s command:*s env:*EnvVar envFrom:*? idleTimeoutSeconds:i image:s imagePullPolicy:s
  resources:ResourceRequirements securityContext:? upscalingMode:s=Default|Aggressive|Conservative
  version:s volumeMounts:*VolumeMount
RayHead enableIngress:b headService:? labels:%s rayStartParams:%s resources:%s serviceType:s
  template+:PodTemplateSpec
RayWorkers groupName+:s idleTimeoutSeconds:i labels:%s maxReplicas:i minReplicas:i numOfHosts:i
  rayStartParams:%s replicas:i resources:%s scaleStrategy:? suspend:b template+:PodTemplateSpec
RayJob apiVersion:s kind:s metadata:ObjectMeta spec:RayJobSpec status:?
RayJobSpec activeDeadlineSeconds:i backoffLimit:i clusterSelector:%s deletionStrategy:? entrypoint:s
  entrypointNumCpus:n entrypointNumGpus:n entrypointResources:s jobId:s managedBy:s metadata:%s
  preRunningDeadlineSeconds:i rayClusterSpec:RayClusterSpec runtimeEnvYAML:s
  shutdownAfterJobFinishes:b submissionMode:s=K8sJobMode|HTTPMode|InteractiveMode|SidecarMode
  submitterConfig:? submitterPodTemplate:PodTemplateSpec suspend:b ttlSecondsAfterFinished:i
EC2NodeClass apiVersion:s kind:s metadata:ObjectMeta spec:EC2NodeClassSpec status:?
EC2NodeClassSpec amiFamily:s=AL2|AL2023|Bottlerocket|Custom|Windows2019|Windows2022|Windows2025
  amiSelectorTerms+:*EC2ImageTerm associatePublicIPAddress:b blockDeviceMappings:*EC2Device
  capacityReservationSelectorTerms:*? context:s detailedMonitoring:b instanceProfile:s
  instanceStorePolicy:s=RAID0 ipPrefixCount:i kubelet:EC2Kubelet metadataOptions:EC2Metadata
  networkInterfaces:*? placementGroupSelector:? role:s securityGroupSelectorTerms+:*EC2Term
  subnetSelectorTerms+:*EC2Term tags:%s userData:s
EC2ImageTerm alias:s id:s name:s owner:s ssmParameter:s tags:%s
EC2Term id:s name:s tags:%s
EC2Device deviceName:s ebs:EC2Volume rootVolume:b
EC2Volume deleteOnTermination:b encrypted:b iops:l kmsKeyID:s snapshotID:s throughput:l
  volumeInitializationRate:i volumeSize:q volumeType:s=standard|io1|io2|gp2|sc1|st1|gp3
EC2Kubelet clusterDNS:*s cpuCFSQuota:b evictionHard:%s evictionMaxPodGracePeriod:i evictionSoft:%s
  evictionSoftGracePeriod:%s imageGCHighThresholdPercent:i imageGCLowThresholdPercent:i
  kubeReserved:%s maxPods:i podsPerCore:i systemReserved:%s
EC2Metadata httpEndpoint:s=enabled|disabled httpProtocolIPv6:s=enabled|disabled
  httpPutResponseHopLimit:l httpTokens:s=required|optional
Deployment apiVersion:s kind:s metadata:ObjectMeta spec:DeploymentSpec status:?
DeploymentSpec minReadySeconds:i paused:b progressDeadlineSeconds:i replicas:i
  revisionHistoryLimit:i selector+:LabelSelector strategy:? template+:PodTemplateSpec
CronJob apiVersion:s kind:s metadata:ObjectMeta spec:CronJobSpec status:?
CronJobSpec concurrencyPolicy:s=Allow|Forbid|Replace failedJobsHistoryLimit:i
  jobTemplate+:JobTemplate schedule+:s startingDeadlineSeconds:l successfulJobsHistoryLimit:i
  suspend:b timeZone:s
ResourceQuota apiVersion:s kind:s metadata:ObjectMeta spec:ResourceQuotaSpec status:?
ResourceQuotaSpec hard:%q scopeSelector:? scopes:*s
LimitRange apiVersion:s kind:s metadata:ObjectMeta spec:LimitRangeSpec
LimitRangeSpec limits+:*LimitRangeItem
LimitRangeItem default:%q defaultRequest:%q max:%q maxLimitRequestRatio:%q min:%q
  type+:s=Container|Pod|PersistentVolumeClaim
)";

struct Api {
  std::string_view group;     // "" of the core
  std::string_view versions;  // that are served, the oldest first
  std::string_view kinds;
};

constexpr Api kApis[] = {
    {"", "v1",
     "ConfigMap LimitRange Namespace PersistentVolume PersistentVolumeClaim Pod ResourceQuota "
     "Secret Service ServiceAccount"},
    {"apps", "v1", "DaemonSet Deployment ReplicaSet StatefulSet"},
    {"batch", "v1", "CronJob Job"},
    {"policy", "v1", "PodDisruptionBudget"},
    {"scheduling.k8s.io", "v1", "PriorityClass"},
    {"storage.k8s.io", "v1", "StorageClass"},
    {"kubeflow.org", "v1", "PyTorchJob TFJob XGBoostJob JAXJob PaddleJob"},
    {"kubeflow.org", "v2beta1 v1", "MPIJob"},
    {"trainer.kubeflow.org", "v1alpha1", "TrainJob TrainingRuntime ClusterTrainingRuntime"},
    {"jobset.x-k8s.io", "v1alpha2", "JobSet"},
    {"ray.io", "v1alpha1 v1", "RayCluster RayJob RayService"},
    {"kueue.x-k8s.io", "v1beta1 v1beta2",
     "ClusterQueue LocalQueue ResourceFlavor WorkloadPriorityClass AdmissionCheck"},
    {"kueue.x-k8s.io", "v1alpha1 v1beta1 v1beta2", "Cohort Topology"},
    {"scheduling.x-k8s.io", "v1alpha1", "PodGroup"},
    {"karpenter.sh", "v1", "NodePool NodeClaim"},
    {"karpenter.k8s.aws", "v1", "EC2NodeClass"},
};

// Kinds of earlier days, and those that took their place.
constexpr std::pair<std::string_view, std::string_view> kOldKinds[] = {
    {"Provisioner", "NodePool"}, {"AWSNodeTemplate", "EC2NodeClass"}, {"Machine", "NodeClaim"}};

const Api* ApiOf(std::string_view kind) {
  for (const Api& api : kApis) {
    const std::vector<std::string_view> kinds = SplitWords(api.kinds);
    if (std::ranges::find(kinds, kind) != kinds.end()) return &api;
  }
  return nullptr;
}

std::pair<std::string_view, std::string_view> GroupOf(std::string_view api_version) {
  const size_t slash = api_version.find('/');
  if (slash == std::string_view::npos) return {"", api_version};
  return {api_version.substr(0, slash), api_version.substr(slash + 1)};
}

std::string NewestOf(const Api& api) {
  const std::string_view version = SplitWords(api.versions).back();
  return Concat(api.group, api.group.empty() ? "" : "/",
                api.kinds == "MPIJob" ? "v2beta1" : version);
}

// How stable a version is: "v1" is 3, "v1beta2" is 2; 0: it is no version.
int Stability(std::string_view version) {
  if (version.size() < 2 || version[0] != 'v' || std::isdigit(version[1]) == 0) return 0;
  if (version.find("alpha") != std::string_view::npos) return 1;
  if (version.find("beta") != std::string_view::npos) return 2;
  return version.find_first_not_of("0123456789", 1) == std::string_view::npos ? 3 : 0;
}

// Of the same project, by a word of their domains.
bool ShareAWord(std::string_view group, std::string_view other) {
  for (const std::string_view word : Split(group, ".")) {
    if (word.size() < 5 || word == "scheduling") continue;
    const std::vector<std::string_view> words = Split(other, ".");
    if (std::ranges::find(words, word) != words.end()) return true;
  }
  return false;
}

using Schemas = std::map<std::string, std::pair<std::string, std::shared_ptr<const Schema>>>;

// By kind, with the group.
Schemas MakeSchemas() {
  static const CompactSchemas* const kCompact = new CompactSchemas(kTypes, CoreSchema);
  Schemas all;
  for (const Api& api : kApis) {
    for (const std::string_view kind : SplitWords(api.kinds)) {
      auto schema = kCompact->Find(
          kind.starts_with("Cluster") && kind.ends_with("Runtime") ? "TrainingRuntime" : kind);
      if (schema == nullptr && api.group.find('.') == std::string_view::npos) {
        schema = CoreSchema(kind);
      }
      if (schema == nullptr && api.group.ends_with(".k8s.io")) schema = CoreSchema(kind);
      if (schema != nullptr) all[std::string(kind)] = {std::string(api.group), std::move(schema)};
    }
  }
  for (const std::string& text : kube::embedded::BuiltInCrds()) {
    const nlohmann::json crd = nlohmann::json::parse(text);
    const nlohmann::json& spec = crd["spec"];
    const std::string kind = spec["names"]["kind"];
    if (all.contains(kind)) continue;
    nlohmann::json shape = spec["versions"][0]["schema"]["openAPIV3Schema"];
    for (const char* field : {"apiVersion", "kind"}) shape["properties"][field]["type"] = "string";
    auto schema = kube::embedded::SchemaFromOpenApi(shape);
    if (!schema.ok()) continue;
    auto whole = std::make_shared<Schema>(**schema);
    whole->fields["metadata"] = CoreSchema("ObjectMeta");
    all[kind] = {spec["group"].get<std::string>(), std::move(whole)};
  }
  return all;
}

}  // namespace

std::shared_ptr<const Schema> SchemaOfKind(std::string_view kind, std::string_view api_version) {
  static const auto* const kAll = new Schemas(MakeSchemas());
  const auto known = kAll->find(std::string(kind));
  const auto [group, version] = GroupOf(api_version);
  if (known == kAll->end() || known->second.first != group) return nullptr;
  // Its older one has other fields.
  if (kind == "MPIJob" && version != "v2beta1") return nullptr;
  return known->second.second;
}

MeantKind KindMeant(std::string_view api_version, std::string_view kind) {
  const auto [group, version] = GroupOf(api_version);
  for (const auto& [gone, now] : kOldKinds) {
    if (kind != gone || group.find("karpenter") == std::string_view::npos) continue;
    return {true, NewestOf(*ApiOf(now)), std::string(now)};
  }
  const Api* api = ApiOf(kind);
  if (api == nullptr) {
    std::vector<std::string_view> kinds;
    for (const Api& each : kApis) {
      if (each.group != group) continue;
      for (const std::string_view its : SplitWords(each.kinds)) kinds.push_back(its);
    }
    // Only those that differ little: the group may have more kinds than are known here.
    const std::string_view meant = Nearest(kind, kinds);
    const size_t more = std::max(meant.size(), kind.size()) - std::min(meant.size(), kind.size());
    if (meant.empty() || more > 1) return {};
    return {true, std::string(api_version), std::string(meant)};
  }
  if (api->group != group) {
    // Others have PodGroups and Jobs of their own.
    const bool of_kubernetes = group.find('.') == std::string_view::npos;
    const bool related = kind != "PodGroup" && api->group.find('.') != std::string_view::npos &&
                         (IsNear(group, api->group) || ShareAWord(group, api->group));
    const bool meant = of_kubernetes || related;
    return meant ? MeantKind{false, NewestOf(*api), std::string(kind)} : MeantKind();
  }
  const std::vector<std::string_view> served = SplitWords(api->versions);
  if (std::ranges::find(served, version) != served.end()) return {};
  const int stable = Stability(version);
  const bool gone = stable < Stability(served.front()) ||
                    (stable == Stability(served.front()) && version < served.front());
  return gone ? MeantKind{false, NewestOf(*api), std::string(kind)} : MeantKind();
}

}  // namespace muster::lint
