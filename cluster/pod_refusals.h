// The refusals of pods (kube/objects/pod_refusal.h) that are known.
//
// An event says that pods were refused, none that they aren't any more. So a refusal is believed
// until it hasn't been repeated for longer than a controller ever waits: 60 s for a Job (pkg/
// controller/job/job_controller.go), 1000 s for the others (client-go's default rate limiter). Of
// many events of one object only one in 300 s gets through (client-go v0.34
// tools/record/events_cache.go).
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "kube/objects/meta.h"
#include "kube/objects/pod_refusal.h"

namespace muster::cluster {

// The latest refusal of each owner. Memory: about 1.5 KB each.
class PodRefusals {
 public:
  // Forgotten `time` after they were last told. Beyond `capacity` owners the longest silent go.
  explicit PodRefusals(absl::Duration time = absl::Minutes(20), size_t capacity = 4'096)
      : time_(time), capacity_(capacity) {}

  // The owners of which something else is known now. Empty for any other event, and for one that
  // tells nothing new. Events tell of objects of their own namespace.
  std::vector<kube::NamespacedUid> Note(const kube::Event& event);
  void Forget(const kube::NamespacedUid& owner);
  // The owners whose refusal is over by now. A clock that is ahead prolongs none.
  std::vector<kube::NamespacedUid> Expire(absl::Time now);
  absl::Time NextExpiry() const;

  // Null if none is known. Valid until the next change.
  const kube::PodRefusal* Find(const kube::NamespacedUid& owner) const;
  size_t size() const { return refusals_.size(); }
  // Those that went to keep within the capacity.
  uint64_t dropped() const { return dropped_; }

 private:
  const absl::Duration time_;
  const size_t capacity_;
  absl::flat_hash_map<kube::NamespacedUid, kube::PodRefusal> refusals_;  // by the owner
  std::set<std::pair<absl::Time, kube::NamespacedUid>> by_last_told_;    // and the owner
  uint64_t dropped_ = 0;
};

}  // namespace muster::cluster
