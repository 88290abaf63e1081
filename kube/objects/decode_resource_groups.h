// spec.resourceGroups of a ClusterQueue or a Cohort.
#pragma once

#include <vector>

#include "kube/objects/json_value.h"
#include "kube/objects/quota.h"

namespace muster::kube {

struct ResourceGroupRules {
  // Limits on borrowing and lending make sense only with someone to borrow from and lend to.
  bool has_parent = false;
  // A ClusterQueue lends of its own; a Cohort lends what its members have, too.
  bool lending_within_nominal = true;
  // At most 256 flavors and covered resources in all, and 512 amounts in a group
  // (pkg/webhooks/clusterqueue_webhook.go v0.15.2: ClusterQueues only).
  bool bounded_totals = true;
};

// What can't be used is kept by the value's reader, the first such field.
std::vector<ResourceGroup> ReadResourceGroups(const JsonValue& groups,
                                              const ResourceGroupRules& rules);

// Rejects an array of more than `most` elements.
void CheckCount(const JsonValue& array, size_t most);

}  // namespace muster::kube
