// A job as the scheduler would see it in a cluster: the objects that its controllers would make of
// it, with their names, labels and owner references (simulation/job_controllers.h names the
// sources).
#pragma once

#include <string>
#include <vector>

#include "coscheduling/engine.h"
#include "kube/objects/pod.h"
#include "lint/manifests.h"

namespace muster::lint {

// Of a larger job nothing is made.
inline constexpr int64_t kMostPodsMade = 2'000;

struct MadePods {
  std::vector<coscheduling::Observed> owners;  // from the outside in
  std::vector<kube::Pod> pods;                 // gated, as the webhook leaves them
  std::vector<const PodTemplate*> templates;   // of each pod
};

// As if the job weren't suspended. Pods that name no scheduler at all, or all the same other one,
// are taken for `scheduler_name`'s. A launcher that waits for its workers isn't there yet. Empty if
// the job is too large, or a runtime that isn't known says what its pods are.
MadePods MakePods(const Workload& workload, const std::string& scheduler_name);

}  // namespace muster::lint
