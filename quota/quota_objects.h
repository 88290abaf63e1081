// The quota objects of the cluster as they were last seen, by name. Each Upsert and Remove says
// whether anything that quota depends on is different now.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "kube/objects/quota.h"
#include "kube/objects/workload.h"

namespace muster::quota {

template <typename Object>
using ByName = std::map<std::string, Object, std::less<>>;

class QuotaObjects {
 public:
  bool Upsert(kube::ResourceFlavor flavor);
  bool Upsert(kube::Topology topology);
  bool Upsert(kube::ClusterQueue queue);
  bool Upsert(kube::LocalQueue queue);
  bool Upsert(kube::Cohort cohort);
  bool Upsert(kube::Namespace name_space);
  bool Upsert(kube::WorkloadPriorityClass priority_class);
  bool Upsert(kube::PriorityClass priority_class);
  bool Remove(const kube::ResourceFlavor& flavor);
  bool Remove(const kube::Topology& topology);
  bool Remove(const kube::ClusterQueue& queue);
  bool Remove(const kube::LocalQueue& queue);
  bool Remove(const kube::Cohort& cohort);
  bool Remove(const kube::Namespace& name_space);
  bool Remove(const kube::WorkloadPriorityClass& priority_class);
  bool Remove(const kube::PriorityClass& priority_class);

  const ByName<kube::ResourceFlavor>& flavors() const { return flavors_; }
  const ByName<kube::Topology>& topologies() const { return topologies_; }
  const ByName<kube::ClusterQueue>& cluster_queues() const { return cluster_queues_; }
  const ByName<kube::LocalQueue>& local_queues() const { return local_queues_; }  // full names
  const ByName<kube::Cohort>& cohorts() const { return cohorts_; }
  const ByName<kube::Namespace>& namespaces() const { return namespaces_; }
  const ByName<kube::WorkloadPriorityClass>& priority_classes() const { return priority_classes_; }
  const ByName<kube::PriorityClass>& pod_priority_classes() const { return pod_priority_classes_; }

 private:
  ByName<kube::ResourceFlavor> flavors_;
  ByName<kube::Topology> topologies_;
  ByName<kube::ClusterQueue> cluster_queues_;
  ByName<kube::LocalQueue> local_queues_;
  ByName<kube::Cohort> cohorts_;
  ByName<kube::Namespace> namespaces_;
  ByName<kube::WorkloadPriorityClass> priority_classes_;
  ByName<kube::PriorityClass> pod_priority_classes_;
};

}  // namespace muster::quota
