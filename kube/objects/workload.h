// PodGroups, and the other kinds a scheduling decision reads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kube/objects/meta.h"
#include "kube/objects/pod.h"
#include "kube/objects/resource_list.h"
#include "kube/objects/storage.h"

namespace muster::kube {

// scheduling.x-k8s.io/v1alpha1 PodGroup, field-compatible with scheduler-plugins v0.33.5.
struct PodGroup {
  ObjectMeta meta;
  int64_t min_member = 0;
  std::optional<ResourceList> min_resources;
  std::optional<int64_t> schedule_timeout_seconds;
  // What makes the spec unusable, naming the field and its value ("spec.minMember is 0, must be
  // at least 1"); empty normally.
  std::string error;

  struct Status {
    std::string phase;
    std::string occupied_by;
    int64_t scheduled = 0;
    int64_t running = 0;
    int64_t succeeded = 0;
    int64_t failed = 0;
    std::optional<absl::Time> schedule_start_time;
    // Our condition "Admitted".
    std::string condition_status;
    std::string condition_reason;
    std::string condition_message;
  } status;
};

// apps/v1 DaemonSet: what its pod will take on each matching new node.
struct DaemonSet {
  ObjectMeta meta;
  // Never null. Has the requests and tolerations that each of its pods will get.
  std::shared_ptr<const PodSpec> pod_spec;
  std::string error;  // what makes pod_spec unusable, naming the field; empty normally
};

// policy/v1 PodDisruptionBudget: how many of the pods that it selects may be evicted now.
struct PodDisruptionBudget {
  ObjectMeta meta;
  std::optional<LabelSelector> selector;  // absent: selects nothing
  int64_t disruptions_allowed = 0;        // status; 0 until its controller has counted
};

struct Namespace {
  ObjectMeta meta;
};

}  // namespace muster::kube
