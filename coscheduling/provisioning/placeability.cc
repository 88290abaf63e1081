#include "coscheduling/provisioning/placeability.h"

#include <algorithm>

#include "fmt/format.h"
#include "kube/objects/time_text.h"
#include "quota/flavor_terms.h"
#include "quota/topology_levels.h"

namespace muster::coscheduling {
namespace {

constexpr absl::Duration kJudgeNodesEvery = absl::Seconds(5);
constexpr size_t kJudgedAtMost = 4096;

}  // namespace

void Placeability::Observe(const cluster::Journal& journal) {
  using cluster::NodeChange;
  const bool changed = std::ranges::any_of(journal.nodes, [](const auto& entry) {
    return entry.second.observed.HasAny({NodeChange::kCame, NodeChange::kWent, NodeChange::kClass});
  });
  nodes_changed_ |= changed;
  makeable_changed_ |= changed;
}

// NodePools change seldom, nodes all the time: only gangs that nothing was found for care for
// those, and can wait a little.
Placeability::Changes Placeability::Refresh() {
  const absl::Time now = agenda_->now();
  Changes changes;
  changes.pools = std::exchange(pools_changed_, false);
  const absl::Time due = judged_at_ + kJudgeNodesEvery;
  if (changes.pools || (nodes_changed_ && now >= due)) {
    judged_.clear();
    judged_at_ = now;
    nodes_changed_ = false;
    if (changes.pools) {
      for (const auto& [gang, feasibility] : of_gang_) agenda_->Note(gang);
    } else {
      for (GangId gang : infeasible_) agenda_->Note(gang);
    }
  } else if (nodes_changed_) {
    agenda_->WakeAt(due);
  }
  const bool makeable = std::exchange(makeable_changed_, false);
  if (std::exchange(flavors_changed_, false) || why_no_nodes_.size() > kJudgedAtMost) {
    why_no_nodes_.clear();
    changes.flavors = true;
  } else if (makeable) {
    for (auto& [key, verdict] : why_no_nodes_) {
      std::string why = JudgeFlavor(verdict.demand);
      changes.flavors |= why != verdict.why;
      verdict.why = std::move(why);
    }
  }
  while (!flavor_retries_.empty() && flavor_retries_.begin()->first <= now) {
    changes.gangs.push_back(flavor_retries_.extract(flavor_retries_.begin()).value().second);
  }
  if (!flavor_retries_.empty()) agenda_->WakeAt(flavor_retries_.begin()->first);
  return changes;
}

using cluster::PoolObstacle;
static_assert(static_cast<int>(PoolObstacle::kOtherPool) == v1::NODE_POOL_NOT_FOUND &&
              static_cast<int>(PoolObstacle::kLimit) == v1::POOL_LIMIT_BELOW_GANG &&
              static_cast<int>(PoolObstacle::kOneNode) == v1::POD_AFFINITY_ONE_NODE &&
              static_cast<int>(PoolObstacle::kUnusable) == v1::NODE_POOL_UNUSABLE);
Reason ReasonFor(const cluster::PoolRefusal& refusal) {
  return {static_cast<v1::ReasonCode>(refusal.obstacle), refusal.why, refusal.fix};
}

std::shared_ptr<const Feasibility> Placeability::Judged(const cluster::Demand& demand) {
  auto judge = [&] {
    return std::make_shared<const Feasibility>(cluster::JudgeFeasibility(
        demand, pools_.all(), cluster::PoolLimits::kWhole, snapshot_, options_.instance_types));
  };
  // Their spec is made for this one question.
  if (demand.pods_on_one_node > 0) return judge();
  if (judged_.size() >= kJudgedAtMost) judged_.clear();
  auto [known, inserted] = judged_.try_emplace({demand.spec, demand.count});
  if (inserted) known->second = judge();
  return known->second;
}

// With quota in hand the flavor decides, and what can't be placed is given back.
bool Placeability::Judge(const Gang& gang, bool under_way) {
  const bool asked = gang.ours && !gang.facts.blocked && !gang.facts.evicting &&
                     gang.facts.live > 0 && gang.bound.empty() && !under_way &&
                     gang.required() > 0 && !quota_.Holds(gang);
  if (!asked) {
    Forget(gang.id);
    return false;
  }
  std::shared_ptr<const Feasibility> worst;
  for (const cluster::Demand& demand :
       cluster::DemandsOf(snapshot_, gangs_.UnboundOf(gang), gang.required())) {
    std::shared_ptr<const Feasibility> found = Judged(demand);
    if (worst == nullptr || found->verdict > worst->verdict) worst = std::move(found);
  }
  const bool infeasible = worst != nullptr && worst->verdict == Feasibility::Verdict::kInfeasible &&
                          !IsAssumedFeasible(gang);
  of_gang_[gang.id] = std::move(worst);
  if (infeasible) {
    infeasible_.insert(gang.id);
  } else {
    infeasible_.erase(gang.id);
  }
  return infeasible;
}

void Placeability::Forget(GangId gang) {
  of_gang_.erase(gang);
  infeasible_.erase(gang);
}

const Feasibility* Placeability::Of(const Gang& gang) const {
  const auto it = of_gang_.find(gang.id);
  return it == of_gang_.end() ? nullptr : it->second.get();
}

bool Placeability::IsAssumedFeasible(const Gang& gang) const {
  return options_.assume_feasible || gangs_.IsMarked(gang, kAssumeFeasibleAnnotation, "true");
}

std::string Placeability::WhyNotPlaceable(const Gang& gang, const quota::Workload& workload,
                                          const quota::PodSet& set,
                                          const kube::ResourceFlavor& flavor) {
  std::string no_level = quota::WhyNoLevel(quota_.scheduler(), gang.topology, flavor);
  if (!no_level.empty()) return no_level;
  if (const std::string& why = WhyNoNodesOf(set, flavor); !why.empty()) return why;
  const absl::Time until = tried_until_(gang, flavor);
  if (agenda_->now() >= until) return "";
  const auto others = quota_.scheduler().OtherFlavors(workload.id, set.name, flavor.meta.name);
  const bool another = std::ranges::any_of(others, [&](const kube::ResourceFlavor* other) {
    return agenda_->now() >= tried_until_(gang, *other) && WhyNoNodesOf(set, *other).empty();
  });
  if (!another) return "";
  flavor_retries_.emplace(until, gang.id);
  agenda_->WakeAt(until);
  return fmt::format("its nodes didn't come; tried again from {}", kube::ClockText(until));
}

const std::string& Placeability::WhyNoNodesOf(const quota::PodSet& set,
                                              const kube::ResourceFlavor& flavor) {
  std::string key = fmt::format("{}/{}/{}", set.name, set.count, flavor.meta.name);
  const auto [first, last] = why_no_nodes_.equal_range(key);
  for (auto it = first; it != last; ++it) {
    const FlavorVerdict& known = it->second;
    if (known.asked == set.spec || *known.asked == *set.spec) return known.why;
  }
  FlavorVerdict& verdict = why_no_nodes_.emplace(std::move(key), FlavorVerdict())->second;
  verdict.asked = set.spec;
  verdict.demand = {std::make_shared<const kube::PodSpec>(quota::WithFlavor(*set.spec, flavor)),
                    set.count, 0, ""};
  verdict.why = JudgeFlavor(verdict.demand);
  return verdict.why;
}

std::string Placeability::JudgeFlavor(const cluster::Demand& demand) const {
  const auto refusal =
      cluster::JudgeFeasibility(demand, pools_.all(), cluster::PoolLimits::kRemaining, snapshot_,
                                options_.instance_types)
          .refusal;
  return refusal ? refusal->why : "";
}

int64_t Placeability::MakeableOf(const quota::PodSet& set, cluster::PoolLimits limits) const {
  return cluster::Makeable({set.spec, set.count, 0, ""}, pools_.all(), limits,
                           options_.instance_types, nullptr);
}

}  // namespace muster::coscheduling
