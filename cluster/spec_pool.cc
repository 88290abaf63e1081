#include "cluster/spec_pool.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"

namespace muster::cluster {
namespace {

constexpr size_t kSmallest = 1024;

// Of what differs most between specs; equality decides.
size_t Fingerprint(const kube::PodSpec& spec) {
  size_t selector = 0;
  for (const auto& [key, value] : spec.node_selector) {
    selector = absl::HashOf(selector, key, value);
  }
  return absl::HashOf(selector, spec.requests.entries(), spec.persistent_volume_claims,
                      spec.tolerations.size(), spec.topology_spread.size(),
                      spec.affinity.required_pod_affinity.size(),
                      spec.affinity.required_pod_anti_affinity.size());
}

}  // namespace

std::shared_ptr<const kube::PodSpec> SpecPool::Share(std::shared_ptr<const kube::PodSpec> spec) {
  if (size_ >= sweep_at_) Sweep();
  Bucket& bucket = buckets_[Fingerprint(*spec)];
  for (const auto& weak : bucket) {
    std::shared_ptr<const kube::PodSpec> known = weak.lock();
    if (known != nullptr && (known == spec || *known == *spec)) return known;
  }
  bucket.push_back(spec);
  ++size_;
  return spec;
}

void SpecPool::Sweep() {
  size_ = 0;
  for (auto it = buckets_.begin(); it != buckets_.end();) {
    std::erase_if(it->second, [](const auto& weak) { return weak.expired(); });
    size_ += it->second.size();
    if (it->second.empty()) {
      buckets_.erase(it++);
    } else {
      ++it;
    }
  }
  sweep_at_ = std::max(kSmallest, 2 * size_);
}

}  // namespace muster::cluster
