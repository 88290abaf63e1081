// What asks for quota, and what it was given: the vocabulary between quota/ and coscheduling/.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "kube/objects/pod.h"
#include "kube/objects/quota.h"
#include "kube/objects/resource_list.h"
#include "quota/resource_rules.h"

namespace muster::quota {

// Equal pods of a gang.
struct PodSet {
  std::string name;  // unique in its workload, stable over restarts
  int64_t count = 0;
  // Requests of one pod, and what rules flavors out (nodeSelector, required node affinity,
  // tolerations), all as its user wrote them. Never null.
  std::shared_ptr<const kube::PodSpec> spec;
  // The name says what the specs ask (pod_sets.h).
  bool operator==(const PodSet& other) const { return name == other.name && count == other.count; }
};

// Amounts by flavor and resource.
using FlavorAmounts = std::map<std::pair<std::string, std::string>, int64_t>;

// A gang as quota sees it.
struct Workload {
  std::string id;  // UID of its Workload
  std::string name_space;
  std::string name;
  std::string queue;  // LocalQueue of its namespace
  int64_t priority = 0;
  std::optional<int64_t> max_seconds = {};  // that it may run for
  absl::Time queued_at;                     // its place in the queue; kept over attempts
  std::vector<PodSet> pod_sets;  // what must be admitted for it to start: minMember members
  std::vector<PodSet> surplus;   // beyond that; names are those of pod_sets where the specs agree
  bool operator==(const Workload&) const = default;
};

// What one pod set was given. `usage` is the sum over `count` pods.
struct PodSetAssignment {
  std::string name;
  int64_t count = 0;
  std::map<std::string, std::string> flavors;  // resource -> flavor, covered resources only
  kube::ResourceList usage;                    // covered resources only
  // Where they stand, once they do; it changes nothing of what was given.
  kube::TopologyAssignment topology = {};
  bool operator==(const PodSetAssignment& other) const {
    return name == other.name && count == other.count && flavors == other.flavors &&
           usage == other.usage;
  }
  // The same for fewer of its pods, which are all alike.
  PodSetAssignment ReducedTo(int64_t fewer) const;
  // What wasn't counted for each such pod of what its requests count as.
  kube::ResourceList LackingFor(const kube::ResourceList& counted) const;
  // All that such a pod's requests count as was counted for each.
  bool PaysFor(const kube::PodSpec& pod, const ResourceRules& rules = {}) const;
};

// A reservation of quota.
struct Admission {
  std::string cluster_queue;
  std::vector<PodSetAssignment> pod_sets;  // those of Workload::pod_sets, in order
  std::vector<PodSetAssignment> surplus;   // those beyond minMember that were counted as well
  absl::Time reserved_at;
  bool operator==(const Admission&) const = default;
  // What pods of this set were given; null if nothing.
  const PodSetAssignment* Find(std::string_view pod_set) const;
  // Pods of the set that were counted: with what is beyond minMember, and without.
  int64_t Counted(std::string_view pod_set) const;
  int64_t CountedAsNeeded(std::string_view pod_set) const;
  // The same quota, whenever it was reserved.
  bool HasTheSame(const Admission& other) const {
    return cluster_queue == other.cluster_queue && pod_sets == other.pod_sets &&
           surplus == other.surplus;
  }
  // All that the workload needs to start was counted, with what its pods ask for.
  bool Covers(const Workload& workload, const ResourceRules& rules = {}) const;
};

// Adds up pod sets of the same name and flavors, in order of their names.
void AddSurplus(std::vector<PodSetAssignment>& surplus,
                const std::vector<PodSetAssignment>& granted);

}  // namespace muster::quota
