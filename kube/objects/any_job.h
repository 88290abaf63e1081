// A job of any kind that owns pods (job.h), in one form: which of its pods it makes at the same
// time, and how many of these it can do with.
//
//   PyTorchJob   all replicas; fewer if schedulingPolicy.minAvailable says so, or
//                elasticPolicy.minReplicas of the workers (training-operator v1.8.1,
//                pkg/controller.v1/common/job.go)
//   Job          min(parallelism, completions)
//   JobSet       the sum over its replicated jobs that wait for nothing, or for the same. Those
//                that wait for others (dependsOn, or all in turn under startupPolicy InOrder) don't
//                exist until these run, so they are a part of their own (jobset v0.8,
//                pkg/controllers/depends_on.go, startup_policy.go)
//   TrainJob     through the JobSet that it makes
//   MPIJob       the launcher and all workers; fewer if schedulingPolicy.minAvailable says so. A
//                launcher that waits for its workers (launcherCreationPolicy WaitForWorkersReady)
//                doesn't exist until they run, so it is a part of its own (mpi-operator v0.6,
//                pkg/controller/mpi_job_controller.go)
//   RayCluster   the head and of each worker group all hosts of all replicas (kuberay v1.4,
//                ray-operator/controllers/ray/raycluster_controller.go)
//   RayJob       through the RayCluster that it makes; what submits to it comes once that is ready
//   StatefulSet  its replicas, if its podManagementPolicy is Parallel
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "kube/objects/job.h"
#include "kube/objects/meta.h"
#include "kube/objects/pod.h"

namespace muster::kube {

// On a JobSet's Jobs and their pods: of which replicated job they are.
inline constexpr std::string_view kReplicatedJobLabel = "jobset.sigs.k8s.io/replicatedjob-name";

inline constexpr std::string_view kJobKind = "Job";
inline constexpr std::string_view kStatefulSetKind = "StatefulSet";
inline constexpr std::string_view kJobSetKind = "JobSet";
inline constexpr std::string_view kPyTorchJobKind = "PyTorchJob";
inline constexpr std::string_view kTrainJobKind = "TrainJob";
inline constexpr std::string_view kMPIJobKind = "MPIJob";
inline constexpr std::string_view kRayClusterKind = "RayCluster";
inline constexpr std::string_view kRayJobKind = "RayJob";

// A pod template that names another scheduler than the rest may be why pods are missing.
struct TemplateScheduler {
  std::string where;  // "Master", "node"; empty if the job has one template only
  std::string scheduler_name;
  bool operator==(const TemplateScheduler&) const = default;
};

struct AnyJob {
  // Equal pods that it makes, all stages of it, as Kueue tells them apart: of a Workload of its
  // own (sigs.k8s.io/kueue v0.19.2 pkg/controller/jobs, PodSets of each).
  struct PodSet {
    std::string name;  // "main", or that of the replicated job, the replica type, the group
    int64_t count = 0;
    std::string pod_template;  // JSON
    std::string path = {};     // of the template in the job: "/spec/template"
    bool has_flavors = false;  // PodTemplate
    // What the template makes, without a name; null unless the job is suspended.
    std::shared_ptr<const Pod> pod = nullptr;
    // Of them, those that have succeeded and aren't made anew: Kueue's reclaimable pods
    // (pkg/controller/jobs/job/job_controller.go:217, jobset_controller.go:197).
    int64_t over = 0;
    bool operator==(const PodSet& other) const {
      return name == other.name && count == other.count && path == other.path &&
             pod_template == other.pod_template && over == other.over;
    }
  };
  // Replicated jobs of a JobSet, or replica types of an MPIJob, that exist at the same time; of the
  // other kinds, the one part there is.
  struct Part {
    std::vector<std::string> replicated_jobs;
    // The bare name of the job; for one part of several of a JobSet JOBSET-REPLICATEDJOB (the first
    // of them), for a launcher that comes later MPIJOB-launcher.
    std::string name;
    int64_t at_once = 0;  // pods that exist at the same time
    int64_t fewest = 0;   // of them, that it can do with
    std::vector<TemplateScheduler> schedulers;
    bool operator==(const Part&) const = default;
  };

  std::string_view kind, api_version;
  std::string name_space, name, uid, resource_version;
  int64_t generation = 0;  // counts changes of its spec
  absl::Time created;
  std::optional<OwnerReference> parent;  // of one of these kinds: its pods are that one's, too
  // "Workflow team/x": what controls it and is of none of these kinds, CronJobs aside, which leave
  // the Jobs that they made alone.
  std::string foreign_owner;
  // Of which its pods are: of a JobSet's Job, and of an MPIJob ("Worker") and its Job ("Launcher").
  std::string replicated_job;
  StringMap labels;
  StringMap annotations;
  std::vector<Part> parts;
  std::vector<PodSet> pod_sets;  // none of a StatefulSet, and where another job makes the pods
  std::optional<int64_t> schedule_timeout_seconds;
  std::string priority_class;  // of its schedulingPolicy, which pods don't say
  bool suspended = false;
  std::string no_suspend;  // why it can't be suspended, "can't be ..."; empty: it can
  // A batch/v1 Job's status.startTime is set: before it is reset its template can't be changed
  // (k8s.io/kubernetes v1.34 pkg/registry/batch/job/strategy.go).
  bool has_start_time = false;
  bool going = false;      // it is being deleted
  bool finished = false;   // job.h
  bool failed = false;     // likewise
  std::string fault;       // the first field that can't be used, by name and value
  std::string one_by_one;  // why its pods never exist at the same time, with the field
  bool operator==(const AnyJob&) const = default;

  // Its parts come one after the other, each of them whole.
  bool HasStages() const {
    const auto is_whole = [](const Part& part) { return part.fewest == part.at_once; };
    return parts.size() > 1 && std::ranges::all_of(parts, is_whole);
  }
  // It makes a pod anew in place of one that failed, sooner or later.
  bool GoesOn() const { return !suspended && !going && !finished; }
  // It was resumed with what quota adds to its templates.
  bool HasFlavors() const { return std::ranges::any_of(pod_sets, &PodSet::has_flavors); }
  std::string Title() const;  // "PyTorchJob team/x"
  NamespacedUid Key() const { return {name_space, uid}; }
  // The value of an annotation, or nullptr.
  const std::string* Annotation(std::string_view key) const;
};

AnyJob ToAnyJob(const Job& job);
AnyJob ToAnyJob(const StatefulSet& set);
AnyJob ToAnyJob(const JobSet& set);
AnyJob ToAnyJob(const PyTorchJob& job);
AnyJob ToAnyJob(const TrainJob& job);
AnyJob ToAnyJob(const MPIJob& job);
AnyJob ToAnyJob(const RayCluster& cluster);
AnyJob ToAnyJob(const RayJob& job);

// The version of its API in which an owner of this kind is read, whatever its own; "" if it isn't
// of one of these kinds.
std::string_view ReadVersionOf(const OwnerReference& owner);
inline bool IsAnyJob(const OwnerReference& owner) { return !ReadVersionOf(owner).empty(); }

// Each pod of such an owner stands for itself: a ReplicaSet's, a ReplicationController's, a
// DaemonSet's, a static pod.
bool MakesSinglePods(const OwnerReference& owner);

}  // namespace muster::kube
