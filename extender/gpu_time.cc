#include "extender/gpu_time.h"

#include <algorithm>
#include <string>

#include "kube/objects/resource_list.h"

namespace muster::extender {
namespace {

template <typename Amounts>
int64_t Gpus(const Amounts& amounts) {
  const auto it = amounts.find(std::string(kube::kNvidiaGpu));
  return it == amounts.end() ? 0 : it->second;
}

}  // namespace

void GpuTime::Tell(absl::Time now, const v1::ListNodesResponse* nodes) {
  const double passed = std::max(0.0, absl::ToDoubleSeconds(now - since_));
  if (since_ != absl::InfiniteFuture()) {
    bought_ += static_cast<double>(launched_gpus_) * passed;
    held_idle_ += static_cast<double>(held_gpus_) * passed;
  }
  since_ = nodes == nullptr ? absl::InfiniteFuture() : now;
  launched_gpus_ = held_gpus_ = 0;
  if (nodes == nullptr) return;
  for (const v1::Node& node : nodes->nodes()) {
    if (!node.node_claim().empty() && node.stage() >= v1::LAUNCHED) {
      launched_gpus_ += Gpus(node.allocatable());
    }
    if (!node.holds().empty()) held_gpus_ += std::max<int64_t>(0, Gpus(node.free()));
  }
}

}  // namespace muster::extender
