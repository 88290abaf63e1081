#include "extender/workload_changes.h"

#include <algorithm>
#include <utility>

#include "kube/objects/decode.h"

namespace muster::extender {
namespace {

constexpr std::string_view kKind = "workloads";

const kube::Condition* TrueCondition(const kube::Workload& workload, const char* type) {
  const auto found = workload.conditions.find(type);
  return found != workload.conditions.end() && found->second.status == "True" ? &found->second
                                                                              : nullptr;
}

absl::Time TrueSince(const kube::Workload& workload, const char* type) {
  const kube::Condition* condition = TrueCondition(workload, type);
  return condition == nullptr ? absl::InfinitePast() : condition->last_transition;
}

// It became true, or did so once more.
bool IsNew(absl::Time before, absl::Time now) {
  return now != absl::InfinitePast() && now != before;
}

std::string ReasonOf(const kube::Workload& workload, const char* type) {
  const kube::Condition* condition = TrueCondition(workload, type);
  return condition == nullptr ? "" : condition->reason;
}

}  // namespace

void WorkloadChanges::Upsert(std::string_view kind, const kube::ObjectHeader& header,
                             std::string_view json) {
  if (kind != kKind) return;
  const absl::StatusOr<kube::Workload> workload = kube::Decode<kube::Workload>(json);
  if (!workload.ok()) return;
  Seen now = {workload->cluster_queue, TrueSince(*workload, "Admitted"),
              TrueSince(*workload, "Evicted"), TrueSince(*workload, "Preempted")};
  Seen before;
  {
    const std::lock_guard lock(mutex_);
    const auto [at, first] = seen_.try_emplace(header.uid, now);
    // What it was before this process looked, nobody here has seen.
    if (first) return;
    if (now.queue.empty()) now.queue = at->second.queue;
    before = std::exchange(at->second, now);
  }
  if (counts_()) Compare(*workload, before, now);
}

void WorkloadChanges::Compare(const kube::Workload& workload, const Seen& before,
                              const Seen& now) const {
  if (IsNew(before.admitted, now.admitted)) {
    // As sigs.k8s.io/kueue v0.19.2 pkg/workload QueuedWaitTime.
    const auto requeued = workload.conditions.find("Requeued");
    const absl::Time since = requeued == workload.conditions.end()
                                 ? workload.meta.creation_time
                                 : requeued->second.last_transition;
    tell_.admitted(now.queue, std::max(absl::ZeroDuration(), now.admitted - since));
  }
  if (IsNew(before.evicted, now.evicted)) tell_.evicted(now.queue, ReasonOf(workload, "Evicted"));
  if (IsNew(before.preempted, now.preempted)) {
    tell_.preempted(now.queue, ReasonOf(workload, "Preempted"));
  }
}

void WorkloadChanges::Remove(std::string_view kind, const kube::ObjectHeader& header) {
  if (kind != kKind) return;
  const std::lock_guard lock(mutex_);
  seen_.erase(header.uid);
}

}  // namespace muster::extender
