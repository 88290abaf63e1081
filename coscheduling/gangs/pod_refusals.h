// Why the API server refuses the pods of a job: a ResourceQuota, a LimitRange, Pod Security, a
// webhook. No status says so, only the events that a controller writes about the object whose pods
// it makes:
//   Job, ReplicaSet  reason FailedCreate, "Error creating: ERROR"
//                    (k8s.io/kubernetes v1.34 pkg/controller/controller_utils.go)
//   StatefulSet      reason FailedCreate, "create Pod NAME in StatefulSet NAME failed error: ERROR"
//                    (pkg/controller/statefulset/stateful_pod_control.go)
//   PyTorchJob       reason FailedCreatePod, "Error creating: ERROR"
//                    (training-operator v1.8.1 pkg/controller.v1/control/pod_control.go)
// A JobSet's and a TrainJob's pods are made by Jobs.
//
// An event says that pods were refused, none that they aren't any more. So a refusal is believed
// until it hasn't been repeated for longer than a controller ever waits: 60 s for a Job (pkg/
// controller/job/job_controller.go), 1000 s for the others (client-go's default rate limiter). Of
// many events of one object only one in 300 s gets through (client-go v0.34
// tools/record/events_cache.go).
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "kube/objects/event.h"

namespace muster::coscheduling {

struct PodRefusal {
  kube::ObjectReference owner;  // whose pods they would be
  std::string why;              // the API server's words
  absl::Time last;              // when it was told last
};

// The API server's words in such an event's message: without what the controller and its event
// recorder put before them, and without the name of the pod, which is another one each time.
std::string RefusalText(std::string_view message);

// The latest refusal of each owner. Memory: about 1.5 KB each.
class PodRefusals {
 public:
  // Forgotten `time` after they were last told. Beyond `capacity` owners the longest silent go.
  explicit PodRefusals(absl::Duration time, size_t capacity = 4'096)
      : time_(time), capacity_(capacity) {}

  // UIDs of the owners of which something else is known now. Empty for any other event, and for one
  // that tells nothing new.
  std::vector<std::string> Note(const kube::Event& event);
  void Forget(const std::string& owner_uid);
  // UIDs of the owners whose refusal is over by now. A clock that is ahead prolongs none.
  std::vector<std::string> Expire(absl::Time now);
  absl::Time NextExpiry() const;

  // Null if none is known. Valid until the next change.
  const PodRefusal* Find(const std::string& owner_uid) const;
  size_t size() const { return refusals_.size(); }
  // Those that went to keep within the capacity.
  uint64_t dropped() const { return dropped_; }

 private:
  const absl::Duration time_;
  const size_t capacity_;
  absl::flat_hash_map<std::string, PodRefusal> refusals_;      // by the owner's UID
  std::set<std::pair<absl::Time, std::string>> by_last_told_;  // and the owner's UID
  uint64_t dropped_ = 0;
};

}  // namespace muster::coscheduling
