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
//   StatefulSet  its replicas, if its podManagementPolicy is Parallel
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "kube/objects/job.h"
#include "kube/objects/meta.h"

namespace muster::kube {

// On a JobSet's Jobs and their pods: of which replicated job they are.
inline constexpr std::string_view kReplicatedJobLabel = "jobset.sigs.k8s.io/replicatedjob-name";

inline constexpr std::string_view kJobKind = "Job";
inline constexpr std::string_view kStatefulSetKind = "StatefulSet";
inline constexpr std::string_view kJobSetKind = "JobSet";
inline constexpr std::string_view kPyTorchJobKind = "PyTorchJob";
inline constexpr std::string_view kTrainJobKind = "TrainJob";

// A pod template that names another scheduler than the rest may be why pods are missing.
struct TemplateScheduler {
  std::string where;  // "Master", "node"; empty if the job has one template only
  std::string scheduler_name;
  bool operator==(const TemplateScheduler&) const = default;
};

struct AnyJob {
  // Replicated jobs that exist at the same time; of the other kinds, the one part there is.
  struct Part {
    std::vector<std::string> replicated_jobs;
    // The bare name of the job, for one part of several of a JobSet JOBSET-REPLICATEDJOB (the first
    // of them).
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
  std::optional<OwnerReference> parent;  // a JobSet, or a TrainJob
  // "Workflow team/x": what controls it and is of none of these kinds, CronJobs aside, which leave
  // the Jobs that they made alone.
  std::string foreign_owner;
  std::string replicated_job;  // of a JobSet's Job
  StringMap labels;
  StringMap annotations;
  std::vector<Part> parts;
  std::optional<int64_t> schedule_timeout_seconds;
  bool suspended = false;
  bool going = false;      // it is being deleted
  bool finished = false;   // job.h
  std::string fault;       // the first field that can't be used, by name and value
  std::string one_by_one;  // why its pods never exist at the same time, with the field
  bool operator==(const AnyJob&) const = default;

  // It makes a pod anew in place of one that failed, sooner or later.
  bool GoesOn() const { return !suspended && !going && !finished; }
  std::string Title() const;  // "PyTorchJob team/x"
  // The value of an annotation, or nullptr.
  const std::string* Annotation(std::string_view key) const;
};

AnyJob ToAnyJob(const Job& job);
AnyJob ToAnyJob(const StatefulSet& set);
AnyJob ToAnyJob(const JobSet& set);
AnyJob ToAnyJob(const PyTorchJob& job);
AnyJob ToAnyJob(const TrainJob& job);

// It is of one of these kinds, whatever its version.
bool IsAnyJob(const OwnerReference& owner);

}  // namespace muster::kube
