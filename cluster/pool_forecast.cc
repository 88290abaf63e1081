#include "cluster/pool_forecast.h"

#include <algorithm>
#include <memory>

#include "cluster/node_affinity.h"
#include "cluster/predicates.h"
#include "fmt/format.h"

namespace muster::cluster {

NodeInfo ForecastOf(const kube::NodePool& pool) {
  auto claim = std::make_shared<kube::NodeClaim>();
  claim->meta.name = pool.meta.name;
  claim->node_pool = pool.meta.name;
  claim->requirements = pool.requirements;
  claim->taints = pool.taints;
  auto node = std::make_shared<kube::Node>();
  node->meta.name = pool.meta.name;
  node->meta.labels = pool.labels;
  node->meta.labels["karpenter.sh/nodepool"] = pool.meta.name;
  node->taints = pool.taints;
  NodeInfo info;
  info.node = std::move(node);
  info.claim = std::move(claim);
  info.is_virtual = true;
  return info;
}

kube::ResourceList RemainingLimits(const kube::NodePool& pool) {
  kube::ResourceList remaining;
  if (!pool.limits) return remaining;
  for (const auto& [resource, limit] : pool.limits->entries()) {
    remaining.Set(resource, std::max<int64_t>(0, limit - pool.usage.Get(resource)));
  }
  return remaining;
}

std::optional<std::string> WhyPoolCannotHold(const kube::NodePool& pool,
                                             const kube::PodSpec& spec) {
  const std::string& name = pool.meta.name;
  if (!pool.error.empty()) return fmt::format("NodePool {}: {}", name, pool.error);
  if (!pool.ready) return fmt::format("NodePool {} isn't ready", name);
  if (pool.meta.deletion_time) return fmt::format("NodePool {} is being deleted", name);
  if (const kube::Taint* taint = FirstUntoleratedTaint(spec, pool.taints)) {
    return fmt::format("NodePool {} has taint {}, which isn't tolerated", name, taint->ToString());
  }
  if (!CouldMatchNodeAffinity(spec, ForecastOf(pool))) {
    return fmt::format("NodePool {} can't meet nodeSelector or required node affinity", name);
  }
  if (pool.limits) {
    for (const auto& [resource, limit] : pool.limits->entries()) {
      if (spec.requests.Get(resource) <= limit) continue;
      return fmt::format("NodePool {} is limited to {} {}, one pod asks for {}", name, limit,
                         resource, spec.requests.Get(resource));
    }
  }
  return std::nullopt;
}

}  // namespace muster::cluster
