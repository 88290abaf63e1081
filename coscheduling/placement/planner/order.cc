#include "coscheduling/placement/planner/order.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace muster::coscheduling::planner {
namespace {

using cluster::Relations;

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
      : relations_(*relations) {
    std::map<std::pair<int, int>, std::vector<size_t>> groups;
    for (size_t i = 0; i < placements.size(); ++i) {
      groups[{placements[i].node, placements[i].kind}].push_back(i);
    }
    for (auto& [place, members] : groups) {
      groups_.push_back({place.second, place.first});
      members_.push_back(std::move(members));
    }
    placed_.resize(groups_.size());
  }

  // All placements in a valid order, which have then been counted; empty, and nothing counted, if
  // there is none or the search took too long.
  std::vector<size_t> Run(size_t all) {
    std::vector<size_t> order;
    if (!Search(all, &order)) order.clear();
    return order;
  }

 private:
  bool Search(size_t all, std::vector<size_t>* order) {
    if (order->size() == all) return true;
    if (--steps_ < 0 || !seen_.insert(placed_).second) return false;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const Placement& place = groups_[g];
      if (placed_[g] == members_[g].size() || !relations_.Allows(place.kind, place.node)) continue;
      relations_.Place(place.kind, place.node);
      order->push_back(members_[g][placed_[g]++]);
      if (Search(all, order)) return true;
      relations_.Remove(place.kind, place.node);
      order->pop_back();
      --placed_[g];
    }
    return false;
  }

  static constexpr int kMostSteps = 4000;
  Relations& relations_;
  std::vector<Placement> groups_;             // equal placements
  std::vector<std::vector<size_t>> members_;  // by group
  std::vector<size_t> placed_;                // how many, by group
  int steps_ = kMostSteps;
  absl::flat_hash_set<std::vector<size_t>> seen_;
};

// The search is deep, and hopeless for many.
constexpr size_t kMostSearched = 64;

Ordering PlaceByLevel(const std::vector<Placement>& placements, std::vector<size_t> waiting,
                      Relations* relations) {
  Ordering ordering;
  for (bool progress = true; progress && !waiting.empty();) {
    std::vector<size_t> refused;
    for (size_t i : waiting) {
      const Placement& placement = placements[i];
      if (relations->Allows(placement.kind, placement.node)) {
        relations->Place(placement.kind, placement.node);
        ordering.placed.push_back(i);
      } else {
        refused.push_back(i);
      }
    }
    progress = refused.size() < waiting.size();
    waiting = std::move(refused);
  }
  std::sort(waiting.begin(), waiting.end());
  ordering.refused = std::move(waiting);
  return ordering;
}

}  // namespace

Ordering PlaceInOrder(const std::vector<Placement>& placements, cluster::Relations* relations) {
  std::vector<size_t> waiting(placements.size());
  for (size_t i = 0; i < waiting.size(); ++i) waiting[i] = i;
  std::sort(waiting.begin(), waiting.end(), [&](size_t a, size_t b) {
    return std::tuple(placements[a].node, placements[a].kind, a) <
           std::tuple(placements[b].node, placements[b].kind, b);
  });
  std::vector<int64_t> levels = Levels(placements, waiting, *relations);
  std::stable_sort(waiting.begin(), waiting.end(),
                   [&](size_t a, size_t b) { return levels[a] < levels[b]; });
  Ordering ordering = PlaceByLevel(placements, waiting, relations);
  if (ordering.refused.empty() || placements.size() > kMostSearched) return ordering;
  for (size_t i : ordering.placed) relations->Remove(placements[i].kind, placements[i].node);
  std::vector<size_t> order = OrderSearch(placements, relations).Run(placements.size());
  if (!order.empty()) return {std::move(order), {}};
  return PlaceByLevel(placements, std::move(waiting), relations);
}

}  // namespace muster::coscheduling::planner
