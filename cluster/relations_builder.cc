// How a Relations is made: terms of the members and of the pods that stand are gathered once each,
// members are sorted into kinds by what selects them, then the standing pods are counted.
#include <algorithm>
#include <map>

#include "absl/container/flat_hash_set.h"
#include "cluster/label_bits.h"
#include "cluster/node_lookup.h"
#include "cluster/relations.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

using kube::Pod;
using kube::PodAffinityTerm;
using kube::PodSpec;
using kube::TopologySpreadConstraint;

void AppendPart(std::string* text, std::string_view part) {
  text->append(part);
  text->push_back('\x1f');
}

void AppendPart(std::string* text, const std::vector<kube::Requirement>& requirements) {
  for (const kube::Requirement& requirement : requirements)
    AppendPart(text, requirement.ToString());
}

void AppendPart(std::string* text, const std::optional<kube::LabelSelector>& selector) {
  if (!selector) return AppendPart(text, "-");
  AppendPart(text, "{");
  AppendPart(text, selector->requirements);
  AppendPart(text, "}");
}

// Equal texts: the same term of pods in the same namespace.
std::string Identity(const PodAffinityTerm& term, const Pod& owner) {
  std::string text;
  AppendPart(&text, owner.meta.name_space);
  AppendPart(&text, term.topology_key);
  AppendPart(&text, term.selector);
  for (const std::string& name : term.namespaces) AppendPart(&text, name);
  AppendPart(&text, term.namespace_selector);
  return text;
}

std::string Identity(const std::vector<PodAffinityTerm>& terms, const Pod& owner) {
  std::string text;
  for (const PodAffinityTerm& term : terms) text += Identity(term, owner) + '\x1e';
  return text;
}

// Without what a scheduler adds; `copy` is where that is made if it must be.
const PodSpec& AsWritten(const PodSpec& spec, PodSpec* copy) {
  if (!spec.affinity.adds_terms) return spec;
  *copy = spec;
  copy->affinity.required_node_terms = copy->affinity.own_node_terms;
  return *copy;
}

// What decides which nodes a spread constraint counts, beside the constraint itself.
std::string NodeSelectionIdentity(const PodSpec& with_added) {
  PodSpec copy;
  const PodSpec& spec = AsWritten(with_added, &copy);
  std::string text;
  for (const auto& [key, value] : spec.node_selector) {
    AppendPart(&text, key);
    AppendPart(&text, value);
  }
  if (spec.affinity.required_node_terms) {
    AppendPart(&text, "terms");  // none at all match no node
    for (const kube::NodeSelectorTerm& term : *spec.affinity.required_node_terms) {
      AppendPart(&text, "term");
      AppendPart(&text, term.match_expressions);
      AppendPart(&text, "fields");
      AppendPart(&text, term.match_fields);
    }
  }
  for (const kube::Toleration& toleration : spec.tolerations) {
    AppendPart(&text, toleration.key);
    AppendPart(&text, toleration.exists ? "E" : "=");
    AppendPart(&text, toleration.value);
    AppendPart(&text,
               toleration.effect ? std::to_string(static_cast<int>(*toleration.effect)) : "*");
  }
  return text;
}

std::string Identity(const TopologySpreadConstraint& constraint) {
  std::string text;
  AppendPart(&text, constraint.topology_key);
  AppendPart(&text, std::to_string(constraint.max_skew));
  AppendPart(&text, std::to_string(constraint.min_domains.value_or(1)));
  AppendPart(&text, constraint.selector);
  AppendPart(&text, constraint.honor_node_affinity ? "A" : "a");
  AppendPart(&text, constraint.honor_node_taints ? "T" : "t");
  return text;
}

std::vector<const TopologySpreadConstraint*> SpreadsOf(const PodSpec& spec, bool hard) {
  std::vector<const TopologySpreadConstraint*> spreads;
  for (const TopologySpreadConstraint& constraint : spec.topology_spread) {
    if (constraint.do_not_schedule == hard) spreads.push_back(&constraint);
  }
  return spreads;
}

// The node inclusion policies of a constraint. `seen` is the node as far as relations go.
bool TakesPart(const TopologySpreadConstraint& constraint, const PodSpec& spec,
               const NodeInfo& info, const kube::Node& seen) {
  if (constraint.honor_node_affinity) {
    bool forecast = &seen == info.node.get();
    if (forecast ? !CouldMatchNodeAffinity(spec, info) : !MatchesNodeAffinity(spec, seen)) {
      return false;
    }
  }
  return !constraint.honor_node_taints || FirstUntoleratedTaint(spec, seen.taints) == nullptr;
}

bool SpreadSelects(const TopologySpreadConstraint& constraint, const Pod& owner, const Pod& other) {
  // An empty selector matches every pod but counts none (podtopologyspread/common.go).
  if (!constraint.selector || constraint.selector->requirements.empty()) return false;
  return owner.meta.name_space == other.meta.name_space &&
         constraint.selector->Matches(other.meta.labels);
}

}  // namespace

class RelationsBuilder {
 public:
  RelationsBuilder(const Snapshot& snapshot, const std::vector<const Pod*>& members,
                   const std::vector<const NodeInfo*>& nodes, bool include_virtual,
                   Relations* relations)
      : snapshot_(snapshot), members_(members), nodes_(nodes), out_(*relations) {
    seen_.reserve(nodes.size());
    for (const NodeInfo* info : nodes) {
      seen_.push_back(include_virtual ? info->node.get() : info->object.get());
    }
    for (const Pod* member : members) {
      if (snapshot.FindNodeOfPod(member->meta.uid) != nullptr) {
        standing_members_.insert(member->meta.uid);
      }
    }
  }

  void Build() {
    out_.kind_of_member_.assign(members_.size(), 0);
    GatherMembersTerms();
    GatherStandingAntiAffinity();
    GatherPreferences();
    FormKinds();
    CountStandingPods();
    auto with_nominated = CountNominatedPods();
    Settle();
    out_.with_nominated_ = std::move(with_nominated);
  }

 private:
  // Where an item's terms come from, and how it concerns each member.
  struct Origin {
    const Pod* owner = nullptr;
    std::vector<char> owned_by, selects;  // by member
    // What the labels of a pod must have if the terms select it (cluster/label_bits.h).
    uint64_t needed_bits = 0;

    void Narrow(const std::optional<kube::LabelSelector>& selector) {
      if (selector) needed_bits |= NeededBits(*selector);
    }
    bool MaySelect(const PlacedPod& placed) const {
      return (placed.label_bits & needed_bits) == needed_bits;
    }
  };

  // Where the preferences of members with equal ones come from.
  struct PreferenceOrigin {
    const Pod* owner = nullptr;
    std::vector<const PodAffinityTerm*> terms;
    std::vector<const TopologySpreadConstraint*> spreads;
  };

  int KeyIndex(const std::string& label) {
    for (size_t i = 0; i < out_.keys_.size(); ++i) {
      if (out_.keys_[i].label == label) return static_cast<int>(i);
    }
    Relations::Key key;
    key.label = label;
    key.domain.assign(nodes_.size(), -1);
    if (label != kube::kHostnameLabel || !NumberByName(&key)) NumberByValue(&key);
    key.nodes_in.assign(key.values.size(), 0);
    for (int domain : key.domain) {
      if (domain >= 0) ++key.nodes_in[domain];
    }
    out_.keys_.push_back(std::move(key));
    return static_cast<int>(out_.keys_.size()) - 1;
  }

  void NumberByValue(Relations::Key* key) const {
    NodeLabel on_node(key->label);
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (seen_[n] == nullptr) continue;
      key->domain[n] = seen_[n] == nodes_[n]->node.get() ? on_node.NumberOf(*nodes_[n])
                                                         : on_node.NumberOf(*seen_[n]);
    }
    key->values = on_node.values();
  }

  // As NumberByValue numbers hostnames, at a fraction of the cost; false, and nothing done, if some
  // node's hostname isn't its name, which another node's may be.
  bool NumberByName(Relations::Key* key) const {
    const bool all = std::all_of(nodes_.begin(), nodes_.end(), [](const NodeInfo* info) {
      return info->hostname != NodeInfo::Hostname::kOther;
    });
    if (!all) return false;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (seen_[n] == nullptr || nodes_[n]->hostname != NodeInfo::Hostname::kName) continue;
      key->domain[n] = static_cast<int>(key->values.size());
      key->values.push_back(nodes_[n]->name());
    }
    return true;
  }

  size_t Domains(int key) const { return out_.keys_[key].values.size(); }

  Origin NewOrigin(const Pod& owner) const {
    Origin origin;
    origin.owner = &owner;
    origin.owned_by.assign(members_.size(), 0);
    origin.selects.assign(members_.size(), 0);
    return origin;
  }

  int AffinityIndex(const Pod& owner) {
    const auto& terms = owner.spec->affinity.required_pod_affinity;
    auto [it, added] =
        affinity_index_.try_emplace(Identity(terms, owner), affinity_origins_.size());
    if (!added) return it->second;
    Relations::Affinity affinity;
    for (const PodAffinityTerm& term : terms) {
      int key = KeyIndex(term.topology_key);
      if (std::find(affinity.keys.begin(), affinity.keys.end(), key) == affinity.keys.end()) {
        affinity.keys.push_back(key);
        affinity.matching.emplace_back(Domains(key));
      }
    }
    Origin origin = NewOrigin(owner);
    for (const PodAffinityTerm& term : terms) origin.Narrow(term.selector);
    for (size_t m = 0; m < members_.size(); ++m) origin.selects[m] = AllSelect(terms, owner, m);
    affinity_origins_.push_back(std::move(origin));
    out_.affinities_.push_back(std::move(affinity));
    return it->second;
  }

  bool AllSelect(const std::vector<PodAffinityTerm>& terms, const Pod& owner, size_t member) const {
    return std::all_of(terms.begin(), terms.end(), [&](const PodAffinityTerm& term) {
      return TermSelects(snapshot_, term, owner, *members_[member]);
    });
  }

  // -1 if the term is a standing pod's and selects no member.
  int AntiAffinityIndex(const PodAffinityTerm& term, const Pod& owner, bool standing) {
    auto [it, added] = anti_index_.try_emplace(Identity(term, owner), -1);
    if (!added && (it->second >= 0 || standing)) return it->second;
    Origin origin = NewOrigin(owner);
    origin.Narrow(term.selector);
    bool selects_any = false;
    for (size_t m = 0; m < members_.size(); ++m) {
      origin.selects[m] = TermSelects(snapshot_, term, owner, *members_[m]);
      selects_any |= origin.selects[m];
    }
    if (standing && !selects_any) return -1;
    Relations::AntiAffinity anti;
    anti.key = KeyIndex(term.topology_key);
    anti.owners.assign(Domains(anti.key), 0);
    anti.matching.assign(Domains(anti.key), 0);
    it->second = static_cast<int>(anti_origins_.size());
    anti_origins_.push_back(std::move(origin));
    anti_terms_.push_back(&term);
    out_.anti_affinities_.push_back(std::move(anti));
    return it->second;
  }

  int SpreadIndex(const TopologySpreadConstraint& constraint, const std::string& selection,
                  const std::vector<const TopologySpreadConstraint*>& all, const Pod& owner) {
    std::string identity =
        Identity(constraint) + '\x1e' + owner.meta.name_space + '\x1e' + selection;
    for (const TopologySpreadConstraint* other : all) AppendPart(&identity, other->topology_key);
    auto [it, added] = spread_index_.try_emplace(std::move(identity), spread_origins_.size());
    if (!added) return it->second;
    Origin origin = NewOrigin(owner);
    origin.Narrow(constraint.selector);
    for (size_t m = 0; m < members_.size(); ++m) {
      origin.selects[m] = SpreadSelects(constraint, owner, *members_[m]);
    }
    spread_origins_.push_back(std::move(origin));
    spread_terms_.push_back(&constraint);
    out_.spreads_.push_back(MakeSpread(constraint, all, owner));
    return it->second;
  }

  Relations::Spread MakeSpread(const TopologySpreadConstraint& constraint,
                               const std::vector<const TopologySpreadConstraint*>& all,
                               const Pod& owner) {
    Relations::Spread spread;
    spread.key = KeyIndex(constraint.topology_key);
    spread.max_skew = constraint.max_skew;
    spread.min_domains = constraint.min_domains.value_or(1);
    spread.counts_nothing = constraint.selector && constraint.selector->requirements.empty();
    spread.matching.assign(Domains(spread.key), 0);
    spread.taking_part.assign(Domains(spread.key), 0);
    spread.counted.assign(nodes_.size(), 0);
    std::vector<int> keys;
    for (const TopologySpreadConstraint* other : all) keys.push_back(KeyIndex(other->topology_key));
    PodSpec copy;
    const PodSpec& spec = AsWritten(*owner.spec, &copy);
    const bool by_name = LooksAtNames(spec);
    PerFamily<bool> by_family;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      bool labelled = std::all_of(keys.begin(), keys.end(),
                                  [&](int key) { return out_.keys_[key].domain[n] >= 0; });
      if (!labelled) continue;
      // A virtual node's labels may be open still, and its Node may have others.
      const NodeInfo& info = *nodes_[n];
      const int family = by_name || info.is_virtual ? -1 : info.family;
      bool counts =
          by_family.Get(family, [&] { return TakesPart(constraint, spec, info, *seen_[n]); });
      if (!counts) continue;
      spread.counted[n] = 1;
      spread.taking_part[out_.keys_[spread.key].domain[n]] = 1;
    }
    spread.domains =
        static_cast<int>(std::count(spread.taking_part.begin(), spread.taking_part.end(), 1));
    spread.domains_with = {spread.domains};
    return spread;
  }

  void GatherMembersTerms() {
    const Pod* previous = nullptr;
    for (size_t m = 0; m < members_.size(); ++m) {
      const Pod& pod = *members_[m];
      const PodSpec& spec = *pod.spec;
      if (!HasRelations(spec)) continue;
      if (previous == nullptr || !SameTerms(*previous, pod)) {
        FindTerms(pod);
        previous = &pod;
      }
      for (int index : own_affinities_) affinity_origins_[index].owned_by[m] = 1;
      for (int index : own_anti_) anti_origins_[index].owned_by[m] = 1;
      for (int index : own_spreads_) spread_origins_[index].owned_by[m] = 1;
    }
  }

  static bool SameTerms(const Pod& a, const Pod& b) {
    return a.meta.name_space == b.meta.name_space &&
           (a.spec == b.spec || (a.spec->affinity == b.spec->affinity &&
                                 a.spec->topology_spread == b.spec->topology_spread &&
                                 a.spec->node_selector == b.spec->node_selector &&
                                 a.spec->tolerations == b.spec->tolerations));
  }

  void FindTerms(const Pod& pod) {
    own_affinities_.clear();
    own_anti_.clear();
    own_spreads_.clear();
    const PodSpec& spec = *pod.spec;
    if (!spec.affinity.required_pod_affinity.empty()) {
      own_affinities_.push_back(AffinityIndex(pod));
    }
    for (const PodAffinityTerm& term : spec.affinity.required_pod_anti_affinity) {
      own_anti_.push_back(AntiAffinityIndex(term, pod, /*standing=*/false));
    }
    auto hard = SpreadsOf(spec, /*hard=*/true);
    std::string selection = hard.empty() ? "" : NodeSelectionIdentity(spec);
    for (const TopologySpreadConstraint* constraint : hard) {
      own_spreads_.push_back(SpreadIndex(*constraint, selection, hard, pod));
    }
  }

  void GatherPreferences() {
    for (size_t m = 0; m < members_.size(); ++m) {
      const Pod& pod = *members_[m];
      if (!HasPreferredRelations(*pod.spec)) continue;
      out_.preferences_of_member_.resize(members_.size());
      Relations::MembersPreferences& mine = out_.preferences_of_member_[m];
      mine.index = PreferencesIndex(pod);
      for (const auto* constraint : preference_origins_[mine.index].spreads) {
        mine.selects.push_back(SpreadSelects(*constraint, pod, pod));
      }
    }
  }

  int PreferencesIndex(const Pod& pod) {
    for (size_t i = preference_origins_.size(); i > 0; --i) {
      if (SameTerms(*preference_origins_[i - 1].owner, pod)) return static_cast<int>(i - 1);
    }
    PreferenceOrigin origin;
    origin.owner = &pod;
    Relations::Preferences preferences;
    const kube::Affinity& affinity = pod.spec->affinity;
    auto add = [&](const kube::WeightedPodAffinityTerm& preferred, int64_t weight) {
      const int key = KeyIndex(preferred.term.topology_key);
      preferences.terms.push_back({key, weight, std::vector<int>(Domains(key))});
      origin.terms.push_back(&preferred.term);
    };
    for (const auto& preferred : affinity.preferred_pod_affinity) add(preferred, preferred.weight);
    for (const auto& preferred : affinity.preferred_pod_anti_affinity) {
      add(preferred, -preferred.weight);
    }
    origin.spreads = SpreadsOf(*pod.spec, /*hard=*/false);
    for (const TopologySpreadConstraint* constraint : origin.spreads) {
      preferences.spreads.push_back(MakeSpread(*constraint, origin.spreads, pod));
    }
    preference_origins_.push_back(std::move(origin));
    out_.preferences_.push_back(std::move(preferences));
    return static_cast<int>(preference_origins_.size()) - 1;
  }

  void GatherStandingAntiAffinity() {
    for (const NodeInfo* info : nodes_) {
      for (const auto& pod : info->nominated) AntiAffinityIndices(*pod);
    }
    const auto& standing = snapshot_.anti_affinity_pods();
    if (standing.empty()) return;
    absl::flat_hash_map<std::string_view, int> node_index;
    for (size_t n = 0; n < nodes_.size(); ++n) node_index[nodes_[n]->node->meta.name] = n;
    std::vector<std::pair<int, const Pod*>> owners;  // node, pod
    for (const auto& [uid, node_name] : standing) {
      if (standing_members_.contains(uid)) continue;
      auto node = node_index.find(node_name);
      const Pod* pod = snapshot_.FindPod(uid);
      if (node != node_index.end() && pod != nullptr) owners.emplace_back(node->second, pod);
    }
    // Of several terms that keep a member away the first is named, which must not depend on the
    // order of a hash table.
    std::sort(owners.begin(), owners.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second->meta.uid < b.second->meta.uid;
    });
    for (const auto& [node, pod] : owners) CountOwner(*pod, node);
  }

  // Of a pod that stands, or may: the terms that select a member.
  std::vector<int> AntiAffinityIndices(const Pod& pod) {
    std::vector<int> indices;
    for (const PodAffinityTerm& term : pod.spec->affinity.required_pod_anti_affinity) {
      const int index = AntiAffinityIndex(term, pod, /*standing=*/true);
      if (index >= 0) indices.push_back(index);
    }
    return indices;
  }

  void CountOwner(const Pod& pod, int node) {
    for (const int index : AntiAffinityIndices(pod)) {
      Relations::AntiAffinity& anti = out_.anti_affinities_[index];
      int domain = out_.keys_[anti.key].domain[node];
      if (domain >= 0) ++anti.owners[domain];
    }
  }

  // For each node on which pods are nominated: what there is with these. Leaves out_ as it is.
  std::vector<std::pair<int, Relations>> CountNominatedPods() {
    std::vector<std::pair<int, Relations>> all;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (nodes_[n]->nominated.empty() || seen_[n] == nullptr) continue;
      Relations with = out_;
      std::swap(with, out_);
      for (const auto& pod : nodes_[n]->nominated) {
        CountOwner(*pod, n);
        CountStandingPod({pod, false, LabelBits(pod->meta.labels)}, n);
      }
      Settle();
      std::swap(with, out_);
      all.emplace_back(n, std::move(with));
    }
    return all;
  }

  void FormKinds() {
    std::map<std::string, int> kinds;
    std::vector<size_t> example;
    for (size_t m = 0; m < members_.size(); ++m) {
      std::string signature;
      for (const auto* origins : {&affinity_origins_, &anti_origins_, &spread_origins_}) {
        for (const Origin& origin : *origins) {
          signature.push_back(static_cast<char>('0' + 2 * origin.owned_by[m] + origin.selects[m]));
        }
      }
      auto [it, added] = kinds.try_emplace(std::move(signature), example.size());
      if (added) example.push_back(m);
      out_.kind_of_member_[m] = it->second;
    }
    out_.kinds_ = std::max<int>(1, example.size());
    out_.kind_parts_.resize(out_.kinds_);
    for (size_t k = 0; k < example.size(); ++k) FillKind(k, example[k]);
  }

  void FillKind(size_t kind, size_t member) {
    Relations::Kind& parts = out_.kind_parts_[kind];
    auto fill = [&](const std::vector<Origin>& origins, auto& items, std::vector<int>* own,
                    std::vector<int>* selected_by) {
      for (size_t i = 0; i < origins.size(); ++i) {
        items[i].owns.push_back(origins[i].owned_by[member]);
        items[i].selects.push_back(origins[i].selects[member]);
        if (origins[i].owned_by[member]) own->push_back(static_cast<int>(i));
        if (origins[i].selects[member]) selected_by->push_back(static_cast<int>(i));
      }
    };
    fill(affinity_origins_, out_.affinities_, &parts.own_affinities, &parts.selected_by_affinities);
    fill(anti_origins_, out_.anti_affinities_, &parts.own_anti_affinities,
         &parts.selected_by_anti_affinities);
    fill(spread_origins_, out_.spreads_, &parts.own_spreads, &parts.selected_by_spreads);
  }

  void CountStandingPods() {
    if (!MembersHaveTerms()) return;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      for (const PlacedPod& placed : nodes_[n]->pods) {
        bool member =
            !standing_members_.empty() && standing_members_.contains(placed.pod->meta.uid);
        if (!member) CountStandingPod(placed, n);
      }
    }
  }

  // Otherwise all there is to know of the standing pods is their anti-affinity.
  bool MembersHaveTerms() const {
    return !preference_origins_.empty() ||
           std::any_of(members_.begin(), members_.end(),
                       [](const Pod* member) { return HasRelations(*member->spec); });
  }

  void CountStandingPod(const PlacedPod& placed, int node) {
    const Pod& pod = *placed.pod;
    for (size_t i = 0; i < affinity_origins_.size(); ++i) {
      if (!affinity_origins_[i].MaySelect(placed)) continue;
      const Pod& owner = *affinity_origins_[i].owner;
      const auto& terms = owner.spec->affinity.required_pod_affinity;
      bool selected = std::all_of(terms.begin(), terms.end(), [&](const PodAffinityTerm& term) {
        return TermSelects(snapshot_, term, owner, pod);
      });
      if (selected) CountMatch(out_.affinities_[i], node);
    }
    for (size_t i = 0; i < anti_origins_.size(); ++i) {
      if (!anti_origins_[i].MaySelect(placed)) continue;
      Relations::AntiAffinity& anti = out_.anti_affinities_[i];
      if (!std::count(anti.owns.begin(), anti.owns.end(), 1)) continue;
      int domain = out_.keys_[anti.key].domain[node];
      if (domain < 0) continue;
      if (TermSelects(snapshot_, *anti_terms_[i], *anti_origins_[i].owner, pod)) {
        ++anti.matching[domain];
      }
    }
    for (size_t i = 0; i < spread_origins_.size(); ++i) {
      if (!spread_origins_[i].MaySelect(placed)) continue;
      Relations::Spread& spread = out_.spreads_[i];
      if (!spread.counted[node] || pod.IsDeleting()) continue;
      if (SpreadSelects(*spread_terms_[i], *spread_origins_[i].owner, pod)) {
        Relations::CountSpread(spread, out_.keys_[spread.key].domain[node], 1);
      }
    }
    for (size_t i = 0; i < preference_origins_.size(); ++i) {
      CountForPreferences(preference_origins_[i], pod, node, &out_.preferences_[i]);
    }
  }

  void CountForPreferences(const PreferenceOrigin& origin, const Pod& pod, int node,
                           Relations::Preferences* preferences) const {
    for (size_t i = 0; i < origin.terms.size(); ++i) {
      Relations::Preferences::Term& term = preferences->terms[i];
      const int domain = out_.keys_[term.key].domain[node];
      if (domain >= 0 && TermSelects(snapshot_, *origin.terms[i], *origin.owner, pod)) {
        ++term.matching[domain];
      }
    }
    for (size_t i = 0; i < origin.spreads.size(); ++i) {
      Relations::Spread& spread = preferences->spreads[i];
      if (!spread.counted[node] || pod.IsDeleting()) continue;
      if (SpreadSelects(*origin.spreads[i], *origin.owner, pod)) {
        Relations::CountSpread(spread, out_.keys_[spread.key].domain[node], 1);
      }
    }
  }

  void CountMatch(Relations::Affinity& affinity, int node) {
    bool anywhere = false;
    for (size_t i = 0; i < affinity.keys.size(); ++i) {
      int domain = out_.keys_[affinity.keys[i]].domain[node];
      if (domain < 0) continue;
      ++affinity.matching[i][domain];
      anywhere = true;
    }
    if (anywhere) ++affinity.matching_anywhere;
  }

  // Finds out which relations the members themselves can't change.
  void Settle() {
    auto any = [](const std::vector<char>& flags) {
      return std::find(flags.begin(), flags.end(), 1) != flags.end();
    };
    for (Relations::Affinity& affinity : out_.affinities_) {
      bool drawn_to_others = false;
      for (int k = 0; k < out_.kinds_; ++k) {
        drawn_to_others |= affinity.selects[k] && !affinity.owns[k];
      }
      // Pods that go only where a match stands already never open a new domain.
      affinity.settled =
          !any(affinity.selects) || (affinity.matching_anywhere > 0 && !drawn_to_others);
      out_.between_members_ |= !affinity.settled;
    }
    for (Relations::AntiAffinity& anti : out_.anti_affinities_) {
      anti.between_members = any(anti.owns) && any(anti.selects);
      out_.between_members_ |= anti.between_members;
    }
    for (Relations::Spread& spread : out_.spreads_) {
      spread.between_members = any(spread.selects);
      out_.between_members_ |= spread.between_members;
    }
  }

  const Snapshot& snapshot_;
  const std::vector<const Pod*>& members_;
  const std::vector<const NodeInfo*>& nodes_;
  std::vector<const kube::Node*> seen_;  // null: not a node yet, as far as relations go
  Relations& out_;
  absl::flat_hash_set<std::string_view> standing_members_;  // UIDs; hardly ever any

  std::vector<Origin> affinity_origins_, anti_origins_, spread_origins_;
  std::vector<PreferenceOrigin> preference_origins_;
  std::vector<const PodAffinityTerm*> anti_terms_;
  std::vector<const TopologySpreadConstraint*> spread_terms_;
  absl::flat_hash_map<std::string, int> affinity_index_, anti_index_, spread_index_;
  std::vector<int> own_affinities_, own_anti_, own_spreads_;  // of the member last looked at
};

Relations::Relations(const Snapshot& snapshot, const std::vector<const Pod*>& members,
                     const std::vector<const NodeInfo*>& nodes, bool include_virtual) {
  RelationsBuilder(snapshot, members, nodes, include_virtual, this).Build();
}

}  // namespace muster::cluster
