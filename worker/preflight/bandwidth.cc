#include "worker/preflight/bandwidth.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "worker/diagnose/text.h"

namespace muster::worker {

double BusBandwidth(int ranks, int64_t bytes, absl::Duration time) {
  if (time <= absl::ZeroDuration()) return 0;
  const double moved = 2.0 * (ranks - 1) / ranks * static_cast<double>(bytes);
  return moved / absl::ToDoubleSeconds(time) / 1e9;
}

const BandwidthTable& Ec2Bandwidths() {
  static const BandwidthTable kTable = {
      {"p4d.24xlarge", 8, 170, 37},      {"p4de.24xlarge", 8, 170, 37},
      {"p5.48xlarge", 8, 275, 300},      {"p5e.48xlarge", 8, 275, 300},
      {"p5en.48xlarge", 8, 275, 300},    {"p6-b200.48xlarge", 8, 550, 300},
      {"p6-b300.48xlarge", 8, 550, 400}, {"g5.12xlarge", 4, 2, 2},
      {"g5.24xlarge", 4, 2, 2},          {"g5.48xlarge", 8, 2, 2},
      {"g6.12xlarge", 4, 2, 2},          {"g6.24xlarge", 4, 2, 2},
      {"g6.48xlarge", 8, 2, 2},          {"g6e.12xlarge", 4, 2, 2},
      {"g6e.24xlarge", 4, 2, 2},         {"g6e.48xlarge", 8, 2, 2}};
  return kTable;
}

absl::StatusOr<BandwidthTable> ParseBandwidths(std::string_view text,
                                               const BandwidthTable& others) {
  BandwidthTable table;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    InstanceBandwidth read;
    read.instance_type = std::string(words[0]);
    if (words.size() != 4 || !absl::SimpleAtoi(words[1], &read.gpus) ||
        !absl::SimpleAtod(words[2], &read.node) || !absl::SimpleAtod(words[3], &read.across) ||
        read.gpus < 1 || !(read.node >= 0) || !(read.across >= 0)) {
      return absl::InvalidArgumentError(
          Concat("line ", number,
                 " isn't an instance type, its GPUs, and the GB/s inside a node and across nodes, "
                 "such as \"p5.48xlarge 8 275 300\""));
    }
    table.push_back(std::move(read));
  }
  table.insert(table.end(), others.begin(), others.end());
  return table;
}

const InstanceBandwidth* FindBandwidth(const BandwidthTable& table,
                                       std::string_view instance_type) {
  const auto found = std::ranges::find(table, instance_type, &InstanceBandwidth::instance_type);
  return found == table.end() ? nullptr : &*found;
}

double AcrossThreshold(const InstanceBandwidth& bandwidth, int gpus, int nodes) {
  constexpr int kNodesOfFullRate = 8;
  const double share = std::min(1.0, static_cast<double>(gpus) / bandwidth.gpus);
  return bandwidth.across * share * (nodes > kNodesOfFullRate ? 0.5 : 1);
}

}  // namespace muster::worker
