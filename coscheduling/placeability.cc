// Before quota is given: could the gang's nodes exist at all?

#include <algorithm>
#include <limits>

#include "cluster/pool_forecast.h"
#include "cluster/predicates.h"
#include "coscheduling/engine_state.h"
#include "fmt/format.h"

namespace muster::coscheduling {
namespace {

// How many requests fit into `room`, where only the resources in `room` are limited.
int64_t TimesIn(const kube::ResourceList& request, const kube::ResourceList& room) {
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
  return TimesIn(request, room);
}

int64_t AddUpTo(int64_t limit, int64_t a, int64_t b) { return a >= limit - b ? limit : a + b; }

}  // namespace

kube::PodSpec WithFlavor(const kube::PodSpec& spec, const kube::ResourceFlavor& flavor) {
  kube::PodSpec with = spec;
  for (const auto& [key, value] : flavor.node_labels) with.node_selector.emplace(key, value);
  with.tolerations.insert(with.tolerations.end(), flavor.tolerations.begin(),
                          flavor.tolerations.end());
  return with;
}

int64_t Engine::State::PodsToBeMade(const kube::PodSpec& spec, int64_t count,
                                    std::string* why) const {
  int64_t possible = 0;
  for (const auto& [name, pool] : node_pools) {
    if (auto refusal = cluster::WhyPoolCannotHold(pool, spec)) {
      if (why != nullptr && why->empty()) *why = *std::move(refusal);
      continue;
    }
    const kube::ResourceList remaining = cluster::RemainingLimits(pool);
    const int64_t more = TimesIn(spec.requests, remaining);
    possible = AddUpTo(count, possible, std::min(more, count));
    if (possible >= count) return count;
    if (why == nullptr) continue;
    *why = fmt::format("NodePool {} may make {} more of {} pods before its limits (left: {})", name,
                       more, count, remaining.ToString());
  }
  return possible;
}

// Counts what nodes could hold if they were empty: what stands there now comes and goes. Nodes that
// exist and pools together must be able to hold `count` of them.
std::string Engine::State::WhyNoNodesFor(const kube::PodSpec& spec, int64_t count) const {
  // Without a NodePool another provisioner may be at work, of which nothing is known.
  if (node_pools.empty()) return "";
  std::string why;
  const int64_t possible = PodsToBeMade(spec, count, &why);
  if (possible >= count) return "";
  kube::Pod pod;
  pod.spec = std::make_shared<const kube::PodSpec>(spec);
  cluster::ClassCheck check(snapshot, pod);
  int64_t held = 0;
  for (const auto& [name, info] : snapshot.nodes()) {
    if (!info.UsableNow() || check.Check(info, cluster::Detail::kOmitted)) continue;
    kube::ResourceList room = info.node->allocatable;
    if (!room.Subtract(info.reserved_for_daemons).ok()) continue;
    held = AddUpTo(count, held, TimesOn(spec.requests, room));
    if (AddUpTo(count, possible, held) >= count) return "";
  }
  return fmt::format("{}; {} of {} pods would fit on the nodes that exist", why, held, count);
}

absl::Time Engine::State::TriedUntil(const quota::Workload& workload,
                                     const kube::ResourceFlavor& flavor) const {
  auto it = gang_of_quota.find(workload.id);
  if (it == gang_of_quota.end() || !it->second->record) return absl::InfinitePast();
  const auto& tried = it->second->record->flavors_tried;
  auto found = tried.find(flavor.meta.name);
  return found == tried.end() ? absl::InfinitePast() : found->second;
}

std::string Engine::State::WhyNotPlaceable(const quota::Workload& workload,
                                           const quota::PodSet& set,
                                           const kube::ResourceFlavor& flavor) {
  if (const std::string& why = WhyNoNodesOf(set, flavor); !why.empty()) return why;
  const absl::Time until = TriedUntil(workload, flavor);
  if (clock >= until) return "";
  const auto others = quotas.OtherFlavors(workload.id, set.name, flavor.meta.name);
  const bool another = std::ranges::any_of(others, [&](const kube::ResourceFlavor* other) {
    return clock >= TriedUntil(workload, *other) && WhyNoNodesOf(set, *other).empty();
  });
  if (!another) return "";
  WakeAt(until);
  next_flavor_retry = std::min(next_flavor_retry, until);
  return fmt::format("its nodes didn't come; tried again from {}",
                     absl::FormatTime("%H:%M:%SZ", until, absl::UTCTimeZone()));
}

const std::string& Engine::State::WhyNoNodesOf(const quota::PodSet& set,
                                               const kube::ResourceFlavor& flavor) {
  std::string key = fmt::format("{}/{}/{}", set.name, set.count, flavor.meta.name);
  auto [known, inserted] = placeability.try_emplace(std::move(key));
  if (inserted) known->second = WhyNoNodesFor(WithFlavor(*set.spec, flavor), set.count);
  return known->second;
}

}  // namespace muster::coscheduling
