// kube-scheduler's queue of pods: which is tried next, and what wakes the others
// (k8s.io/kubernetes v1.34 pkg/scheduler/backend/queue, with queueing hints). Plain data and a
// clock that is handed in.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace muster::kube::simulators {

struct SchedulingQueueOptions {
  absl::Duration initial_backoff = absl::Seconds(1);  // above 0
  absl::Duration max_backoff = absl::Seconds(10);
  absl::Duration max_unschedulable = absl::Minutes(5);
  bool pop_from_backoff = true;
};

// Who turned a pod away, which decides what wakes it.
enum class RejectedBy {
  kPlugins,   // the scheduler's own filters
  kExtender,  // registered for every change of a node or a pod
  kGang,      // the plugin that keeps its gang together (scheduler_plugin.h)
};

// What happened in the cluster.
enum class ClusterEvent {
  // There may be room or a node that wasn't there: wakes everybody.
  kRoom,
  // Anything else about a node, a bound pod or a PodGroup: wakes whom the extender or its gang's
  // plugin turned away.
  kOther,
  // An assumed pod was given up, by its gang or for an error of its binding: wakes whom the own
  // filters turned away. They wait for the end of their backoff whatever else there is to do, so
  // that gangs don't give up the same room to each other without end at one moment.
  kGivenUp,
};

class SchedulingQueue {
 public:
  explicit SchedulingQueue(SchedulingQueueOptions options) : options_(options) {}

  // A new pod, or one whose gates are gone. Nothing happens if it is there.
  // `sort_time` is for the whole of its stay, from a plugin that sorts the queue; without one, when
  // it was queued last.
  void Add(const std::string& pod, int32_t priority, absl::Time now,
           std::optional<absl::Time> sort_time = std::nullopt);
  void Remove(const std::string& pod) { entries_.erase(pod); }
  bool Has(const std::string& pod) const { return entries_.contains(pod); }

  // The pod to try now, which is then in flight until Reject, Fail or Remove. First what is active,
  // by priority, then by time, and with a plugin's times then by name; if there is nothing, what
  // waits for the end of a backoff that no error caused.
  std::optional<std::string> Pop(absl::Time now);

  // The attempt has failed: no node, or an error.
  void Reject(const std::string& pod, RejectedBy by, absl::Time now);
  void Fail(const std::string& pod, absl::Time now);

  void OnClusterEvent(ClusterEvent event, absl::Time now);
  // The pod itself has changed.
  void OnUpdate(const std::string& pod, ClusterEvent event, absl::Time now);
  // A plugin wants it tried now, whatever it waits for.
  void Activate(const std::string& pod);

  // When Pop may have something though nothing happens.
  absl::Time NextWake(absl::Time now) const;

 private:
  // kFullBackoff: to the end, though there is nothing else to do.
  enum class Place { kActive, kBackoff, kFullBackoff, kUnschedulable, kInFlight };

  struct Entry {
    int32_t priority = 0;
    Place place = Place::kActive;
    absl::Time since;     // when it was queued last
    uint64_t number = 0;  // breaks ties of `since`
    std::optional<absl::Time> sort_time;
    int rejections = 0;
    int errors_in_a_row = 0;
    RejectedBy rejected_by = RejectedBy::kPlugins;
  };

  absl::Time BackoffEnd(const Entry& entry) const;
  using Item = std::pair<const std::string, Entry>;
  static bool Precedes(const Item& a, const Item& b);
  void Wake(Entry* entry, ClusterEvent event, absl::Time now);
  void Flush(absl::Time now);

  const SchedulingQueueOptions options_;
  std::map<std::string, Entry> entries_;
  uint64_t numbers_ = 0;
};

}  // namespace muster::kube::simulators
