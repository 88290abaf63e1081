#include "quota/topology_levels.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kube/objects/well_known.h"
#include "quota/pod_sets.h"
#include "quota/workload_status.h"

namespace muster::quota {
namespace {

bool Has(const kube::Topology& topology, const std::string& label) {
  return topology.error.empty() && std::ranges::count(topology.levels, label) > 0;
}

std::vector<std::string> TreeOf(const kube::Topology& topology) {
  std::vector<std::string> levels = topology.levels;
  if (!Has(topology, kube::kZoneLabel)) levels.insert(levels.begin(), kube::kZoneLabel);
  return levels;
}

// That of the first of its flavors that names one; null if none does.
const kube::Topology* TopologyOf(const QuotaScheduler& quotas, const PodSetAssignment& given) {
  for (const kube::ResourceFlavor* flavor : quotas.FlavorsOf(given)) {
    const kube::Topology* topology = quotas.FindTopology(flavor->topology_name);
    if (topology != nullptr && topology->error.empty()) return topology;
  }
  return nullptr;
}

// The first by name that has the level.
const kube::Topology* AnyWith(const QuotaScheduler& quotas, const std::string& label) {
  for (const kube::Topology* topology : quotas.Topologies()) {
    if (Has(*topology, label)) return topology;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> LevelsFor(const QuotaScheduler& quotas, const Admission* given,
                                   const kube::TopologyAsked& asked) {
  if (given != nullptr) {
    for (const PodSetAssignment& set : given->pod_sets) {
      if (const kube::Topology* topology = TopologyOf(quotas, set)) return TreeOf(*topology);
    }
  }
  if (kube::WhyNoLevelOf(asked).empty()) return {};
  const kube::Topology* topology = AnyWith(quotas, kube::LevelOf(asked));
  return topology == nullptr ? std::vector<std::string>() : TreeOf(*topology);
}

std::string WhyNoLevel(const QuotaScheduler& quotas, const kube::TopologyAsked& asked) {
  std::string why = kube::WhyNoLevelOf(asked);
  return why.empty() || AnyWith(quotas, kube::LevelOf(asked)) != nullptr ? "" : why;
}

std::string WhyNoLevel(const QuotaScheduler& quotas, const kube::TopologyAsked& asked,
                       const kube::ResourceFlavor& flavor) {
  const std::string& label = kube::LevelOf(asked);
  if (flavor.topology_name.empty()) {
    if (kube::WhyNoLevelOf(asked).empty()) return "";
    return absl::StrCat("annotation ", asked.annotation, " names ", label,
                        ", which is a level of Topologies alone, and its spec.topologyName names "
                        "none");
  }
  const kube::Topology* topology = quotas.FindTopology(flavor.topology_name);
  if (topology == nullptr) {
    return absl::StrCat("its spec.topologyName names Topology ", flavor.topology_name,
                        ", which doesn't exist");
  }
  if (!topology->error.empty()) {
    return absl::StrCat("Topology ", topology->meta.name,
                        ", which its spec.topologyName names: ", topology->error);
  }
  if (label.empty() || label == kube::kHostnameLabel || Has(*topology, label)) return "";
  return absl::StrCat("annotation ", asked.annotation, " names ", label, ", and its Topology ",
                      topology->meta.name, " has levels ", absl::StrJoin(topology->levels, ", "));
}

kube::TopologyAssignment StandingOn(const std::vector<std::string>& levels,
                                    const std::vector<const kube::Node*>& nodes) {
  kube::TopologyAssignment standing;
  standing.levels = levels;
  if (levels.back() == kube::kHostnameLabel) standing.levels = {kube::kHostnameLabel};
  for (const kube::Node* node : nodes) {
    std::vector<std::string> values;
    for (const std::string& label : standing.levels) {
      const std::string* value = node->meta.Label(label);
      if (value == nullptr) return {};
      values.push_back(*value);
    }
    ++standing.pods[std::move(values)];
  }
  return standing;
}

std::optional<Admission> WithPlaces(
    const QuotaScheduler& quotas, const kube::Workload& workload,
    const std::vector<const kube::Pod*>& pods,
    const std::function<const kube::Node*(const std::string& name)>& node_of) {
  Admission admission = ReservedIn(workload);
  bool changed = false;
  for (PodSetAssignment& set : admission.pod_sets) {
    const kube::Topology* topology = TopologyOf(quotas, set);
    if (topology == nullptr) continue;
    std::vector<const kube::Node*> nodes;
    for (const kube::Pod* pod : pods) {
      const std::string of = PodSetOf(*pod);
      if (pod->IsTerminal() || !pod->IsBound() || (of != set.name && !IsOfRole(of, set.name))) {
        continue;
      }
      if (const kube::Node* node = node_of(pod->node_name)) nodes.push_back(node);
    }
    if (nodes.empty() || static_cast<int64_t>(nodes.size()) != set.count) continue;
    kube::TopologyAssignment standing = StandingOn(topology->levels, nodes);
    if (standing.levels.empty() || standing == set.topology) continue;
    set.topology = std::move(standing);
    changed = true;
  }
  return changed ? std::optional(std::move(admission)) : std::nullopt;
}

}  // namespace muster::quota
