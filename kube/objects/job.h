// The job kinds that own pods, as far as they say which pods are to exist at the same time.
//
// Field by field those of k8s.io/api batch/v1 and apps/v1 (v0.34), sigs.k8s.io/jobset v0.8
// (jobset.x-k8s.io/v1alpha2), github.com/kubeflow/training-operator v1.8.1 (kubeflow.org/v1),
// github.com/kubeflow/trainer v2.0 (trainer.kubeflow.org/v1alpha1),
// github.com/kubeflow/mpi-operator v0.6 (kubeflow.org/v2beta1) and
// github.com/ray-project/kuberay v1.4 (ray.io/v1). `meta` keeps of labels and
// annotations only those of Kueue, JobSet and Muster. `error` names the first field that makes an
// object unusable, with its value; empty normally. Counts are never negative. `finished`: its
// conditions say that it has ended, or is about to, for good; no pod is made in place of one that
// failed. `failed`: and that it did.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kube/objects/meta.h"

namespace muster::kube {

// The template of its pods.
struct PodTemplate {
  std::string json;
  // What quota adds has been merged into it: it carries annotation kueue.x-k8s.io/workload.
  bool has_flavors = false;
};

// spec of a batch/v1 Job, its own or a replicated job's template.
struct JobSpec {
  int64_t parallelism = 1;
  std::optional<int64_t> completions;  // absent: as many as it takes
  bool suspend = false;
  std::string scheduler_name;  // of the pod template; empty: not said
  PodTemplate pod_template;
};

// batch/v1 Job.
struct Job {
  ObjectMeta meta;
  JobSpec spec;
  // Completions that there are: pods that succeeded, or indexes that did or failed for good.
  int64_t over = 0;
  bool has_start_time = false;  // status.startTime
  bool finished = false;
  bool failed = false;
  std::string error;
};

// apps/v1 StatefulSet.
struct StatefulSet {
  ObjectMeta meta;
  int64_t replicas = 1;
  bool parallel = false;  // podManagementPolicy Parallel; otherwise OrderedReady
  std::string scheduler_name;
  std::string error;
};

struct ReplicatedJob {
  std::string name;
  int64_t replicas = 1;  // Jobs made from `spec`
  JobSpec spec;
  int64_t succeeded = 0;                // of these Jobs
  std::vector<std::string> depends_on;  // "NAME/STATUS" of the replicated jobs it waits for
};

// jobset.x-k8s.io/v1alpha2 JobSet.
struct JobSet {
  ObjectMeta meta;
  std::vector<ReplicatedJob> replicated_jobs;
  bool in_order = false;  // startupPolicy.startupPolicyOrder InOrder
  bool suspend = false;
  bool finished = false;
  bool failed = false;
  std::string error;
};

// An entry of pytorchReplicaSpecs or mpiReplicaSpecs.
struct ReplicaType {
  std::string name;  // "Master", "Worker", "Launcher"
  int64_t replicas = 1;
  std::string scheduler_name;
  PodTemplate pod_template;
};

// kubeflow.org/v1 PyTorchJob.
struct PyTorchJob {
  ObjectMeta meta;
  std::vector<ReplicaType> replica_types;  // in the order of the JSON object
  bool suspend = false;                    // runPolicy.suspend
  // runPolicy.schedulingPolicy
  std::optional<int64_t> min_available;
  std::optional<int64_t> schedule_timeout_seconds;
  std::string priority_class;
  // elasticPolicy.minReplicas: the fewest workers it can run with. As the operator, maxReplicas
  // stands in for it (pytorch_defaults.go).
  std::optional<int64_t> elastic_min_replicas;
  bool finished = false;
  bool failed = false;
  std::string error;
};

// trainer.kubeflow.org/v1alpha1 TrainJob. What its pods are only its JobSet says.
struct TrainJob {
  ObjectMeta meta;
  bool suspend = false;
  bool finished = false;
  bool failed = false;
  std::string error;
};

// kubeflow.org/v2beta1 MPIJob. It makes its workers itself, and its launcher through a Job.
struct MPIJob {
  ObjectMeta meta;
  std::vector<ReplicaType> replica_types;
  bool launcher_waits = false;  // launcherCreationPolicy WaitForWorkersReady
  bool suspend = false;         // runPolicy.suspend
  // runPolicy.schedulingPolicy
  std::optional<int64_t> min_available;
  std::optional<int64_t> schedule_timeout_seconds;
  std::string priority_class;
  bool finished = false;
  bool failed = false;
  std::string error;
};

// The head of a RayCluster, or one of its workerGroupSpecs.
struct RayGroup {
  std::string name;      // "head" of the head
  int64_t replicas = 1;  // within its bounds; 0 of a group that is suspended
  int64_t hosts = 1;     // numOfHosts: pods of each replica
  std::string scheduler_name;
  PodTemplate pod_template;
};

// ray.io/v1 RayCluster.
struct RayCluster {
  ObjectMeta meta;
  std::vector<RayGroup> groups;
  bool suspend = false;
  std::string error;
};

// ray.io/v1 RayJob. Its pods are those of the RayCluster that it makes, and a Job's that submits.
struct RayJob {
  ObjectMeta meta;
  bool suspend = false;
  // shutdownAfterJobFinishes: KubeRay suspends no other (ray-operator/controllers/ray/utils/
  // validation.go).
  bool shuts_down = false;
  bool finished = false;  // status.jobDeploymentStatus Complete or Failed
  bool failed = false;
  std::string error;
};

}  // namespace muster::kube
