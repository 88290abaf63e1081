// Gangs, nodes and queues as a person reads them in a terminal.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "muster/v1/admission.pb.h"

namespace muster::printers {

using TableRow = std::vector<std::string>;

// How a table goes on, so that rows can be added to what stands there.
struct TableForm {
  bool colours = false;             // a cell that is a state is shown in its colour
  std::vector<size_t> widths = {};  // of the columns so far
};

// Columns as wide as their widest cell, two spaces apart, the last one unpadded; ends in a newline.
std::string FormatTable(const std::vector<TableRow>& rows, TableForm* form = nullptr);

// What a terminal would take for a command is a space: texts come from strangers.
std::string Printable(std::string_view text);

// "85s", "12m", "3h", "4d", roughly as kubectl has it.
std::string AgeText(absl::Duration age);

// What is shown, to whom.
struct View {
  absl::Time now;
  bool namespaces = false;  // with a first column for them
  bool wide = false;
  bool colours = false;
};

// NAME STATE REASON BOUND QUEUE AGE; wide: FLAVORS MESSAGE.
TableRow GangHeads(const View& view);
TableRow GangCells(const v1::Gang& gang, const View& view);

// NAME STAGE NODEPOOL TYPE ZONE FOR HELD; wide: GPUS NOTE. FOR are the gangs that are to start
// there, HELD those that keep it alive and for how long: `gangs` names them by UID.
TableRow NodeHeads(const View& view);
TableRow NodeCells(const v1::Node& node, const std::map<std::string, std::string>& gangs,
                   const View& view);
// Those that are coming first, then those that are going, then those that are there.
bool ComesBefore(const v1::Node& left, const v1::Node& right);

using Queues = google::protobuf::RepeatedPtrField<v1::Queue>;
// ClusterQueues: QUEUE COHORT PENDING ADMITTED FLAVOR RESOURCE USED NOMINAL BORROWED, one flavor
// and resource a line; then who waits, first in line first. Those with a namespace are left out.
std::string ClusterQueueTable(const Queues& queues, const View& view);
// LocalQueues likewise, without what only their ClusterQueue has; who waits with his place there.
std::string LocalQueueTable(const Queues& queues, const View& view);

// MEMBER STATE NODE.
std::string MemberTable(const v1::Gang& gang, bool colours = false);
// NODE CLAIM POOL TYPE STAGE HELD NOTE.
std::string NodeTable(const google::protobuf::RepeatedPtrField<v1::Node>& nodes,
                      bool colours = false);
// NODEPOOL PODS RULED OUT BY WHY WHAT WOULD CHANGE IT: what each could do for a gang.
std::string NodePoolTable(const v1::Feasibility& feasibility);
// What went wrong with its nodes.
std::string SetbackTable(const v1::Gang& gang);
// The zones that its nodes may be made in, in the order in which they are tried.
std::string NodeSourceTable(const v1::Gang& gang);

// Where a gang that waits for quota stands.
struct PlaceInLine {
  std::string cluster_queue;
  int64_t place = 0;  // as in v1::PendingGang
  bool operator==(const PlaceInLine&) const = default;
};

// State, reason, fix; what it waits for, in order; members, nodes, and while it waits what went
// wrong, which zones are tried and what NodePools could do for it.
std::string ExplainGang(const v1::Gang& gang, const std::optional<PlaceInLine>& line,
                        const View& view);

}  // namespace muster::printers
