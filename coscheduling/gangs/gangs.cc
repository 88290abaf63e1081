#include "coscheduling/gangs/gangs.h"

#include <algorithm>

#include "coscheduling/labels.h"
#include "fmt/format.h"
#include "kube/objects/pod_rank.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling {
namespace {

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

}  // namespace

bool IsGatedByUs(const kube::Pod& pod) { return pod.HasGate(kGate); }

bool IsLive(const kube::Pod& pod) { return !pod.IsTerminal() && !pod.IsDeleting(); }

Gangs::Gangs(const EngineOptions& options, const cluster::Snapshot& snapshot, Agenda* agenda,
             Outbox* outbox)
    : options_(options), snapshot_(snapshot), agenda_(agenda), outbox_(outbox) {}

const Gang* Gangs::Find(GangId id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

const Gang* Gangs::Find(const GangKey& key) const {
  const auto it = gangs_.find(key);
  return it == gangs_.end() ? nullptr : &it->second;
}

const Gang* Gangs::OfPod(const std::string& uid) const {
  const auto it = gang_of_pod_.find(uid);
  return it == gang_of_pod_.end() ? nullptr : it->second;
}

const Gang* Gangs::OfSpec(const std::string& job) const {
  const auto it = gang_of_spec_.find(job);
  return it == gang_of_spec_.end() ? nullptr : Find(it->second);
}

std::vector<GangId> Gangs::StandingOn(const std::string& node) const {
  const auto it = standing_on_.find(node);
  if (it == standing_on_.end()) return {};
  return {it->second.begin(), it->second.end()};
}

const kube::AnyJob* Gangs::JobOf(const Gang& gang) const {
  for (const std::string& uid : gang.pods) {
    const kube::Pod* pod = snapshot_.FindPod(uid);
    if (pod != nullptr) return jobs_.OutermostOf(*pod);
  }
  if (gang.derived && !gang.derived->owner.uid.empty()) return jobs_.Find(gang.derived->owner.uid);
  return gang.group == nullptr ? nullptr : jobs_.FindOwner(gang.group->meta);
}

std::vector<const kube::Pod*> Gangs::LiveOf(const Gang& gang) const {
  std::vector<const kube::Pod*> live;
  for (const auto* uids : {&gang.bound, &gang.unbound}) {
    for (const std::string& uid : *uids) live.push_back(snapshot_.FindPod(uid));
  }
  return live;
}

std::vector<const kube::Pod*> Gangs::UnboundOf(const Gang& gang) const {
  std::vector<const kube::Pod*> unbound;
  for (const std::string& uid : gang.unbound) unbound.push_back(snapshot_.FindPod(uid));
  return unbound;
}

bool Gangs::IsMarked(const Gang& gang, std::string_view annotation, std::string_view value) const {
  const auto says = [&](const kube::ObjectMeta& meta) {
    const std::string* text = meta.Annotation(annotation);
    return text != nullptr && *text == value;
  };
  return (gang.group != nullptr && says(gang.group->meta)) ||
         std::ranges::any_of(LiveOf(gang), [&](const auto* pod) { return says(pod->meta); });
}

std::vector<const kube::Pod*> Gangs::PodsOf(const Gang& gang) const {
  std::vector<const kube::Pod*> pods;
  for (const std::string& uid : gang.pods) {
    if (const kube::Pod* pod = snapshot_.FindPod(uid)) pods.push_back(pod);
  }
  return pods;
}

std::vector<const kube::Pod*> Gangs::PodsOf(const kube::NamespacedUid& job) const {
  std::vector<const kube::Pod*> pods;
  for (const kube::NamespacedUid& owner : jobs_.known().Family(job)) {
    const auto made = pods_of_owner_.find(owner);
    if (made == pods_of_owner_.end()) continue;
    for (const std::string& uid : made->second) {
      const kube::Pod* pod = snapshot_.FindPod(uid);
      if (pod != nullptr) pods.push_back(pod);
    }
  }
  return pods;
}

std::vector<GangId> Gangs::GangsOf(const kube::NamespacedUid& job) const {
  std::set<GangId> found;
  for (const kube::Pod* pod : PodsOf(job)) {
    if (const Gang* gang = OfPod(pod->meta.uid)) found.insert(gang->id);
  }
  for (const kube::NamespacedUid& owner : jobs_.known().Family(job)) {
    if (const Gang* gang = OfSpec(owner.uid)) found.insert(gang->id);
  }
  const auto owned = groups_of_owner_.find(job);
  if (owned != groups_of_owner_.end()) found.insert(owned->second.begin(), owned->second.end());
  return {found.begin(), found.end()};
}

Gang& Gangs::GangFor(const GangKey& key) {
  auto [it, inserted] = gangs_.try_emplace(key);
  if (inserted) {
    it->second.id = GangId(next_id_++);
    it->second.key = key;
    it->second.state_since = agenda_->now();
    by_id_[it->second.id] = &it->second;
  }
  return it->second;
}

void Gangs::Leave(const kube::Pod& pod) {
  ForgetOwner(pod);
  Detach(pod.meta.uid);
}

// Takes the pod out of the gang it is in; one without pods and PodGroup goes.
void Gangs::Detach(const std::string& uid) {
  const auto it = gang_of_pod_.find(uid);
  if (it == gang_of_pod_.end()) return;
  Gang& gang = *it->second;
  gang_of_pod_.erase(it);
  gang.pods.erase(uid);
  departures_.pods.emplace_back(gang.id, uid);
  if (gang.pods.empty() && gang.group == nullptr && gang.spec_of.empty()) {
    Remove(gang);
    return;
  }
  if (gang.pods.empty() && gang.spec_of.empty()) gang.derived.reset();  // nobody says it any more
  agenda_->Note(gang.id);
}

void Gangs::Remove(Gang& gang) {
  const GangId id = gang.id;
  StandOn(gang, {});
  nodes_of_.erase(id);
  group_errors_.Forget(id);
  agenda_->Forget(id);
  by_id_.erase(id);
  departures_.gangs.emplace_back(id, gang.key);
  gangs_.erase(departures_.gangs.back().second);
}

void Gangs::Adopt(std::shared_ptr<const kube::PodGroup> group) {
  Gang& gang = GangFor({group->meta.name_space, group->meta.name, false});
  const bool another = gang.group == nullptr || gang.group->meta.uid != group->meta.uid;
  if (!another &&
      kube::IsOlderVersion(group->meta.resource_version, gang.group->meta.resource_version)) {
    return;
  }
  if (gang.group != nullptr) ForgetGroup(gang);
  const kube::NamespacedUid owner = group->meta.ControllerUid();
  if (!owner.uid.empty()) groups_of_owner_[owner].insert(gang.id);
  gang.group = std::move(group);
  agenda_->Note(gang.id);
  if (!another) return;
  // Whose pods would have had its name may join it now, or not any more.
  const std::vector<std::string> uids(gang.pods.begin(), gang.pods.end());
  for (const std::string& uid : uids) Rejoin(uid);
  if (!owner.uid.empty()) OwnersChanged(jobs_.known().Family(owner));
}

void Gangs::ForgetGroup(Gang& gang) {
  const auto owned = groups_of_owner_.find(gang.group->meta.ControllerUid());
  if (owned == groups_of_owner_.end()) return;
  owned->second.erase(gang.id);
  if (owned->second.empty()) groups_of_owner_.erase(owned);
}

void Gangs::DropGroup(const kube::PodGroup& group) {
  const auto it = gangs_.find({group.meta.name_space, group.meta.name, false});
  if (it == gangs_.end() || it->second.group == nullptr) return;
  Gang& gang = it->second;
  if (gang.group->meta.uid != group.meta.uid) return;
  ForgetGroup(gang);
  gang.group = nullptr;
  agenda_->Note(gang.id);
  if (gang.pods.empty() && gang.spec_of.empty()) Remove(gang);
}

void Gangs::RemoveJob(const std::string& uid) {
  if (const kube::AnyJob* job = jobs_.Find(uid)) refusals_.Forget(job->Key());
  OwnersChanged(jobs_.Remove(uid));
}

void Gangs::Expire() {
  RefusalsChanged(refusals_.Expire(agenda_->now()));
  agenda_->WakeAt(refusals_.NextExpiry());
}

void Gangs::StandOn(const Gang& gang, absl::btree_set<std::string> nodes) {
  absl::btree_set<std::string>& before = nodes_of_[gang.id];
  if (before == nodes) return;
  for (const std::string& node : before) {
    if (nodes.contains(node)) continue;
    const auto standing = standing_on_.find(node);
    standing->second.erase(gang.id);
    if (standing->second.empty()) standing_on_.erase(standing);
  }
  for (const std::string& node : nodes) standing_on_[node].insert(gang.id);
  before = std::move(nodes);
}

void Gangs::Read(GangId id, std::optional<int64_t> whole_with) {
  Gang& gang = Get(id);
  std::vector<std::pair<kube::PodRank, const kube::Pod*>> ranked;
  absl::btree_set<std::string> nodes;
  GangFacts facts;
  gang.members = gang.running = 0;
  gang.ours = gang.pods.empty();
  absl::Time first_pod = absl::InfiniteFuture();
  gang.unmade = !gang.spec_of.empty();
  for (const kube::Pod* pod : PodsOf(gang)) {
    gang.ours |= pod->scheduler_name == options_.scheduler_name;
    first_pod = std::min(first_pod, pod->meta.creation_time);
    if (pod->phase == kube::PodPhase::kSucceeded) ++facts.succeeded;
    if (pod->phase == kube::PodPhase::kFailed) ++facts.failed;
    const bool stands = pod->IsBound() && !pod->IsTerminal();
    facts.terminating |= pod->IsDeleting() && stands;
    if (stands) nodes.insert(pod->node_name);
    if (!pod->IsDeleting()) ++gang.members;
    if (!pod->IsTerminal() || pod->IsDeleting()) gang.unmade = false;
    if (!IsLive(*pod)) continue;
    ranked.emplace_back(kube::RankOf(*pod), pod);
    if (pod->phase == kube::PodPhase::kRunning) ++gang.running;
  }
  std::ranges::sort(ranked);
  std::vector<const kube::Pod*> live;
  gang.bound.clear();
  gang.unbound.clear();
  for (const auto& [rank, pod] : ranked) {
    live.push_back(pod);
    (pod->IsBound() ? gang.bound : gang.unbound).push_back(pod->meta.uid);
  }
  StandOn(gang, std::move(nodes));
  facts.live = static_cast<int64_t>(live.size());
  const kube::AnyJob* job = JobOf(gang);
  const bool suspended = gang.unmade && job != nullptr && job->suspended;
  if (!suspended) RecallEnd(gang.group.get(), &facts);
  gang.unmade &= suspended || facts.succeeded + facts.failed == 0;
  facts.bound = static_cast<int64_t>(gang.bound.size());
  facts.min_member = MinMemberOf(gang, facts.bound + facts.succeeded);
  const int64_t standing = facts.bound + facts.succeeded;
  if (whole_with && standing > 0) {
    facts.min_member = std::min(facts.min_member, std::max(*whole_with, standing));
  }
  facts.made_anew =
      gang.unmade || (job != nullptr && job->GoesOn() && facts.succeeded < facts.min_member);
  // Where Kueue admits, it is Kueue's to do.
  const bool obeyed = options_.quota == QuotaMode::kKueue;
  gang.not_honoured = obeyed ? nullptr : kube::FindNotHonoured(live, job);
  ReadAnnotations(gang, live);
  gang.priority = live.empty() ? 0 : live.front()->priority;
  gang.preempts = std::ranges::all_of(live, &kube::Pod::preempts);
  if (gang.unmade && job != nullptr) first_pod = job->created;
  gang.created = gang.group == nullptr ? first_pod : gang.group->meta.creation_time;
  ReadOwners(gang, live);
  ReadQueueLabels(gang, live);
  facts.planned = gang.facts.planned;
  facts.committing = gang.facts.committing;
  gang.facts = facts;
}

void Gangs::ReadAnnotations(Gang& gang, const std::vector<const kube::Pod*>& live) const {
  static const kube::StringMap kNone;
  // Where Kueue admits, it places by its annotations.
  const bool obeys = options_.quota != QuotaMode::kKueue;
  std::vector<kube::TopologyAsker> askers;
  if (obeys && gang.group != nullptr) {
    askers.push_back({gang.group->meta.name, &gang.group->meta.annotations, nullptr});
  }
  for (const kube::Pod* pod : live) {
    askers.push_back({pod->meta.name, obeys ? &pod->meta.annotations : &kNone,
                      options_.efa_requires_one_zone ? &pod->spec->requests : nullptr});
  }
  gang.topology = kube::TopologyOf(askers);
  std::vector<const kube::ObjectMeta*> said_by;
  for (const kube::Pod* pod : live) said_by.push_back(&pod->meta);
  if (gang.group != nullptr) said_by.push_back(&gang.group->meta);
  gang.expected_runtime = kube::ExpectedRuntimeOf(said_by);
}

void Gangs::Lose(GangId id, std::set<std::string> lost) {
  Gang& gang = Get(id);
  gang.lost = std::move(lost);
  gang.facts.lost = static_cast<int64_t>(gang.lost.size());
  gang.facts.bound -= gang.facts.lost;
}

void Gangs::Block(GangId id, Reason blocker) {
  Gang& gang = Get(id);
  gang.blocker = std::move(blocker);
  gang.facts.blocked = gang.blocker.code != v1::REASON_UNSPECIFIED;
}

void Gangs::SettlePlaces(GangId id, bool planned, bool committing) {
  Gang& gang = Get(id);
  gang.facts.planned = planned;
  gang.facts.committing = committing;
}

void Gangs::Enter(GangId id, v1::GangState state) {
  Gang& gang = Get(id);
  if (gang.state == state) return;
  gang.state = state;
  gang.state_since = agenda_->now();
}

Reason Gangs::Blocker(const Gang& gang, bool unmade, std::string why_no_level) const {
  const std::vector<const kube::Pod*> live = LiveOf(gang);
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
    if (pod->scheduler_name != options_.scheduler_name) {
      return {v1::MEMBERS_DISAGREE,
              fmt::format("spec.schedulerName of {} is \"{}\", of the gang \"{}\"", pod->meta.name,
                          pod->scheduler_name, options_.scheduler_name),
              fmt::format("set schedulerName: {} in every replica type", options_.scheduler_name)};
    }
    if (!pod->spec_error.empty()) {
      return {v1::MEMBER_INVALID, fmt::format("{}: {}", pod->meta.name, pod->spec_error),
              "correct the pod template and create the pods anew"};
    }
    if (!pod->native_group.empty()) {
      return {
          v1::NATIVE_POD_GROUP,
          fmt::format("spec.schedulingGroup of {} names PodGroup {} of scheduling.k8s.io, which "
                      "Muster doesn't schedule by",
                      pod->meta.name, pod->native_group),
          fmt::format("leave spec.schedulingGroup out, and name the gang by label {}",
                      kube::kPodGroupLabel)};
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
  if (gang.not_honoured && gang.not_honoured->must_hold && gang.bound.empty()) {
    return {v1::MEMBER_NOT_SUPPORTED, gang.not_honoured->ToString(),
            std::string(gang.not_honoured->fix)};
  }
  const kube::TopologyAsked& asked = gang.topology;
  std::string wrong = asked.error.empty() ? std::move(why_no_level) : asked.error;
  if (!wrong.empty() && gang.bound.empty()) {
    return {v1::MEMBER_INVALID, std::move(wrong),
            "correct the annotation in the pod templates and create the pods anew"};
  }
  if (unmade) return {};
  const int64_t there = gang.facts.live + gang.facts.succeeded;
  if (there < gang.facts.min_member) return MissingMembers(gang, there);
  return GroupPending(gang);
}

}  // namespace muster::coscheduling
