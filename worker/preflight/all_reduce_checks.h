// The verdicts on all-reduces: right, and as fast as the nodes' instance type is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/diagnose/failure.h"
#include "worker/preflight/all_reduce.h"
#include "worker/preflight/bandwidth.h"
#include "worker/preflight/checks.h"

namespace muster::worker {

// What a node, as one of its containers sees it, has to say about a slow all-reduce.
struct LinkFacts {
  std::string instance_type = {};  // empty: not known
  int efa_devices = 0;             // that the container may open
  bool has_plugin = false;         // NCCL would find aws-ofi-nccl
  // Variables that keep NCCL from ways between GPUs of a node, and between nodes: "NAME=value".
  std::string keeps_from_node = {};
  std::string keeps_from_fabric = {};
};

// `instance_type`: what the user says; or else MUSTER_INSTANCE_TYPE, or what EC2 tells in the
// machine's DMI table.
LinkFacts ReadLinks(Machine& machine, const std::string& instance_type);
// Only what concerns the ways inside the node; loads nothing.
LinkFacts ReadLinksInNode(Machine& machine, const std::string& instance_type);

// What one rank tells the others.
struct RankAllReduce {
  int rank = 0;
  int node = 0;
  std::string host = {};
  std::string gpu = {};  // its name, if that says more than the rank; isn't told to others
  LinkFacts links = {};
  AllReduceFound found = {};
};

// All ranks' in the order of ranks, on all ranks. A collective. Names are cut.
absl::StatusOr<std::vector<RankAllReduce>> ShareAllReduces(Communicator& ranks,
                                                           const RankAllReduce& own,
                                                           absl::Duration timeout);

struct AllReduceExpectations {
  BandwidthTable table = Ec2Bandwidths();
  // GB/s, instead of the table's; 0: no verdict.
  std::optional<double> node = {};
  std::optional<double> across = {};
};

struct AllReduceVerdict {
  std::vector<Row> rows = {};
  std::vector<int> nodes_at_fault = {};  // of the first failed row, ascending; may be empty
  std::optional<int> rank_at_fault = {};
  std::string host_at_fault = {};
};

// Rows "all-reduce result", "all-reduce in nodes" and "all-reduce across"; the latter two only
// where it was measured. A bandwidth without a threshold is a warning, because nothing was checked.
AllReduceVerdict CheckAllReduces(const std::vector<RankAllReduce>& ranks,
                                 const AllReduceExpectations& expected);

// What a rank of `node` ends with, or nothing if no row failed. Only ranks of a node at fault
// accuse its GPUs: whoever reads the termination messages of all pods suspects each pod's own node.
std::optional<Failure> FailureOf(const AllReduceVerdict& verdict, int node);

}  // namespace muster::worker
