#include "worker/communicator/communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace muster::worker {
namespace {

constexpr char kRanksPayload[] = "muster.dev/ranks-at-fault";

absl::Status WrongSizes(absl::string_view operation, size_t input, size_t output, int world_size) {
  return absl::InvalidArgumentError(absl::StrCat(operation, " of ", input, " elements into ",
                                                 output, " among ", world_size,
                                                 " ranks: one must be the other times the ranks"));
}

template <typename T>
void Copy(std::span<const T> from, std::span<T> to) {
  if (!from.empty() && from.data() != to.data()) {
    std::memmove(to.data(), from.data(), from.size_bytes());
  }
}

// One rank, or "0 to 6".
std::string RunOfRanks(int first, int last) {
  return first == last ? absl::StrCat(first) : absl::StrCat(first, " to ", last);
}

std::vector<int> RanksOf(int world_size) {
  std::vector<int> ranks(world_size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Communicator::Communicator(Membership membership)
    : membership_(membership), everyone_(RanksOf(membership.world_size)) {}

absl::Status Communicator::AllReduce(std::span<float> values, Reduction reduction,
                                     absl::Duration timeout) {
  return AllReduceWithin(everyone_, values, reduction, timeout);
}

absl::Status Communicator::AllReduceWithin(std::span<const int> group, std::span<float> values,
                                           Reduction reduction, absl::Duration timeout) {
  if (!std::binary_search(group.begin(), group.end(), rank()) ||
      !std::is_sorted(group.begin(), group.end()) || group.front() < 0 ||
      group.back() >= world_size()) {
    return absl::InvalidArgumentError(absl::StrCat("all-reduce of rank ", rank(), " among ",
                                                   world_size(), " ranks within {",
                                                   absl::StrJoin(group, ", "), "}"));
  }
  return Run(OperationKind::kAllReduce, values.size_bytes(), 0, [&](const Operation& operation) {
    return DoAllReduce(operation, group, values, reduction, DeadlineAfter(timeout));
  });
}

absl::Status Communicator::ReduceScatter(std::span<const float> input, std::span<float> output,
                                         Reduction reduction, absl::Duration timeout) {
  if (input.size() != output.size() * world_size()) {
    return WrongSizes("reduce-scatter", input.size(), output.size(), world_size());
  }
  if (world_size() == 1) Copy(input, output);
  return Run(OperationKind::kReduceScatter, input.size_bytes(), 0, [&](const Operation& operation) {
    return DoReduceScatter(operation, input, output, reduction, DeadlineAfter(timeout));
  });
}

absl::Status Communicator::AllGather(std::span<const float> input, std::span<float> output,
                                     absl::Duration timeout) {
  return AllGather(std::as_bytes(input), std::as_writable_bytes(output), timeout);
}

absl::Status Communicator::AllGather(std::span<const std::byte> input, std::span<std::byte> output,
                                     absl::Duration timeout) {
  if (output.size() != input.size() * world_size()) {
    return WrongSizes("all-gather", input.size(), output.size(), world_size());
  }
  if (world_size() == 1) Copy(input, output);
  return Run(OperationKind::kAllGather, output.size_bytes(), 0, [&](const Operation& operation) {
    return DoAllGather(operation, input, output, DeadlineAfter(timeout));
  });
}

absl::Status Communicator::Broadcast(std::span<float> values, int root, absl::Duration timeout) {
  return Broadcast(std::as_writable_bytes(values), root, timeout);
}

absl::Status Communicator::Broadcast(std::span<std::byte> values, int root,
                                     absl::Duration timeout) {
  if (root < 0 || root >= world_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("broadcast from rank ", root, " among ", world_size(), " ranks"));
  }
  return Run(OperationKind::kBroadcast, values.size_bytes(), root, [&](const Operation& operation) {
    return DoBroadcast(operation, values, root, DeadlineAfter(timeout));
  });
}

absl::Status Communicator::Barrier(absl::Duration timeout) {
  return Run(OperationKind::kBarrier, 0, 0, [&](const Operation& operation) {
    return DoBarrier(operation, DeadlineAfter(timeout));
  });
}

void Communicator::Abort(absl::Status reason) {
  if (reason.ok()) reason = absl::AbortedError("aborted without a reason");
  End(reason).IgnoreError();
}

absl::Status Communicator::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

absl::Status Communicator::Run(OperationKind kind, size_t bytes, int root,
                               absl::FunctionRef<absl::Status(const Operation&)> body) {
  if (absl::Status ended = status(); !ended.ok()) return ended;
  const Operation operation = operations_.Start(kind, bytes, root);
  absl::Status status = world_size() == 1 ? absl::OkStatus() : body(operation);
  if (!status.ok()) status = End(status);
  operations_.Finish(operation.sequence, status);
  return status;
}

absl::Status Communicator::End(const absl::Status& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!status_.ok()) return status_;
    status_ = reason;
  }
  DoAbort(reason);
  return reason;
}

std::vector<int> RanksAtFault(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRanksPayload);
  std::vector<int> ranks;
  if (!payload.has_value()) return ranks;
  const std::string text(*payload);
  for (absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    int rank = 0;
    if (absl::SimpleAtoi(part, &rank)) ranks.push_back(rank);
  }
  return ranks;
}

absl::Status WithRanksAtFault(absl::Status status, const std::vector<int>& ranks) {
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  const std::string text = absl::StrJoin(sorted, ",");
  // The library was built with another compiler, which names Cord's constructor of a string
  // otherwise.
  status.SetPayload(kRanksPayload, absl::Cord(absl::string_view(text)));
  return status;
}

std::string RankList(const std::vector<int>& ranks) {
  std::vector<std::string> runs;
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last == first + 1) last = first;  // two in a row read better as two
    runs.push_back(RunOfRanks(ranks[first], ranks[last]));
    first = last + 1;
  }
  if (runs.empty()) return "no rank";
  if (runs.size() == 1) return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", runs[0]);
  const std::string last = std::move(runs.back());
  runs.pop_back();
  return absl::StrCat("ranks ", absl::StrJoin(runs, ", "), " and ", last);
}

absl::StatusOr<bool> AgreeOnAny(Communicator& communicator, bool mine, absl::Duration timeout) {
  float any = mine ? 1 : 0;
  absl::Status status = communicator.AllReduce({&any, 1}, Reduction::kMax, timeout);
  if (!status.ok()) return status;
  return any != 0;
}

absl::Status AgreeOnResult(Communicator& communicator, absl::Status& result,
                           absl::Duration timeout) {
  if (communicator.world_size() == 1) return communicator.status();
  // The lowest rank that failed has the largest number; ranks are few enough for a float.
  const int behind = communicator.world_size() - communicator.rank();
  auto largest = static_cast<float>(result.ok() ? 0 : behind);
  absl::Status status = communicator.AllReduce({&largest, 1}, Reduction::kMax, timeout);
  if (!status.ok() || largest == 0) return status;
  const int failed = communicator.world_size() - static_cast<int>(largest);
  struct {
    int32_t code = 0;
    std::array<char, 1000> text = {};
  } told;
  if (communicator.rank() == failed) {
    told.code = static_cast<int32_t>(result.code());
    result.message().copy(told.text.data(), told.text.size() - 1);
  }
  status = communicator.Broadcast(std::as_writable_bytes(std::span(&told, 1)), failed, timeout);
  if (!status.ok()) return status;
  result = absl::Status(static_cast<absl::StatusCode>(told.code),
                        absl::StrCat("rank ", failed, ": ", told.text.data()));
  return absl::OkStatus();
}

}  // namespace muster::worker
