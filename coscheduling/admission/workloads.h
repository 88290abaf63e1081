// Kueue's Workloads: what is known of each, and their writing.
//
// With `quota: internal` quota lies in them: what a gang holds is its Workload's status, where
// users have no rights. A member beyond minMember has one of its own, as a pod alone, so that what
// is reserved never has to change. With `quota: kueue` they are read.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coscheduling/agenda.h"
#include "coscheduling/engine_options.h"
#include "coscheduling/gangs/gangs.h"
#include "coscheduling/outbox.h"
#include "kube/objects/quota.h"
#include "quota/workload_end.h"
#include "quota/workload_status.h"

namespace muster::coscheduling {

using quota::Eviction;

class Workloads {
 public:
  // Until each process has looked at the Lease, and what the former one had begun has been written.
  static constexpr absl::Duration kHandOver = absl::Seconds(5);

  // All of them outlive it.
  Workloads(const EngineOptions& options, const Gangs& gangs, Agenda* agenda, Outbox* outbox)
      : options_(options), gangs_(gangs), agenda_(agenda), outbox_(outbox) {}

  // --- observations ---
  void Upsert(kube::Workload workload);
  void Remove(const std::string& uid);
  void ForgetGang(GangId gang, const GangKey& key);
  // A pod that is no gang's has ended, and is gone.
  void NoteEnd(const kube::Pod& pod);
  void ForgetEnd(const std::string& pod_uid) { ends_.Forget(pod_uid); }
  // A job or a pod has changed, or is gone.
  void LoseOwner(const kube::NamespacedUid& owner) { LoseKey(KeyOf(owner)); }
  // Whatever another process did meanwhile is seen.
  void BeginTerm();
  // Two processes lead for a moment when one follows the other; the one that still does after that
  // has to begin its term anew, if the other took a Workload from it.
  bool MustBeginTerm() const { return deposed_ && agenda_->now() >= *deposed_ + kHandOver; }

  // --- the step of all ---
  // Takes those over that another process might still reserve, takes back what one reserved even
  // so, and lets go of those whose gang is gone. Returns the former, until there were none once in
  // a term; nullopt once another process has taken one from this: nothing may be reserved then.
  std::optional<std::vector<const kube::Workload*>> Attend();

  // --- steps of a gang ---
  // Looks at all gangs that may use it again. Returns one that does; null if there is none.
  const Gang* NoteGangs(const std::string& uid);
  // Its quota lies in this one.
  void Use(const Gang& gang, const kube::Workload& workload);
  // The Workload of this owner, a job, a PodGroup or a pod, once it asks for this; null while that
  // is being written.
  const kube::Workload* Keep(const Gang& gang, const kube::OwnerReference& owner,
                             quota::Workload asked);
  // Its quota may be used: what a process before decided about it fails from now on.
  bool TakeOver(const Gang& gang, const kube::Workload& workload);
  // Says why it waits.
  void Wait(const Gang& gang, const kube::Workload& workload, const quota::Wait& wait);
  // Reserves the pod sets of `admission` and admits it.
  void Reserve(const Gang& gang, const kube::Workload& workload, const quota::Admission& admission);
  // Its admission says where the pods stand as well.
  void Place(const Gang& gang, const kube::Workload& workload, quota::Admission placed) {
    Act(gang, workload, quota::StatusOf(workload, workload.conditions, std::move(placed)));
  }
  // It has run for too long: it says so, then isn't active any more.
  void Deactivate(const Gang& gang, const kube::Workload& workload);
  void Evict(const Gang& gang, const kube::Workload& workload, const Eviction& eviction);
  // Gives back what these of its pods had; nothing if that is so already.
  void Reclaim(const Gang& gang, const kube::Workload& workload,
               std::map<std::string, int64_t> pods);
  // Takes back what it reserved. `finished`: Kueue's reason of condition Finished, or empty.
  void Release(const Gang& gang, const kube::Workload& workload, std::string_view finished = "");
  // It has no quota: its Workload may go, unless it asks for some.
  void LetGo(const Gang& gang, bool asks);

  // --- questions ---
  // That of the gang: the one that has quota, if any; else its own, if it has one. Null if none.
  const kube::Workload* Of(const Gang& gang) const;
  absl::Time RunsUntil(const Gang& gang) const;
  // UID of the job whose Workload would be the gang's; empty if none.
  std::string JobOf(const Gang& gang) const;
  // It is a job's, and another gang of it uses it that isn't another stage.
  bool IsOthers(const Gang& gang, const kube::Workload& workload) const;
  // Gangs that may use it if it is a job's, among them all that do. They may be gone.
  std::set<GangId> UsersOf(const kube::Workload& workload) const;
  // That of a pod.
  const kube::Workload* OfPod(const kube::NamespacedUid& pod) const;
  // That of a job, unless there are several that haven't finished.
  const kube::Workload* OfJob(const kube::NamespacedUid& job) const;
  // One of this owner's has quota.
  bool HasQuota(const kube::NamespacedUid& owner) const;
  bool AnyOfJob(const kube::NamespacedUid& job) const { return of_owner_.contains(KeyOf(job)); }
  // Those of jobs that are gone, whose pods stand, and of what others place; until the next Attend.
  const std::vector<quota::Orphan>& Orphans() const { return orphans_; }
  static PatchWorkload Patch(const kube::Workload& workload, std::optional<bool> active = {},
                             std::map<std::string, std::optional<std::string>> annotations = {});
  // Those that carry annotations of a restart (job_restart.h).
  std::vector<const kube::Workload*> Marked() const;
  // The last refusal of a write, until one is accepted.
  const std::string& ErrorOf(const Gang& gang) const { return errors_.Of(gang.id); }

 private:
  // By namespace, and the owner's UID; a PodGroup's by its name, as it may be made anew.
  static std::string KeyOf(const kube::NamespacedUid& owner);
  static std::string KeyOf(const std::string& name_space, const kube::OwnerReference& owner);
  static std::string KeyOf(const kube::Workload& workload);
  const kube::Workload* FirstOf(const std::string& key, auto wanted) const;
  void LoseKey(const std::string& key);
  const Gang* GangOf(const kube::Workload& workload) const;
  bool Runs(const kube::Workload& workload) const;
  void LetGo(const kube::Workload& workload, std::string_view how = "");
  void Act(const Gang& gang, const kube::Workload& workload, Action action);
  bool MustBeTaken(const kube::Workload& workload) const;

  const EngineOptions& options_;
  const Gangs& gangs_;
  Agenda* agenda_;
  Outbox* outbox_;

  std::map<std::string, kube::Workload> workloads_;  // by UID
  std::map<std::string, std::set<std::string>, std::less<>> of_owner_;
  std::set<std::string> marked_;  // UIDs
  // By UID: who might reserve them instead of this process, as of the begin of its term.
  std::map<std::string, std::string> untaken_;
  // UIDs of those that the process before reserved in this one's term, before they were taken.
  std::set<std::string> late_;
  std::set<std::string> homeless_;  // UIDs of those whose gang may be gone
  // UIDs of those that have quota, which Kueue gave, and no gang here: others place their pods.
  std::set<std::string> elsewhere_;
  quota::WorkloadEnds ends_;
  std::vector<quota::Orphan> orphans_;
  PerGang<std::string> errors_;
  std::map<std::string, std::set<GangId>> users_;  // by UID: of those that are a job's
  PerGang<std::string> used_;                      // the same the other way round
  bool taken_over_ = false;                        // all that there was when this began its term
  std::optional<absl::Time> deposed_;              // when another process took one since
};

}  // namespace muster::coscheduling
