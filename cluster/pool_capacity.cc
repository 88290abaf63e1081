#include "cluster/pool_capacity.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "cluster/pool_types.h"
#include "cluster/predicates.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

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

// How many such pods so many nodes of the pool can hold at most; all where its types aren't known.
int64_t TimesOnNodes(int64_t nodes, const Demand& demand, const kube::NodePool& pool,
                     const InstanceTypes& types) {
  const kube::ResourceList& asked = demand.spec->requests;
  const TypeSet set = TypesOf(pool, *demand.spec, types);
  int64_t most = set.unknown || (set.others && !WantsDevices(*demand.spec)) ? demand.count : 0;
  for (const InstanceType* type : set.known) {
    int64_t times = demand.count;
    for (const std::string_view resource : kInTable) {
      const int64_t each = asked.Get(resource);
      if (each > 0) times = std::min(times, TimesOf(*type, resource, each));
    }
    most = std::max(most, times);
  }
  if (most == 0) return 0;
  return nodes > (demand.count - 1) / most ? demand.count : nodes * most;
}

// a + b, at most `limit`, which neither exceeds.
int64_t AddUpTo(int64_t limit, int64_t a, int64_t b) { return a >= limit - b ? limit : a + b; }

}  // namespace

kube::ResourceList LimitsOf(const kube::NodePool& pool, PoolLimits limits) {
  if (limits == PoolLimits::kRemaining) return RemainingLimits(pool);
  return pool.limits.value_or(kube::ResourceList());
}

Standing StandingFor(const Demand& demand, const Snapshot& snapshot) {
  Standing standing;
  kube::PodSpec spec = *demand.spec;
  spec.persistent_volume_claims.clear();
  kube::Pod pod;
  pod.spec = std::make_shared<const kube::PodSpec>(std::move(spec));
  ClassCheck check(snapshot, pod);
  for (const auto& [name, info] : snapshot.nodes()) {
    if (info.is_virtual || check.Check(info, Detail::kOmitted)) continue;
    kube::ResourceList room = info.node->allocatable;
    if (!room.Subtract(info.reserved_for_daemons).ok()) continue;
    const int64_t times = TimesOn(demand.spec->requests, room);
    if (times == 0) continue;
    standing.pods = AddUpTo(demand.count, standing.pods, std::min(times, demand.count));
    standing.made_by_others |= info.node->meta.Label(kube::kNodePoolLabel) == nullptr;
  }
  return standing;
}

std::vector<Demand> DemandsOf(const Snapshot& snapshot, const std::vector<const kube::Pod*>& pods,
                              int64_t required) {
  std::vector<Demand> demands;
  const size_t looked_at =
      std::min(pods.size(), static_cast<size_t>(std::max<int64_t>(0, required)));
  for (size_t i = 0; i < looked_at; ++i) {
    const auto same = std::ranges::find(demands, pods[i]->spec, &Demand::spec);
    if (same != demands.end()) {
      ++same->count;
    } else {
      demands.push_back({pods[i]->spec, 1, 0, ""});
    }
  }
  // Members with one spec have one affinity: one of each is enough to ask.
  std::set<const kube::PodSpec*> seen;
  for (size_t i = 0; i < looked_at; ++i) {
    const kube::Pod& owner = *pods[i];
    if (owner.spec->affinity.required_pod_affinity.empty()) continue;
    if (!seen.insert(owner.spec.get()).second) continue;
    for (const kube::PodAffinityTerm& term : owner.spec->affinity.required_pod_affinity) {
      if (term.topology_key != kube::kHostnameLabel) continue;
      if (!TermSelects(snapshot, term, owner, owner)) continue;
      auto sum = std::make_shared<kube::PodSpec>(*owner.spec);
      sum->requests = {};
      Demand together{nullptr, 1, 0,
                      fmt::format("required podAffinity on {}", kube::kHostnameLabel)};
      bool fits_int64 = true;
      for (size_t j = 0; j < looked_at; ++j) {
        if (!TermSelects(snapshot, term, owner, *pods[j])) continue;
        fits_int64 &= sum->requests.Add(pods[j]->spec->requests).ok();
        ++together.pods_on_one_node;
      }
      if (together.pods_on_one_node < 2 || !fits_int64) continue;
      together.spec = std::move(sum);
      demands.push_back(std::move(together));
    }
  }
  return demands;
}

int64_t Makeable(const Demand& demand, const NodePools& pools, PoolLimits limits,
                 const InstanceTypes& types, std::vector<PoolFinding>* findings) {
  int64_t makeable = 0;
  for (const auto& [name, pool] : pools) {
    PoolFinding finding{name, WhyPoolCannotHold(pool, *demand.spec, types), 0};
    if (!finding.refusal) {
      const kube::ResourceList room = LimitsOf(pool, limits);
      finding.pods = std::min(demand.count, TimesWithin(demand.spec->requests, room));
      if (room.Has(kNodes)) {
        finding.pods = std::min(finding.pods, TimesOnNodes(room.Get(kNodes), demand, pool, types));
      }
      makeable = AddUpTo(demand.count, makeable, finding.pods);
    }
    if (findings != nullptr) findings->push_back(std::move(finding));
  }
  return makeable;
}

}  // namespace muster::cluster
