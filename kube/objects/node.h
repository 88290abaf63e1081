// The scheduler's view of a v1.Node, and of what Karpenter says of it (karpenter.sh/v1).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kube/objects/meta.h"
#include "kube/objects/pod.h"
#include "kube/objects/resource_list.h"

namespace muster::kube {

struct Node {
  ObjectMeta meta;
  std::string provider_id;
  bool unschedulable = false;
  std::vector<Taint> taints;
  ResourceList capacity;
  ResourceList allocatable;
  std::vector<std::string> declared_features;  // by its kubelet (1.36), sorted
  bool ready = false;
  std::string ready_message;  // of the Ready condition while it isn't True
  // When that condition last changed its status; absent if it doesn't say.
  std::optional<absl::Time> ready_changed;
  // What a monitoring agent found wrong with the machine, by the condition that says so and its
  // words: "AcceleratedHardwareReady is False: NvidiaXID79Error". Empty normally.
  std::string ill;
  std::string error;  // a malformed quantity, naming the field; such a node is never used
};

struct Condition {
  std::string status;  // "True", "False", "Unknown"
  std::string reason;
  std::string message;
  absl::Time last_transition = absl::InfinitePast();
};

// karpenter.sh/v1 NodeClaim: a node that is bought or being bought. It doesn't say for which pods.
struct NodeClaim {
  ObjectMeta meta;
  std::string node_pool;                  // label karpenter.sh/nodepool
  std::string node_name;                  // status.nodeName; empty until registered
  std::string provider_id;                // status.providerID; empty until launched
  std::vector<Requirement> requirements;  // spec.requirements
  std::vector<Taint> taints;
  std::vector<Taint> startup_taints;
  ResourceList requests;     // spec.resources.requests
  ResourceList capacity;     // status.capacity
  ResourceList allocatable;  // status.allocatable
  std::map<std::string, Condition, std::less<>> conditions;
  std::string error;  // a malformed field, by name; such a claim is never planned on

  bool IsTrue(std::string_view condition) const;  // "Launched", "Registered", "Initialized"
};

// resource.k8s.io/v1 ResourceSlice: devices of a node that only claims (spec.resourceClaims) get.
struct ResourceSlice {
  ObjectMeta meta;
  std::string node_name;  // empty: of several nodes
  std::string driver;
  int64_t devices = 0;
};

// karpenter.k8s.aws/v1 EC2NodeClass, as far as its controller found out what nodes there may be
// (github.com/aws/karpenter-provider-aws v1.15.1, pkg/apis/v1).
struct NodeClass {
  struct Reservation {
    std::string id;
    std::string instance_type;
    std::string zone;
    bool is_block = false;  // a capacity block, whose nodes go before it ends
    bool expiring = false;
    std::optional<absl::Time> end;
    bool operator==(const Reservation&) const = default;
  };

  ObjectMeta meta;
  std::vector<std::string> zones;  // of its subnets, sorted; empty: not known yet
  std::vector<Reservation> reservations;
  std::string
      not_ready;  // "TYPE: MESSAGE" of a condition that is False, the telling one of several
};

// karpenter.sh/v1 NodePool.
struct NodePool {
  ObjectMeta meta;
  StringMap labels;  // spec.template.metadata.labels
  std::vector<Requirement> requirements;
  std::vector<Taint> taints;
  std::vector<Taint> startup_taints;
  std::optional<ResourceList> limits;
  ResourceList usage;            // status.resources
  std::string node_class_group;  // spec.template.spec.nodeClassRef.group
  std::string node_class_name;
  std::shared_ptr<const NodeClass> node_class;  // null: not an EC2NodeClass, or not known
  int32_t weight = 0;
  bool is_static = false;  // spec.replicas is set: no pod makes it buy a node
  bool ready = true;       // condition Ready, true when absent
  std::string consolidation_policy;
  std::string consolidate_after;
  std::string error;  // a malformed field, by name
};

}  // namespace muster::kube
