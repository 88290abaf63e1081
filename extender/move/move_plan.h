// What is between a cluster and its change from Kueue to Muster's own quota, or back: what an
// administrator has to do, and what `muster move --apply` does. Pure: objects in, requests out.
//
// What Kueue does with what it finds at its start, and when it deletes pods: sigs.k8s.io/kueue
// v0.19.2 pkg/controller/jobs/pod/pod_controller.go, pkg/controller/jobframework/reconciler.go.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "kube/api.h"

namespace muster::extender {

struct MoveSettings {
  std::string kueue_namespace = "kueue-system";
  std::string muster_namespace = "muster-system";
  std::string scheduler_name = "coscheduling";
};

// As the API server has them, by list; what isn't served is missing.
struct MoveObjects {
  std::map<std::string, std::vector<nlohmann::json>, std::less<>> lists;
  const std::vector<nlohmann::json>& of(std::string_view list) const;
};

// Which lists that takes: their names and paths.
std::vector<std::pair<std::string, std::string>> ListsToMove(const MoveSettings& settings);

struct MovePlan {
  std::vector<std::string> by_hand;  // and how
  struct Fix {
    std::string what;
    std::vector<kube::Request> requests;  // one after the other; done already: 404 of a removal
  };
  std::vector<Fix> fixes;          // in their order
  std::vector<std::string> notes;  // what will be, and is in nobody's way
};

MovePlan PlanMoveIn(const MoveObjects& objects, const MoveSettings& settings, absl::Time now);
MovePlan PlanMoveOut(const MoveObjects& objects, const MoveSettings& settings, absl::Time now);

// `command`: "muster move in".
std::string MoveText(const MovePlan& plan, std::string_view command);

}  // namespace muster::extender
