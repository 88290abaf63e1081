// A stand-in for Kueue v0.15.2 beside a kube-scheduler that it knows nothing of: pods stay behind
// its gate until their whole group has quota, and are let go with their flavor's nodeSelector and
// tolerations wherever nodes may be.
//
// Follows sigs.k8s.io/kueue v0.15.2:
// - pkg/controller/jobs/pod/pod_webhook.go: a pod that names a LocalQueue, or is in a namespace
// with
//   one named "default", is gated;
// - pkg/controller/jobs/pod/pod_controller.go: a plain pod group is one Workload, made once all of
//   its pods exist; it keeps its quota until the last of them has ended; pods that replace others
//   of an admitted group are let go at once;
// - pkg/scheduler: whole Workloads, in Kueue's order, on quota alone. quota/ decides, which is held
//   to Kueue's own packages, without being asked where there is room;
// - preempted groups lose their pods.
// A group is the pods of one PodGroup (scheduling.x-k8s.io), complete with minMember pods: what
// users write twice, for Kueue and for coscheduling, is written once in a scenario.
// Configured as installed: waitForPodsReady is off, so that what is admitted stays admitted.
// Left out: admission checks, WorkloadPriorityClasses, HoldAndDrain, topologies.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kube/objects/pod.h"
#include "kube/objects/quota.h"
#include "kube/objects/workload.h"
#include "kube/simulators/api_client.h"
#include "nlohmann/json_fwd.hpp"
#include "quota/quota_scheduler.h"

namespace muster::simulation {

class KueueSimulator {
 public:
  // The server must outlive it.
  KueueSimulator(kube::embedded::ApiServer* server, bool fair_sharing);
  ~KueueSimulator();
  KueueSimulator(const KueueSimulator&) = delete;
  KueueSimulator& operator=(const KueueSimulator&) = delete;

  // Its webhook: what becomes of a pod that is about to be created.
  void AdmitPod(nlohmann::json* pod);
  // Takes in what has arrived and decides all that can be decided. True if anything had. It waits
  // for nothing but objects.
  bool Tick(absl::Time now);

 private:
  // A group, or a pod without one; by "namespace/name".
  struct Group {
    std::set<std::string> pods;  // that it manages
    bool waits = false;          // for quota
    std::shared_ptr<const quota::Admission> admission{};
    absl::Time complete_since = absl::InfiniteFuture();
  };

  bool Sync();
  void OnPod(const std::string& key, const kube::Pod* before, const kube::Pod* now);
  // Its pods that haven't ended and stay.
  std::vector<const kube::Pod*> Live(const Group& group) const;
  void Refresh(const std::string& name, absl::Time now);
  void Enqueue(const std::string& name, const Group& group,
               const std::vector<const kube::Pod*>& live);
  int64_t Size(const std::string& name, const kube::Pod& member) const;
  void Carry(const quota::Decision& decision, absl::Time now);
  void LetGo(const Group& group, absl::Time now);
  void LetGo(const kube::Pod& pod, const quota::Admission& admission, absl::Time now);
  void Evict(const std::string& name);

  kube::simulators::ApiClient client_;
  kube::simulators::ObjectCache<kube::Namespace> namespaces_;
  kube::simulators::ObjectCache<kube::ResourceFlavor> flavors_;
  kube::simulators::ObjectCache<kube::Cohort> cohorts_;
  kube::simulators::ObjectCache<kube::ClusterQueue> cluster_queues_;
  kube::simulators::ObjectCache<kube::LocalQueue> local_queues_;
  kube::simulators::ObjectCache<kube::PodGroup> pod_groups_;
  kube::simulators::ObjectCache<kube::Pod> pods_;
  quota::QuotaScheduler quotas_;
  std::map<std::string, Group> groups_;
  std::set<std::string> changed_;
};

}  // namespace muster::simulation
