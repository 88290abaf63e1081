#include "simulation/manifests.h"

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "fmt/format.h"
#include "kube/objects/quantity.h"
#include "kube/objects/well_known.h"

namespace muster::simulation {
namespace {

using nlohmann::json;

constexpr const char* kNodes = "/api/v1/nodes";
constexpr const char* kNodePools = "/apis/karpenter.sh/v1/nodepools";

// kind -> collection path, with {} where the namespace goes.
const std::map<std::string, std::string>& Collections() {
  static const auto* collections = new std::map<std::string, std::string>{
      {"pod", "/api/v1/namespaces/{}/pods"},
      {"node", kNodes},
      {"namespace", "/api/v1/namespaces"},
      {"podgroup", "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups"},
      {"nodepool", kNodePools},
      {"nodeclaim", "/apis/karpenter.sh/v1/nodeclaims"},
      {"persistentvolumeclaim", "/api/v1/namespaces/{}/persistentvolumeclaims"},
      {"persistentvolume", "/api/v1/persistentvolumes"},
      {"storageclass", "/apis/storage.k8s.io/v1/storageclasses"},
      {"csinode", "/apis/storage.k8s.io/v1/csinodes"},
      {"csidriver", "/apis/storage.k8s.io/v1/csidrivers"},
      {"csistoragecapacity", "/apis/storage.k8s.io/v1/namespaces/{}/csistoragecapacities"},
      {"volumeattachment", "/apis/storage.k8s.io/v1/volumeattachments"},
      {"resourceflavor", "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"},
      {"ec2nodeclass", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"},
      {"topology", "/apis/kueue.x-k8s.io/v1beta2/topologies"},
      {"clusterqueue", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"},
      {"localqueue", "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/localqueues"},
      {"workload", "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads"},
      {"cohort", "/apis/kueue.x-k8s.io/v1beta2/cohorts"},
      {"workloadpriorityclass", "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses"},
      {"priorityclass", "/apis/scheduling.k8s.io/v1/priorityclasses"},
      {"poddisruptionbudget", "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"},
      {"daemonset", "/apis/apps/v1/namespaces/{}/daemonsets"},
      {"statefulset", "/apis/apps/v1/namespaces/{}/statefulsets"},
      {"job", "/apis/batch/v1/namespaces/{}/jobs"},
      {"jobset", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"},
      {"pytorchjob", "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"},
      {"mpijob", "/apis/kubeflow.org/v2beta1/namespaces/{}/mpijobs"},
      {"raycluster", "/apis/ray.io/v1/namespaces/{}/rayclusters"},
      {"rayjob", "/apis/ray.io/v1/namespaces/{}/rayjobs"},
      {"trainjob", "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs"},
  };
  return *collections;
}

absl::StatusOr<std::string> CollectionPath(const std::string& kind, const std::string& name_space) {
  auto it = Collections().find(kind);
  if (it == Collections().end()) {
    return absl::InvalidArgumentError(fmt::format("scenarios know no kind \"{}\"", kind));
  }
  return fmt::format(fmt::runtime(it->second), name_space);
}

// "key=value:NoSchedule", "key:NoSchedule" or "key".
json Taint(const std::string& text) {
  const std::pair<std::string, std::string> effect = absl::StrSplit(text, absl::MaxSplits(':', 1));
  const std::pair<std::string, std::string> pair =
      absl::StrSplit(effect.first, absl::MaxSplits('=', 1));
  json taint = {{"key", pair.first},
                {"effect", effect.second.empty() ? "NoSchedule" : effect.second}};
  if (!pair.second.empty()) taint["value"] = pair.second;
  return taint;
}

json Toleration(const std::string& text) {
  const std::pair<std::string, std::string> effect = absl::StrSplit(text, absl::MaxSplits(':', 1));
  json toleration = {{"key", effect.first}, {"operator", "Exists"}};
  if (!effect.second.empty()) toleration["effect"] = effect.second;
  return toleration;
}

json Taints(const std::vector<std::string>& texts) {
  json taints = json::array();
  for (const std::string& text : texts) taints.push_back(Taint(text));
  return taints;
}

Manifest NodeManifest(const NodeSpec& spec, const std::string& name) {
  json labels = spec.labels;
  labels.emplace(kube::kHostnameLabel, name);
  json allocatable = spec.resources;
  allocatable.update(json(spec.allocatable));
  json node = {
      {"apiVersion", "v1"},
      {"kind", "Node"},
      {"metadata", {{"name", name}, {"labels", labels}}},
      {"spec", {{"taints", Taints(spec.taints)}}},
      {"status",
       {{"capacity", spec.resources},
        {"allocatable", allocatable},
        {"conditions",
         json::array({{{"type", "Ready"}, {"status", "True"}, {"reason", "KubeletReady"}}})}}}};
  return {kNodes, node.dump()};
}

// What can't be read counts as none, as a wrong entry in a provider's table would.
kube::ResourceList AmountsOf(const Quantities& quantities) {
  kube::ResourceList amounts;
  for (const auto& [resource, text] : quantities) {
    amounts.Set(resource, kube::ParseQuantity(text, kube::UnitOf(resource)).value_or(0));
  }
  return amounts;
}

std::string DurationText(absl::Duration duration) { return absl::FormatDuration(duration); }

Manifest NodePoolManifest(const NodePoolSpec& spec) {
  json requirements = json::array();
  if (!spec.instance_types.empty()) {
    requirements.push_back(
        {{"key", kube::kInstanceTypeLabel}, {"operator", "In"}, {"values", spec.instance_types}});
  }
  if (!spec.zones.empty()) {
    requirements.push_back({{"key", kube::kZoneLabel}, {"operator", "In"}, {"values", spec.zones}});
  }
  json pool = {
      {"apiVersion", "karpenter.sh/v1"},
      {"kind", "NodePool"},
      {"metadata", {{"name", spec.name}}},
      {"spec",
       {{"template",
         {{"metadata", {{"labels", spec.labels}}},
          {"spec",
           {{"requirements", requirements},
            {"taints", Taints(spec.taints)},
            {"startupTaints", Taints(spec.startup_taints)},
            {"nodeClassRef",
             {{"group", "karpenter.kwok.sh"}, {"kind", "KWOKNodeClass"}, {"name", "default"}}}}}}},
        {"disruption",
         {{"consolidationPolicy", "WhenEmpty"},
          {"consolidateAfter", DurationText(spec.consolidate_after)}}}}}};
  if (!spec.limits.empty()) pool["spec"]["limits"] = spec.limits;
  return {kNodePools, pool.dump()};
}

json PodManifest(const GangSpec& gang, int index, const std::string& scheduler_name) {
  const std::string scheduler = gang.scheduler_name.empty() ? scheduler_name : gang.scheduler_name;
  json metadata = {{"name", fmt::format("{}-{}", gang.name, index)},
                   {"namespace", gang.name_space}};
  if (gang.min_member) metadata["labels"][kube::kPodGroupLabel] = gang.name;
  for (const auto& [key, value] : gang.annotations) metadata["annotations"][key] = value;
  if (gang.run_time != absl::InfiniteDuration()) {
    metadata["annotations"]["muster.dev/simulated-run-time"] = DurationText(gang.run_time);
  }
  if (gang.termination != absl::InfiniteDuration()) {
    metadata["annotations"]["muster.dev/simulated-termination"] = DurationText(gang.termination);
  }
  json tolerations = json::array();
  for (const std::string& text : gang.tolerations) tolerations.push_back(Toleration(text));
  json spec = {
      {"schedulerName", scheduler},
      {"priority", gang.priority},
      {"nodeSelector", gang.node_selector},
      {"tolerations", tolerations},
      {"containers",
       json::array({{{"name", "main"},
                     {"image", "train"},
                     {"resources", {{"requests", gang.requests}, {"limits", gang.requests}}}}})}};
  if (!gang.spec_json.empty()) spec.merge_patch(json::parse(gang.spec_json));
  if (scheduler == scheduler_name) {
    spec["schedulingGates"].push_back({{"name", "muster.dev/admission"}});
  }
  return {{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", metadata}, {"spec", spec}};
}

kube::Request Post(std::string path, const json& body) {
  return CreateRequest({std::move(path), body.dump()});
}

std::vector<kube::Request> GangRequests(const GangSpec& gang, const std::string& scheduler_name) {
  std::vector<kube::Request> requests;
  if (gang.name_space != "default") {
    requests.push_back(Post(
        "/api/v1/namespaces",
        {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", gang.name_space}}}}));
  }
  if (gang.min_member && gang.create_group) {
    json spec = {{"minMember", *gang.min_member}};
    if (gang.schedule_timeout_seconds) {
      spec["scheduleTimeoutSeconds"] = *gang.schedule_timeout_seconds;
    }
    if (!gang.min_resources.empty()) spec["minResources"] = gang.min_resources;
    requests.push_back(Post(*CollectionPath("podgroup", gang.name_space),
                            {{"apiVersion", "scheduling.x-k8s.io/v1alpha1"},
                             {"kind", "PodGroup"},
                             {"metadata", {{"name", gang.name}, {"namespace", gang.name_space}}},
                             {"spec", spec}}));
  }
  for (int i = gang.first; i < gang.first + gang.members; ++i) {
    requests.push_back(
        Post(*CollectionPath("pod", gang.name_space), PodManifest(gang, i, scheduler_name)));
  }
  return requests;
}

struct RequestsOfAction {
  const std::string& scheduler_name;
  using Result = absl::StatusOr<std::vector<kube::Request>>;

  Result operator()(const GangSpec& gang) const { return GangRequests(gang, scheduler_name); }

  Result operator()(const DeleteStep& step) const {
    absl::StatusOr<std::string> path = ObjectPath(step.object);
    if (!path.ok()) return path.status();
    kube::Request request;
    request.method = kube::Method::kDelete;
    request.path = *path;
    return std::vector<kube::Request>{request};
  }

  Result operator()(const PatchStep& step) const {
    absl::StatusOr<std::string> path = ObjectPath(step.object);
    if (!path.ok()) return path.status();
    kube::Request request;
    request.method = kube::Method::kPatch;
    request.path = *path + (step.status ? "/status" : "");
    request.content_type = kube::kMergePatch;
    request.body = step.merge_patch_json;
    return std::vector<kube::Request>{request};
  }

  Result operator()(const ApplyStep& step) const {
    const json manifest = json::parse(step.manifest_json);
    std::string kind = manifest.value("kind", "");
    for (char& c : kind) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const json metadata = manifest.value("metadata", json::object());
    absl::StatusOr<std::string> path = CollectionPath(kind, metadata.value("namespace", "default"));
    if (!path.ok()) return path.status();
    return std::vector<kube::Request>{Post(*path, manifest)};
  }

  // Ask before they act: world.cc, job_controllers.h.
  Result operator()(const AbandonStep&) const { return std::vector<kube::Request>{}; }
  Result operator()(const ReconcileStep&) const { return std::vector<kube::Request>{}; }
  Result operator()(const RestartStep&) const { return std::vector<kube::Request>{}; }
  Result operator()(const LoseWritesStep&) const { return std::vector<kube::Request>{}; }
  Result operator()(const HideNodeStep&) const { return std::vector<kube::Request>{}; }
  Result operator()(const DelayBindsStep&) const { return std::vector<kube::Request>{}; }
  Result operator()(const Expectation&) const { return std::vector<kube::Request>{}; }
};

}  // namespace

absl::StatusOr<std::string> ObjectPath(const std::string& object) {
  const std::vector<std::string> parts = absl::StrSplit(object, '/');
  if (parts.size() < 2 || parts.size() > 3) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not KIND/[NAMESPACE/]NAME", object));
  }
  absl::StatusOr<std::string> path =
      CollectionPath(parts[0], parts.size() == 3 ? parts[1] : "default");
  if (!path.ok()) return path.status();
  return *path + "/" + parts.back();
}

kube::Request CreateRequest(const Manifest& manifest) {
  kube::Request request;
  request.method = kube::Method::kPost;
  request.path = manifest.path;
  request.content_type = kube::kJson;
  request.body = manifest.json;
  return request;
}

std::vector<Manifest> ClusterManifests(const Scenario& scenario) {
  std::vector<Manifest> manifests;
  for (const NodeSpec& node : scenario.nodes) {
    for (int i = 0; i < node.count; ++i) {
      manifests.push_back(
          NodeManifest(node, node.count == 1 ? node.name : fmt::format("{}-{}", node.name, i)));
    }
  }
  for (const NodePoolSpec& pool : scenario.node_pools) manifests.push_back(NodePoolManifest(pool));
  return manifests;
}

kube::simulators::KarpenterConfig KarpenterConfigOf(const Scenario& scenario, uint64_t seed,
                                                    absl::Time start) {
  kube::simulators::KarpenterConfig config;
  config.seed = seed;
  for (const InstanceTypeSpec& spec : scenario.instance_types) {
    kube::simulators::InstanceType type;
    type.name = spec.name;
    type.capacity = AmountsOf(spec.resources);
    for (const std::string& zone : spec.zones) type.offerings.push_back({.zone = zone, .price = 1});
    config.instance_types.push_back(std::move(type));
  }
  for (const NodePoolSpec& pool : scenario.node_pools) {
    for (const NodeDelays& delays : pool.delays) {
      kube::simulators::LaunchBehavior launch;
      launch.launch = delays.launch;
      launch.registration = delays.registration;
      launch.initialization = delays.initialization;
      launch.never_registers = delays.never_registers;
      launch.insufficient_capacity = delays.insufficient_capacity;
      launch.devices = delays.devices;
      launch.devices_before = AmountsOf(delays.devices_before);
      config.launches[pool.name].push_back(std::move(launch));
    }
  }
  for (const OutageSpec& outage : scenario.outages) {
    config.outages.push_back({.instance_type = outage.instance_type,
                              .zone = outage.zone,
                              .from = start + outage.from,
                              .until = start + outage.until});
  }
  for (const StockSpec& stock : scenario.stocks) {
    config.stocks.push_back(
        {.instance_type = stock.instance_type, .zone = stock.zone, .most = stock.most});
  }
  return config;
}

absl::StatusOr<std::vector<kube::Request>> RequestsOf(const Action& action,
                                                      const std::string& scheduler_name) {
  return std::visit(RequestsOfAction{scheduler_name}, action);
}

}  // namespace muster::simulation
