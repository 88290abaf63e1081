#include "coscheduling/planner_order.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace muster::coscheduling::planner {
namespace {

// How full a placement's domains will be before it, by the spread constraints of its kind, if all
// are filled evenly: the order of these levels never breaks a single constraint that the end result
// meets, and hardly ever several.
std::vector<int64_t> Levels(const std::vector<Placement>& placements,
                            const std::vector<size_t>& order, const Relations& relations) {
  absl::flat_hash_map<std::pair<int, int>, int64_t> placed;  // spread, domain
  std::vector<int64_t> levels(placements.size());
  for (size_t i : order) {
    const Placement& placement = placements[i];
    const Relations::Kind& parts = relations.PartsOf(placement.kind);
    auto domain_of = [&](int spread) {
      return relations.keys()[relations.spreads()[spread].key].domain[placement.node];
    };
    for (int spread : parts.own_spreads) {
      int domain = domain_of(spread);
      if (domain < 0) continue;
      levels[i] += relations.spreads()[spread].matching[domain] + placed[{spread, domain}];
    }
    for (int spread : parts.selected_by_spreads) ++placed[{spread, domain_of(spread)}];
  }
  return levels;
}

// All orders, for the rare sets of placements in which one must come early lest another close its
// door: a spread constraint of one class that counts the pods of another, say, or affinity that
// only the first of its kind may do without.
class OrderSearch {
 public:
  OrderSearch(const std::vector<Placement>& placements, Relations* relations)
      : relations_(*relations), left_(static_cast<int>(placements.size())) {
    std::map<std::pair<int, int>, int> counts;
    for (const Placement& placement : placements) ++counts[{placement.node, placement.kind}];
    for (const auto& [place, count] : counts) {
      groups_.push_back({place.second, place.first});
      waiting_.push_back(count);
    }
  }

  // True if all have been placed; otherwise nothing has.
  bool Run() {
    if (left_ == 0) return true;
    if (--steps_ < 0 || !seen_.insert(waiting_).second) return false;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (waiting_[g] == 0 || !relations_.Allows(groups_[g].kind, groups_[g].node)) continue;
      Move(g, 1);
      if (Run()) return true;
      Move(g, -1);
    }
    return false;
  }

 private:
  void Move(size_t g, int step) {
    if (step > 0) {
      relations_.Place(groups_[g].kind, groups_[g].node);
    } else {
      relations_.Remove(groups_[g].kind, groups_[g].node);
    }
    waiting_[g] -= step;
    left_ -= step;
  }

  static constexpr int kMostSteps = 4000;
  Relations& relations_;
  std::vector<Placement> groups_;
  std::vector<int> waiting_;  // by group
  int left_;
  int steps_ = kMostSteps;
  absl::flat_hash_set<std::vector<int>> seen_;
};

// The search is deep, and hopeless for many.
constexpr size_t kMostSearched = 64;

// Places what it can; returns the others.
std::vector<size_t> PlaceByLevel(const std::vector<Placement>& placements,
                                 std::vector<size_t> waiting, Relations* relations) {
  for (bool progress = true; progress && !waiting.empty();) {
    std::vector<size_t> refused;
    for (size_t i : waiting) {
      const Placement& placement = placements[i];
      if (relations->Allows(placement.kind, placement.node)) {
        relations->Place(placement.kind, placement.node);
      } else {
        refused.push_back(i);
      }
    }
    progress = refused.size() < waiting.size();
    waiting = std::move(refused);
  }
  std::sort(waiting.begin(), waiting.end());
  return waiting;
}

}  // namespace

std::vector<size_t> PlaceInOrder(const std::vector<Placement>& placements, Relations* relations) {
  std::vector<size_t> waiting(placements.size());
  for (size_t i = 0; i < waiting.size(); ++i) waiting[i] = i;
  std::sort(waiting.begin(), waiting.end(), [&](size_t a, size_t b) {
    return std::tuple(placements[a].node, placements[a].kind, a) <
           std::tuple(placements[b].node, placements[b].kind, b);
  });
  std::vector<int64_t> levels = Levels(placements, waiting, *relations);
  std::stable_sort(waiting.begin(), waiting.end(),
                   [&](size_t a, size_t b) { return levels[a] < levels[b]; });
  std::vector<size_t> order = waiting;
  std::vector<size_t> refused = PlaceByLevel(placements, std::move(waiting), relations);
  if (refused.empty() || placements.size() > kMostSearched) return refused;
  std::vector<char> placed(placements.size(), 1);
  for (size_t i : refused) placed[i] = 0;
  for (size_t i : order) {
    if (placed[i]) relations->Remove(placements[i].kind, placements[i].node);
  }
  if (OrderSearch(placements, relations).Run()) return {};
  return PlaceByLevel(placements, std::move(order), relations);
}

}  // namespace muster::coscheduling::planner
