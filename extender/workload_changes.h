// What became of Workloads, as their watch tells: which were admitted after how long, which were
// evicted, and why. Whoever decided it has written it there, whatever it did itself.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "extender/cluster_watch.h"
#include "kube/objects/quota.h"

namespace muster::extender {

class WorkloadChanges : public ObjectObserver {
 public:
  struct Tell {
    // `wait`: since it was created or, evicted, queued again.
    std::function<void(const std::string& queue, absl::Duration wait)> admitted;
    std::function<void(const std::string& queue, const std::string& reason)> evicted;
    std::function<void(const std::string& queue, const std::string& reason)> preempted;
  };
  // Of several processes that watch, one tells: while `counts` says so.
  WorkloadChanges(Tell tell, std::function<bool()> counts)
      : tell_(std::move(tell)), counts_(std::move(counts)) {}

  void Upsert(std::string_view kind, const kube::ObjectHeader& header,
              std::string_view json) override;
  void Remove(std::string_view kind, const kube::ObjectHeader& header) override;

 private:
  // As it was seen last; times at which conditions became true, or InfinitePast.
  struct Seen {
    std::string queue;
    absl::Time admitted, evicted, preempted;
  };
  void Compare(const kube::Workload& workload, const Seen& before, const Seen& now) const;

  const Tell tell_;
  const std::function<bool()> counts_;
  std::mutex mutex_;
  std::map<std::string, Seen> seen_;  // by UID
};

}  // namespace muster::extender
