#include "cluster/relations.h"

#include <algorithm>

#include "cluster/label_bits.h"
#include "fmt/format.h"

namespace muster::cluster {

namespace {

constexpr int64_t kHeaviestPreference = 100;

template <typename Text>
Rejection Refuse(RejectionCode code, Detail detail, Text text) {
  return {code, detail == Detail::kWritten ? text() : ""};
}

}  // namespace

bool Relations::MayConcern(const Snapshot& snapshot, const std::vector<const kube::Pod*>& members) {
  const auto has_some = [](const kube::Pod* member) {
    return HasRelations(*member->spec) || HasPreferredRelations(*member->spec);
  };
  if (std::ranges::any_of(members, has_some)) return true;
  if (snapshot.anti_affinity_pods().empty()) return false;
  uint64_t labels = 0;
  for (const kube::Pod* member : members) labels |= LabelBits(member->meta.labels);
  return std::ranges::any_of(snapshot.anti_affinity_pods(), [&](const auto& stands) {
    const auto& terms = snapshot.FindPod(stands.first)->spec->affinity.required_pod_anti_affinity;
    return std::ranges::any_of(terms, [&](const kube::PodAffinityTerm& term) {
      return term.selector && (NeededBits(*term.selector) & ~labels) == 0;
    });
  });
}

std::string Relations::DomainName(int key, int node) const {
  const Key& k = keys_[key];
  return fmt::format("{}={}", k.label, k.values[k.domain[node]]);
}

bool Relations::Satisfied(const Affinity& affinity, int node) const {
  for (size_t i = 0; i < affinity.keys.size(); ++i) {
    int domain = keys_[affinity.keys[i]].domain[node];
    if (domain < 0 || affinity.matching[i][domain] == 0) return false;
  }
  return true;
}

bool Relations::Open(const Affinity& affinity, int kind, int node) const {
  if (Satisfied(affinity, node)) return true;
  // The first of a group that is drawn to itself, wherever there is a domain for the others.
  return affinity.matching_anywhere == 0 && affinity.selects[kind] &&
         std::all_of(affinity.keys.begin(), affinity.keys.end(),
                     [&](int key) { return keys_[key].domain[node] >= 0; });
}

bool Relations::IsDrawn(int kind) const {
  return std::ranges::any_of(affinities_, [&](const Affinity& affinity) {
    return !affinity.settled && (affinity.owns[kind] || affinity.selects[kind]);
  });
}

std::optional<Rejection> Relations::Barred(int kind, int node, Detail detail) const {
  const Kind& parts = kind_parts_[kind];
  for (int index : parts.own_affinities) {
    const Affinity& affinity = affinities_[index];
    for (int key : affinity.keys) {
      if (keys_[key].domain[node] >= 0) continue;
      return Refuse(RejectionCode::kPodAffinity, detail, [&] {
        return fmt::format("label {} of its pod affinity is missing", keys_[key].label);
      });
    }
    if (!affinity.settled || Satisfied(affinity, node)) continue;
    return Refuse(RejectionCode::kPodAffinity, detail, [&] {
      return fmt::format("no pod that its affinity asks for in {}",
                         DomainName(affinity.keys[0], node));
    });
  }
  if (auto rejection = WhyNotAntiAffinity(kind, node, detail)) return rejection;
  if (auto rejection = WhyNotSpread(kind, node, /*settled_only=*/true, detail)) return rejection;
  const Relations* with = WithNominated(node);
  if (with == nullptr) return std::nullopt;
  return LooksAtPods(kind) ? with->Barred(kind, node, detail)
                           : with->WhyNotSpread(kind, node, /*settled_only=*/true, detail);
}

bool Relations::AllowsAffinity(int kind, int node) const {
  for (int index : kind_parts_[kind].own_affinities) {
    if (!Open(affinities_[index], kind, node)) return false;
  }
  return true;
}

bool Relations::AllowsAntiAffinity(int kind, int node) const {
  for (int index : kind_parts_[kind].own_anti_affinities) {
    const AntiAffinity& anti = anti_affinities_[index];
    int domain = keys_[anti.key].domain[node];
    if (domain >= 0 && anti.matching[domain] > 0) return false;
  }
  for (int index : kind_parts_[kind].selected_by_anti_affinities) {
    const AntiAffinity& anti = anti_affinities_[index];
    int domain = keys_[anti.key].domain[node];
    if (domain >= 0 && anti.owners[domain] > 0) return false;
  }
  return true;
}

bool Relations::AllowsSpread(int kind, int node, int spread_index) const {
  const Spread& spread = spreads_[spread_index];
  int domain = keys_[spread.key].domain[node];
  if (domain < 0) return false;
  return spread.counts_nothing ||
         spread.matching[domain] + spread.selects[kind] - spread.Floor() <= spread.max_skew;
}

const Relations* Relations::WithNominated(int node) const {
  const auto found = std::ranges::find(with_nominated_, node, &std::pair<int, Relations>::first);
  return found == with_nominated_.end() ? nullptr : &found->second;
}

// kube-scheduler asks its InterPodAffinity only then, nominated pods or not.
bool Relations::LooksAtPods(int kind) const {
  const Kind& parts = kind_parts_[kind];
  return !parts.own_affinities.empty() || !parts.own_anti_affinities.empty() ||
         std::ranges::any_of(parts.selected_by_anti_affinities, [&](int index) {
           return std::ranges::any_of(anti_affinities_[index].owners,
                                      [](int owners) { return owners > 0; });
         });
}

bool Relations::AllowsPods(int kind, int node) const {
  return AllowsAntiAffinity(kind, node) && AllowsAffinity(kind, node);
}

bool Relations::AllowsSpreads(int kind, int node) const {
  return std::ranges::all_of(kind_parts_[kind].own_spreads,
                             [&](int index) { return AllowsSpread(kind, node, index); });
}

bool Relations::Allows(int kind, int node) const {
  if (!AllowsPods(kind, node) || !AllowsSpreads(kind, node)) return false;
  const Relations* with = WithNominated(node);
  return with == nullptr ||
         (with->AllowsSpreads(kind, node) && (!LooksAtPods(kind) || with->AllowsPods(kind, node)));
}

std::optional<Rejection> Relations::WhyNotAntiAffinity(int kind, int node, Detail detail) const {
  for (int index : kind_parts_[kind].own_anti_affinities) {
    const AntiAffinity& anti = anti_affinities_[index];
    int domain = keys_[anti.key].domain[node];
    if (domain < 0 || anti.matching[domain] == 0) continue;
    return Refuse(RejectionCode::kPodAntiAffinity, detail, [&] {
      return fmt::format("{} holds {} pods that its anti-affinity keeps away from",
                         DomainName(anti.key, node), anti.matching[domain]);
    });
  }
  for (int index : kind_parts_[kind].selected_by_anti_affinities) {
    const AntiAffinity& anti = anti_affinities_[index];
    int domain = keys_[anti.key].domain[node];
    if (domain < 0 || anti.owners[domain] == 0) continue;
    return Refuse(RejectionCode::kExistingAntiAffinity, detail, [&] {
      return fmt::format("{} holds {} pods whose anti-affinity keeps it away",
                         DomainName(anti.key, node), anti.owners[domain]);
    });
  }
  return std::nullopt;
}

std::optional<Rejection> Relations::WhyNotSpread(int kind, int node, bool settled_only,
                                                 Detail detail) const {
  for (int index : kind_parts_[kind].own_spreads) {
    const Spread& spread = spreads_[index];
    int domain = keys_[spread.key].domain[node];
    if (domain < 0) {
      return Refuse(RejectionCode::kTopologySpread, detail, [&] {
        return fmt::format("label {} of its topology spread is missing", keys_[spread.key].label);
      });
    }
    if (spread.counts_nothing || (settled_only && spread.between_members)) continue;
    int here = spread.matching[domain] + spread.selects[kind];
    if (here - spread.Floor() <= spread.max_skew) continue;
    return Refuse(RejectionCode::kTopologySpread, detail, [&] {
      return fmt::format("{} would hold {} matching pods, the least filled domain {}, max skew {}",
                         DomainName(spread.key, node), here, spread.Floor(), spread.max_skew);
    });
  }
  return std::nullopt;
}

std::optional<Rejection> Relations::WhyNotPods(int kind, int node, Detail detail) const {
  for (int index : kind_parts_[kind].own_affinities) {
    const Affinity& affinity = affinities_[index];
    if (Open(affinity, kind, node)) continue;
    for (int key : affinity.keys) {
      if (keys_[key].domain[node] < 0) return Barred(kind, node, detail);
    }
    return Refuse(RejectionCode::kPodAffinity, detail, [&] {
      return fmt::format("no pod that its affinity asks for in {}",
                         DomainName(affinity.keys[0], node));
    });
  }
  return WhyNotAntiAffinity(kind, node, detail);
}

std::optional<Rejection> Relations::WhyNot(int kind, int node, Detail detail) const {
  if (auto rejection = WhyNotPods(kind, node, detail)) return rejection;
  if (auto rejection = WhyNotSpread(kind, node, /*settled_only=*/false, detail)) return rejection;
  const Relations* with = WithNominated(node);
  if (with == nullptr) return std::nullopt;
  if (LooksAtPods(kind)) {
    if (auto rejection = with->WhyNotPods(kind, node, detail)) return rejection;
  }
  return with->WhyNotSpread(kind, node, /*settled_only=*/false, detail);
}

void Relations::CountSpread(Spread& spread, int domain, int step) {
  int before = spread.matching[domain];
  int after = before + step;
  spread.matching[domain] = after;
  if (spread.domains_with.size() <= static_cast<size_t>(after)) {
    spread.domains_with.resize(after + 1);
  }
  --spread.domains_with[before];
  ++spread.domains_with[after];
  const bool lowest_left = before == spread.lowest && spread.domains_with[before] == 0;
  if (after < spread.lowest || lowest_left) spread.lowest = after;
}

void Relations::Count(int kind, int node, int step) {
  for (auto& [nominated_on, with] : with_nominated_) with.Count(kind, node, step);
  const Kind& parts = kind_parts_[kind];
  for (int index : parts.selected_by_affinities) {
    Affinity& affinity = affinities_[index];
    bool anywhere = false;
    for (size_t i = 0; i < affinity.keys.size(); ++i) {
      int domain = keys_[affinity.keys[i]].domain[node];
      if (domain < 0) continue;
      affinity.matching[i][domain] += step;
      anywhere = true;
    }
    if (anywhere) affinity.matching_anywhere += step;
  }
  for (int index : parts.selected_by_anti_affinities) {
    AntiAffinity& anti = anti_affinities_[index];
    int domain = keys_[anti.key].domain[node];
    if (domain >= 0) anti.matching[domain] += step;
  }
  for (int index : parts.own_anti_affinities) {
    AntiAffinity& anti = anti_affinities_[index];
    int domain = keys_[anti.key].domain[node];
    if (domain >= 0) anti.owners[domain] += step;
  }
  for (int index : parts.selected_by_spreads) {
    Spread& spread = spreads_[index];
    if (spread.counted[node]) CountSpread(spread, keys_[spread.key].domain[node], step);
  }
}

int64_t Relations::PreferenceScore(size_t member, int node) const {
  if (preferences_of_member_.empty() || preferences_of_member_[member].index < 0) return 0;
  const MembersPreferences& of_member = preferences_of_member_[member];
  const Preferences& preferences = preferences_[of_member.index];
  int64_t score = 0;
  for (const Preferences::Term& term : preferences.terms) {
    const int domain = keys_[term.key].domain[node];
    if (domain >= 0 && term.matching[domain] > 0) score += term.weight;
  }
  for (size_t i = 0; i < preferences.spreads.size(); ++i) {
    const Spread& spread = preferences.spreads[i];
    const int domain = keys_[spread.key].domain[node];
    if (domain < 0) {
      score -= kHeaviestPreference;
      continue;
    }
    const int64_t skew = spread.matching[domain] + of_member.selects[i] - spread.lowest;
    score -= std::clamp<int64_t>(skew - spread.max_skew, 0, kHeaviestPreference);
  }
  return score;
}

int64_t Relations::SpreadLevel(int kind, int node) const {
  int64_t level = 0;
  for (int index : kind_parts_[kind].own_spreads) {
    const Spread& spread = spreads_[index];
    int domain = keys_[spread.key].domain[node];
    if (domain >= 0 && spread.between_members) level += spread.matching[domain];
  }
  return level;
}

}  // namespace muster::cluster
