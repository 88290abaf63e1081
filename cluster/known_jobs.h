// The jobs that are known, and who owns whom.
//
//   Pod -> Job [-> JobSet [-> TrainJob]]    Pod -> PyTorchJob    Pod -> StatefulSet
//   Pod [-> Job] -> MPIJob                  Pod -> RayCluster [-> RayJob]
//
// An owner is looked for in its pod's namespace only: what another one has under that UID is none.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "kube/objects/any_job.h"
#include "kube/objects/pod.h"

namespace muster::cluster {

// Memory: a few hundred bytes each, and their pod templates.
class KnownJobs {
 public:
  // Who owns something.
  struct Chain {
    absl::InlinedVector<const kube::AnyJob*, 3> known;  // innermost first
    const kube::OwnerReference* missing = nullptr;      // above them
  };

  // --- observations ---
  // False if it is known so, or newer: then nothing but its version was taken.
  bool Changes(const kube::AnyJob& job);
  void Put(kube::AnyJob job);
  void Erase(const std::string& uid);

  // --- questions; valid until the next change ---
  const kube::AnyJob* Find(const std::string& uid) const;
  // Null too if it is of another kind or namespace: owner references can name anything. That kinds
  // agree keeps a chain from running in circles.
  const kube::AnyJob* Find(const std::string& name_space, const kube::OwnerReference& owner) const;
  // The job that controls an object; nullptr if it isn't known.
  const kube::AnyJob* FindOwner(const kube::ObjectMeta& owned) const;
  // From this owner on; nothing of one that isn't of a kind that is read.
  Chain ChainFrom(const std::string& name_space, const kube::OwnerReference* owner) const;
  // From the job itself on.
  Chain ChainOf(const kube::AnyJob& job) const;
  // UIDs of those that it makes; null if there are none.
  const std::set<std::string>* ChildrenOf(const kube::NamespacedUid& owner) const;
  // An owner and all jobs below it.
  std::vector<kube::NamespacedUid> Family(const kube::NamespacedUid& owner) const;
  // The family of the outermost known job above this owner.
  std::vector<kube::NamespacedUid> WholeFamily(const kube::NamespacedUid& owner) const;
  // UIDs of the jobs that carry annotation muster.dev/restart (job_restart.h).
  const std::set<std::string>& Restarting() const { return restarting_; }

  // The value of a label, or of an annotation of Muster's, innermost first; "" if none has it. Only
  // labels that job.h keeps.
  static std::string LabelOf(const Chain& chain, std::string_view key);
  static std::string AnnotationOf(const Chain& chain, std::string_view key);

 private:
  // Below a TrainJob are JobSets, below these Jobs.
  void AddFamily(const kube::NamespacedUid& owner, std::vector<kube::NamespacedUid>* out,
                 int levels = 2) const;

  absl::flat_hash_map<std::string, kube::AnyJob> jobs_;  // by UID
  std::set<std::string> restarting_;
  absl::flat_hash_map<kube::NamespacedUid, std::set<std::string>> children_;  // UIDs
};

}  // namespace muster::cluster
