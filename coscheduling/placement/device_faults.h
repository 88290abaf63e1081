// Words by which a container's end accuses the node that it ran on, rather than its program.
#pragma once

#include <string>
#include <string_view>

namespace muster::coscheduling {

// The device fault that a termination message names, with what it is ("Xid 79 (the GPU has fallen
// off the bus): NVRM: ..."), or "". The table in device_faults.cc says where each word comes from.
//
// Only faults of this node's own devices count. What a peer may have caused as well says nothing of
// the node: where one member of a gang dies, NCCL on all the others reports "remote process exited"
// or "unhandled system error", and libfabric an unresponsive or unreachable receiver (EFA errors 9,
// 13, 15, 4124, 4126). If those counted, one bad node, or a security group without a rule for
// egress to itself, would make all nodes of a gang suspect.
std::string DeviceFaultIn(std::string_view termination_message);

}  // namespace muster::coscheduling
