// What takes Muster out of a cluster: what an administrator has to do, and what `muster uninstall
// --yes` does, in an order in which nothing is lost. Pure: objects in, requests out.
//
//   its webhooks          first, while it runs: whoever is gone refuses nobody's pods
//   (it is stopped)       by hand; nothing below is done under the hands of one that runs
//   signals, holds        so that Karpenter neither makes nor keeps nodes for anybody
//   jobs, gates           as the owner chooses
//   finalizers            of Workloads, queues and flavors, so that whoever deletes them can
//   state                 annotations that only Muster reads
//   policies, the Lease   last: until here they keep what is done from others' hands
//
// Each request names the object that was looked at, and is none where nothing is left to do: it can
// be stopped anywhere and begun again.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "extender/move/json_objects.h"

namespace muster::extender {

struct UninstallSettings {
  // Of what waits: behind the gate, and of jobs that Muster suspended and would resume.
  enum class Waiting {
    kUndecided,
    kLift,  // it is let go, for whoever schedules under this name
    kKeep,  // it stays as it is, for another Muster
  };
  std::string muster_namespace = "muster-system";
  std::string scheduler_name = "coscheduling";
  std::string kueue_namespace = "kueue-system";
  Waiting waiting = Waiting::kUndecided;
};

struct ListToRead {
  std::string name;
  std::string path;
  std::vector<std::pair<std::string, std::string>> query;
};
std::vector<ListToRead> ListsToUninstall(const UninstallSettings& settings);
// Whether an object of this list is any of its business; the others needn't be kept.
bool ConcernsUninstall(const std::string& list, const nlohmann::json& object);

ChangePlan PlanUninstall(const ClusterObjects& objects, const UninstallSettings& settings,
                         absl::Time now);

// The Leases by which a Muster, or its kube-scheduler, leads: "NAMESPACE/NAME RENEWED" of each that
// has a holder, and the longest time that one of them lasts.
struct HeldLeases {
  std::vector<std::string> renewals;
  absl::Duration longest = absl::ZeroDuration();
};
HeldLeases LeasesHeld(const ClusterObjects& objects, const UninstallSettings& settings);

}  // namespace muster::extender
