// Why a plan is not complete: each node is asked for the first reason.
#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "cluster/placing_order.h"
#include "coscheduling/placement/planner/solution.h"
#include "fmt/format.h"

namespace muster::coscheduling::planner {
namespace {

using cluster::Detail;
using cluster::Rejection;
using cluster::RejectionCode;

// A gang with more classes that lack places is explained by the first of them.
constexpr size_t kMostClassesExplained = 8;

class Shortfall {
 public:
  Shortfall(const Problem& problem, const Slots& slots)
      : problem_(problem), room_(problem), relations_(problem.relations) {
    std::vector<int> placed(problem.classes.size());
    std::vector<cluster::Placing> placements;
    for (const Slot& slot : slots) {
      room_.Take(slot.member_class, slot.node, slot.count);
      placed[slot.member_class] += slot.count;
      placements.insert(placements.end(), slot.count,
                        {problem.classes[slot.member_class].kind, slot.node});
      placed_ += slot.count;
    }
    cluster::PlaceInOrder(placements, &relations_);
    for (size_t c = 0; c < placed.size() && short_.size() < kMostClassesExplained; ++c) {
      if (placed[c] == problem.classes[c].size()) continue;
      short_.push_back(static_cast<int>(c));
      class_checks_.emplace_back(*problem.snapshot, *problem.classes[c].pod);
    }
    FindPartFilled(slots);
  }

  PlanShortfall Explain() {
    for (size_t n = 0; n < problem_.nodes.size(); ++n) CountNode(static_cast<int>(n));
    PlanShortfall shortfall;
    shortfall.placeable = placed_;
    for (auto& [code, cause] : causes_) shortfall.causes.push_back(std::move(cause.cause));
    std::stable_sort(shortfall.causes.begin(), shortfall.causes.end(),
                     [](const auto& a, const auto& b) { return a.nodes > b.nodes; });
    return shortfall;
  }

 private:
  struct Counted {
    PlanShortfall::Cause cause;
    bool example_in_use = false;  // one that the plan doesn't use explains more
  };

  // Each cause once, whichever of the classes it concerns.
  void CountNode(int node) {
    std::array<RejectionCode, kMostClassesExplained> counted;
    auto counted_end = counted.begin();
    for (size_t s = 0; s < short_.size(); ++s) {
      std::optional<Rejection> rejection = WhyNoMore(s, node, Detail::kOmitted);
      if (!rejection || std::find(counted.begin(), counted_end, rejection->code) != counted_end) {
        continue;
      }
      *counted_end++ = rejection->code;
      Counted& entry = causes_[rejection->code];
      entry.cause.code = rejection->code;
      ++entry.cause.nodes;
      bool in_use = room_.Used(node);
      if (entry.cause.nodes == 1 || (entry.example_in_use && !in_use)) {
        entry.cause.example = fmt::format("{}: {}", problem_.nodes[node].info->name(),
                                          WhyNoMore(s, node, Detail::kWritten)->detail);
        entry.example_in_use = in_use;
      }
    }
  }

  // By index into short_.
  std::optional<Rejection> WhyNoMore(size_t s, int node, Detail detail) {
    const int c = short_[s];
    const MemberClass& wanted = problem_.classes[c];
    if (!std::binary_search(wanted.candidates.begin(), wanted.candidates.end(), node)) {
      return WhyNoCandidate(problem_, c, node, &class_checks_[s], detail);
    }
    if (auto rejection = WhyNoRoom(c, node, detail)) return rejection;
    if (auto rejection = relations_.WhyNot(wanted.kind, node, detail)) return rejection;
    return WhyNotDomain(node);
  }

  std::optional<Rejection> WhyNoRoom(int c, int node, Detail detail) const {
    if (room_.Fits(c, node, 1) > 0) return std::nullopt;
    const MemberClass& wanted = problem_.classes[c];
    for (size_t r = 0; r < wanted.request.size(); ++r) {
      int64_t free = room_.Free(node, r);
      if (wanted.request[r] > free) {
        return ShortOf(*problem_.nodes[node].info, problem_.resources[r], wanted.request[r], free,
                       detail);
      }
    }
    if (auto rejection = relations_.WhyNot(wanted.kind, node, detail)) return rejection;
    return Rejection{RejectionCode::kHostPorts, "a host port is taken by a member of the gang"};
  }

  // The node is fine, but it lies in a domain that can't hold the gang, or the plan is in another.
  std::optional<Rejection> WhyNotDomain(int node) const {
    const NodeSlot& slot = problem_.nodes[node];
    if (problem_.request->required_topology_key.empty() || slot.part == plan_part_) {
      return std::nullopt;
    }
    const std::string& key = problem_.request->required_topology_key;
    return Rejection{RejectionCode::kResources,
                     fmt::format("{}={} can't hold {} members together", key,
                                 *slot.info->node->meta.Label(key), problem_.request->required)};
  }

  void FindPartFilled(const Slots& slots) {
    if (!slots.empty()) plan_part_ = problem_.nodes[slots[0].node].part;
  }

  const Problem& problem_;
  Room room_;
  Relations relations_;
  std::vector<int> short_;                         // classes with members left over
  std::vector<cluster::ClassCheck> class_checks_;  // of these
  int plan_part_ = -1;
  size_t placed_ = 0;
  std::map<RejectionCode, Counted> causes_;
};

}  // namespace

PlanShortfall ExplainShortfall(const Problem& problem, const Slots& slots) {
  return Shortfall(problem, slots).Explain();
}

}  // namespace muster::coscheduling::planner
