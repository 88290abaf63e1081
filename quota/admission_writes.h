// Writes of what admission comes to: to Workloads, to the jobs that they are of, to members, to
// queues. Plain data: who decides fills them in, writes/ turns each into a request. Preconditions
// of all but a queue's: uid and resource_version, so that what was decided on another version
// fails.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "kube/objects/any_job.h"
#include "kube/objects/meta.h"
#include "kube/objects/pod.h"
#include "kube/objects/workload_name.h"
#include "quota/flavor_terms.h"
#include "quota/job_start.h"
#include "quota/pod_sets.h"
#include "quota/quota_scheduler.h"
#include "quota/workload.h"
#include "quota/workload_status.h"

namespace muster::quota {

// Adds to a gated member what its flavors ask for, and annotations, in one JSON patch.
// Preconditions: uid and resource_version. What is there already is only ever added to.
struct AssignFlavors {
  kube::ObjectRef pod;
  // Whether the member has any already: what doesn't exist is made as a whole.
  bool has_node_selector = false;
  bool has_tolerations = false;
  bool has_annotations = false;
  FlavorAdditions added;
};

inline AssignFlavors AssignFlavorsTo(const kube::Pod& pod, FlavorAdditions added) {
  return {kube::RefOf(pod.meta), !pod.spec->node_selector.empty(), !pod.spec->tolerations.empty(),
          !pod.meta.annotations.empty(), std::move(added)};
}

// Suspends a job, or resumes it, and sets (nullopt: removes) annotations of it, all in one patch.
struct SuspendJob {
  std::string api_version;
  std::string kind;  // of those in kube/objects/any_job.h that can be suspended
  kube::ObjectRef job;
  std::optional<bool> suspend;  // nullopt: stays as it is
  std::map<std::string, std::optional<std::string>> annotations;
};

inline SuspendJob SuspendTo(const kube::AnyJob& job, std::optional<bool> suspend,
                            std::map<std::string, std::optional<std::string>> annotations) {
  return {std::string(job.api_version),
          std::string(job.kind),
          {job.name_space, job.name, job.uid, job.resource_version},
          suspend,
          std::move(annotations)};
}

// Changes the pod templates of a suspended job, and resumes it, in one patch.
struct ChangeTemplates {
  std::string api_version;
  std::string kind;
  kube::ObjectRef job;
  bool resume = false;
  std::vector<TemplateChange> templates;
};

// Removes status.startTime of a suspended batch/v1 Job, so that its template can be changed.
struct ResetStartTime {
  kube::ObjectRef job;
};

// Has Kueue evict a Workload and queue it again (`active` false, then true), says by required node
// affinity which flavors it may be given, and sets (nullopt: removes) annotations, all in one JSON
// patch.
struct PatchWorkload {
  kube::ObjectRef workload;
  std::optional<bool> active;    // nullopt: stays as it is
  bool has_annotations = false;  // it has some already
  std::map<std::string, std::optional<std::string>> annotations;
  std::vector<OtherChoice::Terms> pod_sets;            // those that change
  std::optional<std::vector<std::string>> finalizers;  // those that stay; nullopt: all
};

// Creates the Workload that a gang's quota is reserved in, or (a workload with a UID) replaces what
// it asks for, while none of it is reserved.
struct WriteWorkload {
  kube::ObjectRef workload;
  kube::OwnerReference owner;  // the job, the PodGroup or the pod
  std::string leader;          // annotation muster.dev/leader: who made it
  std::string queue;
  std::string priority_class;  // a WorkloadPriorityClass, or empty
  int64_t priority = 0;
  std::optional<int64_t> max_seconds;  // of execution
  std::vector<PodSet> pod_sets;
  std::vector<std::string> pod_templates = {};  // theirs, JSON; none: made from what quota looks at
};

// One that doesn't exist yet, of what this owner asks for; with the templates of the job that makes
// its pods, unless that is null.
inline WriteWorkload WorkloadFor(const kube::OwnerReference& owner, const Workload& asked,
                                 const kube::AnyJob* maker) {
  WriteWorkload write;
  write.workload = {asked.name_space, kube::WorkloadName(owner), "", ""};
  write.owner = owner;
  write.queue = asked.queue;
  write.priority = asked.priority;
  write.max_seconds = asked.max_seconds;
  write.pod_sets = asked.pod_sets;
  if (maker == nullptr) return write;
  for (const kube::AnyJob::PodSet& made : maker->pod_sets) {
    write.pod_templates.push_back(made.pod_template);
  }
  return write;
}

// Server-side apply of a Workload's status under Kueue's own field manager, all of it each time:
// what isn't named here is taken away.
struct ApplyWorkloadStatus {
  kube::ObjectRef workload;
  std::optional<Admission> admission;  // of its pod sets
  std::map<std::string, kube::Condition> conditions;
  bool takes_over = false;                   // it only says who may reserve it
  std::optional<int64_t> past_seconds = {};  // that it has run for before
};

inline ApplyWorkloadStatus StatusOf(const kube::Workload& workload, Conditions conditions,
                                    std::optional<Admission> admission = std::nullopt) {
  const std::optional<int64_t> past = PastSeconds(workload, conditions);
  return {kube::RefOf(workload.meta), std::move(admission), std::move(conditions), false, past};
}

// Says that `leader` may reserve it, and nothing else anew.
inline ApplyWorkloadStatus TakenOver(const kube::Workload& workload, const std::string& leader,
                                     absl::Time now) {
  std::optional<Admission> admission;
  if (workload.reserved) admission = ReservedIn(workload);
  ApplyWorkloadStatus taken =
      StatusOf(workload, Taken(workload, leader, now), std::move(admission));
  taken.takes_over = true;
  return taken;
}

// The same of its reclaimable pods, by pod set, under the manager that Kueue has for them.
struct ApplyReclaimablePods {
  kube::ObjectRef workload;
  std::map<std::string, int64_t> pods;
};

// Merge patch of a ClusterQueue's status, a LocalQueue's if it has a namespace, or a Cohort's.
struct UpdateQueueStatus {
  std::string name_space;
  std::string name;
  QueueStatus status;
  absl::Time since;  // lastTransitionTime of condition Active
  bool of_cohort = false;
};

// Sets the finalizers of a quota object. Preconditions: uid and resource_version.
struct SetFinalizers {
  std::string plural;  // "clusterqueues", "resourceflavors"
  kube::ObjectRef object;
  std::vector<std::string> finalizers;
};

}  // namespace muster::quota
