// What a gang's state is and why, told everywhere: PodGroup status, events, filter answers, log.

#include <algorithm>
#include <utility>

#include "coscheduling/engine_state.h"
#include "fmt/format.h"

namespace muster::coscheduling {
namespace {

// PodGroup status is written at most this often per gang, except when the state changes.
constexpr absl::Duration kStatusInterval = absl::Seconds(1);

const char* CauseText(cluster::RejectionCode code) {
  switch (code) {
    case cluster::RejectionCode::kNotUsable:
      return "not usable yet";
    case cluster::RejectionCode::kUnschedulable:
      return "unschedulable";
    case cluster::RejectionCode::kUntoleratedTaint:
      return "untolerated taint";
    case cluster::RejectionCode::kNodeSelector:
      return "nodeSelector or node affinity doesn't match";
    case cluster::RejectionCode::kResources:
      return "not enough free";
    case cluster::RejectionCode::kHostPorts:
      return "host port taken";
    case cluster::RejectionCode::kVolume:
      return "volume can't be reached";
    case cluster::RejectionCode::kPodAffinity:
      return "pod affinity not met";
    case cluster::RejectionCode::kPodAntiAffinity:
    case cluster::RejectionCode::kExistingAntiAffinity:
      return "pod anti-affinity";
    case cluster::RejectionCode::kTopologySpread:
      return "topology spread";
    case cluster::RejectionCode::kExcluded:
      return "left out after a fault";
  }
  return "";
}

// scheduler-plugins' words (apis/scheduling/v1alpha1/types.go v0.33.5).
std::string PhaseOf(const Gang& gang) {
  switch (gang.state) {
    case v1::FINISHED:
      return gang.facts.succeeded >= gang.facts.min_member ? "Finished" : "Failed";
    case v1::BOUND:
      return gang.running + gang.facts.succeeded >= gang.facts.min_member ? "Running"
                                                                          : "Scheduling";
    case v1::PROVISIONING:
    case v1::READY:
    case v1::BINDING:
      return "Scheduling";
    case v1::REPAIRING:
      return "Unknown";
    default:
      return "Pending";
  }
}

std::string OccupiedBy(const kube::Pod& pod) {
  const kube::OwnerReference* owner = pod.meta.Controller();
  return owner == nullptr ? "" : pod.meta.name_space + "/" + owner->name;
}

// As it was written down, so that it stays as it is whatever happens meanwhile; only the next
// attempt comes later where others are refused the same.
Reason BackoffReason(const AdmissionRecord& record, absl::Time retry_at) {
  Reason why = record.given_up.value_or(Reason{v1::DEADLINE_EXCEEDED, "", ""});
  const absl::Duration waited = record.deadline - record.admitted_at;
  why.message = fmt::format(
      "nodes for all members didn't come within {} (attempt {}){}{}; next "
      "attempt at {}",
      absl::FormatDuration(absl::Trunc(waited + absl::Milliseconds(500), absl::Seconds(1))),
      record.attempt, why.message.empty() ? "" : ": ", why.message, Clock(retry_at));
  return why;
}

bool SameCounts(const UpdatePodGroupStatus& want, const kube::PodGroup::Status& have) {
  return want.phase == have.phase && want.running == have.running &&
         want.succeeded == have.succeeded && want.failed == have.failed;
}

}  // namespace

std::string Engine::State::NodeLabelFor(const std::string& place) const {
  const cluster::NodeInfo* info = snapshot.FindNode(place);
  if (info == nullptr) return place;
  const std::string& message = info->readiness.message;
  return message.empty() ? info->name() : fmt::format("{} ({})", info->name(), message);
}

std::string Engine::State::ShortfallText(const Gang& gang) const {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < gang.shortfall.causes.size() && i < kShown; ++i) {
    const PlanShortfall::Cause& cause = gang.shortfall.causes[i];
    text += fmt::format("{}{} node(s) {}: {}", text.empty() ? "" : "; ", cause.nodes,
                        CauseText(cause.code), cause.example);
  }
  return text.empty() ? "no node that could take a member" : text;
}

Reason Engine::State::ComingReason(const Gang& gang) const {
  std::set<std::string> places;
  for (const auto& [uid, place] : gang.tentative) places.insert(place);
  constexpr size_t kShown = 4;
  size_t usable = 0;
  size_t waiting = 0;
  std::string waiting_for;
  for (const std::string& place : places) {
    const cluster::NodeInfo* info = snapshot.FindNode(place);
    if (info == nullptr) continue;
    if (info->UsableNow()) {
      ++usable;
      continue;
    }
    if (++waiting > kShown) continue;
    waiting_for += fmt::format("{}{}", waiting_for.empty() ? "" : "; ", NodeLabelFor(place));
  }
  if (waiting > kShown) waiting_for += fmt::format("; and {} more", waiting - kShown);
  return {v1::NODES_COMING,
          fmt::format("{} of {} nodes usable; waiting for {}", usable, places.size(), waiting_for),
          ""};
}

Reason Engine::State::ProvisioningReason(const Gang& gang) const {
  if (HoldsQuota(gang)) {
    const auto lacking = std::ranges::count_if(gang.unbound, [&](const std::string& uid) {
      return !gang.quota.uncounted.contains(uid) && !MayBePlaced(gang, uid);
    });
    if (lacking > 0) {
      const std::string& error = gang.quota.flavors_error;
      return {v1::FLAVORS_PENDING,
              fmt::format("{} members are being given the nodeSelector and tolerations of their "
                          "flavors{}{}",
                          lacking, error.empty() ? "" : "; the last attempt failed: ", error),
              ""};
    }
  }
  if (gang.min_resources_short) {
    return {v1::MIN_RESOURCES_SHORT,
            fmt::format("spec.minResources asks for {} to be free in the cluster",
                        gang.group->min_resources->ToString()),
            "lower spec.minResources, or wait for capacity"};
  }
  std::optional<Reason> setback = SetbackReason(gang, clock, /*all=*/false);
  if (gang.coming_suffices) return setback ? *std::move(setback) : ComingReason(gang);
  if (setback) return *std::move(setback);
  if (IsBeyondLimits(gang)) return LimitReason(gang);
  Reason reason = {
      v1::CAPACITY_SHORT,
      fmt::format("{} of {} members have room{}: {}", gang.shortfall.placeable, gang.unbound.size(),
                  gang.signalled ? "; nodes were asked for" : "", ShortfallText(gang)),
      ""};
  AddSuspects(gang, &reason);
  if (gang.feasibility != nullptr && gang.feasibility->reason.code != v1::REASON_UNSPECIFIED) {
    reason.message += "; as far as is known, " + gang.feasibility->reason.message;
    reason.fix = gang.feasibility->reason.fix;
  }
  return reason;
}

Reason Engine::State::ReadyReason(const Gang& gang) const {
  size_t gated = 0;
  for (const auto& [uid, node] : gang.fixed) gated += IsGatedByUs(*snapshot.FindPod(uid));
  const std::string all = fmt::format("{} members have places on usable nodes", gang.fixed.size());
  if (gated > 0) {
    return {v1::GATES_LIFTING, fmt::format("{}; {} gates are being lifted", all, gated), ""};
  }
  if (AwaitsPreBind(gang)) {
    return {v1::WAITING_FOR_VOLUMES, all + "; waiting for kube-scheduler to bind volumes", ""};
  }
  if (!gang.refused_nodes.left_out().empty()) {
    return {v1::PLAN_REFUSED,
            fmt::format("{}; kube-scheduler refused {}", all,
                        gang.refused_nodes.left_out().begin()->first),
            ""};
  }
  return {v1::WAITING_FOR_SCHEDULER, all + "; waiting for kube-scheduler to ask for the bindings",
          ""};
}

Reason Engine::State::ReasonFor(const Gang& gang) const {
  const int64_t standing = gang.facts.bound + gang.facts.succeeded;
  const int64_t min = gang.facts.min_member;
  switch (gang.state) {
    case v1::WAITING_FOR_MEMBERS: {
      if (!gang.facts.blocked) {
        if (!gang.record_error.empty()) {
          return {v1::RECORD_FAILED, "the admission record is refused: " + gang.record_error,
                  "check muster's permission to patch podgroups"};
        }
        return {v1::RECORD_PENDING, "the admission record is being written", ""};
      }
      Reason reason = gang.blocker;
      const bool ungated = std::ranges::any_of(gang.unbound, [&](const std::string& uid) {
        return !IsGatedByUs(*snapshot.FindPod(uid));
      });
      if (ungated && !gating_active) {
        reason.message +=
            "; members are not gated, because the admission webhook isn't in place, so a "
            "provisioner may act on them already";
      }
      return reason;
    }
    case v1::WAITING_FOR_QUOTA:
      return QuotaReason(gang);
    case v1::INFEASIBLE:
      return gang.feasibility->reason;
    case v1::PROVISIONING:
      return ProvisioningReason(gang);
    case v1::READY:
      return ReadyReason(gang);
    case v1::BINDING:
      return {gang.binding_error.empty() ? v1::BINDINGS_POSTED : v1::BINDING_FAILED,
              fmt::format("{} of {} members bound{}{}", standing, min,
                          gang.binding_error.empty() ? "" : "; ", gang.binding_error),
              ""};
    case v1::BOUND:
      if (std::optional<Reason> risk = RiskReason(gang)) return *std::move(risk);
      if (!gang.unbound.empty()) {
        return {
            v1::SURPLUS_WAITING,
            fmt::format("{} members bound (spec.minMember {}); {} more wait for {}", standing, min,
                        gang.unbound.size(), gang.quota.uncounted.empty() ? "room" : "quota"),
            ""};
      }
      return {v1::ALL_BOUND, fmt::format("{} of {} members bound", standing, min), ""};
    case v1::REPAIRING:
      return RepairReason(gang);
    case v1::BACKING_OFF:
      return WithFallback(gang, BackoffReason(*gang.record, RetryAt(gang)));
    case v1::FINISHED: {
      const bool succeeded = gang.facts.succeeded >= min;
      return {
          succeeded ? v1::GANG_SUCCEEDED : v1::GANG_FAILED,
          fmt::format("{} members succeeded, {} failed", gang.facts.succeeded, gang.facts.failed),
          ""};
    }
    default:
      return {};
  }
}

void Engine::State::EnterState(Gang& gang, absl::Time now) {
  gang.facts.planned =
      static_cast<int64_t>(gang.fixed.size()) >= std::max<int64_t>(1, gang.required());
  gang.facts.committing = gang.commit_started || !gang.posted.empty();
  const v1::GangState before = gang.state;
  gang.state = NextState(gang.facts);
  const bool entered = gang.state != before;
  if (entered) {
    if (before != v1::GANG_STATE_UNSPECIFIED) {
      stats.state_times.emplace_back(before, now - gang.state_since);
    }
    gang.state_since = now;
    gang.repairing_since = Never();
    if (gang.state == v1::BOUND) {
      ForgetLosses(gang);
      gang.binding_error.clear();
      setbacks.Forget(gang.key);
      NoteBindLatency(gang, now);
    }
  }
  if (gang.facts.bound == 0) {
    gang.repairing_since = Never();  // nothing of it could hang
  } else if (gang.state == v1::REPAIRING && gang.repairing_since == Never()) {
    // A process before this one may have noted it.
    const bool noted = before == v1::GANG_STATE_UNSPECIFIED && gang.record;
    gang.repairing_since = noted ? gang.record->repairing_since.value_or(now) : now;
  }
  Reason reason = ReasonFor(gang);
  if (!entered && reason == gang.reason) return;
  const bool told = entered || reason.code != gang.reason.code;
  gang.reason = std::move(reason);
  gang.stale = true;
  if (!told) return;
  out->notes.push_back({gang.key, gang.state, gang.reason.code, gang.reason.message});
  const bool warning = gang.state == v1::BACKING_OFF || gang.state == v1::REPAIRING ||
                       gang.state == v1::INFEASIBLE || IsSetback(gang.reason.code) ||
                       gang.reason.code == v1::GANG_FAILED ||
                       gang.reason.code == v1::RECORD_FAILED ||
                       gang.reason.code == v1::PODS_REFUSED ||
                       gang.reason.code == v1::NODE_NOT_READY || gang.reason.code == v1::NODE_GOING;
  Tell(EmitEvent{gang.key.is_pod ? "Pod" : "PodGroup", gang.key.name_space, gang.key.name,
                 gang.uid(), warning, CamelCase(v1::ReasonCode_Name(gang.reason.code)),
                 gang.reason.message});
  // Where a user looks first is the pod. It is told what its gang waits for, once per reason.
  const bool waits = gang.state == v1::WAITING_FOR_MEMBERS || gang.state == v1::WAITING_FOR_QUOTA ||
                     gang.state == v1::PROVISIONING || gang.state == v1::BACKING_OFF ||
                     gang.state == v1::INFEASIBLE;
  if (gang.key.is_pod || !waits || gang.unbound.empty()) return;
  const kube::Pod* first = snapshot.FindPod(gang.unbound.front());
  Tell(EmitEvent{"Pod", first->meta.name_space, first->meta.name, first->meta.uid, warning,
                 CamelCase(v1::ReasonCode_Name(gang.reason.code)),
                 fmt::format("gang {}: {}", gang.key.ToString(), gang.reason.message)});
}

void Engine::State::NoteBindLatency(Gang& gang, absl::Time now) {
  if (gang.bound_at && *gang.bound_at == gang.state_since) return;
  gang.bound_at = now;
  ++stats.gangs_bound;
  if (!gang.record) return;
  absl::Time last = gang.record->admitted_at;
  for (const std::string& uid : gang.bound) {
    auto it = usable_since.find(snapshot.FindPod(uid)->node_name);
    if (it != usable_since.end()) last = std::max(last, it->second);
  }
  stats.bind_latencies.push_back(now - last);
}

void Engine::State::WriteStatus(Gang& gang, absl::Time now) {
  if (gang.group == nullptr || gang.pods.empty()) return;
  const kube::PodGroup::Status& have = gang.group->status;
  UpdatePodGroupStatus want;
  want.name_space = gang.key.name_space;
  want.name = gang.key.name;
  want.uid = gang.group->meta.uid;
  want.phase = PhaseOf(gang);
  want.scheduled = gang.facts.bound + gang.facts.lost + gang.facts.succeeded;
  want.running = gang.running;
  want.succeeded = gang.facts.succeeded;
  want.failed = gang.facts.failed;
  if (gang.record) want.schedule_start_time = gang.record->admitted_at;
  want.occupied_by = OccupiedBy(*snapshot.FindPod(*gang.pods.begin()));
  want.admitted = gang.facts.admitted || gang.state == v1::BOUND || gang.state == v1::FINISHED;
  want.reason = CamelCase(v1::ReasonCode_Name(gang.reason.code));
  want.message = gang.reason.message;
  want.since = gang.state_since;
  std::string digest = fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}", want.phase, want.scheduled,
                                   want.running, want.succeeded, want.failed, want.admitted,
                                   want.reason, want.message, want.occupied_by);
  // A CRD without our fields prunes them, so what was written says more than what is there.
  if (digest == gang.status_digest && SameCounts(want, have)) return;
  // The record's write names the version of the PodGroup that this one would replace. Its end
  // brings the gang back here.
  if (in_flight.IsUnderWay("record/" + want.uid)) return;
  const absl::Time due = gang.status_written + kStatusInterval;
  if (now < due && gang.state == gang.status_state) {
    gang.dirty = true;  // or a settled gang would sleep over it
    WakeAt(due);
    return;
  }
  const GangKey key = gang.key;
  const std::string slot = "status/" + want.uid;  // before `want` is moved from
  const bool started =
      Act(slot, now, std::move(want), [this, key](const absl::Status& status, absl::Time) {
        auto it = gangs.find(key);
        if (it == gangs.end()) return;
        if (!status.ok()) it->second.status_digest.clear();
        it->second.dirty = true;
      });
  if (!started) {
    gang.dirty = true;
    return;
  }
  gang.status_digest = std::move(digest);
  gang.status_written = now;
  gang.status_state = gang.state;
}

void Engine::State::PublishAnswer(const std::string& uid, FilterAnswer answer, StepOutput* output) {
  auto [it, inserted] = answers.try_emplace(uid);
  if (!inserted && it->second == answer) return;
  it->second = answer;
  output->filter_answers.emplace_back(uid, std::move(answer));
}

void Engine::State::AnswerFilters(const Gang& gang, StepOutput* output) {
  for (const std::string& uid : gang.unbound) {
    auto fixed = gang.fixed.find(uid);
    if (fixed != gang.fixed.end()) {
      PublishAnswer(uid, {FilterAnswer::Kind::kPlanned, fixed->second, ""}, output);
      continue;
    }
    PublishAnswer(
        uid,
        {gang.signalled ? FilterAnswer::Kind::kUnresolvable : FilterAnswer::Kind::kHold, "",
         fmt::format("gang {} is {}: {}", gang.key.ToString(), v1::GangState_Name(gang.state),
                     gang.reason.message)},
        output);
  }
  for (const std::string& uid : gang.bound) {
    if (answers.erase(uid) > 0) output->filter_answers.emplace_back(uid, std::nullopt);
  }
}

}  // namespace muster::coscheduling
