#include "kube/simulators/scheduler_filters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace muster::kube::simulators {
namespace {

bool Tolerates(const Pod& pod, const Taint& taint) {
  const auto& tolerations = pod.spec->tolerations;
  return std::any_of(tolerations.begin(), tolerations.end(),
                     [&](const Toleration& toleration) { return toleration.Tolerates(taint); });
}

bool Matches(const std::vector<Requirement>& requirements, const StringMap& labels) {
  return std::all_of(requirements.begin(), requirements.end(), [&](const Requirement& requirement) {
    auto it = labels.find(requirement.key);
    return requirement.Matches(it == labels.end() ? nullptr : &it->second);
  });
}

// A term without any requirement matches nothing.
bool Matches(const NodeSelectorTerm& term, const Node& node) {
  if (term.match_expressions.empty() && term.match_fields.empty()) return false;
  return Matches(term.match_expressions, node.meta.labels) &&
         Matches(term.match_fields, {{"metadata.name", node.meta.name}});
}

bool MeetsNodeAffinity(const Pod& pod, const Node& node) {
  for (const auto& [key, value] : pod.spec->node_selector) {
    const std::string* label = node.meta.Label(key);
    if (label == nullptr || *label != value) return false;
  }
  const auto& terms = pod.spec->affinity.required_node_terms;
  return !terms || std::any_of(terms->begin(), terms->end(),
                               [&](const NodeSelectorTerm& term) { return Matches(term, node); });
}

}  // namespace

std::vector<std::string> WhyNotOn(const Pod& pod, const Node& node, const ResourceList& used) {
  const Taint cordoned{"node.kubernetes.io/unschedulable", "", TaintEffect::kNoSchedule};
  if (node.unschedulable && !Tolerates(pod, cordoned)) return {"node(s) were unschedulable"};
  for (const Taint& taint : node.taints) {
    if (taint.effect == TaintEffect::kPreferNoSchedule || Tolerates(pod, taint)) continue;
    return {fmt::format("node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value)};
  }
  if (!MeetsNodeAffinity(pod, node)) {
    return {"node(s) didn't match Pod's node affinity/selector"};
  }
  std::vector<std::string> reasons;
  for (const auto& [name, amount] : pod.spec->requests.entries()) {
    if (amount == 0 || amount <= node.allocatable.Get(name) - used.Get(name)) continue;
    reasons.push_back(name == kPods ? "Too many pods" : "Insufficient " + name);
  }
  return reasons;
}

std::string FitErrorText(size_t nodes, const std::map<std::string, int>& reasons) {
  std::vector<std::string> texts;
  for (const auto& [reason, count] : reasons) texts.push_back(fmt::format("{} {}", count, reason));
  std::sort(texts.begin(), texts.end());
  std::string text = fmt::format("0/{} nodes are available:", nodes);
  if (!texts.empty()) text += fmt::format(" {}.", fmt::join(texts, ", "));
  return text;
}

}  // namespace muster::kube::simulators
