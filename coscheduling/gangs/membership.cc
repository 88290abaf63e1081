// Which pods form which gang, whether it is complete, and its admission record.

#include <algorithm>
#include <utility>

#include "coscheduling/engine_state.h"
#include "coscheduling/gangs/member_rank.h"
#include "coscheduling/labels.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {
namespace {

// A record whose gang was bound and has no bound member left belongs to a run that is over.
bool IsSpent(const Gang& gang) {
  return gang.record->bound_at && gang.bound.empty() &&
         gang.facts.succeeded < gang.facts.min_member;
}

bool HasRecord(const Gang& gang) {
  return gang.record && gang.record->uid == gang.uid() && !IsSpent(gang);
}

// The first gate that isn't ours to lift, or "".
std::string ForeignGate(const kube::Pod& pod) {
  for (const std::string& gate : pod.scheduling_gates) {
    if (gate != kGate) return gate;
  }
  return "";
}

// The pods of a gang that has ended go one by one, by a ttl or by hand. What it came to stays in
// its PodGroup's status, until pods made anew begin another attempt.
void RecallEnd(const kube::PodGroup* group, GangFacts* facts) {
  if (group == nullptr || facts->live > 0 || facts->terminating) return;
  const kube::PodGroup::Status& status = group->status;
  if (status.phase != "Finished" && status.phase != "Failed") return;
  facts->succeeded = std::max(facts->succeeded, status.succeeded);
  facts->failed = std::max(facts->failed, status.failed);
}

bool IsLive(const kube::Pod& pod) { return !pod.IsTerminal() && !pod.IsDeleting(); }

}  // namespace

Gang& Engine::State::GangFor(const GangKey& key) {
  auto [it, inserted] = gangs.try_emplace(key);
  if (inserted) {
    it->second.key = key;
    it->second.state_since = clock;
  }
  return it->second;
}

void Engine::State::MarkDirty(const GangKey& key) {
  auto it = gangs.find(key);
  if (it != gangs.end()) it->second.dirty = true;
}

void Engine::State::Join(const GangKey& key, const std::string& uid) {
  auto it = gang_of_pod.find(uid);
  if (it != gang_of_pod.end()) {
    if (it->second->key == key) return;
    Leave(uid);
    answers_to_remove.pop_back();  // its new gang answers in its place
  }
  Gang& gang = GangFor(key);
  gang_of_pod[uid] = &gang;
  gang.pods.insert(uid);
}

void Engine::State::Leave(const std::string& uid) {
  auto it = gang_of_pod.find(uid);
  if (it == gang_of_pod.end()) return;
  Gang& gang = *it->second;
  gang_of_pod.erase(it);
  answers_to_remove.push_back(uid);
  const bool last = gang.pods.size() == 1 && gang.group == nullptr;
  gang.pods.erase(uid);
  gang.posted.erase(uid);
  if (gang.fixed.erase(uid) + gang.tentative.erase(uid) > 0) snapshot.Forget(uid);
  if (!last) {
    gang.dirty = true;
    return;
  }
  for (const auto& [name, marks] : node_marks) {
    if (marks.annotations.contains("muster.dev/holds")) hold_candidates.insert(name);
  }
  Remove(gang);
}

void Engine::State::Remove(Gang& gang) {
  WithdrawQuota(gang);
  setbacks.Forget(gang.key);
  Unshow(gang);
  removed_gangs.push_back(gang.key);
  gangs.erase(removed_gangs.back());
}

void Engine::State::AdoptGroup(std::shared_ptr<const kube::PodGroup> group) {
  const GangKey key{group->meta.name_space, group->meta.name, false};
  Gang& gang = GangFor(key);
  if (gang.group != nullptr && gang.group->meta.uid != group->meta.uid) {
    gang_of_group.erase(gang.group->meta.uid);
    gang.record.reset();
  }
  gang_of_group[group->meta.uid] = &gang;
  const bool spec_changed = gang.group == nullptr || gang.group->min_member != group->min_member ||
                            gang.group->error != group->error ||
                            gang.group->min_resources != group->min_resources;
  const std::string* text = group->meta.Annotation(kRecordAnnotation);
  std::optional<AdmissionRecord> record;
  if (text != nullptr) {
    // One that can't be read is replaced, as one that was never there.
    if (auto decoded = DecodeRecord(*text); decoded.ok()) record = *std::move(decoded);
  }
  needs_pass |= spec_changed || record != gang.record;
  const bool another = gang.group == nullptr || gang.group->meta.uid != group->meta.uid;
  gang.record = std::move(record);
  gang.group = std::move(group);
  gang.dirty = true;
  if (another) GroupOwnerChanged(key);
}

void Engine::State::DropGroup(const std::string& uid) {
  auto it = gang_of_group.find(uid);
  if (it == gang_of_group.end()) return;
  Gang& gang = *it->second;
  gang_of_group.erase(it);
  gang.group = nullptr;
  gang.record.reset();
  gang.dirty = true;
  needs_pass = true;
  if (gang.pods.empty()) Remove(gang);
}

Reason Engine::State::FindBlocker(const Gang& gang,
                                  const std::vector<const kube::Pod*>& live) const {
  const std::string name = gang.key.ToString();
  if (Reason reason = OwnerBlocker(gang, live); reason.code != v1::REASON_UNSPECIFIED) {
    return reason;
  }
  if (!gang.key.is_pod && gang.group == nullptr && !gang.derived) {
    return {v1::POD_GROUP_NOT_FOUND,
            fmt::format("{} pod(s) name PodGroup {} in label {}, which doesn't exist", gang.members,
                        name, kube::kPodGroupLabel),
            fmt::format("create PodGroup {}, or remove the label", name)};
  }
  if (gang.group != nullptr && !gang.group->error.empty()) {
    return {v1::POD_GROUP_INVALID, fmt::format("PodGroup {}: {}", name, gang.group->error),
            "correct the PodGroup's spec"};
  }
  for (const kube::Pod* pod : live) {
    if (pod->scheduler_name != options.scheduler_name) {
      return {v1::MEMBERS_DISAGREE,
              fmt::format("spec.schedulerName of {} is \"{}\", of the gang \"{}\"", pod->meta.name,
                          pod->scheduler_name, options.scheduler_name),
              fmt::format("set schedulerName: {} in every replica type", options.scheduler_name)};
    }
    if (!pod->spec_error.empty()) {
      return {v1::MEMBER_INVALID, fmt::format("{}: {}", pod->meta.name, pod->spec_error),
              "correct the pod template and create the pods anew"};
    }
    if (std::string gate = ForeignGate(*pod); !gate.empty()) {
      return {v1::FOREIGN_GATE,
              fmt::format("{} is held by scheduling gate {} of another controller", pod->meta.name,
                          gate),
              "wait for that controller to admit it"};
    }
    if (pod->priority != live.front()->priority) {
      return {v1::MEMBERS_DISAGREE,
              fmt::format("spec.priority of {} is {}, of {} {}", pod->meta.name, pod->priority,
                          live.front()->meta.name, live.front()->priority),
              "give every replica type the same priorityClassName"};
    }
  }
  const int64_t there = gang.facts.live + gang.facts.succeeded;
  if (there < gang.facts.min_member) return MissingMembers(gang, there);
  return GroupPending(gang);
}

void Engine::State::ReadRecordOfPod(Gang& gang) {
  const kube::Pod* pod = gang.pods.empty() ? nullptr : snapshot.FindPod(*gang.pods.begin());
  const std::string* text = pod == nullptr ? nullptr : pod->meta.Annotation(kRecordAnnotation);
  if (text == nullptr) return;
  auto record = DecodeRecord(*text);
  if (!record.ok() || record->uid != pod->meta.uid) return;
  needs_pass |= gang.record != *record;
  gang.record = *std::move(record);
}

void Engine::State::Refresh(Gang& gang, absl::Time now) {
  std::vector<std::pair<MemberRank, const kube::Pod*>> ranked;
  GangFacts facts;
  gang.awaits_writes = false;
  gang.members = gang.running = 0;
  gang.ours = gang.pods.empty();
  absl::Time first_pod = absl::InfiniteFuture();
  for (const std::string& uid : gang.pods) {
    const kube::Pod* pod = snapshot.FindPod(uid);
    if (pod == nullptr) continue;
    gang.ours |= pod->scheduler_name == options.scheduler_name;
    first_pod = std::min(first_pod, pod->meta.creation_time);
    if (pod->phase == kube::PodPhase::kSucceeded) ++facts.succeeded;
    if (pod->phase == kube::PodPhase::kFailed) ++facts.failed;
    facts.terminating |= pod->IsDeleting() && pod->IsBound() && !pod->IsTerminal();
    if (!pod->IsDeleting()) ++gang.members;
    if (!IsLive(*pod)) continue;
    ranked.emplace_back(RankOf(*pod), pod);
    if (pod->phase == kube::PodPhase::kRunning) ++gang.running;
  }
  std::ranges::sort(ranked);
  std::vector<const kube::Pod*> live;
  gang.bound.clear();
  gang.unbound.clear();
  for (const auto& [rank, pod] : ranked) {
    live.push_back(pod);
    (pod->IsBound() ? gang.bound : gang.unbound).push_back(pod->meta.uid);
    if (pod->IsBound()) {
      gang.posted.erase(pod->meta.uid);
      gang.fixed.erase(pod->meta.uid);
      if (gang.tentative.erase(pod->meta.uid) > 0) snapshot.Forget(pod->meta.uid);
    }
  }
  if (gang.key.is_pod) ReadRecordOfPod(gang);
  facts.live = static_cast<int64_t>(live.size());
  RecallEnd(gang.group.get(), &facts);
  FindLosses(gang);
  facts.lost = static_cast<int64_t>(gang.lost.size());
  facts.bound = static_cast<int64_t>(gang.bound.size()) - facts.lost;
  facts.min_member = MinMemberOf(gang, facts.bound + facts.lost + facts.succeeded);
  const JobGangs::KnownJob* job = JobOf(gang);
  facts.made_anew = job != nullptr && job->GoesOn() && facts.succeeded < facts.min_member;
  gang.priority = live.empty() ? 0 : live.front()->priority;
  gang.created = gang.group == nullptr ? first_pod : gang.group->meta.creation_time;
  gang.facts = facts;
  ReadOwners(gang, live, now);
  ReadQueueLabels(gang, live);
  FindFallback(gang);
  gang.blocker = RestartBlocker(gang);
  if (gang.blocker.code == v1::REASON_UNSPECIFIED) gang.blocker = FindBlocker(gang, live);
  gang.facts.blocked = gang.blocker.code != v1::REASON_UNSPECIFIED;
  const bool recorded = HasRecord(gang);
  gang.facts.bound_before = recorded && gang.record->bound_at.has_value();
  gang.facts.backing_off = recorded && BacksOff(gang, now);
  gang.facts.evicting =
      HoldsQuota(gang) && gang.record->eviction && !gang.record->eviction->surplus_only;
  const bool quota_there =
      !UsesQuota() || (recorded && gang.record->quota.has_value()) || !gang.bound.empty();
  gang.facts.admitted = recorded && !gang.record->retry_after && !gang.facts.evicting &&
                        gang.record->identity == options.identity && quota_there;
  gang.facts.waits_for_quota =
      !gang.facts.admitted && (gang.quota.Waits() || gang.quota.granted.has_value());
  if (gang.facts.blocked || !gang.facts.admitted) setbacks.Stop(gang.key, Limits(gang), clock);
  JudgeGang(gang);
}

int64_t Engine::State::NextAttempt(const Gang& gang) const {
  if (!HasRecord(gang)) return TriedBefore(gang).attempt + 1;
  return gang.record->attempt + (gang.record->retry_after ? 1 : 0);
}

absl::Duration Engine::State::DeadlineOf(const Gang& gang) const {
  if (gang.group == nullptr || !gang.group->schedule_timeout_seconds) {
    return options.provisioning_deadline;
  }
  return absl::Seconds(*gang.group->schedule_timeout_seconds);
}

AdmissionRecord Engine::State::NewRecord(const Gang& gang, int64_t attempt, absl::Time now) const {
  AdmissionRecord record;
  record.uid = gang.uid();
  record.identity = options.identity;
  record.epoch = gang.record ? gang.record->epoch : 1;
  if (gang.record && gang.record->identity != options.identity) ++record.epoch;
  record.attempt = attempt;
  record.admitted_at = now;
  record.deadline = now + DeadlineOf(gang);
  if (gang.record && !gang.record->bound_at && !gang.record->TriesAnewAtOnce()) {
    record.given_up = gang.record->given_up;
  }
  if (gang.quota.granted) {
    record.queue = QueueOf(gang);
    record.quota = gang.quota.granted;
  }
  if (gang.record) {
    record.flavors_tried = gang.record->flavors_tried;
    std::erase_if(record.flavors_tried, [now](const auto& tried) { return tried.second <= now; });
  } else {
    record.flavors_tried = TriedBefore(gang).flavors;
  }
  return record;
}

void Engine::State::Admit(Gang& gang, absl::Time now) {
  if (gang.facts.infeasible && gang.facts.admitted) GiveUp(gang, now, now);
  if (!gang.ours || gang.facts.blocked || gang.facts.live == 0 || gang.facts.admitted) return;
  if (gang.unbound.empty() && gang.required() == 0) return;
  if (gang.facts.evicting || AwaitsWorkload(gang, now)) return;
  const bool recorded = HasRecord(gang);
  if (gang.facts.backing_off && !gang.fits_now) {
    WakeAt(RetryAt(gang));
    return;
  }
  if (gang.facts.infeasible && (!recorded || gang.record->retry_after)) return;
  const bool needs_quota = UsesQuota() && gang.bound.empty();
  if (!recorded || gang.record->retry_after || (needs_quota && !gang.record->quota)) {
    if (needs_quota) {
      RequestQuota(gang, now);
    } else {
      WriteRecord(gang, NewRecord(gang, NextAttempt(gang), now), now);
    }
    return;
  }
  AdmissionRecord taken_over = *gang.record;
  taken_over.identity = options.identity;
  ++taken_over.epoch;
  WriteRecord(gang, taken_over, now);
}

void Engine::State::WriteRecord(Gang& gang, const AdmissionRecord& record, absl::Time now) {
  if (gang.group == nullptr && !record.quota && !(gang.record && gang.record->quota)) {
    gang.record = record;
    needs_pass = true;
    Refresh(gang, now);
    return;
  }
  if (gang.group == nullptr) {
    // What holds quota must be known after a restart: the pod itself keeps it.
    if (gang.pods.empty()) return;
    const kube::Pod& pod = *snapshot.FindPod(*gang.pods.begin());
    Act("record/" + pod.meta.uid, now,
        AnnotatePod{RefOf(pod), {{std::string(kRecordAnnotation), EncodeRecord(record)}}});
    return;
  }
  const kube::ObjectMeta& meta = gang.group->meta;
  // It would name a version that is being replaced. The end of that write brings the gang back.
  if (in_flight.IsUnderWay("status/" + meta.uid)) return;
  muster::coscheduling::WriteRecord write{meta.name_space, meta.name, meta.uid,
                                          meta.resource_version, EncodeRecord(record)};
  Act("record/" + meta.uid, now, std::move(write), NoteRefusal(gang.key));
}

}  // namespace muster::coscheduling
