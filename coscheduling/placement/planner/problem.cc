#include "coscheduling/placement/planner/problem.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cluster/node_lookup.h"
#include "fmt/format.h"
#include "kube/objects/quantity.h"

namespace muster::coscheduling::planner {
namespace {

using cluster::Detail;
using cluster::NodeInfo;
using cluster::Rejection;
using cluster::RejectionCode;
using kube::Pod;

bool IsMember(const PlanRequest& request, const Pod& pod) {
  return std::any_of(request.members.begin(), request.members.end(),
                     [&](const Pod* member) { return member->meta.uid == pod.meta.uid; });
}

class ProblemBuilder {
 public:
  ProblemBuilder(const cluster::Snapshot& snapshot, const PlanRequest& request,
                 const cluster::Domains& tree, std::vector<const NodeInfo*> infos)
      : infos_(std::move(infos)),
        problem_{.snapshot = &snapshot,
                 .request = &request,
                 .resources = {},
                 .nodes = {},
                 .free = {},
                 .classes = {},
                 .relations = Relations(snapshot, request.members, infos_, request.include_virtual),
                 .tree = &tree,
                 .homes = {}} {}

  Problem Build() && {
    FormClasses();
    FillFree();
    FindCandidates();
    FindPreferences();
    MergeTwins();
    FindPlaces(&problem_);
    FindClashes();
    FindRelations();
    return std::move(problem_);
  }

 private:
  const PlanRequest& request() const { return *problem_.request; }

  void FormClasses() {
    absl::flat_hash_map<std::string, int> key_index;
    absl::flat_hash_map<std::pair<int, int>, int> class_index;  // key, kind -> class
    const Pod* previous = nullptr;
    int key = 0;
    for (size_t m = 0; m < request().members.size(); ++m) {
      const Pod& pod = *request().members[m];
      if (previous == nullptr || !SameSpec(*previous, pod)) {
        std::string text = pod.spec_error.empty() ? cluster::ClassKey(pod) : "!" + pod.spec_error;
        key = key_index.try_emplace(std::move(text), key_index.size()).first->second;
        previous = &pod;
      }
      int kind = problem_.relations.KindOf(m);
      auto [it, added] = class_index.try_emplace({key, kind}, problem_.classes.size());
      if (added) {
        AddClass(pod, kind);
        key_of_class_.push_back(key);
      }
      problem_.classes[it->second].members.push_back(static_cast<int>(m));
    }
  }

  static bool SameSpec(const Pod& a, const Pod& b) {
    return a.meta.name_space == b.meta.name_space && a.spec_error == b.spec_error &&
           (a.spec == b.spec || *a.spec == *b.spec);
  }

  void AddClass(const Pod& pod, int kind) {
    MemberClass member_class;
    member_class.pod = &pod;
    member_class.kind = kind;
    for (const auto& [name, amount] : pod.spec->requests.entries()) {
      if (amount <= 0) continue;
      auto& resources = problem_.resources;
      size_t r = std::find(resources.begin(), resources.end(), name) - resources.begin();
      if (r == resources.size()) resources.push_back(name);
      if (member_class.request.size() <= r) member_class.request.resize(r + 1);
      member_class.request[r] = amount;
    }
    problem_.classes.push_back(std::move(member_class));
  }

  void FillFree() {
    const auto& resources = problem_.resources;
    for (MemberClass& member_class : problem_.classes) {
      member_class.request.resize(resources.size());
    }
    for (const Pod* member : request().members) {
      const NodeInfo* info = problem_.snapshot->FindNodeOfPod(member->meta.uid);
      if (info != nullptr) holds_members_.insert(info);
    }
    problem_.nodes.resize(infos_.size());
    problem_.free.resize(infos_.size() * resources.size());
    std::vector<cluster::FreeAmount> amounts(resources.begin(), resources.end());
    int64_t* free = problem_.free.data();
    for (size_t n = 0; n < infos_.size(); ++n) {
      NodeSlot& slot = problem_.nodes[n];
      slot.info = infos_[n];
      slot.is_virtual = infos_[n]->is_virtual;
      slot.family = infos_[n]->family;
      slot.position = static_cast<int>(n);
      bool holds_members = !holds_members_.empty() && holds_members_.contains(infos_[n]);
      for (size_t r = 0; r < resources.size(); ++r) {
        *free++ = holds_members ? FreeWithoutMembers(request(), *infos_[n], resources[r])
                                : amounts[r].Of(*infos_[n]);
      }
    }
  }

  void FindCandidates() {
    // Classes of one key differ in their relations only.
    absl::flat_hash_map<int, std::vector<MemberClass*>> of_key;
    for (size_t c = 0; c < problem_.classes.size(); ++c) {
      of_key[key_of_class_[c]].push_back(&problem_.classes[c]);
    }
    std::vector<Fit> fits;
    for (auto& [key, classes] : of_key) {
      const Pod& pod = *classes.front()->pod;
      if (!pod.spec_error.empty()) continue;
      fits.push_back({std::move(classes), cluster::ClassCheck(*problem_.snapshot, pod)});
    }
    // Node by node: where a cluster is large, it's the visit to a node that takes time.
    for (size_t n = 0; n < infos_.size(); ++n) {
      std::optional<bool> allowed;
      for (Fit& fit : fits) {
        if (FitCount(*fit.classes.front(), problem_.FreeOf(n), 1) == 0) continue;
        if (!allowed) allowed = !WhyNotAllowed(request(), *infos_[n], Detail::kOmitted);
        if (!*allowed) break;
        if (Fits(fit, *infos_[n])) AddCandidate(fit, static_cast<int>(n));
      }
    }
  }

  // Classes that fit on the same nodes, relations aside.
  struct Fit {
    std::vector<MemberClass*> classes;
    cluster::ClassCheck check;
  };

  bool Fits(Fit& fit, const NodeInfo& info) const {
    return !fit.check.Check(info, Detail::kOmitted) &&
           !WhyNotPorts(request(), *fit.classes.front()->pod, info);
  }

  void AddCandidate(const Fit& fit, int node) const {
    for (MemberClass* member_class : fit.classes) {
      if (!problem_.relations.Barred(member_class->kind, node, Detail::kOmitted)) {
        member_class->candidates.push_back(node);
      }
    }
  }

  void FindPreferences() {
    for (MemberClass& member_class : problem_.classes) {
      const kube::PodSpec& spec = *member_class.pod->spec;
      // Without preferred terms, which may name nodes, only taints count.
      const bool by_family = spec.affinity.preferred_node_terms.empty();
      cluster::PerFamily<int64_t> scores;
      bool any = false;
      for (int node : member_class.candidates) {
        int64_t score = scores.Get(by_family ? problem_.nodes[node].family : -1, [&] {
          return cluster::NodePreferenceScore(spec, *infos_[node]);
        });
        score += problem_.relations.PreferenceScore(member_class.members.front(), node);
        member_class.preference.push_back(score);
        any |= score != 0;
      }
      if (!any) member_class.preference.clear();
    }
  }

  // Members whose needs are written differently (each its own volume, for example) may still be
  // equal for all nodes there are.
  void MergeTwins() {
    std::vector<MemberClass> merged;
    absl::flat_hash_map<std::vector<int64_t>, size_t> index;
    for (MemberClass& member_class : problem_.classes) {
      if (cluster::MayClash(*member_class.pod->spec)) {
        merged.push_back(std::move(member_class));
        continue;
      }
      std::vector<int64_t> traits = member_class.request;
      traits.push_back(problem_.relations.between_members() ? member_class.kind : 0);
      traits.insert(traits.end(), member_class.candidates.begin(), member_class.candidates.end());
      traits.push_back(-1);
      traits.insert(traits.end(), member_class.preference.begin(), member_class.preference.end());
      auto [it, added] = index.try_emplace(std::move(traits), merged.size());
      if (added) {
        merged.push_back(std::move(member_class));
        continue;
      }
      std::vector<int>& members = merged[it->second].members;
      members.insert(members.end(), member_class.members.begin(), member_class.members.end());
      std::sort(members.begin(), members.end());
    }
    problem_.classes = std::move(merged);
  }

  void FindClashes() {
    auto& classes = problem_.classes;
    for (MemberClass& member_class : classes) member_class.clashes.resize(classes.size());
    for (size_t a = 0; a < classes.size(); ++a) {
      if (!cluster::MayClash(*classes[a].pod->spec)) continue;
      for (size_t b = 0; b < classes.size(); ++b) {
        if (cluster::MembersClash(*classes[a].pod->spec, *classes[b].pod->spec)) Clash(a, b);
      }
    }
  }

  void Clash(size_t a, size_t b) {
    problem_.classes[a].clashes[b] = 1;
    problem_.classes[b].clashes[a] = 1;
    if (a == b) problem_.classes[a].most_per_node = 1;
  }

  // Anti-affinity within single nodes is a clash; what else there is, must be watched by key.
  void FindRelations() {
    const Relations& relations = problem_.relations;
    for (const Relations::Affinity& affinity : relations.affinities()) {
      if (affinity.settled) continue;
      for (int key : affinity.keys) AddKey(key, affinity.owns);
    }
    for (const Relations::Spread& spread : relations.spreads()) {
      if (spread.between_members) AddKey(spread.key, spread.owns);
    }
    for (const Relations::AntiAffinity& anti : relations.anti_affinities()) {
      if (!anti.between_members) continue;
      if (!WithinNodes(anti)) {
        AddKey(anti.key, anti.owns);
        AddKey(anti.key, anti.selects);
        continue;
      }
      for (size_t a = 0; a < problem_.classes.size(); ++a) {
        for (size_t b = 0; b < problem_.classes.size(); ++b) {
          if (anti.owns[problem_.classes[a].kind] && anti.selects[problem_.classes[b].kind]) {
            Clash(a, b);
          }
        }
      }
    }
  }

  void AddKey(int key, const std::vector<char>& kinds) {
    for (MemberClass& member_class : problem_.classes) {
      std::vector<int>& keys = member_class.keys;
      if (!kinds[member_class.kind] || std::find(keys.begin(), keys.end(), key) != keys.end()) {
        continue;
      }
      keys.push_back(key);
      problem_.related = true;
    }
  }

  // True if every candidate of the classes concerned is a domain by itself.
  bool WithinNodes(const Relations::AntiAffinity& anti) const {
    const Relations::Key& key = problem_.relations.keys()[anti.key];
    for (const MemberClass& member_class : problem_.classes) {
      if (!anti.owns[member_class.kind] && !anti.selects[member_class.kind]) continue;
      for (int node : member_class.candidates) {
        int domain = key.domain[node];
        if (domain < 0 || key.nodes_in[domain] > 1) return false;
      }
    }
    return true;
  }

  std::vector<const NodeInfo*> infos_;
  Problem problem_;
  std::vector<int> key_of_class_;
  absl::flat_hash_set<const NodeInfo*> holds_members_;
};

}  // namespace

Problem BuildProblem(const cluster::Snapshot& snapshot, const PlanRequest& request,
                     const cluster::Domains& tree) {
  return ProblemBuilder(snapshot, request, tree, snapshot.node_list()).Build();
}

int FitCount(const MemberClass& member_class, const int64_t* free, int limit) {
  int64_t count = std::min(limit, member_class.most_per_node);
  for (size_t r = 0; r < member_class.request.size() && count > 0; ++r) {
    int64_t wanted = member_class.request[r];
    if (wanted > 0) count = std::min(count, free[r] / wanted);
  }
  return static_cast<int>(count);
}

std::optional<Rejection> WhyNotAllowed(const PlanRequest& request, const NodeInfo& info,
                                       Detail detail) {
  const bool written = detail == Detail::kWritten;
  if (!request.excluded_nodes.empty() && request.excluded_nodes.contains(info.name())) {
    return Rejection{RejectionCode::kExcluded, "left out for this gang"};
  }
  if (info.is_virtual && !request.include_virtual) {
    return Rejection{RejectionCode::kNotUsable, written ? info.readiness.message : ""};
  }
  if (!request.required_topology_key.empty() &&
      info.node->meta.Label(request.required_topology_key) == nullptr) {
    return Rejection{
        RejectionCode::kNodeSelector,
        written ? fmt::format("label {} is missing", request.required_topology_key) : ""};
  }
  return std::nullopt;
}

std::optional<Rejection> WhyNotPorts(const PlanRequest& request, const Pod& pod,
                                     const NodeInfo& info) {
  if (pod.spec->host_ports.empty()) return std::nullopt;
  for (const cluster::PlacedPod& placed : info.pods) {
    if (!cluster::HostPortsConflict(*pod.spec, *placed.pod->spec)) continue;
    if (IsMember(request, *placed.pod)) continue;
    return Rejection{RejectionCode::kHostPorts,
                     fmt::format("a host port is taken by {}", placed.pod->meta.FullName())};
  }
  return std::nullopt;
}

int64_t FreeWithoutMembers(const PlanRequest& request, const NodeInfo& info,
                           std::string_view resource) {
  int64_t requested = info.requested.Get(resource);
  for (const cluster::PlacedPod& placed : info.pods) {
    if (IsMember(request, *placed.pod)) requested -= placed.pod->spec->requests.Get(resource);
  }
  return std::max<int64_t>(0, info.node->allocatable.Get(resource) - requested);
}

Rejection ShortOf(const NodeInfo& info, const std::string& resource, int64_t wanted, int64_t free,
                  Detail detail) {
  if (detail == Detail::kOmitted) return {RejectionCode::kResources, ""};
  kube::QuantityUnit unit = kube::UnitOf(resource);
  return {RejectionCode::kResources,
          fmt::format("{}: wants {}, {} of {} free{}", resource, kube::FormatQuantity(wanted, unit),
                      kube::FormatQuantity(free, unit),
                      kube::FormatQuantity(info.node->allocatable.Get(resource), unit),
                      cluster::SlicesNote(resource, info))};
}

std::optional<Rejection> WhyNoCandidate(const Problem& problem, int class_index, int node,
                                        cluster::ClassCheck* class_check, Detail detail) {
  const MemberClass& member_class = problem.classes[class_index];
  const Pod& pod = *member_class.pod;
  const NodeInfo& info = *problem.nodes[node].info;
  if (!pod.spec_error.empty()) return Rejection{RejectionCode::kResources, pod.spec_error};
  if (auto rejection = WhyNotAllowed(*problem.request, info, detail)) return rejection;
  if (auto rejection = class_check->Check(info, detail)) return rejection;
  for (size_t r = 0; r < problem.resources.size(); ++r) {
    int64_t wanted = member_class.request[r];
    int64_t free = problem.FreeOf(node)[r];
    if (wanted > free) return ShortOf(info, problem.resources[r], wanted, free, detail);
  }
  if (auto rejection = WhyNotPorts(*problem.request, pod, info)) return rejection;
  return problem.relations.Barred(member_class.kind, node, detail);
}

}  // namespace muster::coscheduling::planner
