#include "cluster/placing_order.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace muster::cluster {
namespace {

// How full a placement's domains will be before it, by the spread constraints of its kind, if all
// are filled evenly: the order of these levels never breaks a single constraint that the end result
// meets, and hardly ever several.
std::vector<int64_t> Levels(const std::vector<Placing>& placements,
                            const std::vector<size_t>& order, const Relations& relations) {
  absl::flat_hash_map<std::pair<int, int>, int64_t> placed;  // spread, domain
  std::vector<int64_t> levels(placements.size());
  for (size_t i : order) {
    const Placing& placement = placements[i];
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

}  // namespace

PlacingOrder PlaceInOrder(const std::vector<Placing>& placements, Relations* relations) {
  std::vector<size_t> waiting(placements.size());
  for (size_t i = 0; i < waiting.size(); ++i) waiting[i] = i;
  std::sort(waiting.begin(), waiting.end(), [&](size_t a, size_t b) {
    return std::tuple(placements[a].node, placements[a].kind, a) <
           std::tuple(placements[b].node, placements[b].kind, b);
  });
  std::vector<int64_t> levels = Levels(placements, waiting, *relations);
  std::stable_sort(waiting.begin(), waiting.end(),
                   [&](size_t a, size_t b) { return levels[a] < levels[b]; });
  PlacingOrder ordering;
  for (bool progress = true; progress && !waiting.empty();) {
    std::vector<size_t> refused;
    for (size_t i : waiting) {
      const Placing& placement = placements[i];
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

std::optional<std::pair<std::string, Rejection>> FirstForbidden(
    const Snapshot& snapshot, const std::vector<const kube::Pod*>& pods, bool include_virtual,
    const PlaceMap& places) {
  const std::vector<const NodeInfo*>& infos = snapshot.node_list();
  Relations relations(snapshot, pods, infos, include_virtual);
  std::vector<Placing> wanted;
  std::vector<size_t> pod_of;
  for (size_t i = 0; i < pods.size(); ++i) {
    const auto place = places.find(pods[i]->meta.uid);
    if (place == places.end()) continue;
    const NodeInfo* info = snapshot.FindNode(place->second);
    const auto at = std::ranges::lower_bound(infos, info->name(), {}, &NodeInfo::name);
    wanted.push_back({relations.KindOf(i), static_cast<int>(at - infos.begin())});
    pod_of.push_back(i);
  }
  const std::vector<size_t> refused = PlaceInOrder(wanted, &relations).refused;
  if (refused.empty()) return std::nullopt;
  const Placing& first = wanted[refused[0]];
  return std::pair(pods[pod_of[refused[0]]]->meta.uid, *relations.WhyNot(first.kind, first.node));
}

}  // namespace muster::cluster
