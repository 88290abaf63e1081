#include "coscheduling/provisioning/feasibility.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "kube/objects/excerpt.h"

namespace muster::coscheduling {
namespace {

using cluster::PoolObstacle;

constexpr size_t kPoolsTold = 3;

std::string Count(int64_t pods) { return fmt::format("{} pod{}", pods, pods == 1 ? "" : "s"); }

std::string Subject(const cluster::Demand& demand) {
  if (demand.pods_on_one_node == 0) return Count(demand.count);
  return fmt::format("{} puts {} on one node", demand.drawn_by, Count(demand.pods_on_one_node));
}

// The refusals, the closest pool's first.
std::vector<const cluster::PoolFinding*> Refusals(const std::vector<cluster::PoolFinding>& pools) {
  std::vector<const cluster::PoolFinding*> refusals;
  for (const cluster::PoolFinding& finding : pools) {
    if (finding.refusal) refusals.push_back(&finding);
  }
  std::ranges::stable_sort(refusals,
                           [](const cluster::PoolFinding* a, const cluster::PoolFinding* b) {
                             return a->refusal->obstacle > b->refusal->obstacle;
                           });
  return refusals;
}

std::string Told(const std::vector<const cluster::PoolFinding*>& refusals) {
  std::vector<std::string> whys;
  for (const cluster::PoolFinding* finding : refusals) whys.push_back(finding->refusal->why);
  return kube::FirstFew(whys, kPoolsTold);
}

Reason NoPool(const cluster::Demand& demand, const std::vector<cluster::PoolFinding>& pools,
              int64_t held) {
  const std::vector<const cluster::PoolFinding*> refusals = Refusals(pools);
  const cluster::PoolRefusal& closest = *refusals.front()->refusal;
  const std::string standing =
      held == 0 ? "" : fmt::format("; the nodes that exist can hold {}", held);
  if (demand.pods_on_one_node > 0) {
    return {v1::POD_AFFINITY_ONE_NODE,
            fmt::format("{}, and no NodePool makes such a node: {}{}", Subject(demand),
                        Told(refusals), standing),
            "prefer that affinity instead of requiring it, or leave it out: a gang is put on "
            "neighbouring nodes in any case, in one zone where one has room"};
  }
  return {CodeOf(closest.obstacle),
          fmt::format("no NodePool can make a node for {}: {}{}", Subject(demand), Told(refusals),
                      standing),
          closest.fix};
}

Reason LimitsTooLow(const cluster::Demand& demand, const std::vector<cluster::PoolFinding>& pools,
                    cluster::PoolLimits limits, int64_t held, const cluster::NodePools& all) {
  std::string text;
  for (const cluster::PoolFinding& finding : pools) {
    if (finding.refusal) continue;
    const kube::ResourceList room = cluster::LimitsOf(all.find(finding.pool)->second, limits);
    text += fmt::format("{}NodePool {} can make nodes for {} ({})", text.empty() ? "" : "; ",
                        finding.pool, finding.pods, room.ToString());
  }
  return {v1::POOL_LIMIT_BELOW_GANG,
          fmt::format("limits are below what {} need{}: {}; the nodes that exist can hold {}",
                      Count(demand.count), demand.count == 1 ? "s" : "", text, held),
          "raise the limits of the NodePools, or make the gang smaller"};
}

}  // namespace

static_assert(static_cast<int>(PoolObstacle::kOtherPool) == v1::NODE_POOL_NOT_FOUND &&
              static_cast<int>(PoolObstacle::kLimit) == v1::POOL_LIMIT_BELOW_GANG &&
              static_cast<int>(PoolObstacle::kUnusable) == v1::NODE_POOL_UNUSABLE);
v1::ReasonCode CodeOf(PoolObstacle obstacle) { return static_cast<v1::ReasonCode>(obstacle); }

Feasibility Judge(const cluster::Demand& demand, const cluster::NodePools& pools,
                  cluster::PoolLimits limits, const cluster::Snapshot& snapshot,
                  const cluster::InstanceTypes& types) {
  Feasibility result;
  result.asked = demand.pods_on_one_node > 0 ? demand.pods_on_one_node : demand.count;
  if (pools.empty()) {
    result.verdict = Feasibility::Verdict::kUnknown;
    return result;
  }
  const int64_t makeable = cluster::Makeable(demand, pools, limits, types, &result.pools);
  if (makeable >= demand.count) return result;
  const cluster::Standing standing = cluster::StandingFor(demand, snapshot);
  result.held = standing.pods;
  if (makeable >= demand.count - standing.pods) return result;
  const bool certain = !standing.made_by_others &&
                       std::ranges::all_of(result.pools, [](const cluster::PoolFinding& finding) {
                         return !finding.refusal || finding.refusal->IsCertain();
                       });
  result.verdict = certain ? Feasibility::Verdict::kInfeasible : Feasibility::Verdict::kUnknown;
  const bool some = std::ranges::any_of(
      result.pools, [](const cluster::PoolFinding& finding) { return !finding.refusal; });
  result.reason = some ? LimitsTooLow(demand, result.pools, limits, standing.pods, pools)
                       : NoPool(demand, result.pools, standing.pods);
  return result;
}

}  // namespace muster::coscheduling
