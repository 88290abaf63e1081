// What a workload asks of the quota of a ClusterQueue: its pod sets as amounts per resource, and
// which flavors its pods could use at all. Workloads of one queue with equal demands share one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quota/layout.h"
#include "quota/resource_rules.h"
#include "quota/workload.h"

namespace muster::quota {

// What a pod set asks of one resource group.
struct GroupDemand {
  int group = 0;
  struct Request {
    int resource = 0;
    int position = 0;    // of the resource in its group
    int64_t each = 0;    // of one pod
    int64_t amount = 0;  // of all
  };
  std::vector<Request> requests;
  std::vector<std::string> mismatches;  // by flavor of the group; empty: it can be used
};

struct PodSetDemand {
  std::vector<GroupDemand> groups;  // those it needs, in the queue's order
  std::vector<int> uncovered;       // resources that no group covers
};

struct Demand {
  std::vector<PodSetDemand> pod_sets;
};

// Pods as a resource count only where the queue covers them. `names`: of the queue's ledger.
Demand MakeDemand(const std::vector<PodSet>& pod_sets, const QueueConfig& queue,
                  const ResourceRules& rules, Names& names);

// Equal for pod sets whose demands are equal in every queue.
std::string DemandKey(const std::vector<PodSet>& pod_sets);

}  // namespace muster::quota
