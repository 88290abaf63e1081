#include "cluster/relation_index.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cluster/topology_domains.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace muster::cluster {
namespace {

constexpr int64_t kHeaviestPreference = 100;

// One pod affinity term of an owner, and how many pods it selects in each domain.
struct TermCounts {
  const kube::PodAffinityTerm* term = nullptr;
  const kube::Pod* owner = nullptr;
  size_t key = 0;  // of TopologyDomains
  DomainCounts counts;
  int32_t weight = 0;  // preferred terms only
};

struct ConstraintCounts {
  const kube::TopologySpreadConstraint* constraint = nullptr;
  size_t key = 0;
  SpreadCounts counts;
};

// Subjects whose terms count the same pods. The terms are those of `owner`, the first of them.
struct Shape {
  const kube::Pod* owner = nullptr;
  std::vector<TermCounts> affinity;  // a pod counts only if all of them select it
  int64_t matching_pods = 0;         // pairs of such a pod and a term, anywhere
  std::vector<TermCounts> anti_affinity;
  std::vector<ConstraintCounts> spread;
  std::vector<TermCounts> preferred;  // weight below zero: anti-affinity
  std::vector<ConstraintCounts> soft_spread;
};

struct Subject {
  size_t shape = 0;
  bool has_relations = false;        // the shape has terms of any kind
  std::vector<size_t> kept_away_by;  // indexes of others' anti-affinity terms that select it
};

bool SameRelations(const kube::Pod& a, const kube::Pod& b) {
  if (a.meta.name_space != b.meta.name_space) return false;
  const kube::PodSpec& x = *a.spec;
  const kube::PodSpec& y = *b.spec;
  if (&x == &y) return true;
  if (x.affinity.required_pod_affinity != y.affinity.required_pod_affinity ||
      x.affinity.required_pod_anti_affinity != y.affinity.required_pod_anti_affinity ||
      x.affinity.preferred_pod_affinity != y.affinity.preferred_pod_affinity ||
      x.affinity.preferred_pod_anti_affinity != y.affinity.preferred_pod_anti_affinity ||
      x.topology_spread != y.topology_spread) {
    return false;
  }
  // Which domains take part in a spread depends on where the pod may go.
  return x.topology_spread.empty() ||
         (x.node_selector == y.node_selector && x.tolerations == y.tolerations &&
          x.affinity.required_node_terms == y.affinity.required_node_terms);
}

std::string Describe(const kube::PodAffinityTerm& term) {
  if (!term.selector) return "no pod";
  std::vector<std::string> parts;
  for (const kube::Requirement& requirement : term.selector->requirements) {
    parts.push_back(requirement.ToString());
  }
  return parts.empty() ? "any pod" : fmt::format("pods with {}", fmt::join(parts, ", "));
}

// Equal text: the same pods are selected, in domains of the same key.
std::string TermIdentity(const kube::PodAffinityTerm& term, const std::string& owner_namespace) {
  const bool own_namespace = term.namespaces.empty() && !term.namespace_selector;
  std::string text = fmt::format(
      "{}\n{}\n{}\n", term.topology_key, Describe(term),
      own_namespace ? owner_namespace : fmt::format("{}", fmt::join(term.namespaces, ",")));
  if (!own_namespace) text += '\n';
  if (term.namespace_selector) {
    text += '*';
    for (const kube::Requirement& requirement : term.namespace_selector->requirements) {
      text += requirement.ToString() + ',';
    }
  }
  return text;
}

}  // namespace

struct RelationIndex::State {
  State(const Snapshot& of, bool include_virtual) : snapshot(of), domains(include_virtual) {}

  void AddSubject(const kube::Pod& pod);
  size_t ShapeOf(const kube::Pod& pod);
  TermCounts MakeTerm(const kube::PodAffinityTerm& term, const kube::Pod& owner, int32_t weight);
  void AddKeepAway(const kube::PodAffinityTerm& term, const kube::Pod& owner);
  void FindWhoKeepsAway(const kube::Pod& pod, Subject& subject);
  void AddSpreadDomains();
  void CountStanding();

  bool Selects(const TermCounts& term, const kube::Pod& pod) const {
    return TermSelects(snapshot, *term.term, *term.owner, pod);
  }
  bool SelectsAll(const std::vector<TermCounts>& terms, const kube::Pod& pod) const {
    return std::all_of(terms.begin(), terms.end(),
                       [&](const TermCounts& term) { return Selects(term, pod); });
  }
  bool TakesPart(const Shape& shape, const std::vector<ConstraintCounts>& group,
                 const ConstraintCounts& counts, const kube::Node& node, const NodeInfo& info,
                 const std::vector<int>& at) const;
  void CountSpread(const Shape& shape, std::vector<ConstraintCounts>& group, const kube::Pod& pod,
                   const NodeInfo& info, const std::vector<int>& at, int64_t by);
  void Count(const kube::Pod& pod, const NodeInfo& info, int64_t by);
  void CountKeepAway(const kube::Pod& pod, const std::vector<int>& at, int64_t by);

  std::optional<Rejection> CheckAffinity(const Shape& shape, const kube::Pod& pod,
                                         const std::vector<int>& at) const;
  std::optional<Rejection> CheckAntiAffinity(const Shape& shape, const std::vector<int>& at) const;
  std::optional<Rejection> CheckExisting(const Subject& subject, const std::vector<int>& at) const;
  std::optional<Rejection> CheckSpread(const Shape& shape, const kube::Pod& pod,
                                       const std::vector<int>& at) const;
  std::string DomainName(size_t key, int domain) const {
    return fmt::format("{}={}", domains.KeyName(key), domains.ValueOf(key, domain));
  }

  const Snapshot& snapshot;
  TopologyDomains domains;
  std::vector<Shape> shapes;
  absl::flat_hash_map<const kube::Pod*, Subject> subjects;
  absl::flat_hash_set<std::string> subject_uids;
  // Required anti-affinity terms of all placed pods and of the subjects, each once.
  std::vector<TermCounts> keep_away;
  absl::flat_hash_map<std::string, size_t> keep_away_by_identity;
  bool always_passes = true;
};

// --- building ---

TermCounts RelationIndex::State::MakeTerm(const kube::PodAffinityTerm& term, const kube::Pod& owner,
                                          int32_t weight) {
  return {&term, &owner, domains.AddKey(term.topology_key), {}, weight};
}

size_t RelationIndex::State::ShapeOf(const kube::Pod& pod) {
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (SameRelations(*shapes[i].owner, pod)) return i;
  }
  Shape shape;
  shape.owner = &pod;
  const kube::Affinity& affinity = pod.spec->affinity;
  for (const auto& term : affinity.required_pod_affinity) {
    shape.affinity.push_back(MakeTerm(term, pod, 0));
  }
  for (const auto& term : affinity.required_pod_anti_affinity) {
    shape.anti_affinity.push_back(MakeTerm(term, pod, 0));
  }
  for (const auto& preferred : affinity.preferred_pod_affinity) {
    shape.preferred.push_back(MakeTerm(preferred.term, pod, preferred.weight));
  }
  for (const auto& preferred : affinity.preferred_pod_anti_affinity) {
    shape.preferred.push_back(MakeTerm(preferred.term, pod, -preferred.weight));
  }
  for (const auto& constraint : pod.spec->topology_spread) {
    auto& group = constraint.do_not_schedule ? shape.spread : shape.soft_spread;
    group.push_back({&constraint, domains.AddKey(constraint.topology_key), {}});
  }
  shapes.push_back(std::move(shape));
  return shapes.size() - 1;
}

void RelationIndex::State::AddKeepAway(const kube::PodAffinityTerm& term, const kube::Pod& owner) {
  auto [it, is_new] = keep_away_by_identity.try_emplace(TermIdentity(term, owner.meta.name_space),
                                                        keep_away.size());
  if (is_new) keep_away.push_back(MakeTerm(term, owner, 0));
}

void RelationIndex::State::AddSubject(const kube::Pod& pod) {
  Subject& subject = subjects[&pod];
  subject_uids.insert(pod.meta.uid);
  subject.has_relations = HasRelations(*pod.spec) || HasPreferredRelations(*pod.spec);
  if (subject.has_relations) subject.shape = ShapeOf(pod);
  for (const auto& term : pod.spec->affinity.required_pod_anti_affinity) AddKeepAway(term, pod);
  if (HasRelations(*pod.spec)) always_passes = false;
}

void RelationIndex::State::FindWhoKeepsAway(const kube::Pod& pod, Subject& subject) {
  for (size_t i = 0; i < keep_away.size(); ++i) {
    if (Selects(keep_away[i], pod)) subject.kept_away_by.push_back(i);
  }
  if (!subject.kept_away_by.empty()) always_passes = false;
}

void RelationIndex::State::AddSpreadDomains() {
  const bool any = std::any_of(shapes.begin(), shapes.end(), [](const Shape& shape) {
    return !shape.spread.empty() || !shape.soft_spread.empty();
  });
  if (!any) return;
  for (const auto& [name, info] : snapshot.nodes()) {
    const kube::Node* node = domains.Judged(info);
    if (node == nullptr) continue;
    const std::vector<int>& at = domains.Of(info);
    for (Shape& shape : shapes) {
      for (auto* group : {&shape.spread, &shape.soft_spread}) {
        for (ConstraintCounts& counts : *group) {
          if (TakesPart(shape, *group, counts, *node, info, at)) {
            counts.counts.AddDomain(at[counts.key]);
          }
        }
      }
    }
  }
}

void RelationIndex::State::CountStanding() {
  if (!shapes.empty()) {
    for (const auto& [name, info] : snapshot.nodes()) {
      for (const PlacedPod& placed : info.pods) {
        if (!subject_uids.contains(placed.pod->meta.uid)) Count(*placed.pod, info, 1);
      }
    }
  }
  for (const auto& [uid, node] : snapshot.anti_affinity_pods()) {
    const NodeInfo* info = snapshot.FindNode(node);
    if (subject_uids.contains(uid) || domains.Judged(*info) == nullptr) continue;
    CountKeepAway(*snapshot.FindPod(uid), domains.Of(*info), 1);
  }
}

RelationIndex::RelationIndex(const Snapshot& snapshot,
                             const std::vector<const kube::Pod*>& subjects, bool include_virtual)
    : state_(std::make_unique<State>(snapshot, include_virtual)) {
  for (const kube::Pod* pod : subjects) state_->AddSubject(*pod);
  for (const auto& [uid, node] : snapshot.anti_affinity_pods()) {
    const kube::Pod& pod = *snapshot.FindPod(uid);
    for (const auto& term : pod.spec->affinity.required_pod_anti_affinity) {
      state_->AddKeepAway(term, pod);
    }
  }
  for (const kube::Pod* pod : subjects) {
    state_->FindWhoKeepsAway(*pod, state_->subjects.at(pod));
  }
  if (state_->always_passes && state_->shapes.empty()) return;
  state_->AddSpreadDomains();
  state_->CountStanding();
}

RelationIndex::~RelationIndex() = default;

// --- counting ---

// kube-scheduler counts a node for a spread constraint if it has the topology keys of all
// constraints of that kind and, as the constraint asks, may take the pod.
bool RelationIndex::State::TakesPart(const Shape& shape, const std::vector<ConstraintCounts>& group,
                                     const ConstraintCounts& counts, const kube::Node& node,
                                     const NodeInfo& info, const std::vector<int>& at) const {
  for (const ConstraintCounts& other : group) {
    if (at[other.key] == TopologyDomains::kNone) return false;
  }
  const kube::PodSpec& spec = *shape.owner->spec;
  if (counts.constraint->honor_node_affinity) {
    const bool matches = &node == info.node.get() ? CouldMatchNodeAffinity(spec, info)
                                                  : MatchesNodeAffinity(spec, node);
    if (!matches) return false;
  }
  return !counts.constraint->honor_node_taints ||
         FirstUntoleratedTaint(spec, node.taints) == nullptr;
}

// Pods that are being deleted don't count, and an empty selector counts none, although it matches
// the incoming pod itself.
void RelationIndex::State::CountSpread(const Shape& shape, std::vector<ConstraintCounts>& group,
                                       const kube::Pod& pod, const NodeInfo& info,
                                       const std::vector<int>& at, int64_t by) {
  if (group.empty() || pod.IsDeleting() || pod.meta.name_space != shape.owner->meta.name_space) {
    return;
  }
  for (ConstraintCounts& counts : group) {
    const auto& selector = counts.constraint->selector;
    if (!selector || selector->requirements.empty() || !selector->Matches(pod.meta.labels)) {
      continue;
    }
    if (TakesPart(shape, group, counts, *domains.Judged(info), info, at)) {
      counts.counts.Change(at[counts.key], by);
    }
  }
}

void RelationIndex::State::Count(const kube::Pod& pod, const NodeInfo& info, int64_t by) {
  if (domains.Judged(info) == nullptr) return;
  const std::vector<int>& at = domains.Of(info);
  for (Shape& shape : shapes) {
    if (!shape.affinity.empty() && SelectsAll(shape.affinity, pod)) {
      for (TermCounts& term : shape.affinity) {
        if (at[term.key] == TopologyDomains::kNone) continue;
        term.counts.Change(at[term.key], by);
        shape.matching_pods += by;
      }
    }
    for (auto* terms : {&shape.anti_affinity, &shape.preferred}) {
      for (TermCounts& term : *terms) {
        if (at[term.key] != TopologyDomains::kNone && Selects(term, pod)) {
          term.counts.Change(at[term.key], by);
        }
      }
    }
    CountSpread(shape, shape.spread, pod, info, at, by);
    CountSpread(shape, shape.soft_spread, pod, info, at, by);
  }
}

void RelationIndex::State::CountKeepAway(const kube::Pod& pod, const std::vector<int>& at,
                                         int64_t by) {
  for (const auto& term : pod.spec->affinity.required_pod_anti_affinity) {
    TermCounts& counts =
        keep_away[keep_away_by_identity.at(TermIdentity(term, pod.meta.name_space))];
    if (at[counts.key] != TopologyDomains::kNone) counts.counts.Change(at[counts.key], by);
  }
}

void RelationIndex::Add(const kube::Pod& pod, const NodeInfo& info) {
  if (state_->always_passes && state_->shapes.empty()) return;
  state_->Count(pod, info, 1);
  if (state_->domains.Judged(info) != nullptr) {
    state_->CountKeepAway(pod, state_->domains.Of(info), 1);
  }
}

void RelationIndex::Remove(const kube::Pod& pod, const NodeInfo& info) {
  if (state_->always_passes && state_->shapes.empty()) return;
  state_->Count(pod, info, -1);
  if (state_->domains.Judged(info) != nullptr) {
    state_->CountKeepAway(pod, state_->domains.Of(info), -1);
  }
}

// --- judging ---

std::optional<Rejection> RelationIndex::State::CheckAffinity(const Shape& shape,
                                                             const kube::Pod& pod,
                                                             const std::vector<int>& at) const {
  const TermCounts* unmet = nullptr;
  for (const TermCounts& term : shape.affinity) {
    const int domain = at[term.key];
    if (domain == TopologyDomains::kNone) {
      return Rejection{RejectionCode::kPodAffinity,
                       fmt::format("the node has no label {}, which pod affinity needs",
                                   term.term->topology_key)};
    }
    if (unmet == nullptr && term.counts.Get(domain) <= 0) unmet = &term;
  }
  if (unmet == nullptr) return std::nullopt;
  // The first pod of a group that wants to be together.
  if (shape.matching_pods == 0 && SelectsAll(shape.affinity, pod)) return std::nullopt;
  return Rejection{RejectionCode::kPodAffinity,
                   fmt::format("wants {} in {}, where there is none", Describe(*unmet->term),
                               DomainName(unmet->key, at[unmet->key]))};
}

std::optional<Rejection> RelationIndex::State::CheckAntiAffinity(const Shape& shape,
                                                                 const std::vector<int>& at) const {
  for (const TermCounts& term : shape.anti_affinity) {
    const int domain = at[term.key];
    if (domain == TopologyDomains::kNone || term.counts.Get(domain) <= 0) continue;
    return Rejection{RejectionCode::kPodAntiAffinity,
                     fmt::format("wants no {} in {}, where there are {}", Describe(*term.term),
                                 DomainName(term.key, domain), term.counts.Get(domain))};
  }
  return std::nullopt;
}

std::optional<Rejection> RelationIndex::State::CheckExisting(const Subject& subject,
                                                             const std::vector<int>& at) const {
  for (size_t index : subject.kept_away_by) {
    const TermCounts& term = keep_away[index];
    const int domain = at[term.key];
    if (domain == TopologyDomains::kNone || term.counts.Get(domain) <= 0) continue;
    return Rejection{RejectionCode::kExistingAntiAffinity,
                     fmt::format("pods like {} keep {} out of {}", term.owner->meta.FullName(),
                                 Describe(*term.term), DomainName(term.key, domain))};
  }
  return std::nullopt;
}

std::optional<Rejection> RelationIndex::State::CheckSpread(const Shape& shape, const kube::Pod& pod,
                                                           const std::vector<int>& at) const {
  for (const ConstraintCounts& counts : shape.spread) {
    const kube::TopologySpreadConstraint& constraint = *counts.constraint;
    const int domain = at[counts.key];
    if (domain == TopologyDomains::kNone) {
      return Rejection{RejectionCode::kTopologySpread,
                       fmt::format("the node has no label {}, which topology spread needs",
                                   constraint.topology_key)};
    }
    const bool too_few = counts.counts.domains() < constraint.min_domains.value_or(1);
    const int64_t least = too_few ? 0 : counts.counts.Least();
    const bool self = constraint.selector && constraint.selector->Matches(pod.meta.labels);
    const int64_t skew = counts.counts.Get(domain) + (self ? 1 : 0) - least;
    if (skew <= constraint.max_skew) continue;
    return Rejection{RejectionCode::kTopologySpread,
                     fmt::format("{} would have {} more matching pods than the domain with fewest; "
                                 "maxSkew is {}",
                                 DomainName(counts.key, domain), skew, constraint.max_skew)};
  }
  return std::nullopt;
}

bool RelationIndex::AlwaysPasses() const { return state_->always_passes; }

std::optional<Rejection> RelationIndex::Check(const kube::Pod& pod, const NodeInfo& info) const {
  if (state_->always_passes) return std::nullopt;
  const Subject& subject = state_->subjects.at(&pod);
  if (!subject.has_relations && subject.kept_away_by.empty()) return std::nullopt;
  const std::vector<int>& at = state_->domains.Of(info);
  if (subject.has_relations) {
    const Shape& shape = state_->shapes[subject.shape];
    if (auto rejection = state_->CheckAffinity(shape, pod, at)) return rejection;
    if (auto rejection = state_->CheckAntiAffinity(shape, at)) return rejection;
    if (auto rejection = state_->CheckSpread(shape, pod, at)) return rejection;
  }
  return state_->CheckExisting(subject, at);
}

int64_t RelationIndex::Score(const kube::Pod& pod, const NodeInfo& info) const {
  const Subject& subject = state_->subjects.at(&pod);
  if (!subject.has_relations) return 0;
  const Shape& shape = state_->shapes[subject.shape];
  const std::vector<int>& at = state_->domains.Of(info);
  int64_t score = 0;
  for (const TermCounts& term : shape.preferred) {
    const int domain = at[term.key];
    if (domain != TopologyDomains::kNone && term.counts.Get(domain) > 0) score += term.weight;
  }
  for (const ConstraintCounts& counts : shape.soft_spread) {
    const kube::TopologySpreadConstraint& constraint = *counts.constraint;
    const int domain = at[counts.key];
    if (domain == TopologyDomains::kNone) {
      score -= kHeaviestPreference;
      continue;
    }
    const bool self = constraint.selector && constraint.selector->Matches(pod.meta.labels);
    const int64_t skew = counts.counts.Get(domain) + (self ? 1 : 0) - counts.counts.Least();
    score -= std::clamp<int64_t>(skew - constraint.max_skew, 0, kHeaviestPreference);
  }
  return score;
}

}  // namespace muster::cluster
