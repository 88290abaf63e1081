#include "quota/demand.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "quota/amount.h"
#include "quota/flavor_match.h"

namespace muster::quota {
namespace {

// Length first, so that no text can pass for another field.
void Append(std::string& key, const std::string& text) {
  absl::StrAppend(&key, text.size(), ":", text);
}

void Append(std::string& key, const kube::Requirement& requirement) {
  Append(key, requirement.key);
  absl::StrAppend(&key, static_cast<int>(requirement.op), "[", requirement.values.size());
  for (const std::string& value : requirement.values) Append(key, value);
}

void Append(std::string& key, const kube::PodSpec& spec) {
  absl::StrAppend(&key, "r", spec.requests.entries().size());
  for (const auto& [name, amount] : spec.requests.entries()) {
    Append(key, name);
    absl::StrAppend(&key, amount, ";");
  }
  absl::StrAppend(&key, "s", spec.node_selector.size());
  for (const auto& [name, value] : spec.node_selector) {
    Append(key, name);
    Append(key, value);
  }
  absl::StrAppend(&key, "t", spec.tolerations.size());
  for (const kube::Toleration& each : spec.tolerations) {
    Append(key, each.key);
    Append(key, each.value);
    absl::StrAppend(&key, each.exists ? "e" : "=",
                    each.effect ? static_cast<int>(*each.effect) : -1, ";");
  }
  if (!spec.affinity.required_node_terms) return;
  absl::StrAppend(&key, "a", spec.affinity.required_node_terms->size());
  for (const kube::NodeSelectorTerm& term : *spec.affinity.required_node_terms) {
    absl::StrAppend(&key, "m", term.match_expressions.size());
    for (const kube::Requirement& each : term.match_expressions) Append(key, each);
  }
}

PodSetDemand MakePodSet(const PodSet& pod_set, const QueueConfig& queue, const ResourceRules& rules,
                        Names& names) {
  std::vector<GroupDemand> groups(queue.groups.size());
  PodSetDemand demand;
  const kube::ResourceList counted = rules.Count(pod_set.spec->requests);
  for (const auto& [name, each] : counted.entries()) {
    const int resource = names.Resource(name);
    const QueueConfig::Place place = queue.Find(resource);
    if (place.group < 0) {
      if (name != kube::kPods && each != 0) demand.uncovered.push_back(resource);
      continue;
    }
    groups[static_cast<size_t>(place.group)].requests.push_back(
        {resource, place.position, each, SaturatingProduct(each, pod_set.count)});
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].requests.empty()) continue;
    groups[g].group = static_cast<int>(g);
    const Group& group = queue.groups[g];
    for (const GroupFlavor& flavor : group.flavors) {
      groups[g].mismatches.push_back(flavor.object == nullptr
                                         ? "it doesn't exist"
                                         : FlavorMismatch(*pod_set.spec, *flavor.object));
    }
    demand.groups.push_back(std::move(groups[g]));
  }
  return demand;
}

}  // namespace

Demand MakeDemand(const std::vector<PodSet>& pod_sets, const QueueConfig& queue,
                  const ResourceRules& rules, Names& names) {
  Demand demand;
  for (const PodSet& each : pod_sets) {
    demand.pod_sets.push_back(MakePodSet(each, queue, rules, names));
  }
  return demand;
}

std::string DemandKey(const std::vector<PodSet>& pod_sets) {
  std::string key;
  for (const PodSet& each : pod_sets) {
    absl::StrAppend(&key, "#", each.count);
    Append(key, *each.spec);
  }
  return key;
}

}  // namespace muster::quota
