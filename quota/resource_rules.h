// What requests count as in quota: Kueue's resources.excludeResourcePrefixes and
// resources.transformations (sigs.k8s.io/kueue v0.19.2 apis/config/v1beta2 configuration_types.go,
// pkg/workload/workload.go dropExcludedResources, applyResourceTransformations).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/numeric/int128.h"
#include "kube/objects/pod.h"
#include "kube/objects/resource_list.h"

namespace muster::quota {

struct ResourceTransformation {
  std::string input;
  bool retain = true;       // strategy: Retain; false: Replace
  std::string multiply_by;  // a resource; "": nothing
  std::map<std::string, absl::int128>
      outputs;  // of one unit of `input` (a core, a byte), billionths
};

class ResourceRules {
 public:
  // What counts for nothing, by how names begin; then, at most one for each input. Neither is empty
  // text.
  ResourceRules() = default;
  ResourceRules(std::vector<std::string> excluded_prefixes,
                std::vector<ResourceTransformation> transformations);

  bool empty() const { return excluded_prefixes_.empty() && transformations_.empty(); }
  // Exact, each sum rounded up to its resource's base unit; what is negative counts as 0, what is
  // past int64 as more than any quota. Pods count as what they are.
  kube::ResourceList Count(const kube::ResourceList& requests) const;

 private:
  std::vector<std::string> excluded_prefixes_;
  std::map<std::string, ResourceTransformation, std::less<>> transformations_;
};

}  // namespace muster::quota
