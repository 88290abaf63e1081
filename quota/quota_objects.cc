#include "quota/quota_objects.h"

#include <tuple>
#include <utility>

namespace muster::quota {
namespace {

// What of an object quota depends on. Metadata other than what is named here changes all the time.
auto Parts(const kube::ResourceFlavor& f) {
  return std::tie(f.meta.deletion_time, f.node_labels, f.node_taints, f.tolerations,
                  f.topology_name, f.error);
}
auto Parts(const kube::Topology& t) { return std::tie(t.levels, t.error); }
auto Parts(const kube::ClusterQueue& q) {
  return std::tie(q.meta.uid, q.meta.deletion_time, q.resource_groups, q.cohort, q.strategy,
                  q.namespace_selector, q.fungibility, q.preemption, q.stop_policy,
                  q.fair_weight_milli, q.admission_checks, q.usage_based_admission, q.error);
}
auto Parts(const kube::LocalQueue& q) {
  return std::tie(q.meta.uid, q.cluster_queue, q.stop_policy, q.fair_weight_milli, q.error);
}
auto Parts(const kube::Cohort& c) {
  return std::tie(c.parent, c.resource_groups, c.fair_weight_milli, c.error);
}
auto Parts(const kube::Namespace& n) { return std::tie(n.meta.labels); }
auto Parts(const kube::WorkloadPriorityClass& c) { return std::tie(c.value, c.error); }
auto Parts(const kube::PriorityClass& c) { return std::tie(c.value, c.global_default); }

template <typename Object>
bool Put(ByName<Object>& all, std::string name, Object object) {
  auto it = all.find(name);
  if (it == all.end()) {
    all.emplace(std::move(name), std::move(object));
    return true;
  }
  const bool changed = Parts(it->second) != Parts(object);
  it->second = std::move(object);
  return changed;
}

template <typename Object>
bool Erase(ByName<Object>& all, std::string_view name) {
  auto it = all.find(name);
  if (it == all.end()) return false;
  all.erase(it);
  return true;
}

}  // namespace

bool QuotaObjects::Upsert(kube::ResourceFlavor flavor) {
  std::string name = flavor.meta.name;
  return Put(flavors_, std::move(name), std::move(flavor));
}
bool QuotaObjects::Upsert(kube::Topology topology) {
  std::string name = topology.meta.name;
  return Put(topologies_, std::move(name), std::move(topology));
}
bool QuotaObjects::Upsert(kube::ClusterQueue queue) {
  std::string name = queue.meta.name;
  return Put(cluster_queues_, std::move(name), std::move(queue));
}
bool QuotaObjects::Upsert(kube::LocalQueue queue) {
  std::string name = queue.meta.FullName();
  return Put(local_queues_, std::move(name), std::move(queue));
}
bool QuotaObjects::Upsert(kube::Cohort cohort) {
  std::string name = cohort.meta.name;
  return Put(cohorts_, std::move(name), std::move(cohort));
}
bool QuotaObjects::Upsert(kube::Namespace name_space) {
  std::string name = name_space.meta.name;
  return Put(namespaces_, std::move(name), std::move(name_space));
}
bool QuotaObjects::Upsert(kube::WorkloadPriorityClass priority_class) {
  std::string name = priority_class.meta.name;
  return Put(priority_classes_, std::move(name), std::move(priority_class));
}
bool QuotaObjects::Upsert(kube::PriorityClass priority_class) {
  std::string name = priority_class.meta.name;
  return Put(pod_priority_classes_, std::move(name), std::move(priority_class));
}
bool QuotaObjects::Remove(const kube::ResourceFlavor& flavor) {
  return Erase(flavors_, flavor.meta.name);
}
bool QuotaObjects::Remove(const kube::Topology& topology) {
  return Erase(topologies_, topology.meta.name);
}
bool QuotaObjects::Remove(const kube::ClusterQueue& queue) {
  return Erase(cluster_queues_, queue.meta.name);
}
bool QuotaObjects::Remove(const kube::LocalQueue& queue) {
  return Erase(local_queues_, queue.meta.FullName());
}
bool QuotaObjects::Remove(const kube::Cohort& cohort) { return Erase(cohorts_, cohort.meta.name); }
bool QuotaObjects::Remove(const kube::Namespace& name_space) {
  return Erase(namespaces_, name_space.meta.name);
}
bool QuotaObjects::Remove(const kube::WorkloadPriorityClass& priority_class) {
  return Erase(priority_classes_, priority_class.meta.name);
}
bool QuotaObjects::Remove(const kube::PriorityClass& priority_class) {
  return Erase(pod_priority_classes_, priority_class.meta.name);
}

}  // namespace muster::quota
