#include "coscheduling/provisioning/feasibility.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "cluster/predicates.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {
namespace {

using cluster::PoolObstacle;

constexpr size_t kPoolsTold = 3;

// How many requests fit into `room`; what `room` doesn't mention is there without limit.
int64_t TimesWithin(const kube::ResourceList& request, const kube::ResourceList& room) {
  int64_t times = std::numeric_limits<int64_t>::max();
  for (const auto& [resource, amount] : room.entries()) {
    const int64_t asked = request.Get(resource);
    if (asked > 0) times = std::min(times, std::max<int64_t>(0, amount) / asked);
  }
  return times;
}

// The same where what `room` doesn't mention isn't there.
int64_t TimesOn(const kube::ResourceList& request, const kube::ResourceList& room) {
  for (const auto& [resource, amount] : request.entries()) {
    if (amount > 0 && !room.Has(resource)) return 0;
  }
  return TimesWithin(request, room);
}

int64_t AddUpTo(int64_t limit, int64_t a, int64_t b) { return a >= limit - b ? limit : a + b; }

kube::ResourceList LimitsOf(const kube::NodePool& pool, Limits limits) {
  if (limits == Limits::kRemaining) return cluster::RemainingLimits(pool);
  return pool.limits.value_or(kube::ResourceList());
}

struct Standing {
  int64_t pods = 0;
  // Some of these nodes were made by somebody who isn't Karpenter, and who may make more.
  bool made_by_others = false;
};

// What the nodes that exist could hold if they were empty: what stands there comes and goes.
Standing StandingFor(const Demand& demand, const cluster::Snapshot& snapshot) {
  Standing standing;
  kube::Pod pod;
  pod.spec = demand.spec;
  cluster::ClassCheck check(snapshot, pod);
  for (const auto& [name, info] : snapshot.nodes()) {
    if (info.is_virtual || check.Check(info, cluster::Detail::kOmitted)) continue;
    kube::ResourceList room = info.node->allocatable;
    if (!room.Subtract(info.reserved_for_daemons).ok()) continue;
    const int64_t times = TimesOn(demand.spec->requests, room);
    if (times == 0) continue;
    standing.pods = AddUpTo(demand.count, standing.pods, std::min(times, demand.count));
    standing.made_by_others |= info.node->meta.Label(kube::kNodePoolLabel) == nullptr;
  }
  return standing;
}

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
  std::string text;
  for (size_t i = 0; i < refusals.size() && i < kPoolsTold; ++i) {
    text += (i == 0 ? "" : "; ") + refusals[i]->refusal->why;
  }
  if (refusals.size() > kPoolsTold) {
    text += fmt::format("; and {} more NodePools", refusals.size() - kPoolsTold);
  }
  return text;
}

Reason NoPool(const Demand& demand, const std::vector<PoolFinding>& pools, int64_t held) {
  const std::vector<const PoolFinding*> refusals = Refusals(pools);
  const cluster::PoolRefusal& closest = *refusals.front()->refusal;
  const std::string standing =
      held == 0 ? "" : fmt::format("; the nodes that exist can hold {}", held);
  if (demand.pods_on_one_node > 0) {
    return {v1::POD_AFFINITY_ONE_NODE,
            fmt::format("{}, and no NodePool makes such a node: {}{}", Subject(demand),
                        Told(refusals), standing),
            "prefer that affinity instead of requiring it, or leave it out: a gang is put into one "
            "zone and on neighbouring nodes in any case"};
  }
  return {CodeOf(closest.obstacle),
          fmt::format("no NodePool can make a node for {}: {}{}", Subject(demand), Told(refusals),
                      standing),
          closest.fix};
}

Reason LimitsTooLow(const Demand& demand, const std::vector<PoolFinding>& pools, Limits limits,
                    int64_t held, const NodePools& all) {
  std::string text;
  for (const PoolFinding& finding : pools) {
    if (finding.refusal) continue;
    const kube::ResourceList room = LimitsOf(all.find(finding.pool)->second, limits);
    text += fmt::format("{}NodePool {} can make nodes for {} ({})", text.empty() ? "" : "; ",
                        finding.pool, finding.pods, room.ToString());
  }
  return {v1::POOL_LIMIT_BELOW_GANG,
          fmt::format("limits are below what {} need{}: {}; the nodes that exist can hold {}",
                      Count(demand.count), demand.count == 1 ? "s" : "", text, held),
          "raise the limits of the NodePools, or make the gang smaller"};
}

}  // namespace

v1::ReasonCode CodeOf(PoolObstacle obstacle) {
  switch (obstacle) {
    case PoolObstacle::kOtherPool:
      return v1::NODE_POOL_NOT_FOUND;
    case PoolObstacle::kLabel:
      return v1::NODE_LABEL_NOT_OFFERED;
    case PoolObstacle::kZone:
      return v1::ZONE_NOT_OFFERED;
    case PoolObstacle::kCapacityType:
      return v1::CAPACITY_TYPE_NOT_OFFERED;
    case PoolObstacle::kInstanceType:
      return v1::INSTANCE_TYPE_NOT_ALLOWED;
    case PoolObstacle::kGpuCount:
      return v1::GPU_COUNT_TOO_LARGE;
    case PoolObstacle::kNoEfa:
      return v1::EFA_NOT_SUPPORTED;
    case PoolObstacle::kEfaCount:
      return v1::EFA_COUNT_TOO_LARGE;
    case PoolObstacle::kSize:
      return v1::RESOURCES_TOO_LARGE;
    case PoolObstacle::kTaint:
      return v1::POOL_TAINT_NOT_TOLERATED;
    case PoolObstacle::kLimit:
      return v1::POOL_LIMIT_BELOW_GANG;
    case PoolObstacle::kUnusable:
      return v1::NODE_POOL_UNUSABLE;
  }
  return v1::REASON_UNSPECIFIED;
}

std::vector<Demand> DemandsOf(const cluster::Snapshot& snapshot,
                              const std::vector<const kube::Pod*>& members, int64_t required) {
  std::vector<Demand> demands;
  const size_t looked_at =
      std::min(members.size(), static_cast<size_t>(std::max<int64_t>(0, required)));
  for (size_t i = 0; i < looked_at; ++i) {
    const auto same = std::ranges::find(demands, members[i]->spec, &Demand::spec);
    if (same != demands.end()) {
      ++same->count;
    } else {
      demands.push_back({members[i]->spec, 1, 0, ""});
    }
  }
  // Members with one spec have one affinity: one of each is enough to ask.
  std::set<const kube::PodSpec*> seen;
  for (size_t i = 0; i < looked_at; ++i) {
    const kube::Pod& owner = *members[i];
    if (owner.spec->affinity.required_pod_affinity.empty()) continue;
    if (!seen.insert(owner.spec.get()).second) continue;
    for (const kube::PodAffinityTerm& term : owner.spec->affinity.required_pod_affinity) {
      if (term.topology_key != kube::kHostnameLabel) continue;
      if (!cluster::TermSelects(snapshot, term, owner, owner)) continue;
      auto sum = std::make_shared<kube::PodSpec>(*owner.spec);
      sum->requests = {};
      Demand together{nullptr, 1, 0,
                      fmt::format("required podAffinity on {}", kube::kHostnameLabel)};
      bool fits_int64 = true;
      for (size_t j = 0; j < looked_at; ++j) {
        if (!cluster::TermSelects(snapshot, term, owner, *members[j])) continue;
        fits_int64 &= sum->requests.Add(members[j]->spec->requests).ok();
        ++together.pods_on_one_node;
      }
      if (together.pods_on_one_node < 2 || !fits_int64) continue;
      together.spec = std::move(sum);
      demands.push_back(std::move(together));
    }
  }
  return demands;
}

int64_t Makeable(const Demand& demand, const NodePools& pools, Limits limits,
                 const cluster::InstanceTypes& types, std::vector<PoolFinding>* findings) {
  int64_t makeable = 0;
  for (const auto& [name, pool] : pools) {
    PoolFinding finding{name, cluster::WhyPoolCannotHold(pool, *demand.spec, types), 0};
    if (!finding.refusal) {
      const kube::ResourceList room = LimitsOf(pool, limits);
      finding.pods = std::min(demand.count, TimesWithin(demand.spec->requests, room));
      makeable = AddUpTo(demand.count, makeable, finding.pods);
    }
    if (findings != nullptr) findings->push_back(std::move(finding));
  }
  return makeable;
}

Feasibility Judge(const Demand& demand, const NodePools& pools, Limits limits,
                  const cluster::Snapshot& snapshot, const cluster::InstanceTypes& types) {
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
  if (AddUpTo(demand.count, makeable, standing.pods) >= demand.count) return result;
  const bool certain =
      !standing.made_by_others && std::ranges::all_of(result.pools, [](const PoolFinding& finding) {
        return !finding.refusal || finding.refusal->IsCertain();
      });
  result.verdict = certain ? Feasibility::Verdict::kInfeasible : Feasibility::Verdict::kUnknown;
  const bool some = std::ranges::any_of(
      result.pools, [](const PoolFinding& finding) { return !finding.refusal; });
  result.reason = some ? LimitsTooLow(demand, result.pools, limits, standing.pods, pools)
                       : NoPool(demand, result.pools, standing.pods);
  return result;
}

}  // namespace muster::coscheduling
