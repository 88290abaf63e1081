#include "kube/objects/decode_pod_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "kube/objects/decode_parts.h"
#include "kube/objects/pod_requests.h"

namespace muster::kube {
namespace {

// What VolumeRestrictions keeps one pod's alone, and NodeVolumeLimits counts
// (pkg/scheduler/framework/plugins v1.37).
constexpr std::array<std::string_view, 7> kJudgedInline = {
    "awsElasticBlockStore", "gcePersistentDisk", "iscsi", "rbd", "azureDisk", "cinder",
    "portworxVolume"};

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

void ReadVolumes(const JsonValue& volumes, const ObjectMeta& meta, PodSpec& spec) {
  volumes.ForEach([&](const JsonValue& volume) {
    const JsonValue claim = volume.Get("persistentVolumeClaim");
    if (claim.present()) {
      spec.persistent_volume_claims.push_back(claim.Get("claimName").String());
    } else if (volume.Get("ephemeral").present() && !meta.name.empty()) {
      spec.ephemeral_claims.push_back(fmt::format("{}-{}", meta.name, volume.Get("name").View()));
      spec.persistent_volume_claims.push_back(spec.ephemeral_claims.back());
    }
    for (std::string_view kind : kJudgedInline) {
      if (spec.inline_volume.empty() && volume.Get(kind).present()) spec.inline_volume = kind;
    }
  });
}

// k8s.io/component-helpers/nodedeclaredfeatures v0.37: what of a pod only some kubelets can do.
std::vector<std::string> ReadNodeFeatures(const JsonValue& spec) {
  std::set<std::string> features;
  for (std::string_view list : {"containers", "initContainers"}) {
    spec.Get(list).ForEach([&](const JsonValue& container) {
      container.Get("restartPolicyRules").ForEach([&](const JsonValue& rule) {
        if (rule.Get("action").View() == "RestartAllContainers") {
          features.insert("RestartAllContainersOnContainerExits");
        }
      });
      container.Get("volumeMounts").ForEach([&](const JsonValue& mount) {
        mount.Get("bindMountOptions").ForEach([&](const JsonValue&) {
          features.insert("VolumeBindMountOptions");
        });
      });
    });
  }
  if (spec.Get("hostNetwork").Bool() && !spec.Get("hostUsers").Bool(true)) {
    features.insert("UserNamespacesHostNetworkSupport");
  }
  return {features.begin(), features.end()};
}

// Of a container's status, or of the whole pod's.
GivenResources ReadGiven(const JsonValue& status) {
  GivenResources given;
  const JsonValue allocated = status.Get("allocatedResources");
  if (allocated.present()) given.allocated = ReadResourceList(allocated);
  const JsonValue actual = status.Get("resources");
  if (actual.present()) given.actual = ReadResourceList(actual.Get("requests"));
  return given;
}

// By container.
using GivenIndex = std::map<std::string_view, GivenResources>;

void IndexGiven(const JsonValue& statuses, GivenIndex& index) {
  statuses.ForEach([&](const JsonValue& status) {
    GivenResources given = ReadGiven(status);
    if (given.allocated || given.actual) index.emplace(status.Get("name").View(), std::move(given));
  });
}

ResourceList ReadContainerRequests(const JsonValue& container) {
  const JsonValue resources = container.Get("resources");
  ResourceList requests = ReadResourceList(resources.Get("requests"));
  DefaultRequestsToLimits(requests, ReadResourceList(resources.Get("limits")));
  return requests;
}

PodResources ReadResources(const JsonValue& spec, const JsonValue& status) {
  PodResources result;
  result.resize_infeasible =
      FindCondition(status.Get("conditions"), "PodResizePending").Get("reason").View() ==
      "Infeasible";
  GivenIndex given;
  IndexGiven(status.Get("containerStatuses"), given);
  IndexGiven(status.Get("initContainerStatuses"), given);
  const auto read = [&](const JsonValue& container) {
    ContainerResources read{ReadContainerRequests(container)};
    if (const auto found = given.find(container.Get("name").View()); found != given.end()) {
      read.given = found->second;
    }
    return read;
  };
  spec.Get("containers").ForEach([&](const JsonValue& container) {
    result.containers.push_back(read(container));
  });
  spec.Get("initContainers").ForEach([&](const JsonValue& container) {
    result.init_containers.push_back(read(container));
    result.init_containers.back().restartable = container.Get("restartPolicy").View() == "Always";
  });
  result.given = ReadGiven(status);
  const JsonValue pod_level = spec.Get("resources");
  result.pod_requests = ReadResourceList(pod_level.Get("requests"));
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
  ReadVolumes(spec.Get("volumes"), meta, result);
  spec.Get("resourceClaims").ForEach([&](const JsonValue&) { result.uses_resource_claims = true; });
  result.node_features = ReadNodeFeatures(spec);
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
