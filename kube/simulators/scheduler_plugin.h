// A plugin of kube-scheduler at the points where one can keep a gang together
// (k8s.io/kubernetes v1.34 pkg/scheduler/framework/interface.go): QueueSort, PreFilter, PostFilter,
// Permit and Unreserve, and what the framework lets it do to other pods.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "kube/objects/pod.h"
#include "kube/objects/resource_list.h"

namespace muster::kube::simulators {

// Pods are named "namespace/name".
class SchedulerHandle {
 public:
  virtual ~SchedulerHandle() = default;
  // Of a pod that waits at Permit; nothing happens to others. What was said of a pod first stands.
  // A pod that is allowed is bound next; one that is rejected loses its node (Unreserve) once every
  // pod that is due has been tried.
  virtual void Allow(const std::string& pod) = 0;
  // True if it waited, and nothing was said of it before.
  virtual bool Reject(const std::string& pod, const std::string& message) = 0;
  // A pod that waits in the queue, for whatever, is tried next.
  virtual void Activate(const std::string& pod) = 0;
  // What would be free on all nodes together if these pods weren't there.
  virtual ResourceList FreeWithout(const std::set<std::string>& pods) const = 0;
};

struct PermitVerdict {
  enum class Kind { kBind, kWait, kReject };
  Kind kind = Kind::kBind;
  absl::Duration wait{};  // of kWait: then it is rejected
  std::string message{};  // of kReject
};

// All calls come from the scheduler's thread. The plugin doesn't keep `handle`.
class SchedulerPlugin {
 public:
  virtual ~SchedulerPlugin() = default;
  // Takes in what has arrived of the objects that it follows itself. True if there was anything,
  // which wakes the pods that it turned away.
  virtual bool Sync() = 0;
  // A pod of any scheduler is new (`before` is null), different, or gone (`now` is null).
  virtual void OnPod(const std::string& key, const Pod* before, const Pod* now) = 0;
  // By which pods of equal priority are tried.
  virtual absl::Time QueueTime(const Pod& pod, absl::Time first_seen) const = 0;
  // Why the pod isn't looked at any further; nullopt if it is.
  virtual std::optional<std::string> PreFilter(const Pod& pod, SchedulerHandle* handle,
                                               absl::Time now) = 0;
  // It wasn't, or there is no node for it.
  virtual void PostFilter(const Pod& pod, SchedulerHandle* handle, absl::Time now) = 0;
  // It counts on its node from here on.
  virtual PermitVerdict Permit(const Pod& pod, SchedulerHandle* handle) = 0;
  // It doesn't any more: it was rejected at Permit, its binding failed, or it is gone.
  virtual void Unreserve(const Pod& pod, SchedulerHandle* handle) = 0;
};

}  // namespace muster::kube::simulators
