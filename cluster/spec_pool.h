// One copy of equal pod specs: the members of a gang, and mostly those of a Deployment, ask for the
// same, and a spec is half of a pod's memory.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kube/objects/pod.h"

namespace muster::cluster {

// Holds specs weakly: what no pod uses any more is forgotten, at the latest when the pool would
// double.
class SpecPool {
 public:
  // `spec`, or an equal one that is in use.
  std::shared_ptr<const kube::PodSpec> Share(std::shared_ptr<const kube::PodSpec> spec);
  size_t size() const { return size_; }

 private:
  using Bucket = std::vector<std::weak_ptr<const kube::PodSpec>>;
  void Sweep();

  absl::flat_hash_map<size_t, Bucket> buckets_;
  size_t size_ = 0;
  size_t sweep_at_ = 1024;
};

}  // namespace muster::cluster
