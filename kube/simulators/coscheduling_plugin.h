// A stand-in for the coscheduling plugin of sigs.k8s.io/scheduler-plugins v0.33.5
// (pkg/coscheduling/coscheduling.go, core/core.go), which keeps the pods of a PodGroup together in
// kube-scheduler.
//
// - QueueSort: by priority, then by the PodGroup's creation, then by the pods' names.
// - PreFilter: minMember pods of the group exist, gated ones too, and minResources is free on all
//   nodes together (not looked at again until a member is turned away, or for the Permit time).
// - PostFilter: a member without a node turns away all of its group that wait at Permit, unless at
//   most a tenth of minMember is missing.
// - Permit: members wait, on the nodes that were chosen for them, until minMember of them have one;
//   after scheduleTimeoutSeconds, or permitWaitingTimeSeconds where the group doesn't say, the
//   whole group is turned away. The first that waits calls the others.
// - Unreserve: one that loses its node takes all others that wait with it. Bound ones stay.
// - In the plugin these run beside each other, and a member that finds a node while the others are
//   turned away may be bound alone. Here it is turned away with them.
//
// Left out: the status that the project's controller writes into PodGroups.
#pragma once

#include <map>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "kube/objects/workload.h"
#include "kube/simulators/api_client.h"
#include "kube/simulators/scheduler_plugin.h"

namespace muster::kube::simulators {

// The plugin's arguments, with their defaults (apis/config/v1/defaults.go).
struct CoschedulingConfig {
  absl::Duration permit_waiting_time = absl::Seconds(60);
  absl::Duration pod_group_backoff;  // after a group was turned away by PostFilter; 0: none
};

// The server must outlive it.
class CoschedulingPlugin : public SchedulerPlugin {
 public:
  CoschedulingPlugin(embedded::ApiServer* server, CoschedulingConfig config);

  bool Sync() override;
  void OnPod(const std::string& key, const Pod* before, const Pod* now) override;
  absl::Time QueueTime(const Pod& pod, absl::Time first_seen) const override;
  std::optional<std::string> PreFilter(const Pod& pod, SchedulerHandle* handle,
                                       absl::Time now) override;
  void PostFilter(const Pod& pod, SchedulerHandle* handle, absl::Time now) override;
  PermitVerdict Permit(const Pod& pod, SchedulerHandle* handle) override;
  void Unreserve(const Pod& pod, SchedulerHandle* handle) override;

 private:
  // By "namespace/name". Pods are those that exist, ended ones too.
  struct Members {
    std::set<std::string> pods;
    std::set<std::string> assigned;                      // waiting at Permit, or bound
    std::set<std::string> leaving;                       // of these, rejected at Permit
    absl::Time checked_until = absl::InfinitePast();     // minResources
    absl::Time backed_off_until = absl::InfinitePast();  // pod_group_backoff
  };

  // Null if the pod names no group, or it doesn't exist.
  const PodGroup* GroupOf(const Pod& pod) const;
  absl::Duration PermitTime(const PodGroup& group) const;
  static void RejectWaiting(Members* members, const std::string& message, SchedulerHandle* handle);

  const CoschedulingConfig config_;
  ObjectCache<PodGroup> groups_;
  std::map<std::string, Members> members_;
};

}  // namespace muster::kube::simulators
