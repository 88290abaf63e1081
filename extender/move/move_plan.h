// What is between a cluster and its change from Kueue to Muster's own quota, or back: what an
// administrator has to do, and what `muster move --apply` does. Pure: objects in, requests out.
//
// What Kueue does with what it finds at its start, and when it deletes pods: sigs.k8s.io/kueue
// v0.19.2 pkg/controller/jobs/pod/pod_controller.go, pkg/controller/jobframework/reconciler.go.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "extender/move/json_objects.h"

namespace muster::extender {

struct MoveSettings {
  std::string kueue_namespace = "kueue-system";
  std::string muster_namespace = "muster-system";
  std::string scheduler_name = "coscheduling";
};

using MoveObjects = ClusterObjects;
using MovePlan = ChangePlan;

// Which lists that takes: their names and paths.
std::vector<std::pair<std::string, std::string>> ListsToMove(const MoveSettings& settings);

MovePlan PlanMoveIn(const MoveObjects& objects, const MoveSettings& settings, absl::Time now);
MovePlan PlanMoveOut(const MoveObjects& objects, const MoveSettings& settings, absl::Time now);

}  // namespace muster::extender
