// What the gangs that wait know of the nodes that were asked for: who counts on which NodeClaim,
// what went wrong with it (setbacks.h), and when a gang has waited long enough.

#include "coscheduling/provisioning/provisioning.h"

#include <algorithm>
#include <utility>

#include "cluster/predicates.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"
#include "quota/pod_sets.h"

namespace muster::coscheduling {
namespace {

constexpr std::string_view kUnschedulable = "Unschedulable";
// What kube-scheduler itself writes for an error: no provisioner looks at it.
constexpr std::string_view kSchedulerError = "SchedulerError";

bool AsksForNode(const kube::Pod& pod) {
  return pod.scheduled_reason == kUnschedulable && pod.scheduled_status != "True";
}

const char* TextOf(cluster::BringUp stage) {
  switch (stage) {
    case cluster::BringUp::kLaunch:
      return "launched";
    case cluster::BringUp::kRegistration:
      return "registered";
    default:
      return "usable";
  }
}

}  // namespace

std::string ShortfallText(const PlanShortfall& shortfall) {
  constexpr size_t kShown = 3;
  std::string text;
  if (!shortfall.required.empty() && shortfall.domains.empty()) {
    text = fmt::format("no node has label {}", shortfall.required);
  }
  for (size_t i = 0; i < shortfall.domains.size() && i < 2 * kShown; ++i) {
    text += fmt::format("{}{} has room for {}", text.empty() ? "" : ", ",
                        shortfall.domains[i].value, shortfall.domains[i].room);
  }
  for (size_t i = 0; i < shortfall.causes.size() && i < kShown; ++i) {
    const PlanShortfall::Cause& cause = shortfall.causes[i];
    text += fmt::format("{}{} node(s) {}: {}", text.empty() ? "" : "; ", cause.nodes,
                        cluster::TextOf(cause.code), cause.example);
  }
  return text.empty() ? "no node that could take a member" : text;
}

Provisioning::Provisioning(const Owner& owner, const QuotaAdmission& quota,
                           const Placeability& placeability, Placement* placement,
                           MayUseAnotherFlavor may_use_another_flavor)
    : Owner(owner),
      quota_(quota),
      placeability_(placeability),
      placement_(placement),
      may_use_another_flavor_(std::move(may_use_another_flavor)),
      random_(options_.seed) {}

StageLimits Provisioning::LimitsOfStages() const {
  return {options_.launch_deadline, options_.registration_deadline,
          options_.initialization_deadline};
}

bool Provisioning::CapacityFailedBefore(const Gang& gang) const {
  const AdmissionRecord* record = records_.Of(gang);
  return record != nullptr && record->given_up && !record->retry_after &&
         record->given_up->code == v1::INSUFFICIENT_CAPACITY;
}

absl::Duration Provisioning::DeadlineOf(const Gang& gang) const {
  if (gang.group == nullptr || !gang.group->schedule_timeout_seconds) {
    return options_.provisioning_deadline;
  }
  return absl::Seconds(*gang.group->schedule_timeout_seconds);
}

// What was refused to another gang meanwhile isn't asked for by Karpenter before its time is over.
// It is waited for once, so that gangs that come later don't keep this one from ever trying.
absl::Time Provisioning::RetryAt(const Gang& gang) const {
  const AdmissionRecord& record = *records_.Of(gang);
  const absl::Time own = *record.retry_after;
  if (record.TriesAnewAtOnce()) return own;
  const absl::Time known_until = setbacks_.LastRefusal(gang.key) + options_.capacity_backoff;
  return std::clamp(known_until, own, own + options_.capacity_backoff);
}

bool Provisioning::BacksOff(const Gang& gang) const {
  const AdmissionRecord* record = records_.Of(gang);
  if (record == nullptr || !record->retry_after) return false;
  return agenda_->now() < *record->retry_after || agenda_->now() < RetryAt(gang);
}

Placement::Capacity Provisioning::CapacityOf(const Gang& gang) const {
  return {setbacks_.RoomSinceRefusal(gang.key),
          std::max(records_.Of(gang)->deadline, setbacks_.LastRefusal(gang.key)) +
              options_.capacity_backoff};
}

// Where capacity failed the gang before, or where what was ordered with it can be taken back before
// it is up, trying anew later costs less than to hold the others meanwhile.
BringUpLimits Provisioning::LimitsOf(const Gang& gang) const {
  const bool soon = CapacityFailedBefore(gang) || options_.withdraw_nodes;
  return {.stages = LimitsOfStages(),
          .refused = soon ? std::min(options_.refusal_deadline, options_.launch_deadline)
                          : options_.launch_deadline};
}

std::string Provisioning::UsableText(const Gang& gang) const {
  const Places& places = placement_->Of(gang);
  size_t usable = places.fixed.size();
  for (const auto& [uid, place] : places.tentative) {
    const cluster::NodeInfo* info = snapshot_.FindNode(place);
    usable += info != nullptr && info->UsableNow();
  }
  return fmt::format("{} of {} members have usable nodes; ", usable, gang.unbound.size());
}

std::optional<Reason> Provisioning::SetbackReason(const Gang& gang, bool all) const {
  const std::vector<Setback> list = setbacks_.Of(gang.key, LimitsOf(gang), agenda_->now(), all);
  if (list.empty() || list.front().overcome) return std::nullopt;
  return ReasonOf(list.front(), UsableText(gang));
}

std::vector<Setback> Provisioning::SetbacksOf(const Gang& gang) const {
  return setbacks_.Of(gang.key, LimitsOf(gang), agenda_->now());
}

Reason Provisioning::LimitReason(const Gang& gang) const {
  const Part& part = parts_.Of(gang.id);
  return {v1::POOL_LIMIT_REACHED,
          fmt::format("{} of {} members have room, and NodePools can make nodes for {} of the {} "
                      "that are missing within their limits{}",
                      placement_->Of(gang).shortfall.placeable, gang.unbound.size(), part.makeable,
                      part.missing, part.signalled ? "" : "; no nodes are asked for now"),
          "raise the limits of the NodePools, or wait until others give nodes back"};
}

void Provisioning::Note(const std::vector<GangKey>& keys) {
  for (const GangKey& key : keys) {
    if (const Gang* gang = gangs_.Find(key)) agenda_->Note(gang->id);
  }
}

void Provisioning::Observe(const kube::Event& event) {
  Note(setbacks_.Note(event, agenda_->now()));
}

void Provisioning::Observe(const cluster::Journal& journal) {
  for (const auto& [name, entry] : journal.nodes) {
    if (!entry.observed.HasAny(cluster::kOfObjects)) continue;
    const cluster::NodeInfo* info = snapshot_.FindNode(name);
    if (info != nullptr && info->claim != nullptr) NoteClaim(info->claim->meta.name);
  }
}

// Those whose signal a new NodeClaim may answer.
std::set<GangKey> Provisioning::GangsAskingFor(const cluster::NodeInfo& info) const {
  std::set<GangKey> asking;
  for (const auto& [id, part] : parts_) {
    if (!part.signalled) continue;
    const Gang& gang = *gangs_.Find(id);
    const kube::PodSpec* refused = nullptr;
    for (const kube::Pod* pod : placement_->Unplaced(gang)) {
      if (pod->spec.get() == refused) continue;
      refused = pod->spec.get();
      if (cluster::RoomNow(snapshot_, *pod, info) == 0) continue;
      asking.insert(gang.key);
      break;
    }
  }
  return asking;
}

void Provisioning::NoteClaim(const std::string& name) {
  const cluster::NodeInfo* info = snapshot_.FindNode(cluster::VirtualName(name));
  if (info == nullptr || info->claim == nullptr) {
    coming_claims_.erase(name);
    Note(setbacks_.Gone(name, agenda_->now()));
    return;
  }
  if (MayGo(*info)) {
    coming_claims_.try_emplace(name, Never());
  } else {
    coming_claims_.erase(name);
  }
  if (!setbacks_.Knows(name)) setbacks_.MadeFor(name, GangsAskingFor(*info));
  Note(setbacks_.See(cluster::SightOf(*info),
                     std::max(agenda_->now(), info->claim->meta.creation_time)));
}

void Provisioning::CountOn(const std::vector<GangId>& planned) {
  // Last claim first: where two plans are on the same node, who comes first has it.
  for (auto it = planned.rbegin(); it != planned.rend(); ++it) {
    const Gang& gang = *gangs_.Find(*it);
    const Places& places = placement_->Of(gang);
    std::set<std::string> claims;
    for (const PlaceMap* some : {&places.fixed, &places.tentative}) {
      for (const auto& [uid, place] : *some) {
        const cluster::NodeInfo* info = snapshot_.FindNode(place);
        if (info != nullptr && info->claim != nullptr) claims.insert(info->claim->meta.name);
      }
    }
    const bool complete =
        places.coming_suffices || static_cast<int64_t>(places.fixed.size()) >= gang.required();
    Note(setbacks_.CountOn(gang.key, records_.Of(gang)->admitted_at, claims, complete,
                           CapacityFailedBefore(gang)));
  }
}

void Provisioning::Stop(const Gang& gang) {
  setbacks_.Stop(gang.key, LimitsOf(gang), agenda_->now());
}

void Provisioning::Forget(GangId gang, const GangKey& key) {
  parts_.Forget(gang);
  setbacks_.Forget(key);
}

void Provisioning::Signal(const Gang& gang, bool undecided) {
  if (undecided) return;
  Part& part = parts_[gang.id];
  const Places& places = placement_->Of(gang);
  bool before = part.signalled;
  for (const std::string& uid : gang.unbound) {
    const kube::Pod* pod = snapshot_.FindPod(uid);
    before |= !gangs_.MayBeBound(*pod) && AsksForNode(*pod);
  }
  const bool waits =
      gang.state == v1::PROVISIONING || (gang.facts.admitted && !gang.facts.blocked &&
                                         (gang.state == v1::REPAIRING || gang.state == v1::BOUND));
  const bool want = waits && !placement_->Unplaced(gang).empty() && places.awaits.empty() &&
                    (before || (places.short_of_nodes && !IsBeyondLimits(gang)));
  if (want && !part.signalled && !NobodyMakesNodes(gang)) {
    placement_->KeepPartialUntil(gang.id, agenda_->now() + options_.signal_grace);
    agenda_->Note(gang.id);  // its deadline runs from now on
  }
  part.signalled = want;
  const bool leave_alone = gang.state == v1::READY || gang.state == v1::BINDING;
  for (const std::string& uid : gang.unbound) {
    const kube::Pod* pod = snapshot_.FindPod(uid);
    const bool placed = places.fixed.contains(uid);
    const bool asks = want && !placed && quota_.MayBePlaced(gang, uid);
    if (asks == AsksForNode(*pod) || (!asks && (placed || leave_alone))) continue;
    const std::string_view taken_back =
        IsGatedByUs(*pod) ? kube::kSchedulingGated : kSchedulerError;
    outbox_->Act(gang.id, "signal/" + uid,
                 SignalPod{RefOf(*pod), std::string(asks ? kUnschedulable : taken_back),
                           fmt::format("gang {} {}", gang.key.ToString(),
                                       asks ? "waits for nodes for all of its members"
                                            : "doesn't ask for nodes now")});
  }
}

// Two gangs that ask at once for more than there may be each see room for themselves; the one that
// comes out short is told by what is left then. Only what is certain counts: a pool that can't be
// judged now, or nodes that somebody else makes, may change it any time.
void Provisioning::ReadLimits(const Gang& gang) {
  Part& part = parts_[gang.id];
  const Places& places = placement_->Of(gang);
  const auto required = gang.required() - static_cast<int64_t>(places.fixed.size());
  part.missing = required - static_cast<int64_t>(places.shortfall.placeable);
  part.makeable = 0;
  const Feasibility* feasibility = placeability_.Of(gang);
  bool certain =
      places.short_of_nodes && !places.min_resources_short && part.missing > 0 &&
      !placeability_.IsAssumedFeasible(gang) &&
      (feasibility == nullptr || feasibility->verdict == Feasibility::Verdict::kFeasible) &&
      std::ranges::all_of(placeability_.pools(), [](const auto& entry) {
        return entry.second.ready && entry.second.error.empty();
      });
  if (certain) {
    const std::vector<const kube::Pod*> unplaced = placement_->Unplaced(gang);
    int64_t within_whole_limits = 0;
    for (const quota::PodSet& set : quota::GroupByPodSet(unplaced, required).required) {
      part.makeable += placeability_.MakeableOf(set, cluster::PoolLimits::kRemaining);
      within_whole_limits += placeability_.MakeableOf(set, cluster::PoolLimits::kWhole);
    }
    certain = part.makeable < part.missing && within_whole_limits >= part.missing &&
              std::ranges::none_of(
                  snapshot_.nodes(),
                  [&](const auto& entry) {
                    const cluster::NodeInfo& info = entry.second;
                    return info.node->meta.Label(kube::kNodePoolLabel) == nullptr &&
                           !cluster::CheckClass(snapshot_, *unplaced.front(), info);
                  });
  }
  if (!certain) {
    part.limits_reached_since = Never();
  } else if (part.limits_reached_since == Never()) {
    part.limits_reached_since = agenda_->now();
  }
}

bool Provisioning::HoldsNodes(const Gang& gang) const {
  return std::ranges::any_of(placement_->Of(gang).tentative, [&](const auto& place) {
    return snapshot_.FindNodeObject(place.second) != nullptr;
  });
}

bool Provisioning::NobodyMakesNodes(const Gang& gang) const {
  return placeability_.pools().empty() && !placeability_.IsAssumedFeasible(gang);
}

// Of so many of its members, for whom there are no nodes.
bool Provisioning::CanBeMade(const Gang& gang, int64_t members) const {
  const auto placeable = static_cast<int64_t>(placement_->Of(gang).shortfall.placeable);
  return std::ranges::none_of(quota::GroupByPodSet(placement_->Unplaced(gang), members).required,
                              [&](const quota::PodSet& set) {
                                return placeability_.MakeableOf(set,
                                                                cluster::PoolLimits::kRemaining) <
                                       set.count - placeable;
                              });
}

bool Provisioning::MayBuy(const Gang& gang) const {
  const AdmissionRecord* record = records_.Of(gang);
  if (NobodyMakesNodes(gang) || (record != nullptr && record->given_up)) return false;
  const auto placed = static_cast<int64_t>(placement_->Of(gang).fixed.size());
  return placeability_.pools().empty() || CanBeMade(gang, gang.required() - placed);
}

// Quota is held for nodes that aren't there, nor coming, and that no NodePool can make.
bool Provisioning::HoldsUselessly(const Gang& gang) const {
  const Places& places = placement_->Of(gang);
  if (!quota_.Holds(gang) || !places.short_of_nodes) return false;
  if (NobodyMakesNodes(gang)) return true;
  if (placeability_.pools().empty()) return false;
  return !CanBeMade(gang, static_cast<int64_t>(placement_->Unplaced(gang).size()));
}

// Somebody who could make nodes was asked, or has begun to.
bool Provisioning::IsBeingMade(const Gang& gang) const {
  return placement_->Of(gang).coming_suffices ||
         (!NobodyMakesNodes(gang) && parts_.Of(gang.id).signalled);
}

// A deadline runs while nodes are being made, or while quota is kept from others for nodes that
// could be: a gang that waits for room that nobody makes just waits in the list. Where making began
// later than the attempt, so does the deadline.
absl::Time Provisioning::DeadlineNow(const Gang& gang) {
  Part& part = parts_[gang.id];
  const absl::Time deadline = records_.Of(gang)->deadline;
  if (!IsBeingMade(gang) && (NobodyMakesNodes(gang) || !quota_.Holds(gang))) {
    if (agenda_->now() >= deadline) part.making_since = Never();
    return Never();
  }
  if (part.making_since == Never()) part.making_since = agenda_->now();
  return std::max(deadline, part.making_since + DeadlineOf(gang));
}

std::optional<Provisioning::Verdict> Provisioning::DecideDeadline(const Gang& gang, bool posted) {
  Part& part = parts_[gang.id];
  const absl::Time now = agenda_->now();
  const bool provisioning =
      gang.facts.admitted && !gang.facts.blocked && gang.bound.empty() && !posted &&
      gang.facts.live > 0 &&
      static_cast<int64_t>(placement_->Of(gang).fixed.size()) < gang.required();
  if (!provisioning) {
    part.limits_reached_since = Never();
    part.making_since = absl::InfinitePast();
    return std::nullopt;
  }
  ReadLimits(gang);
  placement_->SetBeingMade(gang, MayBuy(gang));
  const AdmissionRecord& record = *records_.Of(gang);
  const absl::Time whole = DeadlineNow(gang);
  absl::Time deadline = whole;
  const Setbacks::Limit limit = setbacks_.NextLimit(gang.key, LimitsOf(gang));
  // Nodes that complete nobody are given back, once none of them may still change.
  if (IsBeyondLimits(gang) && HoldsNodes(gang) && limit.at == Never()) {
    deadline = std::min(deadline, part.limits_reached_since + options_.unplaceable_grace);
  }
  if (HoldsUselessly(gang)) {
    // Quota is kept without room only by the gang that is to have the next.
    if (!NobodyMakesNodes(gang) || may_use_another_flavor_(gang)) {
      deadline = std::min(deadline, record.admitted_at + options_.unplaceable_grace);
    } else if (!placement_->IsHead(gang)) {
      return Verdict{{}, std::nullopt};
    }
  }
  deadline = std::min(deadline, limit.at);
  if (now < deadline) {
    agenda_->NoteAt(gang.id, deadline);
    if (part.next_late <= now) agenda_->Show(gang.id);
    part.next_late = setbacks_.NextLate(gang.key, LimitsOf(gang), now);
    agenda_->NoteAt(gang.id, part.next_late);
    return std::nullopt;
  }
  Reason why = WhyGivenUp(gang, limit, whole);
  const absl::Duration pause = PauseAfter(gang, why);
  return Verdict{std::move(why), pause};
}

Reason Provisioning::WhyGivenUp(const Gang& gang, const Setbacks::Limit& limit,
                                absl::Time deadline) const {
  std::optional<Reason> setback = SetbackReason(gang, /*all=*/true);
  if (!setback && IsBeyondLimits(gang)) setback = LimitReason(gang);
  Reason why = setback.value_or(
      Reason{v1::DEADLINE_EXCEEDED, ShortfallText(placement_->Of(gang).shortfall),
             "see the NodePools' and NodeClaims' events for why nodes don't come"});
  if (limit.at <= agenda_->now() && limit.at < deadline) {
    why.message = fmt::format("a node may take {} to be {}; ", absl::FormatDuration(limit.length),
                              TextOf(limit.stage)) +
                  why.message;
  }
  return why;
}

absl::Duration Provisioning::PauseAfter(const Gang& gang, const Reason& why) {
  const int64_t doublings = std::min<int64_t>(records_.Of(gang)->attempt - 1, 20);
  const bool no_capacity = why.code == v1::INSUFFICIENT_CAPACITY;
  const absl::Duration least = no_capacity ? options_.capacity_backoff : absl::ZeroDuration();
  const absl::Duration base = std::max(options_.backoff_base, least);
  const absl::Duration backoff =
      std::max(least, std::min(base * (int64_t{1} << doublings), options_.backoff_max));
  const int64_t jitter = std::uniform_int_distribution<int64_t>(0, 100)(random_);
  return backoff + backoff / 1000 * jitter;
}

bool IsSetback(v1::ReasonCode code) { return KindOf(code).code == code; }

}  // namespace muster::coscheduling
