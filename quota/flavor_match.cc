#include "quota/flavor_match.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace muster::quota {
namespace {

bool AnyTolerates(const std::vector<kube::Toleration>& tolerations, const kube::Taint& taint) {
  return std::any_of(tolerations.begin(), tolerations.end(),
                     [&](const kube::Toleration& each) { return each.Tolerates(taint); });
}

// Null if it doesn't count.
const std::string* Label(const kube::ResourceFlavor& flavor, const std::string& key) {
  auto it = flavor.node_labels.find(key);
  return it == flavor.node_labels.end() ? nullptr : &it->second;
}

bool MatchesTerms(const std::vector<kube::NodeSelectorTerm>& terms,
                  const kube::ResourceFlavor& flavor) {
  bool any_matches = terms.empty();
  for (const kube::NodeSelectorTerm& term : terms) {
    bool says_anything = false;
    bool matches = true;
    for (const kube::Requirement& requirement : term.match_expressions) {
      const std::string* label = Label(flavor, requirement.key);
      if (label == nullptr) continue;
      says_anything = true;
      matches = matches && requirement.Matches(label);
    }
    if (!says_anything) return true;
    any_matches = any_matches || matches;
  }
  return any_matches;
}

}  // namespace

std::string FlavorMismatch(const kube::PodSpec& spec, const kube::ResourceFlavor& flavor) {
  for (const kube::Taint& taint : flavor.node_taints) {
    if (taint.effect == kube::TaintEffect::kPreferNoSchedule) continue;
    if (AnyTolerates(spec.tolerations, taint) || AnyTolerates(flavor.tolerations, taint)) continue;
    return absl::StrCat("its taint ", taint.ToString(), " is not tolerated");
  }
  for (const auto& [key, value] : spec.node_selector) {
    const std::string* label = Label(flavor, key);
    if (label == nullptr || *label == value) continue;
    return absl::StrCat("nodeSelector asks for ", key, "=", value, ", its nodeLabels have ", key,
                        "=", *label);
  }
  if (spec.affinity.required_node_terms &&
      !MatchesTerms(*spec.affinity.required_node_terms, flavor)) {
    return "its nodeLabels don't meet the required node affinity";
  }
  return "";
}

}  // namespace muster::quota
