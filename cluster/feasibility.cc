#include "cluster/feasibility.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "kube/objects/excerpt.h"

namespace muster::cluster {
namespace {

constexpr size_t kPoolsTold = 3;

std::string Count(int64_t pods) { return fmt::format("{} pod{}", pods, pods == 1 ? "" : "s"); }

std::string Subject(const Demand& demand) {
  if (demand.pods_on_one_node == 0) return Count(demand.count);
  return fmt::format("{} puts {} on one node", demand.drawn_by, Count(demand.pods_on_one_node));
}

// The refusals, the closest pool's first.
std::vector<const PoolFinding*> Refusals(const std::vector<PoolFinding>& pools) {
  std::vector<const PoolFinding*> refusals;
  for (const PoolFinding& finding : pools) {
    if (finding.refusal) refusals.push_back(&finding);
  }
  std::ranges::stable_sort(refusals, [](const PoolFinding* a, const PoolFinding* b) {
    return a->refusal->obstacle > b->refusal->obstacle;
  });
  return refusals;
}

std::string Told(const std::vector<const PoolFinding*>& refusals) {
  std::vector<std::string> whys;
  for (const PoolFinding* finding : refusals) whys.push_back(finding->refusal->why);
  return kube::FirstFew(whys, kPoolsTold);
}

PoolRefusal NoPool(const Demand& demand, const std::vector<PoolFinding>& pools, int64_t held) {
  const std::vector<const PoolFinding*> refusals = Refusals(pools);
  const PoolRefusal& closest = *refusals.front()->refusal;
  const std::string standing =
      held == 0 ? "" : fmt::format("; the nodes that exist can hold {}", held);
  if (demand.pods_on_one_node > 0) {
    return {PoolObstacle::kOneNode,
            fmt::format("{}, and no NodePool makes such a node: {}{}", Subject(demand),
                        Told(refusals), standing),
            "prefer that affinity instead of requiring it, or leave it out: a gang is put on "
            "neighbouring nodes in any case, in one zone where one has room"};
  }
  return {closest.obstacle,
          fmt::format("no NodePool can make a node for {}: {}{}", Subject(demand), Told(refusals),
                      standing),
          closest.fix};
}

PoolRefusal LimitsTooLow(const Demand& demand, const std::vector<PoolFinding>& pools,
                         PoolLimits limits, int64_t held, const NodePools& all) {
  std::string text;
  for (const PoolFinding& finding : pools) {
    if (finding.refusal) continue;
    const kube::ResourceList room = LimitsOf(all.find(finding.pool)->second, limits);
    text += fmt::format("{}NodePool {} can make nodes for {} ({})", text.empty() ? "" : "; ",
                        finding.pool, finding.pods, room.ToString());
  }
  return {PoolObstacle::kLimit,
          fmt::format("limits are below what {} need{}: {}; the nodes that exist can hold {}",
                      Count(demand.count), demand.count == 1 ? "s" : "", text, held),
          "raise the limits of the NodePools, or make the gang smaller"};
}

}  // namespace

Feasibility JudgeFeasibility(const Demand& demand, const NodePools& pools, PoolLimits limits,
                             const Snapshot& snapshot, const InstanceTypes& types) {
  Feasibility result;
  result.asked = demand.pods_on_one_node > 0 ? demand.pods_on_one_node : demand.count;
  if (pools.empty()) {
    result.verdict = Feasibility::Verdict::kUnknown;
    return result;
  }
  const int64_t makeable = Makeable(demand, pools, limits, types, &result.pools);
  if (makeable >= demand.count) return result;
  const Standing standing = StandingFor(demand, snapshot);
  result.held = standing.pods;
  if (makeable >= demand.count - standing.pods) return result;
  const bool certain =
      !standing.made_by_others && std::ranges::all_of(result.pools, [](const PoolFinding& finding) {
        return !finding.refusal || finding.refusal->IsCertain();
      });
  result.verdict = certain ? Feasibility::Verdict::kInfeasible : Feasibility::Verdict::kUnknown;
  const bool some = std::ranges::any_of(
      result.pools, [](const PoolFinding& finding) { return !finding.refusal; });
  result.refusal = some ? LimitsTooLow(demand, result.pools, limits, standing.pods, pools)
                        : NoPool(demand, result.pools, standing.pods);
  return result;
}

}  // namespace muster::cluster
