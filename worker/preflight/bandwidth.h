// How fast an all-reduce of a large message should be on a node, and between nodes.
//
// The table's figures are lower bounds, not records: about three quarters of what is published for
// messages of 1 GiB, because training works below a record, but not without NVLink or EFA, which
// costs nine tenths. Sources, in GB/s of bus bandwidth:
//   - inside a node: p4d 231 (github.com/NVIDIA/nccl/issues/527); 8 H100 or H200 by rings 369
//     (github.com/NVIDIA/nccl-tests/issues/309), p5, p5e and p5en, and more with NVLS; B200 and
//     B300 have NVLink of twice that rate;
//   - across nodes: 2 p4de 77, 2 p5 437 (github.com/aws-samples/awsome-distributed-training,
//     micro-benchmarks/nccl-tests). On two nodes trees pass the line rate, which is the most that
//     many nodes reach; so the line rate counts where it is less: 50 for p4d and p4de, 400 for p5,
//     p5e, p5en and p6-b200. For p6-b300 (800) nothing is published: half of it;
//   - g5, g6, g6e: nothing is published. 2 GB/s is what neither PCIe nor their networks stay below.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::worker {

// Bus bandwidth as nccl-tests defines it, 2(n-1)/n times bytes over time, in 1e9 bytes per second:
// what each rank's link carries, so that it can be compared whatever the number of ranks. 0 for one
// rank.
double BusBandwidth(int ranks, int64_t bytes, absl::Duration time);

struct InstanceBandwidth {
  std::string instance_type = {};  // "p5.48xlarge"
  int gpus = 0;
  double node = 0;    // GB/s among GPUs of one node; 0: not known
  double across = 0;  // GB/s among nodes that take part with all of their GPUs; 0: not known
};
using BandwidthTable = std::vector<InstanceBandwidth>;

// EC2's, as above.
const BandwidthTable& Ec2Bandwidths();

// `text` has a line for each type, "p5.48xlarge 8 275 300" for the fields in order; what follows a
// # is a comment. These come before those of `others`. InvalidArgument with the line's number.
absl::StatusOr<BandwidthTable> ParseBandwidths(std::string_view text, const BandwidthTable& others);

// The first of that type, or null.
const InstanceBandwidth* FindBandwidth(const BandwidthTable& table, std::string_view instance_type);

// What `nodes` nodes, of which each takes part with `gpus` of its GPUs, must reach across: network
// devices are shared out with GPUs, and from more than eight nodes on, where 1 GiB isn't large any
// more, half of the rate is enough. 0: not known.
double AcrossThreshold(const InstanceBandwidth& bandwidth, int gpus, int nodes);

}  // namespace muster::worker
