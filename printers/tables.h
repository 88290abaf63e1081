// Gangs, nodes and queues as a person reads them in a terminal.
#pragma once

#include <string>
#include <vector>

#include "muster/v1/admission.pb.h"

namespace muster::printers {

// Columns as wide as their widest cell, two spaces apart, the last one unpadded; ends in a newline.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

// NAMESPACE NAME STATE BOUND REASON MESSAGE, one gang a line.
std::string GangTable(const v1::ListGangsResponse& gangs);

// MEMBER STATE NODE.
std::string MemberTable(const v1::Gang& gang);

// NODE CLAIM POOL TYPE STAGE HELD NOTE.
std::string NodeTable(const google::protobuf::RepeatedPtrField<v1::Node>& nodes);

// NODEPOOL PODS RULED OUT BY WHY WHAT WOULD CHANGE IT: what each could do for a gang.
std::string NodePoolTable(const v1::Feasibility& feasibility);
// What went wrong with its nodes.
std::string SetbackTable(const v1::Gang& gang);
// The zones that its nodes may be made in, in the order in which they are tried.
std::string NodeSourceTable(const v1::Gang& gang);

// ClusterQueues: QUEUE COHORT PENDING ADMITTED FLAVOR RESOURCE USED NOMINAL BORROWED, one flavor
// and resource a line; then who waits, first in line first.
std::string QueueTable(const v1::ListQueuesResponse& queues);

// State, reason, fix, then members, nodes, and while it waits what NodePools could do for it.
std::string ExplainGang(const v1::Gang& gang);

}  // namespace muster::printers
