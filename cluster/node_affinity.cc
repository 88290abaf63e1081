#include "cluster/node_affinity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "cluster/node_families.h"
#include "cluster/snapshot.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

using kube::Requirement;
using kube::SelectorOperator;

using Asks = std::vector<const Requirement*>;

// Labels that Karpenter and the cloud provider put on every node that they make, so a claim that
// doesn't mention one leaves it open (pkg/apis/v1/labels.go v1.8; providers register theirs under
// karpenter.* and topology.*).
bool IsWellKnown(std::string_view key) {
  constexpr std::array<std::string_view, 5> kKeys = {
      "node.kubernetes.io/instance-type", "node.kubernetes.io/windows-build", "kubernetes.io/arch",
      "kubernetes.io/os", "kubernetes.io/hostname"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end() ||
         key.starts_with("topology.") || key.starts_with("karpenter.");
}

// Deprecated names of well-known labels; nodes carry both, claims only the new one.
std::string_view CurrentName(std::string_view key) {
  struct Alias {
    std::string_view old_name;
    std::string_view name;
  };
  constexpr std::array<Alias, 5> kAliases = {{
      {"failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"},
      {"failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"},
      {"beta.kubernetes.io/arch", "kubernetes.io/arch"},
      {"beta.kubernetes.io/os", "kubernetes.io/os"},
      {"beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"},
  }};
  for (const Alias& alias : kAliases) {
    if (key == alias.old_name) return alias.name;
  }
  return key;
}

bool AllMatch(const Asks& asks, const std::string* value) {
  return std::all_of(asks.begin(), asks.end(),
                     [value](const Requirement* ask) { return ask->Matches(value); });
}

const Requirement* FindIn(const Asks& asks) {
  auto it = std::find_if(asks.begin(), asks.end(),
                         [](const Requirement* ask) { return ask->op == SelectorOperator::kIn; });
  return it == asks.end() ? nullptr : *it;
}

bool Has(const Asks& asks, SelectorOperator op) {
  return std::any_of(asks.begin(), asks.end(),
                     [op](const Requirement* ask) { return ask->op == op; });
}

// True if some integer lies strictly between all the bounds of kGt and kLt.
bool BoundsLeaveAnInteger(const Asks& asks) {
  int64_t above = std::numeric_limits<int64_t>::min();
  int64_t below = std::numeric_limits<int64_t>::max();
  for (const Requirement* ask : asks) {
    if (ask->op != SelectorOperator::kGt && ask->op != SelectorOperator::kLt) continue;
    int64_t bound = 0;
    if (ask->values.size() != 1) return false;
    const std::string& text = ask->values[0];
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bound);
    if (error != std::errc() || end != text.data() + text.size()) return false;
    if (ask->op == SelectorOperator::kGt) {
      above = std::max(above, bound);
    } else {
      below = std::min(below, bound);
    }
  }
  return above < below && below - 1 > above;
}

// True if a value that isn't known yet, bound by `allowed`, could meet all of `asks`. With
// `may_lack` the node may also come without the label.
bool SomeValueMeets(const Asks& asks, const Asks& allowed, bool may_lack) {
  if (may_lack && AllMatch(asks, nullptr)) return true;
  if (Has(asks, SelectorOperator::kDoesNotExist)) return false;
  const Requirement* listed = FindIn(allowed);
  if (listed == nullptr) listed = FindIn(asks);
  if (listed != nullptr) {
    return std::any_of(listed->values.begin(), listed->values.end(), [&](const std::string& value) {
      return AllMatch(asks, &value) && AllMatch(allowed, &value);
    });
  }
  Asks all = asks;
  all.insert(all.end(), allowed.begin(), allowed.end());
  return BoundsLeaveAnInteger(all);
}

// What is known of a node's labels. Exact once the Node is registered.
class KnownLabels {
 public:
  explicit KnownLabels(const kube::Node& node) : node_(node) {}
  explicit KnownLabels(const NodeInfo& info) : node_(*info.node) {
    if (info.is_virtual && (info.object == nullptr || !IsRegistered(*info.object))) {
      claim_ = info.claim.get();
      launched_ = claim_->IsTrue("Launched");
    }
  }

  // All asks on one key at once: they must be met by the same value.
  bool CouldMeet(const Asks& asks) const {
    const std::string& key = asks.front()->key;
    if (const std::string* value = node_.meta.Label(key)) return AllMatch(asks, value);
    if (claim_ == nullptr) return AllMatch(asks, nullptr);
    std::string_view name = CurrentName(key);
    if (name != key) {
      if (const std::string* value = node_.meta.Label(name)) return AllMatch(asks, value);
    }
    Asks allowed;
    for (const Requirement& requirement : claim_->requirements) {
      if (requirement.key == name) allowed.push_back(&requirement);
    }
    if (allowed.empty()) {
      if (launched_ || !IsWellKnown(name)) return AllMatch(asks, nullptr);
      return SomeValueMeets(asks, allowed, /*may_lack=*/true);
    }
    if (Has(allowed, SelectorOperator::kDoesNotExist)) return AllMatch(asks, nullptr);
    bool may_lack = std::all_of(allowed.begin(), allowed.end(), [](const Requirement* requirement) {
      return requirement->op == SelectorOperator::kNotIn;
    });
    return SomeValueMeets(asks, allowed, may_lack);
  }

  bool CouldMeetAll(const std::vector<Requirement>& requirements) const {
    for (size_t i = 0; i < requirements.size(); ++i) {
      Asks asks;
      bool seen = false;
      for (size_t j = 0; j < requirements.size(); ++j) {
        if (requirements[j].key != requirements[i].key) continue;
        seen = seen || j < i;
        asks.push_back(&requirements[j]);
      }
      if (!seen && !CouldMeet(asks)) return false;
    }
    return true;
  }

  bool exact() const { return claim_ == nullptr; }
  const kube::Node& node() const { return node_; }

 private:
  const kube::Node& node_;
  const kube::NodeClaim* claim_ = nullptr;
  bool launched_ = false;
};

bool AllMatchLabels(const std::vector<Requirement>& requirements, const kube::ObjectMeta& meta) {
  return std::all_of(requirements.begin(), requirements.end(),
                     [&](const Requirement& ask) { return ask.Matches(meta.Label(ask.key)); });
}

// Only metadata.name exists, only In and NotIn of one value are valid, and an invalid requirement
// spoils its term.
bool MatchesFields(const std::vector<Requirement>& fields, const std::string& node_name) {
  return std::all_of(fields.begin(), fields.end(), [&](const Requirement& field) {
    if (field.values.size() != 1) return false;
    bool equal = field.key == "metadata.name" && field.values[0] == node_name;
    if (field.op == SelectorOperator::kIn) return equal;
    return field.op == SelectorOperator::kNotIn && !equal;
  });
}

bool IsEmpty(const kube::NodeSelectorTerm& term) {
  return term.match_expressions.empty() && term.match_fields.empty();
}

bool MatchesTerm(const kube::NodeSelectorTerm& term, const kube::Node& node) {
  return !IsEmpty(term) && MatchesFields(term.match_fields, node.meta.name) &&
         AllMatchLabels(term.match_expressions, node.meta);
}

}  // namespace

bool LooksAtNames(const kube::PodSpec& spec) {
  if (spec.node_selector.contains(kube::kHostnameLabel)) return true;
  const auto& terms = spec.affinity.required_node_terms;
  return terms && std::any_of(terms->begin(), terms->end(), [](const auto& term) {
           return !term.match_fields.empty() ||
                  std::any_of(
                      term.match_expressions.begin(), term.match_expressions.end(),
                      [](const Requirement& ask) { return ask.key == kube::kHostnameLabel; });
         });
}

bool MatchesNodeAffinity(const kube::PodSpec& spec, const kube::Node& node) {
  for (const auto& [key, value] : spec.node_selector) {
    const std::string* have = node.meta.Label(key);
    if (have == nullptr || *have != value) return false;
  }
  const auto& terms = spec.affinity.required_node_terms;
  return !terms || std::any_of(terms->begin(), terms->end(),
                               [&](const auto& term) { return MatchesTerm(term, node); });
}

bool CouldMatchNodeAffinity(const kube::PodSpec& spec, const NodeInfo& info) {
  KnownLabels labels(info);
  if (labels.exact()) return MatchesNodeAffinity(spec, *info.node);
  std::vector<Requirement> selector;
  for (const auto& [key, value] : spec.node_selector) {
    selector.push_back({key, SelectorOperator::kIn, {value}});
  }
  const auto& terms = spec.affinity.required_node_terms;
  if (!terms) return labels.CouldMeetAll(selector);
  return std::any_of(terms->begin(), terms->end(), [&](const kube::NodeSelectorTerm& term) {
    if (IsEmpty(term) || !MatchesFields(term.match_fields, info.name())) return false;
    std::vector<Requirement> asks = selector;
    asks.insert(asks.end(), term.match_expressions.begin(), term.match_expressions.end());
    return labels.CouldMeetAll(asks);
  });
}

bool CouldMatchVolumeTerms(const std::vector<kube::NodeSelectorTerm>& terms, const NodeInfo& info) {
  KnownLabels labels(info);
  return std::any_of(terms.begin(), terms.end(), [&](const kube::NodeSelectorTerm& term) {
    return !IsEmpty(term) && labels.CouldMeetAll(term.match_expressions);
  });
}

bool CouldHaveLabel(const NodeInfo& info, const Requirement& wanted) {
  return KnownLabels(info).CouldMeet({&wanted});
}

int64_t PreferredNodeWeight(const kube::PodSpec& spec, const kube::Node& node) {
  int64_t weight = 0;
  for (const kube::PreferredNodeTerm& preferred : spec.affinity.preferred_node_terms) {
    if (MatchesTerm(preferred.term, node)) weight += preferred.weight;
  }
  return weight;
}

}  // namespace muster::cluster
