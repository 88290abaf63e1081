// Which gang a pod belongs to by what owns it: a pure derivation from the job objects that are
// known.
//
//   Pod -> Job [-> JobSet [-> TrainJob]]    Pod -> PyTorchJob    Pod -> StatefulSet
//
// The members of a gang are the pods that their job makes at the same time
// (kube/objects/any_job.h); those of a StatefulSet only if its annotation muster.dev/gang is
// "true". A job with annotation muster.dev/gang: "false" has no gang, and one that makes a single
// pod needs none.
//
// The gang's PodGroup is named as the job's own operator would name it: by the bare name of the
// job, for a part of a JobSet JOBSET-REPLICATEDJOB (the first of them).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "kube/objects/any_job.h"
#include "kube/objects/pod.h"

namespace muster::coscheduling {

// On a job that Muster has suspended and will resume (job_restart.h).
inline constexpr std::string_view kRestartAnnotation = "muster.dev/restart";
inline constexpr std::string_view kPriorityClassLabel = "kueue.x-k8s.io/priority-class";

// A gang that is derived and not named by its pods' PodGroup label.
struct DerivedGang {
  // False: the job doesn't ask for a gang. The rest says what it makes even so.
  bool wanted = true;
  std::string name;
  // Another job in the namespace derives the same name and is older.
  bool contested = false;
  std::string spare_name;  // unique to this job, for then
  // Of its PodGroup: the outermost job. Without a UID: a group of plain pods, which own it
  // together.
  kube::OwnerReference owner;
  std::string maker;       // what makes the members, "PyTorchJob default/x"; for messages
  int64_t at_once = 1;     // members that exist at the same time
  int64_t min_member = 1;  // members that must start together
  std::optional<int64_t> schedule_timeout_seconds;
  std::vector<kube::TemplateScheduler> schedulers;
  bool suspended = false;
  std::string fault;       // a field of the job that can't be used, by name and value
  std::string one_by_one;  // why the members never exist at the same time, with the field

  bool operator==(const DerivedGang&) const = default;
};

// What a pod's owners say.
struct Derivation {
  // Absent: none of its owners makes a gang.
  std::optional<DerivedGang> gang;
  // An owner of a kind that is read, which isn't known (yet).
  std::optional<kube::OwnerReference> missing;
};

// The group of plain pods that Kueue's label names (kube/objects/kueue_pod_group.h), or nullopt.
std::optional<DerivedGang> KueueGroupOf(const kube::Pod& pod);

// The known jobs. Memory: a few hundred bytes each.
class JobGangs {
 public:
  // UIDs of the owners whose pods may derive differently from now on: the job itself, those that it
  // owns, and others that contend for a name. Empty if nothing that matters has changed. An older
  // resource version of a known job is ignored.
  std::vector<std::string> Upsert(kube::AnyJob job);
  std::vector<std::string> Remove(const std::string& uid);

  Derivation Derive(const kube::Pod& pod) const;
  // The first owner of a kind that is read and isn't known, or nullptr. Valid until the next
  // change.
  const kube::OwnerReference* MissingOwner(const kube::Pod& pod) const {
    return ChainOf(pod).missing;
  }
  // A job derives a gang of this name.
  bool IsClaimed(const std::string& name_space, const std::string& name) const;
  // The value of a label on the pod's owners, innermost first; "" if none has it. Only labels that
  // job.h keeps.
  std::string OwnersLabel(const kube::Pod& pod, std::string_view key) const;
  // UIDs of an owner and of all jobs below it.
  std::vector<std::string> Family(const std::string& uid) const;
  // The family of the outermost known job above this owner.
  std::vector<std::string> WholeFamily(const std::string& uid) const;
  // UIDs of the objects whose controllers make the pods of a gang that these pods belong to: what
  // owns them, and the other Jobs of a JobSet that run at the same time, even without pods.
  std::set<std::string> MakersOf(const std::vector<const kube::Pod*>& pods) const;
  // The outermost job that owns the pod; nullptr if none does, or one between isn't known. Valid
  // until the next change, as what Find returns.
  const kube::AnyJob* OutermostOf(const kube::Pod& pod) const;
  const kube::AnyJob* Find(const std::string& uid) const;
  // The value of an annotation of Muster's on the pod's owners, innermost first; "" if none has it.
  std::string OwnersAnnotation(const kube::Pod& pod, std::string_view key) const;
  // UIDs of the jobs that carry annotation muster.dev/restart (job_restart.h).
  const std::set<std::string>& Restarting() const { return restarting_; }

 private:
  // A pod's owners.
  struct Chain {
    absl::InlinedVector<const kube::AnyJob*, 3> known;  // innermost first
    const kube::OwnerReference* missing = nullptr;      // above them, if of a kind that is read
  };
  Chain ChainOf(const kube::Pod& pod) const;
  // The replicated job that the pod is of.
  static std::string ReplicatedJobOf(const kube::Pod& pod, const kube::AnyJob& innermost);
  // The part of `maker` that makes pods of this replicated job; null if none does.
  static const kube::AnyJob::Part* PartOf(const kube::AnyJob& maker,
                                          const std::string& replicated_job);
  void Claim(const kube::AnyJob& job);
  void Release(const kube::AnyJob& job, std::vector<std::string>* affected);
  const kube::AnyJob* Find(const kube::OwnerReference& owner) const;
  // Below a TrainJob are JobSets, below these Jobs.
  void AddDescendants(const std::string& uid, std::vector<std::string>* out, int levels = 2) const;
  void AddContenders(const kube::AnyJob& job, std::vector<std::string>* out) const;

  absl::flat_hash_map<std::string, kube::AnyJob> jobs_;  // by UID
  std::set<std::string> restarting_;
  absl::flat_hash_map<std::string, std::set<std::string>> children_;
  // "namespace/name" of a PodGroup -> who derives it, the oldest first.
  std::map<std::string, std::set<std::pair<absl::Time, std::string>>> claims_;
};

}  // namespace muster::coscheduling
