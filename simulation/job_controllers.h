// One turn of a job's controller: the pods, and for a JobSet the Jobs, that the real one would make
// of the object as it is now, with its names, labels and owner references.
//
// After k8s.io/kubernetes v1.34 pkg/controller/job and statefulset, sigs.k8s.io/jobset v0.8
// pkg/controllers/jobset_controller.go, and training-operator v1.8.1
// pkg/controller.v1/common/pod.go (without its own PodGroup support). Nothing is deleted but the
// pods of what is suspended, no status is written, and the random suffixes of names are left out.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kube/api.h"
#include "simulation/scenario.h"

namespace muster::simulation {

using Call = std::function<kube::Response(const kube::Request&)>;

// Makes those of the step's pods that aren't there, as far as its limits allow; of a suspended job
// deletes them instead. Pods of
// `scheduler_name` carry the gate that the webhook would add. Where the step says why the rest is
// refused, an event says so at `now`, as the controller would. NotFound if the object isn't there,
// InvalidArgument if its kind has no controller here.
absl::Status Reconcile(const ReconcileStep& step, const std::string& scheduler_name,
                       const Call& call, absl::Time now);

// Fills in the UIDs of owner references in a POST's body that name an object without one.
absl::Status FillOwnerUids(kube::Request* request, const Call& call);

}  // namespace muster::simulation
