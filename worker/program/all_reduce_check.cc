#include "worker/program/all_reduce_check.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/checkpoint/file.h"
#include "worker/program/engine_choice.h"
#include "worker/program/exit.h"

namespace muster::worker {
namespace {

// Of a CPU's buffer: 16 MiB.
constexpr int64_t kCpuElements = int64_t{1} << 22;

}  // namespace

void AddAllReduceSettings(Settings& settings, AllReduceConfig& config) {
  AddNodeAllReduceSettings(settings, config);
  settings.Add("fabric-bandwidth", "as node-bandwidth, across nodes", &config.fabric_bandwidth);
}

void AddNodeAllReduceSettings(Settings& settings, AllReduceConfig& config) {
  settings.Add("node-bandwidth",
               "GB/s of bus bandwidth that all-reduces must reach inside a node; default: the "
               "instance type's",
               &config.node_bandwidth);
  settings.Add("bandwidths",
               "file with a line TYPE GPUS NODE-BANDWIDTH FABRIC-BANDWIDTH for each instance type",
               &config.bandwidths);
  settings.Add("all-reduce-time", "to measure for, inside nodes, and again across where that is",
               &config.time);
  settings.Add("all-reduce-timeout", "after which an all-reduce has failed", &config.timeout);
}

absl::StatusOr<AllReduceExpectations> ExpectationsOf(const AllReduceConfig& config) {
  constexpr size_t kLargestFile = size_t{1} << 20;
  AllReduceExpectations expected = {.node = config.node_bandwidth,
                                    .across = config.fabric_bandwidth};
  if (!config.bandwidths.has_value()) return expected;
  const absl::StatusOr<std::string> text = ReadFile(*config.bandwidths, kLargestFile);
  if (!text.ok()) return absl::InvalidArgumentError(text.status().message());
  absl::StatusOr<BandwidthTable> table = ParseBandwidths(*text, expected.table);
  if (!table.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(*config.bandwidths, ": ", table.status().message()));
  }
  expected.table = *std::move(table);
  return expected;
}

absl::StatusOr<AllReduceReport> CheckAllReduces(const AllReduceConfig& config,
                                                const std::string& instance_type, int node,
                                                const std::string& host, bool on_gpus,
                                                Communicator& communicator) {
  const absl::StatusOr<AllReduceExpectations> expected = ExpectationsOf(config);
  absl::Status result = expected.status();
  absl::Status status = AgreeOnResult(communicator, result, config.timeout);
  if (!status.ok() || !result.ok()) return status.ok() ? result : status;
  std::vector<int> nodes(communicator.world_size());
  int& own_node = nodes[communicator.rank()];
  own_node = node;
  status = communicator.AllGather(std::as_bytes(std::span(&own_node, 1)),
                                  std::as_writable_bytes(std::span(nodes)), config.timeout);
  if (!status.ok()) return status;
  const std::vector<int> ranks_of_node = RanksOfNode(nodes, communicator.rank());
  absl::StatusOr<std::unique_ptr<AllReducer>> reducer =
      on_gpus ? MakeGpuAllReducer(communicator, ranks_of_node, config.timeout)
              : MakeCpuAllReducer(communicator, ranks_of_node, kCpuElements, config.timeout);
  if (!reducer.ok()) return reducer.status();
  const absl::StatusOr<AllReduceFound> found =
      TryAllReduces(communicator, nodes, **reducer, config.time, config.timeout);
  if (!found.ok()) return found.status();
  const absl::StatusOr<std::vector<RankAllReduce>> all =
      ShareAllReduces(communicator,
                      {.rank = communicator.rank(),
                       .node = node,
                       .host = host,
                       .links = ReadLinks(*ThisMachine(), instance_type),
                       .found = *found},
                      config.timeout);
  if (!all.ok()) return all.status();
  const AllReduceVerdict verdict = CheckAllReduces(*all, *expected);
  AllReduceReport report = {.rows = verdict.rows};
  if (const std::optional<Failure> failure = FailureOf(verdict, node)) {
    report.verdict = StatusOf(*failure);
  }
  // Thresholds may differ. And who ends takes the communicator with it: not before all know.
  result = report.verdict;
  status = AgreeOnResult(communicator, result, config.timeout);
  if (!report.verdict.ok()) return report;
  if (!status.ok()) return status;
  report.verdict = result;
  return report;
}

}  // namespace muster::worker
