// Which gang a pod belongs to by what owns it: a pure derivation from the jobs that are known
// (cluster/known_jobs.h has who owns whom).
//
// The members of a gang are the pods that their job makes at the same time
// (kube/objects/any_job.h); those of a StatefulSet only if its annotation muster.dev/gang is
// "true". A job with annotation muster.dev/gang: "false" has no gang, and one that makes a single
// pod needs none.
//
// The gang's PodGroup is named as the job's own operator would name it (AnyJob::Part::name).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/known_jobs.h"
#include "kube/objects/any_job.h"
#include "kube/objects/pod.h"

namespace muster::coscheduling {

inline constexpr std::string_view kPriorityClassLabel = "kueue.x-k8s.io/priority-class";

// A gang that is derived and not named by its pods' PodGroup label.
struct DerivedGang {
  // False: the job doesn't ask for a gang. The rest says what it makes even so.
  bool wanted = true;
  std::string name;
  // Another job in the namespace derives the same name and is older.
  bool contested = false;
  std::string spare_name;  // unique to this job, for then
  // Of its PodGroup: the outermost job, but not a RayJob, which makes a RayCluster of another name
  // each time. Without a UID: a group of plain pods, which own it together.
  kube::OwnerReference owner;
  std::string maker;       // what makes the members, "PyTorchJob default/x"; for messages
  std::string maker_uid;   // of that job
  bool is_whole = false;   // its members are all that it makes
  bool is_stage = false;   // others come before or after it, and the job has a Workload for all
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
  // An owner that isn't known (yet), or whose kind isn't, so that nobody has said what its pods
  // are.
  std::optional<kube::OwnerReference> missing;
};

// The group of plain pods that Kueue's label names (kube/objects/kueue_pod_group.h), or nullopt.
std::optional<DerivedGang> KueueGroupOf(const kube::Pod& pod);

class JobGangs {
 public:
  // The owners whose pods may derive differently from now on: the job itself, those that it owns,
  // and others that contend for a name. Empty if nothing that matters has changed. An older
  // resource version of a known job is ignored.
  std::vector<kube::NamespacedUid> Upsert(kube::AnyJob job);
  std::vector<kube::NamespacedUid> Remove(const std::string& uid);

  Derivation Derive(const kube::Pod& pod) const;
  // What the pods of the job's first part will derive.
  DerivedGang DeriveFromSpec(const kube::AnyJob& maker) const;
  // Derivation::missing, or nullptr. Valid until the next change.
  const kube::OwnerReference* MissingOwner(const kube::Pod& pod) const {
    return ChainOf(pod).missing;
  }
  // A job derives a gang of this name.
  bool IsClaimed(const std::string& name_space, const std::string& name) const;
  std::string OwnersLabel(const kube::Pod& pod, std::string_view key) const {
    return cluster::KnownJobs::LabelOf(ChainOf(pod), key);
  }
  // Of the job, else of what made it.
  std::string LabelOf(const std::string& job, std::string_view key) const {
    return cluster::KnownJobs::LabelOf(known_.ChainOf(*Find(job)), key);
  }
  std::string OwnersAnnotation(const kube::Pod& pod, std::string_view key) const {
    return cluster::KnownJobs::AnnotationOf(ChainOf(pod), key);
  }
  // The objects whose controllers make the pods of a gang that these pods belong to: what owns
  // them, and the other Jobs of a JobSet or MPIJob that run at the same time, even without pods.
  std::set<kube::NamespacedUid> MakersOf(const std::vector<const kube::Pod*>& pods) const;
  // The outermost job that owns the pod; nullptr if none does, or one between isn't known. Valid
  // until the next change, as what Find returns.
  const kube::AnyJob* OutermostOf(const kube::Pod& pod) const;
  const kube::AnyJob* Find(const std::string& uid) const { return known_.Find(uid); }
  const kube::AnyJob* FindOwner(const kube::ObjectMeta& m) const { return known_.FindOwner(m); }
  const cluster::KnownJobs& known() const { return known_; }

 private:
  using Chain = cluster::KnownJobs::Chain;
  Chain ChainOf(const kube::Pod& pod) const;
  // That says which pods exist: the outermost of those that do.
  static const kube::AnyJob& MakerOf(const Chain& chain);
  // The replicated job that the pod is of.
  static std::string ReplicatedJobOf(const kube::Pod& pod, const kube::AnyJob& innermost);
  DerivedGang Describe(const Chain& chain, const kube::AnyJob& maker,
                       const kube::AnyJob::Part* part, const std::string& replicated) const;
  // The part of `maker` that makes pods of this replicated job; null if none does.
  static const kube::AnyJob::Part* PartOf(const kube::AnyJob& maker,
                                          const std::string& replicated_job);
  void Claim(const kube::AnyJob& job);
  void Release(const kube::AnyJob& job);
  void AddFamily(const kube::NamespacedUid& owner, std::vector<kube::NamespacedUid>* out) const;
  void AddContenders(const kube::AnyJob& job, std::vector<kube::NamespacedUid>* out) const;

  cluster::KnownJobs known_;
  // "namespace/name" of a PodGroup -> who derives it, the oldest first.
  std::map<std::string, std::set<std::pair<absl::Time, std::string>>> claims_;
};

}  // namespace muster::coscheduling
