#include "worker/training/sharding_choice.h"

#include <span>
#include <utility>

#include "fmt/format.h"

namespace muster::worker {
namespace {

double GiB(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

// Or how many there are.
size_t FirstThatFits(const std::vector<ShardingNeed>& needs, int64_t free_bytes) {
  size_t first = 0;
  while (first < needs.size() && needs[first].bytes > free_bytes) ++first;
  return first;
}

ShardingChoice ChoiceOf(const std::vector<ShardingNeed>& needs, const DeviceRoom& room, size_t i) {
  std::string reason =
      fmt::format("needs {:.2f} GiB of a GPU's {:.2f}", GiB(needs[i].bytes), GiB(room.total_bytes));
  if (i > 0) {
    reason += fmt::format("; {} needs {:.2f}", ShardingName(needs[i - 1].sharding),
                          GiB(needs[i - 1].bytes));
  }
  return {.sharding = needs[i].sharding, .reason = std::move(reason)};
}

absl::Status NothingFits(const std::vector<ShardingNeed>& needs, const DeviceRoom& room) {
  std::string text;
  for (const ShardingNeed& need : needs) {
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : "; ", ShardingName(need.sharding), need.plan);
  }
  return absl::ResourceExhaustedError(fmt::format(
      "the model needs, with {}; of the GPU's {:.2f} GiB {:.2f} are free. Take a smaller "
      "micro-batch, recompute, or shard the state over more GPUs",
      text, GiB(room.total_bytes), GiB(room.free_bytes)));
}

}  // namespace

absl::StatusOr<ShardingChoice> ChooseSharding(const std::vector<ShardingNeed>& needs,
                                              const DeviceRoom& room) {
  const size_t first = FirstThatFits(needs, room.free_bytes);
  if (first == needs.size()) return NothingFits(needs, room);
  return ChoiceOf(needs, room, first);
}

absl::StatusOr<ShardingChoice> ChooseSharding(const std::vector<ShardingNeed>& needs,
                                              const DeviceRoom& room, Communicator& communicator,
                                              absl::Duration timeout) {
  const size_t own = FirstThatFits(needs, room.free_bytes);
  auto first = static_cast<float>(own);
  absl::Status status = communicator.AllReduce(std::span(&first, 1), Reduction::kMax, timeout);
  if (!status.ok()) return status;
  const auto common = static_cast<size_t>(first);
  if (common < needs.size()) return ChoiceOf(needs, room, common);
  absl::Status result = own == needs.size() ? NothingFits(needs, room) : absl::OkStatus();
  status = AgreeOnResult(communicator, result, timeout);
  return status.ok() ? result : status;
}

}  // namespace muster::worker
