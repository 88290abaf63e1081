#include "coscheduling/admission/workloads.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "kube/objects/job_restart.h"
#include "kube/objects/well_known.h"
#include "quota/job_start.h"

namespace muster::coscheduling {
namespace {

constexpr std::string_view kPodGroupKind = "PodGroup";

bool IsOurs(const kube::Workload& workload) { return !quota::KeeperOf(workload).empty(); }

}  // namespace

std::string Workloads::KeyOf(const kube::NamespacedUid& owner) {
  return fmt::format("{}//{}", owner.name_space, owner.uid);
}

std::string Workloads::KeyOf(const std::string& name_space, const kube::OwnerReference& owner) {
  if (owner.kind != kPodGroupKind) return KeyOf(kube::NamespacedUid{name_space, owner.uid});
  return GangKey{name_space, owner.name}.ToString();
}

std::string Workloads::KeyOf(const kube::Workload& workload) {
  return KeyOf(workload.meta.name_space, *workload.meta.Controller());
}

// One that a Muster made, that could be reserved, and isn't this process's to reserve.
bool Workloads::MustBeTaken(const kube::Workload& workload) const {
  return IsOurs(workload) && quota::KeeperOf(workload) != options_.identity && !workload.reserved &&
         !workload.finished && !workload.meta.deletion_time;
}

void Workloads::Upsert(kube::Workload workload) {
  const bool read = options_.quota == QuotaMode::kInternal ||
                    (options_.quota == QuotaMode::kKueue && options_.kueue_fallback);
  if (workload.meta.Controller() == nullptr) workload.meta.owners = quota::OwnersBefore(workload);
  if (!read || workload.meta.Controller() == nullptr) return;
  const std::string uid = workload.meta.uid;
  const auto known = workloads_.find(uid);
  bool late = workload.reserved && late_.contains(uid);
  if (known != workloads_.end()) {
    const kube::Workload& before = known->second;
    if (kube::IsOlderVersion(workload.meta.resource_version, before.meta.resource_version)) return;
    const auto untaken = untaken_.find(uid);
    late |= workload.reserved && untaken != untaken_.end() &&
            untaken->second == quota::KeeperOf(workload);
    const std::string leader = quota::LeaderOf(workload);
    const bool taken = quota::KeeperOf(before) == options_.identity && !leader.empty();
    if (taken && leader != options_.identity) deposed_ = agenda_->now();
  }
  const auto keep = [&uid](std::set<std::string>* uids, bool in) {
    uids->erase(uid);
    if (in) uids->insert(uid);
  };
  keep(&marked_, workload.meta.Annotation(kube::kRestartAnnotation) != nullptr ||
                     workload.meta.Annotation(kube::kTriedAnnotation) != nullptr);
  untaken_.try_emplace(uid, quota::KeeperOf(workload));
  if (!MustBeTaken(workload)) untaken_.erase(uid);
  keep(&late_, late);
  keep(&elsewhere_, false);
  keep(&homeless_, true);
  if (workload.finished) workload.pod_sets.clear();
  of_owner_[KeyOf(workload)].insert(uid);
  workloads_.insert_or_assign(uid, std::move(workload));
  NoteGangs(uid);
}

void Workloads::Remove(const std::string& uid) {
  const auto known = workloads_.find(uid);
  if (known == workloads_.end()) return;
  NoteGangs(uid);
  const auto of_owner = of_owner_.find(KeyOf(known->second));
  of_owner->second.erase(uid);
  if (of_owner->second.empty()) of_owner_.erase(of_owner);
  workloads_.erase(known);
  untaken_.erase(uid);
  for (auto* uids : {&marked_, &late_, &homeless_, &elsewhere_}) uids->erase(uid);
  users_.erase(uid);
}

const Gang* Workloads::NoteGangs(const std::string& uid) {
  const auto known = workloads_.find(uid);
  if (known == workloads_.end()) return nullptr;
  for (GangId gang : UsersOf(known->second)) agenda_->Note(gang);
  const Gang* user = GangOf(known->second);
  if (user != nullptr) agenda_->Note(user->id);
  return user;
}

void Workloads::ForgetGang(GangId gang, const GangKey& key) {
  errors_.Forget(gang);
  const auto users = users_.find(used_.Of(gang));
  if (users != users_.end()) users->second.erase(gang);
  if (workloads_.contains(used_.Of(gang))) homeless_.insert(used_.Of(gang));
  used_.Forget(gang);
  if (!key.is_pod) LoseKey(key.ToString());
}

void Workloads::NoteEnd(const kube::Pod& pod) {
  ends_.Note(pod);
  LoseOwner({pod.meta.name_space, pod.meta.uid});
  const std::string* group = pod.meta.Label(kube::kKueueGroupLabel);
  if (group != nullptr) LoseKey(GangKey{pod.meta.name_space, *group}.ToString());
}

void Workloads::LoseKey(const std::string& key) {
  const auto owned = of_owner_.find(key);
  if (owned != of_owner_.end()) homeless_.insert(owned->second.begin(), owned->second.end());
}

std::set<GangId> Workloads::UsersOf(const kube::Workload& workload) const {
  const std::vector<GangId> all = gangs_.GangsOf(workload.meta.ControllerUid());
  std::set<GangId> users(all.begin(), all.end());
  const auto known = users_.find(workload.meta.uid);
  if (known != users_.end()) users.insert(known->second.begin(), known->second.end());
  return users;
}

const Gang* Workloads::GangOf(const kube::Workload& workload) const {
  const kube::OwnerReference& owner = *workload.meta.Controller();
  const std::string& name_space = workload.meta.name_space;
  if (owner.kind == kPodGroupKind) return gangs_.Find({name_space, owner.name, false});
  for (GangId user : UsersOf(workload)) {
    const Gang* gang = gangs_.Find(user);
    if (gang != nullptr && Of(*gang) == &workload) return gang;
  }
  const Gang* gang = gangs_.OfPod(owner.uid);
  return gang != nullptr && gang->key.name_space == name_space ? gang : nullptr;
}

bool Workloads::Runs(const kube::Workload& workload) const {
  const kube::Pod* pod = gangs_.snapshot().FindPod(workload.meta.Controller()->uid);
  if (pod != nullptr) return pod->IsBound();
  const Gang* gang = GangOf(workload);
  return gang != nullptr && !gang->bound.empty();
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

absl::Time Workloads::RunsUntil(const Gang& gang) const {
  const kube::Workload* workload = Of(gang);
  return workload == nullptr ? absl::InfiniteFuture() : quota::ExecutionEnds(*workload);
}

std::string Workloads::JobOf(const Gang& gang) const {
  if (gang.derived) {
    const bool is_its = gang.derived->is_whole || gang.derived->is_stage;
    return is_its && gang.derived->owner.kind != kube::kStatefulSetKind ? gang.derived->owner.uid
                                                                        : "";
  }
  // What its PodGroup says counts while there are no pods that could say something else.
  if (!gang.pods.empty() || gang.group == nullptr) return "";
  const kube::AnyJob* job = gangs_.jobs().FindOwner(gang.group->meta);
  return job != nullptr && gangs_.PodsOf(job->Key()).empty() ? job->uid : "";
}

bool Workloads::IsOthers(const Gang& gang, const kube::Workload& workload) const {
  const auto users = users_.find(workload.meta.uid);
  return users != users_.end() && std::ranges::any_of(users->second, [&](GangId user) {
           const Gang* other = gangs_.Find(user);
           if (other == nullptr || other == &gang) return false;
           const bool stages = gang.derived && gang.derived->is_stage &&
                               (!other->derived || other->derived->name != gang.derived->name);
           return !stages && JobOf(*other) == workload.meta.Controller()->uid;
         });
}

const kube::Workload* Workloads::Of(const Gang& gang) const {
  if (gang.key.is_pod)
    return gang.pods.empty() ? nullptr : OfPod({gang.key.name_space, *gang.pods.begin()});
  const std::string key = gang.key.ToString();
  const auto used = workloads_.find(used_.Of(gang.id));
  if (used != workloads_.end() && used->second.reserved && !IsOthers(gang, used->second)) {
    return &used->second;
  }
  const std::string job = KeyOf(kube::NamespacedUid{gang.key.name_space, JobOf(gang)});
  const auto own = [&](const kube::Workload& each) {
    return each.meta.Controller()->uid == gang.uid() || each.meta.ControllerUid().uid.empty() ||
           each.meta.deletion_time;
  };
  const auto free = [&](const kube::Workload& each) { return !IsOthers(gang, each); };
  const auto reserved = [&](const kube::Workload& each) { return each.reserved && free(each); };
  for (const std::string& owner : {key, job}) {
    if (const kube::Workload* found = FirstOf(owner, reserved)) return found;
  }
  const kube::Workload* found = FirstOf(key, own);
  return found != nullptr ? found : FirstOf(job, [&](const kube::Workload& each) {
    return quota::HasFinalizer(each) && free(each);
  });
}

void Workloads::Use(const Gang& gang, const kube::Workload& workload) {
  const kube::OwnerReference& owner = *workload.meta.Controller();
  if (owner.kind == kPodGroupKind || gang.key.is_pod) return;
  std::string& used = used_[gang.id];
  if (const auto before = users_.find(used); before != users_.end()) before->second.erase(gang.id);
  used = workload.meta.uid;
  users_[used].insert(gang.id);
}

const kube::Workload* Workloads::OfPod(const kube::NamespacedUid& pod) const {
  return FirstOf(KeyOf(pod), [](const auto&) { return true; });
}

const kube::Workload* Workloads::OfJob(const kube::NamespacedUid& job) const {
  const std::string key = KeyOf(job);
  const auto open = [](const kube::Workload& each) {
    return !each.finished && !each.meta.deletion_time;
  };
  const kube::Workload* first = FirstOf(key, open);
  const auto another = [&](const kube::Workload& each) { return &each != first && open(each); };
  return FirstOf(key, another) == nullptr ? first : nullptr;
}

bool Workloads::HasQuota(const kube::NamespacedUid& owner) const {
  return FirstOf(KeyOf(owner), quota::HasQuota) != nullptr;
}

std::vector<const kube::Workload*> Workloads::Marked() const {
  std::vector<const kube::Workload*> marked;
  for (const std::string& uid : marked_) marked.push_back(&workloads_.at(uid));
  return marked;
}

PatchWorkload Workloads::Patch(const kube::Workload& workload, std::optional<bool> active,
                               std::map<std::string, std::optional<std::string>> annotations) {
  return {RefOf(workload.meta), active, workload.has_annotations, std::move(annotations), {}, {}};
}

void Workloads::BeginTerm() {
  taken_over_ = false;
  deposed_.reset();
  late_.clear();
  for (auto& [uid, keeper] : untaken_) keeper = quota::KeeperOf(workloads_.at(uid));
}

std::optional<std::vector<const kube::Workload*>> Workloads::Attend() {
  std::vector<const kube::Workload*> untaken;
  if (deposed_) agenda_->WakeAt(*deposed_ + kHandOver);
  for (const auto& [uid, keeper] : untaken_) {
    const kube::Workload& workload = workloads_.at(uid);
    if (deposed_) break;
    if (!taken_over_) untaken.push_back(&workload);
    outbox_->Act("workload/" + uid, quota::TakenOver(workload, options_.identity, agenda_->now()));
  }
  // Who runs by one was started while the process before still led.
  std::erase_if(late_, [this](const auto& uid) { return Runs(workloads_.at(uid)); });
  taken_over_ |= untaken_.empty() && late_.empty();
  for (const std::string& uid : late_) {
    if (!deposed_) Release(Gang(), workloads_.at(uid));
  }
  orphans_.clear();
  for (auto it = homeless_.begin(); it != homeless_.end();) {
    const kube::Workload& workload = workloads_.at(*it);
    elsewhere_.erase(*it);
    bool done =
        GangOf(workload) != nullptr || (!workload.reserved && !quota::HasFinalizer(workload));
    std::optional<std::string_view> end = "";
    if (!done && !IsOurs(workload)) {
      end = ends_.EndOf(
          workload, gangs_.jobs().Find(workload.meta.Controller()->uid),
          [this](const auto& pod) { return gangs_.snapshot().FindPod(pod) != nullptr; });
      if (!end && workload.reserved) elsewhere_.insert(*it);
      done = !end;
    }
    it = done ? homeless_.erase(it) : std::next(it);
    if (done) continue;
    const auto pods = gangs_.PodsOf({workload.meta.name_space, workload.meta.Controller()->uid});
    const auto stands = [](const kube::Pod* pod) { return pod->IsBound() && !pod->IsTerminal(); };
    const bool going = !workload.reserved || !end->empty() || std::ranges::none_of(pods, stands);
    // Until it says so itself, others aren't given what it had.
    if (workload.reserved) orphans_.push_back({&workload, going});
    if (going) LetGo(workload, *end);
  }
  for (const std::string& uid : elsewhere_) orphans_.push_back({&workloads_.at(uid), false});
  if (deposed_) return std::nullopt;
  return untaken;
}

void Workloads::LetGo(const Gang& gang, bool asks) {
  const kube::Workload* workload = Of(gang);
  if (workload == nullptr || !quota::HasFinalizer(*workload)) return;
  if (!asks || workload->meta.deletion_time) LetGo(*workload);
}

void Workloads::LetGo(const kube::Workload& workload, std::string_view how) {
  PatchWorkload end = Patch(workload);
  end.finalizers = workload.meta.finalizers;
  std::erase(*end.finalizers, kube::kInUseFinalizer);
  if (workload.reserved && !workload.meta.deletion_time) return Release(Gang(), workload, how);
  outbox_->Act("workload/" + workload.meta.uid, std::move(end));
}

void Workloads::Act(const Gang& gang, const kube::Workload& workload, Action action) {
  const std::string target = "workload/" + workload.meta.uid;
  if (gang.id == GangId::kNone) return void(outbox_->Act(target, std::move(action)));
  outbox_->Act(gang.id, target, std::move(action), KeepRefusal(gangs_, gang.id, &errors_));
}

const kube::Workload* Workloads::Keep(const Gang& gang, const kube::OwnerReference& owner,
                                      quota::Workload asked) {
  const bool is_jobs = gang.derived && owner.uid == gang.derived->owner.uid;
  const kube::AnyJob* maker = is_jobs ? gangs_.MakerOf(gang) : nullptr;
  auto named = maker == nullptr ? std::nullopt : quota::AsOfJob(asked.pod_sets, maker->pod_sets);
  if (named) asked.pod_sets = *std::move(named);
  const kube::Workload* known =
      FirstOf(KeyOf(gang.key.name_space, owner),
              [&](const kube::Workload& each) { return each.meta.Controller()->uid == owner.uid; });
  if (known != nullptr &&
      (known->meta.deletion_time || !known->active || MustBeTaken(*known) || deposed_)) {
    return nullptr;
  }
  if (known != nullptr && known->finished) {
    Release(gang, *known);  // it has come back
    return nullptr;
  }
  if (known != nullptr && !known->reserved && !known->reclaimable.empty()) {
    Reclaim(gang, *known, {});  // of the run before
    return nullptr;
  }
  if (known != nullptr && IsOurs(*known) && quota::AsksFor(*known, asked) &&
      (!gang.unmade || quota::HasPodSets(*known, asked.pod_sets)) && quota::HasFinalizer(*known)) {
    errors_.Forget(gang.id);  // whatever became of the answers
    return known;
  }
  WriteWorkload write = quota::WorkloadFor(owner, asked, named ? maker : nullptr);
  if (known != nullptr && named) {
    // What was added to its templates, if anything was, isn't its user's.
    const auto had = quota::WithoutFlavors(*maker, *known);
    for (size_t i = 0; i < had.size(); ++i) write.pod_templates[i] = had[i].original;
  }
  write.leader = options_.identity;
  write.priority_class = gang.priority_class_name;
  if (asked.pod_sets.size() > quota::kMaxPodSets) {
    errors_[gang.id] = fmt::format("it has {} pod sets, a Workload at most {}",
                                   asked.pod_sets.size(), quota::kMaxPodSets);
    return nullptr;
  }
  kube::Workload target;
  target.meta.uid = owner.uid;
  if (known != nullptr) {
    write.workload = RefOf(known->meta);
    target = *known;
  }
  Act(gang, target, std::move(write));
  return nullptr;
}

bool Workloads::TakeOver(const Gang& gang, const kube::Workload& workload) {
  if (!IsOurs(workload) || quota::KeeperOf(workload) == options_.identity) return true;
  if (late_.contains(workload.meta.uid)) return false;
  Act(gang, workload, quota::TakenOver(workload, options_.identity, agenda_->now()));
  return false;
}

void Workloads::Wait(const Gang& gang, const kube::Workload& workload, const quota::Wait& wait) {
  if (!workload.active && (workload.evicted || !IsOurs(workload))) return;
  outbox_->Act(gang.id, "workload/" + workload.meta.uid,
               quota::StatusOf(workload, quota::Waiting(workload, wait, agenda_->now())));
}

void Workloads::Reserve(const Gang& gang, const kube::Workload& workload,
                        const quota::Admission& admission) {
  if (deposed_ || MustBeTaken(workload)) return;
  Act(gang, workload,
      quota::StatusOf(workload, quota::Admitted(workload, admission, agenda_->now()),
                      quota::InOrderOf(workload, admission)));
}

void Workloads::Deactivate(const Gang& gang, const kube::Workload& workload) {
  if (quota::IsToBeDeactivated(workload)) return Act(gang, workload, Patch(workload, false));
  Act(gang, workload,
      quota::StatusOf(workload, quota::OverTime(workload, agenda_->now()),
                      quota::ReservedIn(workload)));
}

void Workloads::Evict(const Gang& gang, const kube::Workload& workload, const Eviction& eviction) {
  Act(gang, workload,
      quota::StatusOf(workload, quota::Evicted(workload, eviction, agenda_->now()),
                      quota::ReservedIn(workload)));
}

void Workloads::Reclaim(const Gang& gang, const kube::Workload& workload,
                        std::map<std::string, int64_t> pods) {
  if (pods == workload.reclaimable) return;
  Act(gang, workload, ApplyReclaimablePods{RefOf(workload.meta), std::move(pods)});
}

void Workloads::Release(const Gang& gang, const kube::Workload& workload,
                        std::string_view finished) {
  Act(gang, workload,
      quota::StatusOf(workload, quota::Released(workload, finished, agenda_->now())));
}

}  // namespace muster::coscheduling
