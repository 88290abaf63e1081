// From facts and places to actions: what should be done next for one gang.

#include <algorithm>
#include <utility>

#include "coscheduling/engine_state.h"
#include "coscheduling/gangs/pod_sets.h"
#include "fmt/format.h"
#include "kube/objects/time_text.h"

namespace muster::coscheduling {
namespace {

// A binding that was accepted and isn't seen after this is asked for again; the API server's answer
// then says where the pod stands.
constexpr absl::Duration kReadBack = absl::Seconds(5);
// A node on which this many bindings in a row failed is left out for the gang.
constexpr int kBindingAttempts = 5;

constexpr std::string_view kUnschedulable = "Unschedulable";
constexpr std::string_view kSchedulingGated = "SchedulingGated";
// What kube-scheduler itself writes for an error: no provisioner looks at it.
constexpr std::string_view kSchedulerError = "SchedulerError";

bool IsSignalled(const kube::Pod& pod) {
  return pod.scheduled_reason == kUnschedulable && pod.scheduled_status != "True";
}

}  // namespace

void Engine::State::Decide(Gang& gang, absl::Time now) {
  if (!gang.ours) {
    gang.dirty = false;
    return;
  }
  gang.dirty = false;
  acted = false;
  DecideDeadline(gang, now);
  DecideEviction(gang, now);
  DecideFallback(gang, now);
  EnterState(gang, now);
  DecideFlavors(gang, now);
  DecideSignals(gang, now);
  DecideGates(gang, now);
  AnswerBinds(gang, now);
  DecideCommit(gang, now);
  DecideRepair(gang, now);
  NoteBound(gang, now);
  NoteRepair(gang, now);
  EnterState(gang, now);
  WriteStatus(gang, now);
  AnswerFilters(gang, out);
  const bool waits =
      gang.state == v1::INFEASIBLE || (gang.state == v1::WAITING_FOR_QUOTA && gang.quota.Waits());
  gang.awaits_writes = AwaitsWrites(gang);
  gang.at_rest = (waits && !acted) || gang.awaits_writes;
}

// All that it waits for is being written, and the end of each write makes it dirty.
bool Engine::State::AwaitsWrites(const Gang& gang) const {
  if (gang.state == v1::WAITING_FOR_QUOTA) {
    return gang.group != nullptr && gang.quota.granted &&
           in_flight.IsUnderWay("record/" + gang.group->meta.uid);
  }
  return gang.state == v1::PROVISIONING && gang.reason.code == v1::FLAVORS_PENDING &&
         !WaitsForPlace(gang) && std::ranges::all_of(gang.unbound, [&](const std::string& uid) {
           return gang.quota.uncounted.contains(uid) || MayBePlaced(gang, uid) ||
                  in_flight.IsUnderWay("flavors/" + uid);
         });
}

void Engine::State::DecideDeadline(Gang& gang, absl::Time now) {
  const bool provisioning = gang.facts.admitted && !gang.facts.blocked && gang.bound.empty() &&
                            gang.posted.empty() && gang.facts.live > 0 &&
                            static_cast<int64_t>(gang.fixed.size()) < gang.required();
  if (!provisioning) {
    gang.limits_reached_since = Never();
    return;
  }
  ReadLimits(gang, now);
  absl::Time deadline = gang.record->deadline;
  const Setbacks::Limit limit = setbacks.NextLimit(gang.key, Limits(gang));
  // Nodes that complete nobody are given back, once none of them may still change.
  if (IsBeyondLimits(gang) && HoldsNodes(gang) && limit.at == Never()) {
    deadline = std::min(deadline, gang.limits_reached_since + options.unplaceable_grace);
  }
  if (HoldsUselessly(gang)) {
    deadline = std::min(deadline, gang.record->admitted_at + options.unplaceable_grace);
  }
  deadline = std::min(deadline, limit.at);
  if (now < deadline) {
    WakeAt(deadline);
    gang.stale |= gang.next_late <= now;
    gang.next_late = setbacks.NextLate(gang.key, Limits(gang), now);
    WakeAt(gang.next_late);
    return;
  }
  ++stats.gangs_backed_off;
  Reason why = WhyGivenUp(gang, limit, now);
  const absl::Duration backoff = BackoffAfter(gang, why);
  GiveUp(gang, now + backoff, now, std::move(why));
}

void Engine::State::GiveUp(Gang& gang, absl::Time retry_after, absl::Time now,
                           std::optional<Reason> why) {
  AdmissionRecord record = *gang.record;
  record.given_up = std::move(why);
  record.retry_after = retry_after;
  record.deadline = now;
  if (record.quota) {
    for (const quota::PodSetAssignment& given : record.quota->pod_sets) {
      // As long again as it backs off.
      for (const std::string& name : FlavorNames(given)) {
        record.flavors_tried[name] = retry_after + (retry_after - now);
      }
    }
    record.quota.reset();
    record.queue.clear();
  }
  for (const std::string& name : FlavorsOfKueue(gang)) {
    record.flavors_tried[name] = retry_after + (retry_after - now);
  }
  NoteFallback(gang, &record, now);
  WriteRecord(gang, record, now);
  if (gang.group == nullptr) DropTentative(gang);
}

// Quota is held for nodes that aren't there, nor coming, and that no NodePool can make.
bool Engine::State::HoldsUselessly(const Gang& gang) const {
  if (!HoldsQuota(gang) || !gang.short_of_nodes) return false;
  if (node_pools.empty()) return false;
  std::vector<const kube::Pod*> unplaced;
  for (const std::string& uid : Unplaced(gang)) unplaced.push_back(snapshot.FindPod(uid));
  const auto all = static_cast<int64_t>(unplaced.size());
  const auto placeable = static_cast<int64_t>(gang.shortfall.placeable);
  return std::ranges::any_of(GroupByPodSet(unplaced, all).required, [&](const quota::PodSet& set) {
    return Makeable({set.spec, set.count, 0, ""}, node_pools, Limits::kRemaining,
                    options.instance_types, nullptr) < set.count - placeable;
  });
}

void Engine::State::DecideSignals(Gang& gang, absl::Time now) {
  if (IsUndecided(gang)) return;
  bool signalled_before = gang.signalled;
  for (const std::string& uid : gang.unbound) {
    const kube::Pod* pod = snapshot.FindPod(uid);
    signalled_before |= IsGatedByUs(*pod) && IsSignalled(*pod);
  }
  const bool waits =
      gang.state == v1::PROVISIONING || (gang.facts.admitted && !gang.facts.blocked &&
                                         (gang.state == v1::REPAIRING || gang.state == v1::BOUND));
  const bool want = waits && !Unplaced(gang).empty() &&
                    (signalled_before || (gang.short_of_nodes && !IsBeyondLimits(gang)));
  if (want && !gang.signalled) gang.signalled_at = now;
  gang.signalled = want;
  const bool leave_alone = gang.state == v1::READY || gang.state == v1::BINDING;
  for (const std::string& uid : gang.unbound) {
    const kube::Pod* pod = snapshot.FindPod(uid);
    const bool placed = gang.fixed.contains(uid);
    const bool asks = want && !placed && MayBePlaced(gang, uid);
    if (asks && !IsSignalled(*pod)) {
      Act("signal/" + uid, now,
          SignalPod{
              RefOf(*pod), std::string(kUnschedulable),
              fmt::format("gang {} waits for nodes for all of its members", gang.key.ToString())});
    } else if (!asks && !placed && !leave_alone && IsSignalled(*pod)) {
      Act("signal/" + uid, now,
          SignalPod{RefOf(*pod),
                    std::string(IsGatedByUs(*pod) ? kSchedulingGated : kSchedulerError),
                    fmt::format("gang {} doesn't ask for nodes now", gang.key.ToString())});
    }
  }
}

void Engine::State::DecideGates(Gang& gang, absl::Time now) {
  if (!gang.facts.planned && gang.required() > 0) return;
  for (const auto& [uid, node] : gang.fixed) {
    const kube::Pod* pod = snapshot.FindPod(uid);
    if (IsGatedByUs(*pod)) Act("lift/" + uid, now, LiftGate{RefOf(*pod)});
  }
}

bool Engine::State::NeedsPreBind(const kube::Pod& pod) const {
  if (pod.spec->uses_resource_claims) return true;
  return std::ranges::any_of(pod.spec->persistent_volume_claims, [&](const std::string& name) {
    const kube::PersistentVolumeClaim* claim =
        snapshot.FindPersistentVolumeClaim(pod.meta.name_space + "/" + name);
    return claim == nullptr || !claim->bound;
  });
}

// kube-scheduler binds volumes and claims before it calls the extender's bind verb, so a member
// that has some may only be bound once its own call has come.
bool Engine::State::AwaitsPreBind(const Gang& gang) const {
  return std::ranges::any_of(gang.fixed, [&](const auto& place) {
    return NeedsPreBind(*snapshot.FindPod(place.first)) && !held_binds.contains(place.first);
  });
}

// The plan once more, on one fresh snapshot, as if nothing of it were assumed.
bool Engine::State::PlanHolds(Gang& gang) {
  std::vector<std::string> uids;
  std::map<std::string, std::string> places;
  for (const auto& [uid, node] : gang.fixed) {
    if (IsCommitted(gang, uid)) continue;
    uids.push_back(uid);
    places.emplace(uid, node);
    snapshot.Forget(uid);
  }
  PlanRequest request = RequestFor(gang, uids);
  auto broken = FirstBroken(snapshot, request, places);
  if (!broken) {
    for (const auto& [uid, node] : places) {
      if (!snapshot.Assume(uid, node).ok()) broken.emplace(uid, cluster::Rejection{});
    }
  }
  if (!broken) return true;
  for (const std::string& uid : uids) {
    snapshot.Forget(uid);
    gang.fixed.erase(uid);
  }
  gang.binding_error = fmt::format("{} on {}: {}", snapshot.FindPod(broken->first)->meta.name,
                                   places[broken->first], broken->second.detail);
  return false;
}

bool Engine::State::StandsInEpoch(const Gang& gang, const kube::Pod& pod) const {
  if (!gang.record || gang.record->epoch <= 1) return true;
  const std::string* epoch = pod.meta.Annotation(kEpochAnnotation);
  return epoch != nullptr && *epoch == std::to_string(gang.record->epoch);
}

void Engine::State::WakeMembers(Gang& gang, absl::Time now) {
  const absl::Time due = std::max(gang.state_since, gang.woken_at) + options.wake_interval;
  if (now < due) {
    WakeAt(due);
    return;
  }
  gang.woken_at = now;
  WakeAt(now + options.wake_interval);
  for (const auto& [uid, node] : gang.fixed) {
    const kube::Pod* pod = snapshot.FindPod(uid);
    if (IsGatedByUs(*pod) || IsCommitted(gang, uid)) continue;
    Act("wake/" + uid, now,
        AnnotatePod{RefOf(*pod), {{std::string(kWakeAnnotation), kube::TimeText(now)}}});
  }
}

void Engine::State::DecideCommit(Gang& gang, absl::Time now) {
  if (gang.fixed.empty()) {
    gang.commit_started = false;
    return;
  }
  const int64_t still_required = gang.required();
  if (static_cast<int64_t>(gang.fixed.size()) < still_required) return;
  if (!gang.commit_started) {
    // A gate that can't be lifted must not leave a gang bound in part.
    const auto ungated = std::ranges::count_if(gang.fixed, [&](const auto& place) {
      return !IsGatedByUs(*snapshot.FindPod(place.first));
    });
    if (ungated < still_required) return;
    const bool asked = std::ranges::any_of(
        gang.fixed, [&](const auto& place) { return held_binds.contains(place.first); });
    // A commit that was cut off goes on by itself.
    const bool resumes = !gang.bound.empty() && !gang.facts.bound_before && still_required > 0;
    if (!asked && !resumes) {
      WakeMembers(gang, now);
      return;
    }
    if (AwaitsPreBind(gang)) {
      WakeMembers(gang, now);
      return;
    }
    if (!PlanHolds(gang)) {
      FailHeldBinds(gang, "the plan no longer holds: " + gang.binding_error);
      needs_pass = gang.dirty = true;
      WakeAt(now);
      return;
    }
    gang.commit_started = true;
  }
  for (const auto& [uid, node] : gang.fixed) {
    auto posted = gang.posted.find(uid);
    if (posted != gang.posted.end()) {
      if (now < posted->second + kReadBack) {
        WakeAt(posted->second + kReadBack);
        continue;
      }
      gang.posted.erase(posted);
    }
    const kube::Pod* pod = snapshot.FindPod(uid);
    if (IsGatedByUs(*pod)) continue;  // its gate is being lifted
    if (!StandsInEpoch(gang, *pod)) {
      Act("epoch/" + uid, now,
          AnnotatePod{RefOf(*pod),
                      {{std::string(kEpochAnnotation), std::to_string(gang.record->epoch)}}});
      continue;
    }
    PostBinding(gang, *pod, node, now);
  }
}

void Engine::State::PostBinding(Gang& gang, const kube::Pod& pod, const std::string& node,
                                absl::Time now) {
  const GangKey key = gang.key;
  const std::string uid = pod.meta.uid;
  const std::string target = "bind/" + uid;
  Act(target, now, BindPod{RefOf(pod), node},
      [this, key, uid, node, target](const absl::Status& status, absl::Time at) {
        auto it = gangs.find(key);
        if (it == gangs.end()) return;
        Gang& bound_gang = it->second;
        bound_gang.dirty = true;
        if (status.ok()) {
          if (bound_gang.fixed.contains(uid)) bound_gang.posted[uid] = at;
          return;
        }
        bound_gang.binding_error = std::string(status.message());
        if (in_flight.Failures(target) >= kBindingAttempts) {
          bound_gang.refused_nodes.Refuse(node, at, options.refusal_time);
          needs_pass = true;
        }
      });
}

void Engine::State::AnswerHeld(const std::string& uid, const std::string& error) {
  auto it = held_binds.find(uid);
  if (it == held_binds.end()) return;
  for (const HeldBind& bind : it->second) Tell(AnswerBind{bind.request, error});
  held_binds.erase(it);
}

void Engine::State::FailHeldBinds(const Gang& gang, const std::string& error) {
  for (const std::string& uid : gang.pods) {
    if (!IsCommitted(gang, uid)) AnswerHeld(uid, error);
  }
}

void Engine::State::AnswerBinds(Gang& gang, absl::Time now) {
  if (held_binds.empty()) return;
  for (const std::string& uid : gang.pods) {
    auto it = held_binds.find(uid);
    if (it == held_binds.end()) continue;
    const kube::Pod* pod = snapshot.FindPod(uid);
    std::string place;
    if (pod->IsBound()) {
      place = pod->node_name;
    } else if (auto fixed = gang.fixed.find(uid); fixed != gang.fixed.end()) {
      place = fixed->second;
    }
    const bool done = pod->IsBound() || gang.posted.contains(uid);
    std::vector<HeldBind> waiting;
    for (const HeldBind& bind : it->second) {
      if (place.empty()) {
        Tell(AnswerBind{bind.request, fmt::format("gang {} has no plan in force: {}",
                                                  gang.key.ToString(), gang.reason.message)});
      } else if (place != bind.node) {
        Tell(AnswerBind{bind.request,
                        fmt::format("{} is {} {}, not {}", pod->meta.name,
                                    done ? "bound to" : "planned on", place, bind.node)});
      } else if (done) {
        Tell(AnswerBind{bind.request, ""});
      } else if (bind.until <= now) {
        Tell(AnswerBind{bind.request,
                        fmt::format("gang {} was not committed within {}: {}", gang.key.ToString(),
                                    absl::FormatDuration(options.bind_wait), gang.reason.message)});
      } else {
        WakeAt(bind.until);
        waiting.push_back(bind);
      }
    }
    if (waiting.empty()) {
      held_binds.erase(it);
    } else {
      it->second = std::move(waiting);
    }
  }
}

void Engine::State::DecideRepair(Gang& gang, absl::Time now) {
  // Where nothing stands any more there is nothing that could hang.
  if (gang.state != v1::REPAIRING || gang.facts.bound == 0) return;
  const absl::Time due = RepairDue(gang);
  if (now < due) {
    WakeAt(due);
    return;
  }
  const std::string why = fmt::format("{} of {} members of gang {} were left for {}",
                                      gang.facts.bound, gang.facts.min_member, gang.key.ToString(),
                                      absl::FormatDuration(options.repair_deadline));
  if (RestartWhole(gang, why, now)) return;
  for (const std::string& uid : gang.bound) {
    const kube::Pod* pod = snapshot.FindPod(uid);
    if (Act("evict/" + uid, now, EvictPod{RefOf(*pod)}) && uid == gang.bound.front()) {
      ++stats.gangs_restarted;
    }
  }
}

// Whole for the first time in this attempt: noted in the record, because a gang that loses members
// from here on is repaired, not committed.
void Engine::State::NoteBound(Gang& gang, absl::Time now) {
  if (gang.state != v1::BOUND || !gang.record || gang.record->bound_at) return;
  if (gang.record->uid != gang.uid()) return;
  AdmissionRecord record = *gang.record;
  record.bound_at = gang.state_since;
  record.identity = options.identity;
  WriteRecord(gang, record, now);
}

}  // namespace muster::coscheduling
