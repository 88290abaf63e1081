// A stand-in for kube-scheduler v1.34 with one extender, or with a plugin that keeps gangs
// together: its queue, its scheduling cycle and its bindings, as far as these can tell.
//
// Follows k8s.io/kubernetes v1.34 pkg/scheduler (schedule_one.go, backend/queue, extender.go):
// - ungated, unbound pods of one schedulerName by priority, then by time; one cycle at a time;
// - its own filters first: resources with those of assumed pods, taints, cordons, nodeSelector and
//   required node affinity; no other plugin. Nominated nodes are tried alone first;
// - the extender's filter, unless its own filters left no node; the node with the fewest pods of
//   those that are left; then the pod is assumed, and bound through the extender, many at once;
// - no node left: PodScheduled=False/Unschedulable with the reasons counted over the nodes, and the
//   pod waits for any pod or node event (a change of its own condition too, as the extender is
//   registered for everything), for its backoff, or for 5 minutes;
// - an error of the extender: PodScheduled=False/SchedulerError, and the pod waits for its backoff;
// - a pod that turns out bound is dropped.
// Without an extender it binds the pods itself. With a plugin (scheduler_plugin.h) a pod may have
// to wait at Permit, where it counts on its node; a pod that its plugin turns away is
// Unschedulable, and waits for any node, any pod that is bound, or its plugin's objects. What
// kube-scheduler wouldn't see to: a pod doesn't go on waiting for a node that is about to go. Left
// out: scores, preemption, volumes, profiles.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kube/simulators/scheduler_plugin.h"

namespace muster::kube::embedded {
class ApiServer;
}

namespace muster::kube::simulators {

struct FilterCall {
  std::string pod_uid;
  std::string pod_namespace;
  std::string pod_name;
  std::string pod_json;
  std::vector<std::string> node_names;
};

struct FilterResult {
  std::vector<std::string> node_names;        // that may take the pod
  std::map<std::string, std::string> failed;  // the reason per node that may not
  std::string error;                          // if not empty, nothing else counts
};

struct BindCall {
  std::string pod_uid;
  std::string pod_namespace;
  std::string pod_name;
  std::string node;
};

// The extender as kube-scheduler's HTTP client sees it. A timeout of the filter is the client's to
// turn into an error.
class ExtenderClient {
 public:
  // Empty error: bound. Any thread, once; may outlive the simulator.
  using BindDone = std::function<void(std::string error)>;

  virtual ~ExtenderClient() = default;
  virtual FilterResult Filter(const FilterCall& call) = 0;
  // May run `done` inside.
  virtual void Bind(const BindCall& call, BindDone done) = 0;
};

struct SchedulerConfig {
  std::string scheduler_name = "coscheduling";
  absl::Duration initial_backoff = absl::Seconds(1);  // above 0
  absl::Duration max_backoff = absl::Seconds(10);
  // After that a pod is tried again though nothing happened.
  absl::Duration max_unschedulable = absl::Minutes(5);
  // httpTimeout: a bind without an answer counts as failed.
  absl::Duration bind_timeout = absl::Seconds(5);
  // Feature SchedulerPopFromBackoffQ, on since 1.33: while there is nothing else to do, pods that
  // an event has woken don't wait for the end of their backoff.
  bool pop_from_backoff = true;
};

// Owns its queue, its timers and which pods it assumes. Tick and NextWake: one thread at a time;
// the server, the extender and the plugin must outlive it. Either of the latter may be null.
class SchedulerSimulator {
 public:
  SchedulerSimulator(embedded::ApiServer* server, ExtenderClient* extender, SchedulerConfig config,
                     SchedulerPlugin* plugin = nullptr);
  ~SchedulerSimulator();
  SchedulerSimulator(const SchedulerSimulator&) = delete;
  SchedulerSimulator& operator=(const SchedulerSimulator&) = delete;

  // Takes in every watch event and every bind's answer that has arrived and does everything that is
  // due. `now` never goes back, and is the server's clock's.
  void Tick(absl::Time now);
  // When Tick has something to do though nothing happens; InfiniteFuture if never.
  absl::Time NextWake() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster::kube::simulators
