#include "coscheduling/placement/planner/problem.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "cluster/attached_volumes.h"
#include "cluster/tree_fill.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling::planner {
namespace {

using cluster::Detail;
using cluster::NodeInfo;
using cluster::Rejection;
using cluster::RejectionCode;
using cluster::ShapeRoom;
using kube::Pod;

class ProblemBuilder {
 public:
  ProblemBuilder(const cluster::Snapshot& snapshot, const PlanRequest& request,
                 const cluster::Domains& tree, cluster::ShapeRooms* rooms)
      : rooms_(rooms), problem_{.snapshot = snapshot, .request = request, .tree = tree} {}

  Problem Build() && {
    const int zone = problem_.tree.LevelOf(kube::kZoneLabel);
    if (zone >= 0 && problem_.tree.CountAt(zone) > 0) problem_.zone_level = zone;
    if (!request().required_topology_key.empty()) {
      problem_.required_level = problem_.tree.LevelOf(request().required_topology_key);
    }
    for (const std::string& name : request().sibling_nodes) {
      const NodeInfo* info = problem_.snapshot.FindNode(name);
      if (info != nullptr) problem_.homes.push_back(info->slot);
    }
    FindRelations();
    FormClasses();
    if (problem_.IsOfOneClass()) return std::move(problem_);
    FindFits();
    FindClashes();
    FindKeys();
    SumUp();
    return std::move(problem_);
  }

 private:
  const PlanRequest& request() const { return problem_.request; }

  void FindRelations() {
    if (!Relations::MayConcern(problem_.snapshot, request().members)) return;
    const std::vector<const NodeInfo*>& infos = problem_.snapshot.node_list();
    problem_.relations.emplace(problem_.snapshot, request().members, infos,
                               request().include_virtual);
    problem_.index_of.resize(problem_.snapshot.slot_count());
    for (size_t n = 0; n < infos.size(); ++n) {
      problem_.index_of[infos[n]->slot] = static_cast<int>(n);
    }
  }

  void FormClasses() {
    absl::flat_hash_map<std::pair<std::string, int>, int> index;
    const Pod* previous = nullptr;
    std::string key;
    int class_index = -1;
    for (size_t m = 0; m < request().members.size(); ++m) {
      const Pod& pod = *request().members[m];
      const int kind = problem_.relations ? problem_.relations->KindOf(m) : 0;
      const bool same = previous != nullptr && SameSpec(*previous, pod);
      if (!same) key = pod.spec_error.empty() ? cluster::ClassKey(pod) : "!" + pod.spec_error;
      if (!same || problem_.classes[class_index].kind != kind) {
        const auto [it, is_new] = index.try_emplace({key, kind}, -1);
        if (is_new) it->second = AddClass(pod, kind);
        class_index = it->second;
      }
      previous = &pod;
      problem_.classes[class_index].members.push_back(static_cast<int>(m));
    }
  }

  static bool SameSpec(const Pod& a, const Pod& b) {
    return a.meta.name_space == b.meta.name_space && a.spec_error == b.spec_error &&
           (a.spec == b.spec || *a.spec == *b.spec);
  }

  int AddClass(const Pod& pod, int kind) {
    MemberClass added{.pod = &pod, .kind = kind};
    for (const auto& [name, amount] : cluster::NeedsOf(problem_.snapshot, pod)) {
      auto& resources = problem_.resources;
      const size_t r = std::ranges::find(resources, name) - resources.begin();
      if (r == resources.size()) resources.push_back(name);
      if (added.request.size() <= r) added.request.resize(r + 1);
      added.request[r] = amount;
    }
    if (pod.spec_error.empty() && ShapeRoom::CanFollow(*pod.spec)) {
      added.room = rooms_->Of(pod, problem_.snapshot, problem_.tree);
    } else {
      auto room = std::make_shared<ShapeRoom>(pod);
      room->Follow(problem_.snapshot, problem_.tree);
      added.room = std::move(room);
      if (const int twin = TwinOf(added); twin >= 0) return twin;
    }
    problem_.classes.push_back(std::move(added));
    return static_cast<int>(problem_.classes.size()) - 1;
  }

  // Members whose needs are written differently (each its own volume, for example) may still be
  // equal for all nodes there are.
  int TwinOf(const MemberClass& added) const {
    if (cluster::MayClash(*added.pod->spec)) return -1;
    const auto twin = std::ranges::find_if(problem_.classes, [&](const MemberClass& other) {
      return other.kind == added.kind && other.request == added.request &&
             !cluster::MayClash(*other.pod->spec) && other.room->IsLike(*added.room);
    });
    return twin == problem_.classes.end() ? -1 : static_cast<int>(twin - problem_.classes.begin());
  }

  void FindFits() {
    const size_t slots = problem_.snapshot.slot_count();
    std::vector<char> allowed(slots);
    for (int slot : problem_.tree.order()) {
      allowed[slot] = !WhyNotAllowed(request(), *problem_.snapshot.NodeIn(slot), Detail::kOmitted);
    }
    for (MemberClass& wanted : problem_.classes) {
      wanted.request.resize(problem_.resources.size());
      wanted.fits.resize(slots);
      wanted.preference.resize(slots);
      for (int slot : problem_.tree.order()) {
        const ShapeRoom::Node& node = wanted.room->On(slot);
        if (node.fits == 0 || !allowed[slot]) continue;
        wanted.preference[slot] = node.preference;
        if (problem_.relations) {
          const int index = problem_.index_of[slot];
          if (problem_.relations->Barred(wanted.kind, index, Detail::kOmitted)) continue;
          wanted.preference[slot] +=
              problem_.relations->PreferenceScore(wanted.members.front(), index);
        }
        wanted.fits[slot] = std::min<int>(node.fits, wanted.size());
      }
    }
  }

  void FindClashes() {
    auto& classes = problem_.classes;
    for (MemberClass& wanted : classes) wanted.clashes.resize(classes.size());
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
  }

  // Anti-affinity within single nodes is a clash; what else there is, must be watched by key.
  void FindKeys() {
    if (!problem_.relations) return;
    const Relations& relations = *problem_.relations;
    for (const Relations::Affinity& affinity : relations.affinities()) {
      if (affinity.settled) continue;
      for (int key : affinity.keys) {
        AddKey(key, affinity.owns);
        AddKey(key, affinity.selects);
      }
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
    for (MemberClass& wanted : problem_.classes) {
      if (kinds[wanted.kind] && std::ranges::count(wanted.keys, key) == 0) {
        wanted.keys.push_back(key);
      }
    }
  }

  // True if every node that could be used is a domain by itself.
  bool WithinNodes(const Relations::AntiAffinity& anti) const {
    const Relations::Key& key = problem_.relations->keys()[anti.key];
    return std::ranges::all_of(problem_.classes, [&](const MemberClass& wanted) {
      if (!anti.owns[wanted.kind] && !anti.selects[wanted.kind]) return true;
      return std::ranges::all_of(problem_.tree.order(), [&](int slot) {
        if (wanted.fits[slot] == 0) return true;
        const int domain = key.domain[problem_.index_of[slot]];
        return domain >= 0 && key.nodes_in[domain] <= 1;
      });
    });
  }

  void SumUp() {
    const auto& domains = problem_.tree.domains();
    for (size_t c = 0; c < problem_.classes.size(); ++c) {
      MemberClass& wanted = problem_.classes[c];
      wanted.fits_in.resize(domains.size());
      for (int slot : problem_.tree.order()) {
        int& fits = wanted.fits[slot];
        if (wanted.clashes[c]) fits = std::min(fits, 1);
        for (int at = problem_.tree.DomainOf(slot); fits > 0 && at >= 0; at = domains[at].parent) {
          wanted.fits_in[at] += fits;
        }
      }
    }
  }

  cluster::ShapeRooms* rooms_;
  Problem problem_;
};

}  // namespace

Problem BuildProblem(const cluster::Snapshot& snapshot, const PlanRequest& request,
                     const cluster::Domains& tree, cluster::ShapeRooms* rooms) {
  return ProblemBuilder(snapshot, request, tree, rooms).Build();
}

Score ScoreOf(const Problem& problem, const Slots& slots) {
  Score score{.left_over = problem.members()};
  std::map<int, int> nodes;  // by position: slot
  for (const Slot& slot : slots) {
    const MemberClass& wanted = problem.classes[slot.member_class];
    score.left_over -= slot.count;
    score.disfavour -= slot.count * wanted.preference[slot.node];
    const ShapeRoom::Node& node = wanted.room->On(slot.node);
    if (!nodes.emplace(problem.tree.PositionOf(slot.node), slot.node).second) continue;
    score.virtual_nodes += node.is_virtual;
    score.devices += node.devices;
  }
  std::vector<int> domains;
  for (const auto& [position, slot] : nodes) domains.push_back(problem.tree.DomainOf(slot));
  score.domains = cluster::CountDomains(problem.tree, domains);
  score.incomplete =
      problem.members() - score.left_over < static_cast<int>(problem.request.required);
  score.several_zones =
      !score.incomplete && problem.zone_level >= 0 && score.domains[problem.zone_level] != 1;
  return score;
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

}  // namespace muster::coscheduling::planner
