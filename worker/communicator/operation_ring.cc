#include "worker/communicator/operation_ring.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace muster::worker {

absl::string_view OperationName(OperationKind kind) {
  switch (kind) {
    case OperationKind::kAllReduce:
      return "all-reduce";
    case OperationKind::kReduceScatter:
      return "reduce-scatter";
    case OperationKind::kAllGather:
      return "all-gather";
    case OperationKind::kBroadcast:
      return "broadcast";
    case OperationKind::kBarrier:
      return "barrier";
  }
  return "unknown operation";
}

bool SameCall(const Operation& a, const Operation& b) {
  return a.sequence == b.sequence && a.kind == b.kind && a.bytes == b.bytes && a.root == b.root;
}

std::string Describe(const Operation& operation) {
  std::string text = absl::StrCat(OperationName(operation.kind), " ", operation.sequence);
  if (operation.kind == OperationKind::kBroadcast) {
    absl::StrAppend(&text, " from rank ", operation.root);
  }
  if (operation.kind != OperationKind::kBarrier) {
    absl::StrAppend(&text, " (", operation.bytes, " bytes)");
  }
  return text;
}

Operation OperationRing::Start(OperationKind kind, uint64_t bytes, int root) {
  const std::lock_guard lock(mutex_);
  const Operation operation = {
      .sequence = ++started_, .kind = kind, .bytes = bytes, .root = root, .started = absl::Now()};
  operations_[started_ % kCapacity] = operation;
  return operation;
}

void OperationRing::Finish(int64_t sequence, const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  Operation& operation = operations_[sequence % kCapacity];
  if (operation.sequence != sequence) return;
  operation.took = absl::Now() - operation.started;
  operation.outcome = status.code();
}

std::optional<Operation> OperationRing::Last() const {
  const std::lock_guard lock(mutex_);
  if (started_ == 0) return std::nullopt;
  return operations_[started_ % kCapacity];
}

std::vector<Operation> OperationRing::All() const {
  const std::lock_guard lock(mutex_);
  std::vector<Operation> all;
  const int64_t oldest = std::max<int64_t>(1, started_ - static_cast<int64_t>(kCapacity) + 1);
  for (int64_t sequence = oldest; sequence <= started_; ++sequence) {
    all.push_back(operations_[sequence % kCapacity]);
  }
  return all;
}

std::string OperationRing::Report() const {
  const std::vector<Operation> all = All();
  std::string report;
  for (auto operation = all.rbegin(); operation != all.rend(); ++operation) {
    absl::StrAppend(&report, Describe(*operation), ": ");
    if (!operation->took.has_value()) {
      absl::StrAppend(&report, "running for ",
                      absl::FormatDuration(absl::Now() - operation->started), "\n");
      continue;
    }
    absl::StrAppend(&report, absl::StatusCodeToString(operation->outcome), " after ",
                    absl::FormatDuration(*operation->took), "\n");
  }
  return report;
}

}  // namespace muster::worker
