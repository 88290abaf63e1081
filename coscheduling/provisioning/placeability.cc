// Could the nodes exist at all: those of a gang, and those of a flavor before quota of it is given?

#include <algorithm>
#include <utility>

#include "coscheduling/engine_state.h"
#include "fmt/format.h"

namespace muster::coscheduling {
namespace {

constexpr absl::Duration kJudgeNodesEvery = absl::Seconds(5);
constexpr size_t kJudgedAtMost = 4096;

}  // namespace

kube::PodSpec WithFlavor(const kube::PodSpec& spec, const kube::ResourceFlavor& flavor) {
  kube::PodSpec with = spec;
  for (const auto& [key, value] : flavor.node_labels) with.node_selector.emplace(key, value);
  with.tolerations.insert(with.tolerations.end(), flavor.tolerations.begin(),
                          flavor.tolerations.end());
  return with;
}

absl::Time Engine::State::TriedUntil(const quota::Workload& workload,
                                     const kube::ResourceFlavor& flavor) const {
  auto it = gang_of_quota.find(workload.id);
  if (it == gang_of_quota.end()) return absl::InfinitePast();
  const auto tried =
      it->second->record ? it->second->record->flavors_tried : TriedBefore(*it->second).flavors;
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
  return fmt::format("its nodes didn't come; tried again from {}", Clock(until));
}

const std::string& Engine::State::WhyNoNodesOf(const quota::PodSet& set,
                                               const kube::ResourceFlavor& flavor) {
  std::string key = fmt::format("{}/{}/{}", set.name, set.count, flavor.meta.name);
  auto [known, inserted] = placeability.try_emplace(std::move(key));
  if (!inserted) return known->second;
  const Demand demand{std::make_shared<const kube::PodSpec>(WithFlavor(*set.spec, flavor)),
                      set.count, 0, ""};
  known->second = Judge(demand, node_pools, Limits::kRemaining, snapshot, options.instance_types)
                      .reason.message;
  return known->second;
}

// Nothing stands or is being carried out yet. With quota in hand the flavor decides, and what can't
// be placed is given back (HoldsUselessly).
bool Engine::State::MayBeInfeasible(const Gang& gang) const {
  return gang.ours && !gang.facts.blocked && !gang.facts.evicting && gang.facts.live > 0 &&
         gang.bound.empty() && gang.posted.empty() && gang.fixed.empty() && !gang.commit_started &&
         gang.required() > 0 && !HoldsQuota(gang);
}

bool Engine::State::IsAssumedFeasible(const Gang& gang) const {
  if (options.assume_feasible) return true;
  auto says_so = [](const kube::ObjectMeta& meta) {
    const std::string* value = meta.Annotation(kAssumeFeasibleAnnotation);
    return value != nullptr && *value == "true";
  };
  return (gang.group != nullptr && says_so(gang.group->meta)) ||
         std::ranges::any_of(gang.unbound, [&](const std::string& uid) {
           return says_so(snapshot.FindPod(uid)->meta);
         });
}

std::shared_ptr<const Feasibility> Engine::State::Judged(const Demand& demand) {
  auto judge = [&] {
    return std::make_shared<const Feasibility>(
        Judge(demand, node_pools, Limits::kWhole, snapshot, options.instance_types));
  };
  // Their spec is made for this one question.
  if (demand.pods_on_one_node > 0) return judge();
  if (judged.size() >= kJudgedAtMost) judged.clear();
  auto [known, inserted] = judged.try_emplace({demand.spec, demand.count});
  if (inserted) known->second = judge();
  return known->second;
}

void Engine::State::JudgeGang(Gang& gang) {
  gang.feasibility = nullptr;
  gang.facts.infeasible = false;
  if (!MayBeInfeasible(gang)) return;
  std::vector<const kube::Pod*> members;
  members.reserve(gang.unbound.size());
  for (const std::string& uid : gang.unbound) members.push_back(snapshot.FindPod(uid));
  for (const Demand& demand : DemandsOf(snapshot, members, gang.required())) {
    std::shared_ptr<const Feasibility> found = Judged(demand);
    if (gang.feasibility == nullptr || found->verdict > gang.feasibility->verdict) {
      gang.feasibility = std::move(found);
    }
  }
  gang.facts.infeasible = gang.feasibility != nullptr &&
                          gang.feasibility->verdict == Feasibility::Verdict::kInfeasible &&
                          !IsAssumedFeasible(gang);
}

// NodePools change seldom, nodes all the time: only gangs that nothing was found for care for
// those, and can wait a little.
void Engine::State::JudgeAgain(absl::Time now) {
  const bool pools = std::exchange(pools_changed, false);
  const absl::Time due = judged_at + kJudgeNodesEvery;
  if (!pools && !nodes_to_judge) return;
  if (!pools && now < due) {
    WakeAt(due);
    return;
  }
  judged.clear();
  judged_at = now;
  nodes_to_judge = false;
  for (auto& [key, gang] : gangs) {
    gang.dirty |= pools ? gang.feasibility != nullptr : gang.facts.infeasible;
  }
}

}  // namespace muster::coscheduling
