// kube-scheduler's queue of pods: which is tried next, and what wakes the others
// (k8s.io/kubernetes v1.34 pkg/scheduler/backend/queue, with queueing hints). Plain data and a
// clock that is handed in.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace muster::kube::simulators {

struct SchedulingQueueOptions {
  absl::Duration initial_backoff = absl::Seconds(1);  // above 0
  absl::Duration max_backoff = absl::Seconds(10);
  absl::Duration max_unschedulable = absl::Minutes(5);
  bool pop_from_backoff = true;
};

// Who turned a pod away, which decides what wakes it.
enum class RejectedBy { kPlugins, kExtender };

// What happened in the cluster.
enum class ClusterEvent {
  // There may be room or a node that wasn't there: wakes everybody.
  kRoom,
  // Anything else about a node or a bound pod: wakes whom the extender turned away.
  kOther,
};

class SchedulingQueue {
 public:
  explicit SchedulingQueue(SchedulingQueueOptions options) : options_(options) {}

  // A new pod, or one whose gates are gone. Nothing happens if it is there.
  void Add(const std::string& pod, int32_t priority, absl::Time now);
  void Remove(const std::string& pod) { entries_.erase(pod); }
  bool Has(const std::string& pod) const { return entries_.contains(pod); }

  // The pod to try now, which is then in flight until Reject, Fail or Remove. First what is active,
  // by priority and then by time; if there is nothing, what waits for the end of a backoff that no
  // error caused.
  std::optional<std::string> Pop(absl::Time now);

  // The attempt has failed: no node, or an error.
  void Reject(const std::string& pod, RejectedBy by, absl::Time now);
  void Fail(const std::string& pod, absl::Time now);

  void OnClusterEvent(ClusterEvent event, absl::Time now);
  // The pod itself has changed.
  void OnUpdate(const std::string& pod, ClusterEvent event, absl::Time now);

  // When Pop may have something though nothing happens.
  absl::Time NextWake(absl::Time now) const;

 private:
  enum class Place { kActive, kBackoff, kErrorBackoff, kUnschedulable, kInFlight };

  struct Entry {
    int32_t priority = 0;
    Place place = Place::kActive;
    absl::Time since;     // when it was queued last
    uint64_t number = 0;  // breaks ties of `since`
    int rejections = 0;
    int errors_in_a_row = 0;
    RejectedBy rejected_by = RejectedBy::kPlugins;
  };

  absl::Time BackoffEnd(const Entry& entry) const;
  bool Precedes(const Entry& a, const Entry& b) const;
  void Wake(Entry* entry, ClusterEvent event, absl::Time now);
  void Flush(absl::Time now);

  const SchedulingQueueOptions options_;
  std::map<std::string, Entry> entries_;
  uint64_t numbers_ = 0;
};

}  // namespace muster::kube::simulators
