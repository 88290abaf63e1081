// Why a plan is not complete: each node is asked for the first reason.
#include <algorithm>
#include <map>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "cluster/node_lookup.h"
#include "cluster/placing_order.h"
#include "coscheduling/placement/planner/problem.h"
#include "fmt/format.h"

namespace muster::coscheduling::planner {
namespace {

using cluster::Detail;
using cluster::NodeInfo;
using cluster::Rejection;
using cluster::RejectionCode;

// A gang with more classes that lack places is explained by the first of them.
constexpr size_t kMostClassesExplained = 8;

class Shortfall {
 public:
  Shortfall(const Problem& problem, const Slots& slots)
      : problem_(problem),
        relations_(problem.relations),
        free_(problem.resources.begin(), problem.resources.end()) {
    std::vector<int> placed(problem.classes.size());
    std::vector<cluster::Placing> placements;
    for (const Slot& slot : slots) {
      on_node_[slot.node].push_back(slot);
      placed[slot.member_class] += slot.count;
      placed_ += slot.count;
      if (!relations_) continue;
      placements.insert(placements.end(), slot.count,
                        {problem.classes[slot.member_class].kind, problem.index_of[slot.node]});
    }
    if (relations_) cluster::PlaceInOrder(placements, &*relations_);
    for (size_t c = 0; c < placed.size() && short_.size() < kMostClassesExplained; ++c) {
      if (placed[c] == problem.classes[c].size()) continue;
      short_.push_back(
          {&problem.classes[c], cluster::ClassCheck(problem.snapshot, *problem.classes[c].pod)});
    }
  }

  PlanShortfall Explain() {
    for (const NodeInfo* info : problem_.snapshot.node_list()) CountNode(*info);
    PlanShortfall shortfall;
    shortfall.placeable = placed_;
    CountDomains(&shortfall);
    for (auto& [code, cause] : causes_) shortfall.causes.push_back(std::move(cause.cause));
    std::stable_sort(shortfall.causes.begin(), shortfall.causes.end(),
                     [](const auto& a, const auto& b) { return a.nodes > b.nodes; });
    return shortfall;
  }

 private:
  // Where there is how much room, whatever the plan uses of it.
  void CountDomains(PlanShortfall* shortfall) const {
    const cluster::Domains& tree = problem_.tree;
    const int level = problem_.required_level;
    // Hosts are told of one by one as it is.
    if (level == static_cast<int>(tree.levels().size())) return;
    shortfall->required = problem_.request.required_topology_key;
    const std::vector<std::string> contradictions =
        shortfall->required.empty() ? std::vector<std::string>() : tree.Contradictions();
    if (!contradictions.empty()) shortfall->contradiction = contradictions.front();
    for (const cluster::Domains::Domain& domain : tree.domains()) {
      if (domain.level != level || level < 0) continue;
      PlanShortfall::Domain& told = shortfall->domains.emplace_back(domain.value);
      for (const MemberClass& wanted : problem_.classes) {
        int64_t room = 0;
        for (int at = domain.first; at < domain.last; ++at) {
          const int slot = tree.order()[at];
          const int fits = wanted.fits.empty() ? wanted.room->On(slot).fits : wanted.fits[slot];
          if (fits == 0) continue;
          const NodeInfo& info = *problem_.snapshot.NodeIn(slot);
          if (!WhyNotAllowed(problem_.request, info, Detail::kOmitted)) room += fits;
        }
        told.room += std::min<int64_t>(room, wanted.size());
      }
    }
    std::ranges::stable_sort(shortfall->domains, std::greater<>(), &PlanShortfall::Domain::room);
  }

  struct Short {  // a class with members left over
    const MemberClass* wanted;
    cluster::ClassCheck check;
  };
  struct Counted {
    PlanShortfall::Cause cause;
    bool example_in_use = false;  // one that the plan doesn't use explains more
  };

  // Each cause once, whichever of the classes it concerns.
  void CountNode(const NodeInfo& info) {
    absl::InlinedVector<RejectionCode, 8> counted;
    const bool in_use = on_node_.contains(info.slot);
    for (Short& one : short_) {
      const std::optional<Rejection> rejection = WhyNoMore(&one, info, Detail::kOmitted);
      if (!rejection || std::ranges::count(counted, rejection->code) > 0) continue;
      counted.push_back(rejection->code);
      Counted& entry = causes_[rejection->code];
      entry.cause.code = rejection->code;
      if (++entry.cause.nodes > 1 && (in_use || !entry.example_in_use)) continue;
      entry.cause.example =
          fmt::format("{}: {}", info.name(), WhyNoMore(&one, info, Detail::kWritten)->detail);
      entry.example_in_use = in_use;
    }
  }

  std::span<const Slot> PlacedOn(const NodeInfo& info) const {
    const auto placed = on_node_.find(info.slot);
    if (placed == on_node_.end()) return {};
    return placed->second;
  }

  std::optional<Rejection> WhyNoMore(Short* one, const NodeInfo& info, Detail detail) {
    const kube::Pod& pod = *one->wanted->pod;
    if (!pod.spec_error.empty()) return Rejection{RejectionCode::kResources, pod.spec_error};
    if (auto rejection = WhyNotAllowed(problem_.request, info, detail)) return rejection;
    if (auto rejection = one->check.Check(info, detail)) return rejection;
    for (size_t r = 0; r < one->wanted->request.size(); ++r) {
      int64_t free = free_[r].Of(problem_.snapshot, info);
      for (const Slot& slot : PlacedOn(info)) {
        const auto& request = problem_.classes[slot.member_class].request;
        if (r < request.size()) free -= slot.count * request[r];
      }
      const int64_t wanted = one->wanted->request[r];
      if (wanted > free) return cluster::ShortOf(info, problem_.resources[r], wanted, free, detail);
    }
    if (cluster::LooksBeyondResources(*pod.spec)) {
      if (auto rejection = cluster::CheckRoom(problem_.snapshot, pod, info)) return rejection;
    }
    if (relations_) {
      const int index = problem_.index_of[info.slot];
      if (auto rejection = relations_->WhyNot(one->wanted->kind, index, detail)) return rejection;
    }
    for (const Slot& slot : PlacedOn(info)) {
      if (!cluster::MembersClash(*pod.spec, *problem_.classes[slot.member_class].pod->spec))
        continue;
      return Rejection{RejectionCode::kHostPorts, "a host port is taken by a member of the gang"};
    }
    return WhyNotDomain(info);
  }

  // The node is fine, but it lies in a domain that can't hold the gang, or the plan is in another.
  std::optional<Rejection> WhyNotDomain(const NodeInfo& info) const {
    const std::string& key = problem_.request.required_topology_key;
    if (key.empty()) return std::nullopt;
    const bool there = !on_node_.empty() && problem_.tree.Share(on_node_.begin()->first, info.slot,
                                                                problem_.required_level);
    if (there) return std::nullopt;
    return Rejection{RejectionCode::kResources,
                     fmt::format("{}={} can't hold {} members together", key,
                                 *info.node->meta.Label(key), problem_.request.required)};
  }

  const Problem& problem_;
  std::optional<Relations> relations_;
  std::vector<cluster::FreeAmount> free_;                // by resource
  absl::flat_hash_map<int, std::vector<Slot>> on_node_;  // of the plan
  std::vector<Short> short_;
  size_t placed_ = 0;
  std::map<RejectionCode, Counted> causes_;
};

}  // namespace

PlanShortfall ExplainShortfall(const Problem& problem, const Slots& slots) {
  return Shortfall(problem, slots).Explain();
}

}  // namespace muster::coscheduling::planner
