#include "cluster/node_pools.h"

#include <utility>

namespace muster::cluster {
namespace {

constexpr std::string_view kEc2 = "karpenter.k8s.aws";

}  // namespace

bool MakeTheSame(const kube::NodePool& a, const kube::NodePool& b) {
  return a.labels == b.labels && a.requirements == b.requirements && a.taints == b.taints &&
         a.limits == b.limits && a.is_static == b.is_static &&
         a.node_class_group == b.node_class_group && a.node_class == b.node_class &&
         a.ready == b.ready && a.error == b.error && a.meta.deletion_time == b.meta.deletion_time;
}

bool KnownNodePools::Upsert(kube::NodePool pool) {
  const auto node_class = classes_.find(pool.node_class_name);
  if (pool.node_class_group == kEc2 && node_class != classes_.end()) {
    pool.node_class = node_class->second;
  }
  const std::string name = pool.meta.name;
  const auto known = pools_.find(name);
  const bool changed = known == pools_.end() || !MakeTheSame(known->second, pool);
  pools_.insert_or_assign(name, std::move(pool));
  return changed;
}

bool KnownNodePools::Upsert(kube::NodeClass node_class) {
  const std::string name = node_class.meta.name;
  if (const auto known = classes_.find(name); known != classes_.end()) {
    const kube::NodeClass& before = *known->second;
    if (before.zones == node_class.zones && before.reservations == node_class.reservations &&
        before.not_ready == node_class.not_ready) {
      return false;
    }
  }
  const auto shared = std::make_shared<const kube::NodeClass>(std::move(node_class));
  classes_[name] = shared;
  return Refer(name, shared);
}

bool KnownNodePools::Remove(const kube::NodePool& pool) { return pools_.erase(pool.meta.name) > 0; }

bool KnownNodePools::Remove(const kube::NodeClass& node_class) {
  if (classes_.erase(node_class.meta.name) == 0) return false;
  return Refer(node_class.meta.name, nullptr);
}

bool KnownNodePools::Refer(const std::string& name,
                           std::shared_ptr<const kube::NodeClass> node_class) {
  bool any = false;
  for (auto& [pool_name, pool] : pools_) {
    if (pool.node_class_group != kEc2 || pool.node_class_name != name) continue;
    pool.node_class = node_class;
    any = true;
  }
  return any;
}

}  // namespace muster::cluster
