#include "kube/objects/decode_pod_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "kube/objects/decode_parts.h"
#include "kube/objects/pod_requests.h"

namespace muster::kube {
namespace {

// Calls visit(key, label) for each key of which there is a label, once.
template <typename Visit>
void ForEachLabel(const JsonValue& keys, const ObjectMeta& meta, Visit visit) {
  std::set<std::string_view> seen;
  keys.ForEach([&](const JsonValue& value) {
    const std::string* label = meta.Label(value.View());
    if (label != nullptr && seen.insert(value.View()).second) visit(value.View(), *label);
  });
}

// The API server folds these keys into the selector when it creates the pod
// (pkg/registry/core/pod/strategy.go v1.34) and kube-scheduler reads only the result, so a key that
// the selector already requires is left as it stands.
void FoldAffinityKeys(const JsonValue& keys, SelectorOperator op, const ObjectMeta& meta,
                      LabelSelector& selector) {
  ForEachLabel(keys, meta, [&](std::string_view key, const std::string& label) {
    const bool folded =
        std::any_of(selector.requirements.begin(), selector.requirements.end(),
                    [&](const Requirement& have) { return have.key == key && have.op == op; });
    if (!folded) selector.requirements.push_back({std::string(key), op, {label}});
  });
}

// kube-scheduler folds these again at each attempt, with the labels of that moment
// (plugins/podtopologyspread/common.go v1.34).
void FoldSpreadKeys(const JsonValue& keys, const ObjectMeta& meta, LabelSelector& selector) {
  ForEachLabel(keys, meta, [&](std::string_view key, const std::string& label) {
    Requirement requirement{std::string(key), SelectorOperator::kIn, {label}};
    const auto& have = selector.requirements;
    if (std::find(have.begin(), have.end(), requirement) == have.end()) {
      selector.requirements.push_back(std::move(requirement));
    }
  });
}

PodAffinityTerm ReadAffinityTerm(const JsonValue& value, const ObjectMeta& meta) {
  PodAffinityTerm term;
  term.selector = ReadLabelSelector(value.Get("labelSelector"));
  if (term.selector) {
    FoldAffinityKeys(value.Get("matchLabelKeys"), SelectorOperator::kIn, meta, *term.selector);
    FoldAffinityKeys(value.Get("mismatchLabelKeys"), SelectorOperator::kNotIn, meta,
                     *term.selector);
  }
  term.namespaces = ReadStrings(value.Get("namespaces"));
  term.namespace_selector = ReadLabelSelector(value.Get("namespaceSelector"));
  term.topology_key = value.Get("topologyKey").String();
  return term;
}

void ReadInterPodAffinity(const JsonValue& value, const ObjectMeta& meta,
                          std::vector<PodAffinityTerm>& required,
                          std::vector<WeightedPodAffinityTerm>& preferred) {
  value.Get("requiredDuringSchedulingIgnoredDuringExecution").ForEach([&](const JsonValue& term) {
    required.push_back(ReadAffinityTerm(term, meta));
  });
  value.Get("preferredDuringSchedulingIgnoredDuringExecution").ForEach([&](const JsonValue& term) {
    preferred.push_back(
        {term.Get("weight").Int32(), ReadAffinityTerm(term.Get("podAffinityTerm"), meta)});
  });
}

Affinity ReadAffinity(const JsonValue& value, const ObjectMeta& meta) {
  Affinity affinity;
  if (!value.present()) return affinity;
  const JsonValue node = value.Get("nodeAffinity");
  const JsonValue required = node.Get("requiredDuringSchedulingIgnoredDuringExecution");
  if (required.present()) {
    affinity.required_node_terms = ReadNodeSelectorTerms(required.Get("nodeSelectorTerms"));
  }
  node.Get("preferredDuringSchedulingIgnoredDuringExecution").ForEach([&](const JsonValue& term) {
    affinity.preferred_node_terms.push_back(
        {term.Get("weight").Int32(), ReadNodeSelectorTerm(term.Get("preference"))});
  });
  ReadInterPodAffinity(value.Get("podAffinity"), meta, affinity.required_pod_affinity,
                       affinity.preferred_pod_affinity);
  ReadInterPodAffinity(value.Get("podAntiAffinity"), meta, affinity.required_pod_anti_affinity,
                       affinity.preferred_pod_anti_affinity);
  return affinity;
}

// True for `yes`, false for `no`, the fallback when absent; anything else can't be used.
bool ReadChoice(const JsonValue& value, std::string_view yes, std::string_view no, bool fallback) {
  const std::string_view text = value.View();
  if (text == yes) return true;
  if (text == no) return false;
  if (!text.empty()) value.RejectValue(fmt::format("\"{}\" is neither {} nor {}", text, yes, no));
  return fallback;
}

TopologySpreadConstraint ReadSpread(const JsonValue& value, const ObjectMeta& meta) {
  TopologySpreadConstraint spread;
  spread.max_skew = value.Get("maxSkew").Int32(1);
  spread.topology_key = value.Get("topologyKey").String();
  spread.do_not_schedule =
      ReadChoice(value.Get("whenUnsatisfiable"), "DoNotSchedule", "ScheduleAnyway", true);
  spread.selector = ReadLabelSelector(value.Get("labelSelector"));
  if (spread.selector) FoldSpreadKeys(value.Get("matchLabelKeys"), meta, *spread.selector);
  const JsonValue min_domains = value.Get("minDomains");
  if (min_domains.present()) spread.min_domains = min_domains.Int32();
  spread.honor_node_affinity = ReadChoice(value.Get("nodeAffinityPolicy"), "Honor", "Ignore", true);
  spread.honor_node_taints = ReadChoice(value.Get("nodeTaintsPolicy"), "Honor", "Ignore", false);
  return spread;
}

void ReadHostPorts(const JsonValue& container, bool host_network, std::vector<HostPort>& ports) {
  container.Get("ports").ForEach([&](const JsonValue& value) {
    int32_t port = value.Get("hostPort").Int32();
    if (port == 0 && host_network) port = value.Get("containerPort").Int32();
    if (port <= 0) return;
    std::string protocol = value.Get("protocol").String();
    if (protocol.empty()) protocol = "TCP";
    ports.push_back({value.Get("hostIP").String(), std::move(protocol), port});
  });
}

void ReadVolumes(const JsonValue& volumes, const ObjectMeta& meta,
                 std::vector<std::string>& claims) {
  volumes.ForEach([&](const JsonValue& volume) {
    const JsonValue claim = volume.Get("persistentVolumeClaim");
    if (claim.present()) {
      claims.push_back(claim.Get("claimName").String());
    } else if (volume.Get("ephemeral").present() && !meta.name.empty()) {
      claims.push_back(fmt::format("{}-{}", meta.name, volume.Get("name").View()));
    }
  });
}

// Containers' statuses by name.
using StatusIndex = std::map<std::string_view, JsonValue>;

StatusIndex IndexStatuses(const JsonValue& statuses) {
  StatusIndex index;
  statuses.ForEach(
      [&](const JsonValue& status) { index.emplace(status.Get("name").View(), status); });
  return index;
}

// A resize that the node can't do counts as what the kubelet has; any other as the larger of what
// is asked and what it has.
void ApplyResize(const StatusIndex& statuses, std::string_view container, bool infeasible,
                 ResourceList& requests) {
  const auto status = statuses.find(container);
  if (status == statuses.end()) return;
  const JsonValue resources = status->second.Get("resources");
  if (!resources.present()) return;
  ResourceList actual = ReadResourceList(resources.Get("requests"));
  actual.Max(ReadResourceList(status->second.Get("allocatedResources")));
  if (infeasible) {
    requests = std::move(actual);
  } else {
    requests.Max(actual);
  }
}

ResourceList ReadContainerRequests(const JsonValue& container) {
  const JsonValue resources = container.Get("resources");
  ResourceList requests = ReadResourceList(resources.Get("requests"));
  DefaultRequestsToLimits(requests, ReadResourceList(resources.Get("limits")));
  return requests;
}

PodResources ReadResources(const JsonValue& spec, const JsonValue& status) {
  PodResources result;
  const bool infeasible =
      FindCondition(status.Get("conditions"), "PodResizePending").Get("reason").View() ==
      "Infeasible";
  const StatusIndex statuses = IndexStatuses(status.Get("containerStatuses"));
  const StatusIndex init_statuses = IndexStatuses(status.Get("initContainerStatuses"));
  spec.Get("containers").ForEach([&](const JsonValue& container) {
    ResourceList requests = ReadContainerRequests(container);
    ApplyResize(statuses, container.Get("name").View(), infeasible, requests);
    result.containers.push_back({std::move(requests), false});
  });
  spec.Get("initContainers").ForEach([&](const JsonValue& container) {
    ResourceList requests = ReadContainerRequests(container);
    const bool restartable = container.Get("restartPolicy").View() == "Always";
    if (restartable) {
      ApplyResize(init_statuses, container.Get("name").View(), infeasible, requests);
    }
    result.init_containers.push_back({std::move(requests), restartable});
  });
  const JsonValue pod_level = spec.Get("resources");
  result.pod_requests = ReadResourceList(pod_level.Get("requests"));
  // The same of the pod as a whole (v1.36).
  const JsonValue pod_actual = status.Get("resources");
  if (pod_actual.present() && !result.pod_requests.entries().empty()) {
    ResourceList actual = ReadResourceList(pod_actual.Get("requests"));
    actual.Max(ReadResourceList(status.Get("allocatedResources")));
    if (!infeasible) actual.Max(result.pod_requests);
    result.pod_requests = std::move(actual);
  }
  result.pod_limits = ReadResourceList(pod_level.Get("limits"));
  result.overhead = ReadResourceList(spec.Get("overhead"));
  return result;
}

}  // namespace

PodSpec ReadPodSpec(const JsonValue& spec, const JsonValue& status, const ObjectMeta& meta,
                    JsonReader& reader) {
  PodSpec result;
  result.node_selector = ReadStringMap(spec.Get("nodeSelector"));
  result.affinity = ReadAffinity(spec.Get("affinity"), meta);
  spec.Get("tolerations").ForEach([&](const JsonValue& value) {
    result.tolerations.push_back(ReadToleration(value));
  });
  spec.Get("topologySpreadConstraints").ForEach([&](const JsonValue& value) {
    result.topology_spread.push_back(ReadSpread(value, meta));
  });
  const bool host_network = spec.Get("hostNetwork").Bool();
  spec.Get("initContainers").ForEach([&](const JsonValue& container) {
    if (container.Get("restartPolicy").View() != "Always") return;
    ReadHostPorts(container, host_network, result.host_ports);
  });
  spec.Get("containers").ForEach([&](const JsonValue& container) {
    ReadHostPorts(container, host_network, result.host_ports);
  });
  ReadVolumes(spec.Get("volumes"), meta, result.persistent_volume_claims);
  spec.Get("resourceClaims").ForEach([&](const JsonValue&) { result.uses_resource_claims = true; });
  result.runtime_class_name = spec.Get("runtimeClassName").String();

  auto requests = EffectiveRequests(ReadResources(spec, status));
  if (requests.ok()) {
    result.requests = *std::move(requests);
  } else {
    reader.RejectObject(fmt::format("sum of {}.containers[].resources.requests: {}", spec.Path(),
                                    std::string(requests.status().message())));
  }
  return result;
}

}  // namespace muster::kube
