// What the gangs that wait know of the nodes that were asked for: who counts on which NodeClaim,
// what went wrong with it (setbacks.h), and when a gang has waited long enough.

#include <algorithm>
#include <utility>

#include "cluster/predicates.h"
#include "coscheduling/engine_state.h"
#include "coscheduling/gangs/pod_sets.h"
#include "coscheduling/provisioning/setback_reasons.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {
namespace {

// operatorpkg's reason of a condition that nobody has looked at yet.
constexpr std::string_view kAwaiting = "AwaitingReconciliation";

const kube::Condition* ConditionOf(const kube::NodeClaim& claim, std::string_view type) {
  auto it = claim.conditions.find(type);
  return it == claim.conditions.end() ? nullptr : &it->second;
}

// Since when a condition is true; the Node may be ahead of its claim: just now.
absl::Time Since(const kube::NodeClaim& claim, std::string_view condition) {
  const kube::Condition* found = ConditionOf(claim, condition);
  const bool known =
      found != nullptr && found->status == "True" && found->last_transition != absl::InfinitePast();
  return known ? found->last_transition : absl::InfiniteFuture();
}

// The value of a label that the claim has or asks for, or what it leaves open: "a or 2 others".
std::string Asked(const cluster::NodeInfo& info, std::string_view key) {
  if (const std::string* label = info.node->meta.Label(key)) return *label;
  for (const kube::Requirement& requirement : info.claim->requirements) {
    if (requirement.key != key || requirement.op != kube::SelectorOperator::kIn) continue;
    if (requirement.values.empty()) continue;
    const size_t others = requirement.values.size() - 1;
    return fmt::format("{} or {} other{}", requirement.values.front(), others,
                       others == 1 ? "" : "s");
  }
  return "";
}

bool HasStartupTaint(const cluster::NodeInfo& info) {
  return std::ranges::any_of(info.object->taints, [&](const kube::Taint& taint) {
    return cluster::IsLifecycleTaint(taint) ||
           std::ranges::any_of(info.claim->startup_taints, [&](const kube::Taint& startup) {
             return startup.key == taint.key && startup.effect == taint.effect;
           });
  });
}

BringUp StageOf(const cluster::NodeInfo& info) {
  switch (info.readiness.stage) {
    case cluster::NodeStage::kRequested:
      return BringUp::kLaunch;
    case cluster::NodeStage::kLaunched:
      return BringUp::kRegistration;
    case cluster::NodeStage::kRegistered:
    case cluster::NodeStage::kInitialized:
      return BringUp::kInitialization;
    case cluster::NodeStage::kUsable:
      return BringUp::kDone;
    case cluster::NodeStage::kGoing:
      break;
  }
  if (!info.claim->IsTrue("Launched")) return BringUp::kLaunch;
  if (!info.claim->IsTrue("Registered")) return BringUp::kRegistration;
  return info.claim->IsTrue("Initialized") ? BringUp::kDone : BringUp::kInitialization;
}

void ReadLaunch(const kube::NodeClaim& claim, ClaimSight* sight) {
  sight->since = claim.meta.creation_time;
  sight->lacks = v1::LAUNCH_FAILED;
  const kube::Condition* launched = ConditionOf(claim, "Launched");
  if (launched == nullptr || launched->reason.empty() || launched->reason == kAwaiting) return;
  sight->words = fmt::format("{}{}{}", launched->reason, launched->message.empty() ? "" : ": ",
                             launched->message);
  sight->failing = true;
}

void ReadInitialization(const cluster::NodeInfo& info, ClaimSight* sight) {
  sight->since = Since(*info.claim, "Registered");
  sight->words = info.readiness.message;
  sight->lacks = v1::NODE_NOT_INITIALIZED;
  if (info.object == nullptr || !info.object->ready) return;
  if (HasStartupTaint(info)) {
    sight->lacks = v1::STARTUP_TAINT_STAYS;
  } else if (!info.readiness.shortages.empty()) {
    sight->lacks = v1::NODES_INCOMPLETE;
    sight->failing = true;
  }
}

ClaimSight SightOf(const cluster::NodeInfo& info) {
  const kube::NodeClaim& claim = *info.claim;
  ClaimSight sight;
  sight.name = claim.meta.name;
  sight.node = info.object == nullptr ? "" : info.object->meta.name;
  sight.node_pool = claim.node_pool;
  sight.instance_type = Asked(info, kube::kInstanceTypeLabel);
  sight.zone = Asked(info, kube::kZoneLabel);
  sight.stage = StageOf(info);
  sight.since = claim.meta.creation_time;
  sight.going = info.readiness.stage == cluster::NodeStage::kGoing;
  if (sight.going) {
    const kube::Condition* why = ConditionOf(claim, "DisruptionReason");
    if (why != nullptr && why->status == "True") sight.words = why->reason;
  } else if (sight.stage == BringUp::kLaunch) {
    ReadLaunch(claim, &sight);
  } else if (sight.stage == BringUp::kRegistration) {
    sight.since = Since(claim, "Launched");
    sight.lacks = v1::NODE_NOT_REGISTERED;
    sight.words = info.readiness.message;
  } else if (sight.stage == BringUp::kInitialization) {
    ReadInitialization(info, &sight);
  }
  return sight;
}

const char* TextOf(BringUp stage) {
  switch (stage) {
    case BringUp::kLaunch:
      return "launched";
    case BringUp::kRegistration:
      return "registered";
    default:
      return "usable";
  }
}

}  // namespace

StageLimits Engine::State::LimitsOfStages() const {
  return {options.launch_deadline, options.registration_deadline, options.initialization_deadline};
}

bool Engine::State::CapacityFailedBefore(const Gang& gang) {
  return gang.record && gang.record->given_up && !gang.record->retry_after &&
         gang.record->given_up->code == v1::INSUFFICIENT_CAPACITY;
}

// What was refused to another gang meanwhile isn't asked for by Karpenter before its time is over.
// It is waited for once, so that gangs that come later don't keep this one from ever trying.
absl::Time Engine::State::RetryAt(const Gang& gang) const {
  const absl::Time own = *gang.record->retry_after;
  if (gang.record->TriesAnewAtOnce()) return own;
  const absl::Time known_until = setbacks.LastRefusal(gang.key) + options.capacity_backoff;
  return std::clamp(known_until, own, own + options.capacity_backoff);
}

// Where capacity failed the gang before, or where what was ordered with it can be taken back before
// it is up, trying anew later costs less than to hold the others meanwhile.
BringUpLimits Engine::State::Limits(const Gang& gang) const {
  const bool soon = CapacityFailedBefore(gang) || options.withdraw_nodes;
  return {.stages = LimitsOfStages(),
          .refused = soon ? std::min(options.refusal_deadline, options.launch_deadline)
                          : options.launch_deadline};
}

void Engine::State::SetbacksChanged(const std::vector<GangKey>& keys) {
  for (const GangKey& key : keys) MarkDirty(key);
}

// Those whose signal a new NodeClaim may answer.
std::set<GangKey> Engine::State::GangsAskingFor(const cluster::NodeInfo& info) const {
  std::set<GangKey> asking;
  for (const auto& [key, gang] : gangs) {
    if (!gang.signalled) continue;
    const kube::PodSpec* refused = nullptr;
    for (const std::string& uid : Unplaced(gang)) {
      const kube::Pod& pod = *snapshot.FindPod(uid);
      if (pod.spec.get() == refused) continue;
      refused = pod.spec.get();
      if (cluster::CheckClass(snapshot, pod, info) || cluster::CheckRoom(pod, info)) continue;
      asking.insert(key);
      break;
    }
  }
  return asking;
}

void Engine::State::NoteClaim(const std::string& name) {
  const cluster::NodeInfo* info = snapshot.FindNode(cluster::VirtualName(name));
  if (info == nullptr || info->claim == nullptr) {
    coming_claims.erase(name);
    SetbacksChanged(setbacks.Gone(name, clock));
    return;
  }
  if (MayGo(*info)) {
    coming_claims.try_emplace(name, Never());
  } else {
    coming_claims.erase(name);
  }
  if (!setbacks.Knows(name)) setbacks.MadeFor(name, GangsAskingFor(*info));
  SetbacksChanged(setbacks.See(SightOf(*info), std::max(clock, info->claim->meta.creation_time)));
}

void Engine::State::CountOnNodes(const std::vector<Gang*>& waiting) {
  // Last claim first: where two plans are on the same node, who comes first has it.
  for (auto it = waiting.rbegin(); it != waiting.rend(); ++it) {
    Gang& gang = **it;
    if (gang.facts.backing_off) continue;
    std::set<std::string> claims;
    for (const auto* places : {&gang.fixed, &gang.tentative}) {
      for (const auto& [uid, place] : *places) {
        const cluster::NodeInfo* info = snapshot.FindNode(place);
        if (info != nullptr && info->claim != nullptr) claims.insert(info->claim->meta.name);
      }
    }
    const bool complete =
        gang.coming_suffices || static_cast<int64_t>(gang.fixed.size()) >= gang.required();
    setbacks.CountOn(gang.key, gang.record->admitted_at, claims, complete,
                     CapacityFailedBefore(gang));
  }
}

std::string Engine::State::UsableText(const Gang& gang) const {
  size_t usable = gang.fixed.size();
  for (const auto& [uid, place] : gang.tentative) {
    const cluster::NodeInfo* info = snapshot.FindNode(place);
    usable += info != nullptr && info->UsableNow();
  }
  return fmt::format("{} of {} members have usable nodes; ", usable, gang.unbound.size());
}

std::optional<Reason> Engine::State::SetbackReason(const Gang& gang, absl::Time now,
                                                   bool all) const {
  const std::vector<Setback> list = setbacks.Of(gang.key, Limits(gang), now, all);
  if (list.empty() || list.front().overcome) return std::nullopt;
  return ReasonOf(list.front(), UsableText(gang));
}

// Two gangs that ask at once for more than there may be each see room for themselves; the one that
// comes out short is told by what is left then. Only what is certain counts: a pool that can't be
// judged now, or nodes that somebody else makes, may change it any time.
void Engine::State::ReadLimits(Gang& gang, absl::Time now) {
  const auto required = gang.required() - static_cast<int64_t>(gang.fixed.size());
  gang.missing = required - static_cast<int64_t>(gang.shortfall.placeable);
  gang.makeable = 0;
  bool certain = gang.short_of_nodes && !gang.min_resources_short && gang.missing > 0 &&
                 !IsAssumedFeasible(gang) &&
                 (gang.feasibility == nullptr ||
                  gang.feasibility->verdict == Feasibility::Verdict::kFeasible) &&
                 std::ranges::all_of(node_pools, [](const auto& entry) {
                   return entry.second.ready && entry.second.error.empty();
                 });
  if (certain) {
    std::vector<const kube::Pod*> unplaced;
    for (const std::string& uid : Unplaced(gang)) unplaced.push_back(snapshot.FindPod(uid));
    int64_t within_whole_limits = 0;
    for (const quota::PodSet& set : GroupByPodSet(unplaced, required).required) {
      const Demand demand{set.spec, set.count, 0, ""};
      const auto& types = options.instance_types;
      gang.makeable += Makeable(demand, node_pools, Limits::kRemaining, types, nullptr);
      within_whole_limits += Makeable(demand, node_pools, Limits::kWhole, types, nullptr);
    }
    certain = gang.makeable < gang.missing && within_whole_limits >= gang.missing &&
              std::ranges::none_of(
                  snapshot.nodes(),
                  [&](const auto& entry) {
                    const cluster::NodeInfo& info = entry.second;
                    return info.node->meta.Label(kube::kNodePoolLabel) == nullptr &&
                           !cluster::CheckClass(snapshot, *unplaced.front(), info);
                  });
  }
  if (!certain) {
    gang.limits_reached_since = Never();
  } else if (!IsBeyondLimits(gang)) {
    gang.limits_reached_since = now;
  }
}

bool Engine::State::HoldsNodes(const Gang& gang) const {
  return std::ranges::any_of(gang.tentative,
                             [&](const auto& place) { return !RealNodeOf(place.second).empty(); });
}

Reason Engine::State::LimitReason(const Gang& gang) const {
  return {v1::POOL_LIMIT_REACHED,
          fmt::format("{} of {} members have room, and NodePools can make nodes for {} of the {} "
                      "that are missing within their limits{}",
                      gang.shortfall.placeable, gang.unbound.size(), gang.makeable, gang.missing,
                      gang.signalled ? "" : "; no nodes are asked for now"),
          "raise the limits of the NodePools, or wait until others give nodes back"};
}

Reason Engine::State::WhyGivenUp(const Gang& gang, const Setbacks::Limit& limit,
                                 absl::Time now) const {
  std::optional<Reason> setback = SetbackReason(gang, now, /*all=*/true);
  if (!setback && IsBeyondLimits(gang)) setback = LimitReason(gang);
  Reason why =
      setback.value_or(Reason{v1::DEADLINE_EXCEEDED, ShortfallText(gang),
                              "see the NodePools' and NodeClaims' events for why nodes don't "
                              "come"});
  if (limit.at <= now && limit.at < gang.record->deadline) {
    why.message = fmt::format("a node may take {} to be {}; ", absl::FormatDuration(limit.length),
                              TextOf(limit.stage)) +
                  why.message;
  }
  return why;
}

absl::Duration Engine::State::BackoffAfter(const Gang& gang, const Reason& why) {
  const int64_t doublings = std::min<int64_t>(gang.record->attempt - 1, 20);
  const bool no_capacity = why.code == v1::INSUFFICIENT_CAPACITY;
  const absl::Duration least = no_capacity ? options.capacity_backoff : absl::ZeroDuration();
  const absl::Duration base = std::max(options.backoff_base, least);
  const absl::Duration backoff =
      std::max(least, std::min(base * (int64_t{1} << doublings), options.backoff_max));
  const int64_t jitter = std::uniform_int_distribution<int64_t>(0, 100)(random);
  return backoff + backoff / 1000 * jitter;
}

bool IsSetback(v1::ReasonCode code) {
  return code == v1::NODES_INCOMPLETE || code == v1::INSUFFICIENT_CAPACITY ||
         (code >= v1::LAUNCH_FAILED && code <= v1::NODE_TAKEN_BACK);
}

}  // namespace muster::coscheduling
