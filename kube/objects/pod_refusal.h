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
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "kube/objects/event.h"

namespace muster::kube {

struct PodRefusal {
  ObjectReference owner;  // whose pods they would be
  std::string why;        // the API server's words
  absl::Time last;        // when it was told last
};

// nullopt for any other event.
std::optional<PodRefusal> PodRefusalIn(const Event& event);

// The API server's words in such an event's message: without what the controller and its event
// recorder put before them, and without the name of the pod, which is another one each time.
std::string RefusalText(std::string_view message);

// What can be done about it, and when the controller tries again.
std::string FixFor(const PodRefusal& refusal);

// The ResourceQuota that these words name as what refuses, else "".
std::string_view RefusingQuota(std::string_view why);

}  // namespace muster::kube
