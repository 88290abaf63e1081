// Whether pods may be evicted together, as the API server's eviction counts
// (k8s.io/kubernetes pkg/registry/core/pod/storage/eviction.go v1.34).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kube/objects/pod.h"
#include "kube/objects/workload.h"

namespace muster::cluster {

class DisruptionBudgets {
 public:
  // True if an answer may be another one now.
  bool Upsert(kube::PodDisruptionBudget budget);
  bool Remove(const kube::PodDisruptionBudget& budget);

  // No budget has more running pods among these than it lets go, and none of them is of two
  // budgets: such a pod the API server never evicts.
  bool Allow(const std::vector<const kube::Pod*>& pods) const;

 private:
  std::map<std::string, kube::PodDisruptionBudget> budgets_;  // by full name
};

}  // namespace muster::cluster
