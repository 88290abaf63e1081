#include "coscheduling/engine.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "coscheduling/engine_state.h"

namespace muster::coscheduling {

std::string GangKey::ToString() const { return name_space + "/" + name; }

std::string Gang::uid() const {
  if (group != nullptr) return group->meta.uid;
  if (key.is_pod && !pods.empty()) return *pods.begin();
  return "";
}

int64_t Gang::required() const {
  return std::max<int64_t>(0, facts.min_member - facts.bound - facts.succeeded);
}

bool PlacedBefore(const Gang& a, const Gang& b) {
  const bool a_bound = !a.bound.empty();
  const bool b_bound = !b.bound.empty();
  if (a_bound != b_bound) return a_bound;
  if (a.priority != b.priority) return a.priority > b.priority;
  if (a.created != b.created) return a.created < b.created;
  return a.key < b.key;
}

// --- the step ---

// Nothing to do for it before something about it changes.
bool Engine::State::IsSettled(const Gang& gang) const {
  if (!gang.ours) return true;
  if (gang.quota.eviction || (gang.record && gang.record->eviction)) return false;
  if (gang.group_behind) return false;
  if (gang.at_rest) return true;
  if (gang.quota.idle_since != Never()) return false;  // it is to give its quota back
  if (gang.state == v1::FINISHED) return true;
  return gang.state == v1::BOUND && gang.unbound.empty() && gang.posted.empty() &&
         (!gang.record || (gang.record->bound_at && !gang.record->repairing_since));
}

bool Engine::State::MayAct(const std::string& target, absl::Time now) {
  acted = true;
  return in_flight.MayStart(target, now);
}

bool Engine::State::Act(const std::string& target, absl::Time now, Action action,
                        InFlight::OnFinish on_finish) {
  if (!MayAct(target, now)) return false;
  const uint64_t id = in_flight.Start(target, std::move(on_finish));
  (out != nullptr ? out->actions : pending).push_back({id, std::move(action)});
  return true;
}

void Engine::State::Tell(Action action) {
  (out != nullptr ? out->actions : pending).push_back({0, std::move(action)});
}

void Engine::State::Step(absl::Time now, StepOutput* output) {
  clock = now;
  out = output;
  out->actions.swap(pending);
  next_wake = Never();
  if (synced) {
    ReadFaults();
    CheckTroubles(now);
  }
  if (!synced || !leading) {
    for (const auto& [uid, binds] : held_binds) {
      for (const HeldBind& bind : binds) {
        Tell(AnswerBind{bind.request,
                        synced ? "muster is not leading" : "muster's caches have not synced"});
      }
    }
    held_binds.clear();
    for (const auto& [uid, answer] : answers) out->filter_answers.emplace_back(uid, std::nullopt);
    answers.clear();
    out = nullptr;
    return;
  }
  if (suspects.Expire(now)) {
    needs_pass = nodes_changed = true;
    for (auto& [key, gang] : gangs) gang.stale = true;
  }
  WakeAt(suspects.NextExpiry());
  RefusalsChanged(refusals.Expire(now));
  WakeAt(refusals.NextExpiry());

  began = std::min(began, now);
  JudgeAgain(now);
  KeepRestarts(now);
  std::vector<Gang*> active;
  for (auto& [key, gang] : gangs) {
    gang.dirty |= gang.facts.backing_off && !BacksOff(gang, now);
    if (gang.dirty) Refresh(gang, now);
    gang.stale |= gang.dirty;
    if (!gang.dirty && IsSettled(gang)) continue;
    active.push_back(&gang);
    if (gang.dirty || gang.quota.idle_since != Never()) SyncQuota(gang, now);
    KeepGroup(gang, now);
    Admit(gang, now);
  }
  ScheduleQuota(now);
  if (needs_pass || next_pass <= now) {
    Place(now);
  }
  WakeAt(next_pass);
  for (Gang* gang : active) Decide(*gang, now);
  ReconcileHolds(now);
  WithdrawNodes(now);
  MarkSuspects(now);
  for (auto& [key, gang] : gangs) {
    if (gang.stale) Show(gang);
  }
  for (const GangKey& key : removed_gangs) out->changed_gangs.push_back(key);
  removed_gangs.clear();
  for (const std::string& uid : answers_to_remove) {
    if (answers.erase(uid) > 0) out->filter_answers.emplace_back(uid, std::nullopt);
  }
  answers_to_remove.clear();
  out->nodes_changed = std::exchange(nodes_changed, false);
  queue_status_stale |= queues_changed;
  WriteQueueStatus(now);
  out->queues_changed = std::exchange(queues_changed, false);
  in_flight.Prune(now);
  WakeAt(in_flight.NextRetry(now));
  out = nullptr;
}

// --- the public face ---

Engine::Engine(EngineOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Engine::~Engine() = default;

void Engine::SetSynced() { state_->synced = true; }

void Engine::SetLeading(bool leading) {
  State& s = *state_;
  if (s.leading == leading) return;
  s.leading = leading;
  for (auto& [key, gang] : s.gangs) {
    // What was decided in an earlier term and didn't reach a record is void.
    s.WithdrawQuota(gang);
    gang.dirty = true;
  }
}

void Engine::SetGatingActive(bool active) {
  State& s = *state_;
  if (s.gating_active == active) return;
  s.gating_active = active;
  for (auto& [key, gang] : s.gangs) gang.dirty = true;
}

void Engine::RequestBind(uint64_t request, std::string_view pod_uid, std::string_view node,
                         absl::Time now) {
  State& s = *state_;
  s.clock = now;
  const std::string uid(pod_uid);
  auto it = s.gang_of_pod.find(uid);
  if (it == s.gang_of_pod.end()) {
    s.Tell(AnswerBind{request, "pod " + uid + " is not known to muster yet"});
    return;
  }
  s.held_binds[uid].push_back({request, std::string(node), now + s.options.bind_wait});
  it->second->dirty = true;
}

void Engine::RefusePlannedNode(std::string_view pod_uid, std::string_view node, absl::Time now) {
  State& s = *state_;
  s.clock = now;
  auto it = s.gang_of_pod.find(std::string(pod_uid));
  if (it == s.gang_of_pod.end()) return;
  Gang& gang = *it->second;
  // Only the plan that is in force can be refused: the answer to an older one is old news.
  auto place = gang.fixed.find(std::string(pod_uid));
  if (place == gang.fixed.end() || place->second != node) return;
  gang.refused_nodes.Refuse(std::string(node), now, s.options.refusal_time);
  s.needs_pass = true;
  gang.dirty = true;
}

void Engine::Finish(uint64_t action_id, const absl::Status& status, absl::Time now) {
  state_->clock = now;
  state_->in_flight.Finish(action_id, status, now);
}

StepOutput Engine::Step(absl::Time now) {
  StepOutput output;
  state_->Step(now, &output);
  return output;
}

absl::Time Engine::NextWake() const { return state_->next_wake; }

bool Engine::Describe(const GangKey& key, v1::Gang* gang) const {
  auto it = state_->gangs.find(key);
  if (it == state_->gangs.end() || !it->second.ours) return false;
  state_->Describe(it->second, gang);
  return true;
}

std::vector<GangKey> Engine::Gangs() const {
  std::vector<GangKey> keys;
  keys.reserve(state_->gangs.size());
  for (const auto& [key, gang] : state_->gangs) {
    if (gang.ours) keys.push_back(key);
  }
  return keys;
}

const cluster::Snapshot& Engine::snapshot() const { return state_->snapshot; }

EngineStats Engine::TakeStats() {
  State& s = *state_;
  s.stats.gangs = s.gangs.size();
  s.stats.in_flight = s.in_flight.size();
  s.stats.held_binds = 0;
  for (const auto& [uid, binds] : s.held_binds) s.stats.held_binds += binds.size();
  s.stats.pod_refusals = s.refusals.size();
  s.stats.pod_refusals_dropped = s.refusals.dropped();
  EngineStats stats = s.stats;
  s.stats.bind_latencies.clear();
  s.stats.state_times.clear();
  return stats;
}

}  // namespace muster::coscheduling
