#include "coscheduling/admission/workloads.h"

#include <algorithm>
#include <utility>

#include "coscheduling/gangs/job_restart.h"
#include "coscheduling/labels.h"
#include "fmt/format.h"
#include "kube/objects/workload_name.h"

namespace muster::coscheduling {
namespace {

constexpr std::string_view kPodGroupKind = "PodGroup";

bool HasFinalizer(const kube::Workload& workload) {
  return std::ranges::count(workload.meta.finalizers, kWorkloadFinalizer) > 0;
}

bool IsAskedFor(const kube::Workload& workload, const quota::Workload& asked) {
  return workload.queue == asked.queue && workload.priority == asked.priority &&
         std::ranges::equal(workload.pod_sets, asked.pod_sets, [](const auto& a, const auto& b) {
           return a.name == b.name && a.count == b.count;
         });
}

}  // namespace

// --- observations ---

std::string Workloads::KeyOf(const kube::Workload& workload) {
  const kube::OwnerReference* owner = workload.meta.Controller();
  if (owner == nullptr) return "";
  return owner->kind == kPodGroupKind ? workload.meta.name_space + "/" + owner->name : owner->uid;
}

// One that a Muster made, that could be reserved, and isn't this process's to reserve.
bool Workloads::MustBeTaken(const kube::Workload& workload) const {
  const std::string* leader = workload.meta.Annotation(kLeaderAnnotation);
  return leader != nullptr && *leader != options_.identity && !workload.reserved &&
         !workload.finished && !workload.meta.deletion_time;
}

void Workloads::Upsert(kube::Workload workload) {
  const bool read = options_.quota == QuotaMode::kInternal ||
                    (options_.quota == QuotaMode::kKueue && options_.kueue_fallback);
  const kube::OwnerReference* owner = workload.meta.Controller();
  if (!read || owner == nullptr) return;
  const std::string uid = workload.meta.uid;
  const auto known = workloads_.find(uid);
  if (known != workloads_.end()) {
    const kube::ObjectMeta& before = known->second.meta;
    if (kube::IsOlderVersion(workload.meta.resource_version, before.resource_version)) return;
    const std::string* leader = before.Annotation(kLeaderAnnotation);
    const std::string* now = workload.meta.Annotation(kLeaderAnnotation);
    deposed_ |=
        leader != nullptr && *leader == options_.identity && now != nullptr && *now != *leader;
  }
  const auto keep = [&uid](std::set<std::string>* uids, bool in) {
    if (in) {
      uids->insert(uid);
    } else {
      uids->erase(uid);
    }
  };
  keep(&marked_, workload.meta.Annotation(kRestartAnnotation) != nullptr ||
                     workload.meta.Annotation(kTriedAnnotation) != nullptr);
  keep(&untaken_, MustBeTaken(workload));
  if (workload.meta.Annotation(kLeaderAnnotation) != nullptr) homeless_.insert(uid);
  if (workload.finished) workload.pod_sets.clear();
  of_owner_[KeyOf(workload)].insert(uid);
  const kube::Workload& kept = workloads_.insert_or_assign(uid, std::move(workload)).first->second;
  NoteGangs(kept.meta.name_space, *kept.meta.Controller());
}

void Workloads::Remove(const std::string& uid) {
  const auto known = workloads_.find(uid);
  if (known == workloads_.end()) return;
  const kube::Workload workload = std::move(known->second);
  workloads_.erase(known);
  for (std::set<std::string>* uids : {&marked_, &untaken_, &homeless_}) uids->erase(uid);
  const auto of_owner = of_owner_.find(KeyOf(workload));
  of_owner->second.erase(uid);
  if (of_owner->second.empty()) of_owner_.erase(of_owner);
  NoteGangs(workload.meta.name_space, *workload.meta.Controller());
}

void Workloads::NoteGangs(const std::string& name_space, const kube::OwnerReference& owner) {
  if (const kube::AnyJob* job = gangs_.jobs().Find(owner.uid)) {
    for (GangId gang : gangs_.GangsOf(*job)) agenda_->Note(gang);
  } else if (const Gang* gang = owner.kind == kPodGroupKind
                                    ? gangs_.Find({name_space, owner.name, false})
                                    : gangs_.OfPod(owner.uid)) {
    agenda_->Note(gang->id);
  }
}

void Workloads::ForgetGang(GangId gang, const GangKey& key) {
  errors_.erase(gang);
  const auto of_group = of_owner_.find(key.ToString());
  if (of_group == of_owner_.end() || key.is_pod) return;
  homeless_.insert(of_group->second.begin(), of_group->second.end());
}

// --- questions ---

const Gang* Workloads::GangOf(const kube::Workload& workload) const {
  const kube::OwnerReference& owner = *workload.meta.Controller();
  if (owner.kind != kPodGroupKind) return gangs_.OfPod(owner.uid);
  return gangs_.Find({workload.meta.name_space, owner.name, false});
}

const kube::Workload* Workloads::FirstOf(const std::string& key, auto wanted) const {
  const auto uids = of_owner_.find(key);
  if (uids == of_owner_.end()) return nullptr;
  for (const std::string& uid : uids->second) {
    const kube::Workload& workload = workloads_.at(uid);
    if (wanted(workload)) return &workload;
  }
  return nullptr;
}

const kube::Workload* Workloads::Of(const Gang& gang) const {
  if (gang.key.is_pod) return gang.pods.empty() ? nullptr : OfPod(*gang.pods.begin());
  const std::string key = gang.key.ToString();
  const kube::Workload* found = FirstOf(key, [](const auto& each) { return each.reserved; });
  if (found != nullptr) return found;
  return FirstOf(key, [&](const auto& each) {
    return each.meta.Controller()->uid == gang.uid() || each.meta.deletion_time;
  });
}

const kube::Workload* Workloads::OfPod(const std::string& uid) const {
  return FirstOf(uid, [](const auto&) { return true; });
}

const kube::Workload* Workloads::OfJob(const std::string& job_uid) const {
  const auto open = [](const kube::Workload& each) {
    return !each.finished && !each.meta.deletion_time;
  };
  const kube::Workload* first = FirstOf(job_uid, open);
  const auto another = [&](const kube::Workload& each) { return &each != first && open(each); };
  return FirstOf(job_uid, another) == nullptr ? first : nullptr;
}

std::vector<const kube::Workload*> Workloads::Marked() const {
  std::vector<const kube::Workload*> marked;
  for (const std::string& uid : marked_) marked.push_back(&workloads_.at(uid));
  return marked;
}

const std::string& Workloads::ErrorOf(const Gang& gang) const {
  static const std::string kNone;
  const auto it = errors_.find(gang.id);
  return it == errors_.end() ? kNone : it->second;
}

// --- writing ---

PatchWorkload Workloads::Patch(const kube::Workload& workload) const {
  PatchWorkload patch;
  patch.workload = RefOf(workload.meta);
  patch.has_annotations = workload.has_annotations;
  return patch;
}

bool Workloads::Attend() {
  for (const std::string& uid : untaken_) {
    PatchWorkload take = Patch(workloads_.at(uid));
    take.annotations.emplace(kLeaderAnnotation, options_.identity);
    if (!deposed_) outbox_->Act("workload/" + uid, std::move(take));
  }
  for (auto it = homeless_.begin(); it != homeless_.end();) {
    const kube::Workload& workload = workloads_.at(*it);
    const bool done =
        GangOf(workload) != nullptr || (!workload.reserved && !HasFinalizer(workload));
    it = done ? homeless_.erase(it) : std::next(it);
    if (!done) LetGo(workload);
  }
  return untaken_.empty() && !deposed_;
}

void Workloads::LetGo(const kube::Workload& workload) {
  PatchWorkload end = Patch(workload);
  end.finalizers = workload.meta.finalizers;
  std::erase(*end.finalizers, kWorkloadFinalizer);
  if (workload.reserved && !workload.meta.deletion_time) {
    Gang nobody;
    return Release(nobody, workload);
  }
  outbox_->Act("workload/" + workload.meta.uid, std::move(end));
}

void Workloads::Act(const Gang& gang, const kube::Workload& workload, Action action) {
  const std::string target = "workload/" + workload.meta.uid;
  if (gang.id == GangId::kNone) {
    outbox_->Act(target, std::move(action));
    return;
  }
  outbox_->Act(gang.id, target, std::move(action),
               [this, id = gang.id](const absl::Status& status, absl::Time) {
                 errors_.erase(id);
                 if (IsRefusal(status) && gangs_.Find(id) != nullptr) {
                   errors_[id] = std::string(status.message());
                 }
               });
}

const kube::Workload* Workloads::Keep(const Gang& gang, const kube::OwnerReference& owner,
                                      const quota::Workload& asked) {
  const std::string key =
      owner.kind == kPodGroupKind ? gang.key.name_space + "/" + owner.name : owner.uid;
  const kube::Workload* known = FirstOf(
      key, [&](const kube::Workload& each) { return each.meta.Controller()->uid == owner.uid; });
  if (known != nullptr && (known->meta.deletion_time || MustBeTaken(*known) || deposed_)) {
    return nullptr;
  }
  if (known != nullptr && IsAskedFor(*known, asked) && HasFinalizer(*known)) return known;
  WriteWorkload write = {.workload = {gang.key.name_space, kube::WorkloadName(owner), "", ""},
                         .owner = owner,
                         .leader = options_.identity,
                         .queue = asked.queue,
                         .priority_class = gang.priority_class_name,
                         .priority = asked.priority,
                         .pod_sets = asked.pod_sets};
  kube::Workload target;
  target.meta.uid = owner.uid;
  if (known != nullptr) {
    write.workload = RefOf(known->meta);
    target = *known;
  }
  Act(gang, target, std::move(write));
  return nullptr;
}

void Workloads::Reserve(const Gang& gang, const kube::Workload& workload,
                        const quota::Admission& admission) {
  if (deposed_ || MustBeTaken(workload)) return;
  Act(gang, workload,
      ApplyWorkloadStatus{RefOf(workload.meta), admission,
                          quota::Admitted(workload, admission, agenda_->now())});
}

void Workloads::Evict(const Gang& gang, const kube::Workload& workload, const Eviction& eviction) {
  Act(gang, workload,
      ApplyWorkloadStatus{RefOf(workload.meta), quota::ReservedIn(workload),
                          quota::Evicted(workload, eviction, agenda_->now())});
}

void Workloads::Release(const Gang& gang, const kube::Workload& workload,
                        std::string_view finished) {
  Act(gang, workload,
      ApplyWorkloadStatus{RefOf(workload.meta), std::nullopt,
                          quota::Released(workload, finished, agenda_->now())});
}

}  // namespace muster::coscheduling
