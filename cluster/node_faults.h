// Pods whose end accuses the node that they ran on, rather than their program.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kube/objects/pod.h"

namespace muster::cluster {

struct NodeInfo;

// The device fault that a termination message names, with what it is ("Xid 79 (the GPU has fallen
// off the bus): NVRM: ..."), or "". The table in node_faults.cc says where each word comes from.
//
// Only faults of this node's own devices count. What a peer may have caused as well says nothing of
// the node: where one member of a gang dies, NCCL on all the others reports "remote process exited"
// or "unhandled system error", and libfabric an unresponsive or unreachable receiver (EFA errors 9,
// 13, 15, 4124, 4126). If those counted, one bad node, or a security group without a rule for
// egress to itself, would make all nodes of a gang suspect.
std::string DeviceFaultIn(std::string_view termination_message);

// Why the kubelet turned the pod away, or nullopt: UnexpectedAdmissionError, OutOf...
// (k8s.io/kubernetes pkg/kubelet/lifecycle/predicate.go v1.34). No user can write a pod's status.
std::optional<std::string> KubeletRejection(const kube::Pod& pod);

// What stands on the node leaves no room for the pod, though the node has all that it should: who
// came first had the kubelet turn it away, not the node.
bool IsTakenByOthers(const kube::Pod& pod, const NodeInfo& info);

// Why the pod's end speaks against its node, or nullopt: the kubelet turned it away, or a
// container's termination message names a fault of the node's devices (DeviceFaultIn). That is what
// its user says of it. A container that failed so and was started again in its pod counts as well.
std::optional<std::string> NodeFault(const kube::Pod& pod);

// Why a pod that failed did so: its node's fault, or else what its status says; "" if nothing.
std::string FailureText(const kube::Pod& pod);

}  // namespace muster::cluster
