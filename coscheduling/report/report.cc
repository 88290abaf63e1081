#include "coscheduling/report/report.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "kube/objects/names.h"

namespace muster::coscheduling {
namespace {

// PodGroup status is written at most this often per gang, except when the state changes.
constexpr absl::Duration kStatusInterval = absl::Seconds(1);
// A gang that fits at once passes through most states within moments. Events and status leave out
// what stands for less than this; writing it would cost more than binding the gang. Nor is it news
// that a PodGroup is made before its pods.
constexpr absl::Duration PassesFor(v1::GangState state, v1::ReasonCode code) {
  const bool usual = state == v1::READY || state == v1::BINDING || code == v1::RECORD_PENDING ||
                     code == v1::MEMBERS_MISSING;
  return absl::Seconds(usual ? 10 : 1);
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

bool SameCounts(const UpdatePodGroupStatus& want, const kube::PodGroup::Status& have) {
  return want.running == have.running && want.succeeded == have.succeeded &&
         want.failed == have.failed;
}

std::string CodeText(v1::ReasonCode code) { return kube::CamelCaseOf(v1::ReasonCode_Name(code)); }

bool IsWarning(v1::GangState state, v1::ReasonCode code) {
  return state == v1::BACKING_OFF || state == v1::REPAIRING || state == v1::INFEASIBLE ||
         IsSetback(code) || code == v1::GANG_FAILED || code == v1::RECORD_FAILED ||
         code == v1::PODS_REFUSED || code == v1::NODE_NOT_READY || code == v1::NODE_GOING;
}

// Whether somebody may have to act on it, or nothing comes after it: that is told at once.
bool IsNews(v1::GangState state, v1::ReasonCode code) {
  return state == v1::BOUND || state == v1::FINISHED || IsWarning(state, code);
}

}  // namespace

void Report::Observe(const cluster::Journal& journal) {
  for (const auto& [name, entry] : journal.nodes) {
    ShowAgain(name);
    if (!entry.formerly.empty()) ShowAgain(entry.formerly);
    if (!entry.observed.HasAny(cluster::kOfObjects)) continue;
    nodes_changed_ = true;
    const cluster::NodeInfo* info = from_.snapshot.FindNode(name);
    if (info != nullptr && info->readiness.stage == cluster::NodeStage::kUsable) {
      usable_since_.try_emplace(name, agenda_->now());
    } else {
      usable_since_.erase(name);
    }
  }
}

void Report::NotePools() {
  for (const auto& [gang, part] : parts_) {
    if (part.on_reserved) agenda_->Note(gang);
  }
}

void Report::NoteSuspect(const std::string& node) {
  nodes_changed_ = true;
  ShowAgain(node);
}

std::vector<const kube::Node*> Report::NodesUnder(const Gang& gang) const {
  std::vector<const kube::Node*> nodes;
  for (const std::string& uid : gang.bound) {
    const std::string& name = from_.snapshot.FindPod(uid)->node_name;
    if (const kube::Node* node = from_.snapshot.FindNodeObject(name)) nodes.push_back(node);
  }
  return nodes;
}

void Report::Tell(const Gang& gang, v1::GangState before) {
  Part& part = parts_[gang.id];
  const bool entered = gang.state != before;
  if (entered) {
    if (before != v1::GANG_STATE_UNSPECIFIED) {
      moments_.state_times.emplace_back(before, agenda_->now() - part.entered);
    }
    part.entered = agenda_->now();
    if (gang.state == v1::BOUND) NoteBindLatency(gang, &part);
  }
  Reason reason = FindReason(gang);
  const std::vector<const kube::Node*> nodes = NodesUnder(gang);
  if (reason.code == v1::ALL_BOUND) {
    reason.message += cluster::BeyondOneText(gang.topology, nodes);
  }
  if (gang.not_honoured && reason.code != v1::MEMBER_NOT_SUPPORTED) {
    reason.message += "; " + gang.not_honoured->ToString();
  }
  part.on_reserved =
      std::ranges::any_of(nodes, [](auto* each) { return cluster::IsReserved(*each); });
  reason.message += cluster::BlocksEndText(from_.placeability.pools(), nodes);
  if (const std::string& error = gang.expected_runtime.error; !error.empty()) {
    reason.message += "; " + error;
  }
  if (entered || reason.code != part.reason.code) {
    notes_.push_back({gang.key, gang.state, reason.code, reason.message});
    const bool news = IsNews(gang.state, reason.code);
    part.event_due =
        agenda_->now() + (news ? absl::ZeroDuration() : PassesFor(gang.state, reason.code));
  }
  if (entered || reason != part.reason) {
    part.reason = std::move(reason);
    agenda_->Show(gang.id);
  }
  if (agenda_->now() >= part.event_due) {
    part.event_due = absl::InfiniteFuture();
    Emit(gang, part.reason);
  } else if (part.event_due < absl::InfiniteFuture()) {
    agenda_->NoteAt(gang.id, part.event_due);
  }
}

void Report::Emit(const Gang& gang, const Reason& reason) {
  const bool warning = IsWarning(gang.state, reason.code);
  const std::string code = CodeText(reason.code);
  const kube::OwnerReference own = {"", gang.key.is_pod ? "Pod" : "PodGroup", gang.key.name,
                                    gang.uid(), true};
  const kube::OwnerReference& it = gang.unmade && gang.group == nullptr ? gang.derived->owner : own;
  outbox_->Tell(EmitEvent{it.kind, gang.key.name_space, it.name, it.uid, warning, code,
                          reason.message, it.api_version});
  // Where a user looks first is the pod. It is told what its gang waits for, once per reason.
  const bool waits = gang.state == v1::WAITING_FOR_MEMBERS || gang.state == v1::WAITING_FOR_QUOTA ||
                     gang.state == v1::PROVISIONING || gang.state == v1::BACKING_OFF ||
                     gang.state == v1::INFEASIBLE;
  if (gang.key.is_pod || !waits || gang.unbound.empty()) return;
  const kube::Pod* first = from_.snapshot.FindPod(gang.unbound.front());
  outbox_->Tell(EmitEvent{"Pod", first->meta.name_space, first->meta.name, first->meta.uid, warning,
                          code, fmt::format("gang {}: {}", gang.key.ToString(), reason.message)});
}

void Report::NoteBindLatency(const Gang& gang, Part* part) {
  part->bound_at = agenda_->now();
  ++gangs_bound_;
  const AdmissionRecord* record = from_.records.Of(gang);
  if (record == nullptr) return;
  absl::Time last = record->admitted_at;
  for (const std::string& uid : gang.bound) {
    const auto it = usable_since_.find(from_.snapshot.FindPod(uid)->node_name);
    if (it != usable_since_.end()) last = std::max(last, it->second);
  }
  moments_.bind_latencies.push_back(agenda_->now() - last);
}

void Report::WriteStatus(const Gang& gang) {
  if (gang.group == nullptr || gang.pods.empty()) return;
  Part& part = parts_[gang.id];
  const kube::PodGroup::Status& have = gang.group->status;
  const AdmissionRecord* record = from_.records.Of(gang);
  UpdatePodGroupStatus want;
  want.group = RefOf(gang.group->meta);
  want.phase = PhaseOf(gang);
  want.scheduled = gang.facts.bound + gang.facts.lost + gang.facts.succeeded;
  want.running = gang.running;
  want.succeeded = gang.facts.succeeded;
  want.failed = gang.facts.failed;
  if (record != nullptr) want.schedule_start_time = record->admitted_at;
  want.occupied_by = OccupiedBy(*from_.snapshot.FindPod(*gang.pods.begin()));
  want.admitted = gang.facts.admitted || gang.state == v1::BOUND || gang.state == v1::FINISHED;
  want.reason = CodeText(part.reason.code);
  want.message = part.reason.message;
  want.since = gang.state_since;
  std::string digest = fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}", want.phase, want.scheduled,
                                   want.running, want.succeeded, want.failed, want.admitted,
                                   want.reason, want.message, want.occupied_by);
  // A CRD without our fields prunes them, so what was written says more than what is there.
  if (digest == part.status_digest && want.phase == have.phase && SameCounts(want, have)) return;
  // The record's write names the version of the PodGroup that this one would replace. Its end
  // brings the gang back here.
  if (from_.records.IsBeingWritten(gang)) return;
  const bool passing = gang.state == v1::READY || gang.state == v1::BINDING ||
                       (SameCounts(want, have) && want.scheduled == have.scheduled &&
                        !IsNews(gang.state, part.reason.code));
  absl::Time due = absl::InfinitePast();
  if (gang.state == part.status_state) due = part.status_written + kStatusInterval;
  if (passing) due = std::max(due, gang.state_since + PassesFor(gang.state, part.reason.code));
  if (agenda_->now() < due) {
    agenda_->NoteAt(gang.id, due);
    return;
  }
  const std::string slot = "status/" + want.group.uid;  // before `want` is moved from
  const bool started = outbox_->Act(gang.id, slot, std::move(want),
                                    [this, id = gang.id](const absl::Status& status, absl::Time) {
                                      Part* known = status.ok() ? nullptr : parts_.Find(id);
                                      if (known != nullptr) known->status_digest.clear();
                                    });
  if (!started) return;
  part.status_digest = std::move(digest);
  part.status_written = agenda_->now();
  part.status_state = gang.state;
}

void Report::PublishAnswer(const std::string& uid, FilterAnswer answer) {
  auto [it, inserted] = answers_.try_emplace(uid);
  if (!inserted && it->second == answer) return;
  it->second = std::move(answer);
  answers_changed_.insert(uid);
}

void Report::AnswerFilters(const Gang& gang) {
  const PlaceMap& fixed = from_.placement.Of(gang).fixed;
  const FilterAnswer::Kind kind = from_.provisioning.IsSignalled(gang)
                                      ? FilterAnswer::Kind::kUnresolvable
                                      : FilterAnswer::Kind::kHold;
  for (const std::string& uid : gang.unbound) {
    const auto place = fixed.find(uid);
    if (place != fixed.end()) {
      PublishAnswer(uid, {FilterAnswer::Kind::kPlanned, place->second, ""});
      continue;
    }
    PublishAnswer(uid, {kind, "",
                        fmt::format("gang {} is {}: {}", gang.key.ToString(),
                                    v1::GangState_Name(gang.state), ReasonOf(gang).message)});
  }
  for (const std::string& uid : gang.bound) Leave(uid);
}

void Report::Leave(const std::string& pod) {
  if (answers_.erase(pod) > 0) answers_changed_.insert(pod);
}

void Report::Forget(GangId gang, const GangKey& key) {
  if (Part* part = parts_.Find(gang)) Unshow(gang, part);
  parts_.Forget(gang);
  changed_gangs_[key] = nullptr;
}

void Report::RetractAnswers() {
  for (const auto& [uid, answer] : answers_) answers_changed_.insert(uid);
  answers_.clear();
}

void Report::Fill(StepOutput* out) {
  for (auto& changed : std::exchange(changed_gangs_, {})) {
    out->changed_gangs.push_back(std::move(changed));
  }
  for (const std::string& uid : std::exchange(answers_changed_, {})) {
    const auto answer = answers_.find(uid);
    if (answer == answers_.end()) {
      out->filter_answers.emplace_back(uid, std::nullopt);
    } else {
      out->filter_answers.emplace_back(uid, answer->second);
    }
  }
  out->notes = std::exchange(notes_, {});
  out->nodes_changed = std::exchange(nodes_changed_, false);
}

}  // namespace muster::coscheduling
