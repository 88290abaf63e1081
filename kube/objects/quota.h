// Kueue's quota objects (kueue.x-k8s.io, v1beta1 and v1beta2), as Muster reads them.
//
// Field by field those of sigs.k8s.io/kueue v0.15.2 (apis/kueue/v1beta1 and v1beta2). Where the two
// versions differ the newer names are used here; decode.h reads both. `error` names the first field
// that makes an object unusable, with its value; empty normally. Whatever can be decided without
// other objects is checked here, by the rules of Kueue's CRDs and webhooks (pkg/webhooks); that a
// flavor exists or cohorts form no cycle is quota/'s to say.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/objects/meta.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "kube/objects/resource_list.h"

namespace muster::kube {

// Of Kueue: on a Workload until the last pod of its job is gone, on a ClusterQueue and a
// ResourceFlavor while somebody uses them.
inline constexpr std::string_view kInUseFinalizer = "kueue.x-k8s.io/resource-in-use";

struct ResourceFlavor {
  ObjectMeta meta;
  StringMap node_labels;  // at most 8
  std::vector<Taint> node_taints;
  std::vector<Toleration> tolerations;
  // tolerationSeconds of tolerations[i], for whoever adds them to pods; absent: for ever.
  std::vector<std::optional<int64_t>> toleration_seconds;
  std::string topology_name;
  std::string error;
};

// Which labels of nodes tell how near they are to each other, for the flavors that name it.
struct Topology {
  ObjectMeta meta;
  std::vector<std::string> levels;  // labels, from the top down
  std::string error;
};

// Where the pods of a pod set stand, as its Workload says.
struct TopologyAssignment {
  std::vector<std::string> levels;  // labels, from the top down; empty: it doesn't say
  std::map<std::vector<std::string>, int64_t> pods;  // by what these labels' values are
  bool operator==(const TopologyAssignment&) const = default;
};

// Amounts in base units (quantity.h): cpu in milli, the rest whole.
struct ResourceQuota {
  std::string resource;
  int64_t nominal = 0;
  std::optional<int64_t> borrowing_limit;  // absent: no limit
  std::optional<int64_t> lending_limit;    // absent: all of `nominal`
  bool operator==(const ResourceQuota&) const = default;
};

struct FlavorQuotas {
  std::string flavor;
  std::vector<ResourceQuota> resources;  // in the order of the group's covered_resources
  bool operator==(const FlavorQuotas&) const = default;
};

// A resource, and a flavor, is in one group only.
struct ResourceGroup {
  std::vector<std::string> covered_resources;
  std::vector<FlavorQuotas> flavors;  // tried in this order
  bool operator==(const ResourceGroup&) const = default;
};

enum class QueueingStrategy { kBestEffortFifo, kStrictFifo };
enum class StopPolicy { kNone, kHold, kHoldAndDrain };
// What to do with a flavor in which a workload fits only by borrowing, or by preempting.
enum class FungibilityPolicy { kMayStopSearch, kTryNextFlavor };
enum class FungibilityPreference { kBorrowingOverPreemption, kPreemptionOverBorrowing };
enum class ReclaimPolicy { kNever, kLowerPriority, kAny };
enum class WithinQueuePolicy { kNever, kLowerPriority, kLowerOrNewerEqualPriority };

struct FlavorFungibility {
  FungibilityPolicy when_can_borrow = FungibilityPolicy::kMayStopSearch;
  FungibilityPolicy when_can_preempt = FungibilityPolicy::kTryNextFlavor;
  std::optional<FungibilityPreference> preference;
  bool operator==(const FlavorFungibility&) const = default;
};

struct PreemptionPolicy {
  ReclaimPolicy reclaim_within_cohort = ReclaimPolicy::kNever;
  WithinQueuePolicy within_cluster_queue = WithinQueuePolicy::kNever;
  // borrowWithinCohort: false is policy Never.
  bool borrow_from_lower_priority = false;
  std::optional<int32_t> borrow_max_priority_threshold;
  bool operator==(const PreemptionPolicy&) const = default;
};

struct ClusterQueue {
  ObjectMeta meta;
  std::vector<ResourceGroup> resource_groups;  // at most 16
  std::string cohort;                          // empty: none
  QueueingStrategy strategy = QueueingStrategy::kBestEffortFifo;
  std::optional<LabelSelector> namespace_selector;  // absent: no namespace
  FlavorFungibility fungibility;
  PreemptionPolicy preemption;
  StopPolicy stop_policy = StopPolicy::kNone;
  int64_t fair_weight_milli = 1000;  // fairSharing.weight, in thousandths; a finer one is an error
  // The AdmissionChecks that Kueue waits for before it admits, from admissionChecks (v1beta1) or
  // admissionChecksStrategy, whichever flavors they are for.
  std::vector<std::string> admission_checks;
  // admissionScope.admissionMode UsageBasedAdmissionFairSharing: LocalQueues that used less lately
  // go first.
  bool usage_based_admission = false;
  std::string error;
};

struct LocalQueue {
  ObjectMeta meta;
  std::string cluster_queue;
  StopPolicy stop_policy = StopPolicy::kNone;
  int64_t fair_weight_milli = 1000;  // counts in a queue with usage_based_admission only
  std::string error;
};

// Unlike a ClusterQueue's, its lending_limit may be above its own nominal: it limits what the whole
// subtree lends to the parent.
struct Cohort {
  ObjectMeta meta;
  std::string parent;  // empty: a root
  std::vector<ResourceGroup> resource_groups;
  int64_t fair_weight_milli = 1000;
  std::string error;
};

struct WorkloadPriorityClass {
  ObjectMeta meta;
  int32_t value = 0;
  std::string error;
};

// On a PriorityClass, a number: pods of it may opt out of giving their room to others up to this
// priority.
inline constexpr std::string_view kMayOptOutAnnotation = "muster.dev/may-opt-out-up-to";

// scheduling.k8s.io/v1 PriorityClass: that of pods.
struct PriorityClass {
  ObjectMeta meta;
  int32_t value = 0;
  bool global_default = false;
};

// What a job, a PodGroup or a pod waits for, and what it was given. Its controller is that object;
// of a group of plain pods, which Kueue has own it together, a PodGroup of its name, without a UID.
struct Workload {
  struct PodSet {
    std::string name;
    int64_t count = 0;
    // Never null; of the template as the job's user wrote it, without what flavors add.
    std::shared_ptr<const PodSpec> spec;
    // Of the template what admission adds to, JSON: labels, annotations, nodeSelector,
    // tolerations; null where it has none.
    std::string original = {};
    // Whether the template has these at all.
    bool has_affinity = false;
    bool has_node_affinity = false;
  };
  // What was reserved for a pod set, as the status says, whatever became of the spec.
  struct Reserved {
    std::string name;
    int64_t count = 0;
    std::map<std::string, std::string> flavors = {};  // by resource
    ResourceList usage = {};                          // of all its pods
    TopologyAssignment topology = {};
  };
  ObjectMeta meta;
  std::vector<std::string> members;  // of such a group: UIDs of its pods
  bool has_annotations = false;      // meta may lack some
  bool active = true;                // false: Kueue evicts it and doesn't queue it again
  std::string queue;                 // LocalQueue of its namespace
  int64_t priority = 0;
  std::optional<int64_t> max_seconds;   // spec.maximumExecutionTimeSeconds
  std::optional<int64_t> past_seconds;  // status.accumulatedPastExecutionTimeSeconds
  std::vector<PodSet> pod_sets;
  std::map<std::string, int64_t> reclaimable;  // pods that need nothing any more, by pod set
  std::string cluster_queue;                   // that it was reserved in
  std::vector<Reserved> reserved_sets;
  std::map<std::string, Condition> conditions;  // by type
  bool reserved = false;                        // condition QuotaReserved
  bool evicted = false;  // condition Evicted: its job is being suspended, or was and waits again
  bool finished = false;
  std::string error;
};

}  // namespace muster::kube
