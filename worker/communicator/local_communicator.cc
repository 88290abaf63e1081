#include "worker/communicator/local_communicator.h"

#include <condition_variable>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/communicator/rank_order.h"

namespace muster::worker {
namespace {

// Every operation has two steps: all ranks show their buffers, and all ranks are done with them.
// The last rank to come completes a step for everyone at once, so either all of them go on to read
// each other's buffers, without the lock, or none does; and nobody returns while another one reads.
class LocalGroup {
 public:
  explicit LocalGroup(int world_size) : ranks_(world_size) {}

  int world_size() const { return static_cast<int>(ranks_.size()); }

  absl::Status Show(int rank, const Operation& operation, const void* input, Deadline deadline) {
    std::unique_lock lock(mutex_);
    if (!ended_.ok()) return ended_;
    ranks_[rank].operation = operation;
    ranks_[rank].input = static_cast<const std::byte*>(input);
    const int64_t step = Come(rank);
    changed_.wait_until(lock, deadline,
                        [&] { return completed_ >= step || !ended_.ok() || LeftBefore(step); });
    if (completed_ >= step) return CheckEqual(rank);
    if (ended_.ok()) {
      ended_ = Missing(step, operation);
      changed_.notify_all();
    }
    return ended_;
  }

  // Only after Show() was OK. Waits for the others' copying, whatever has ended the group since.
  void Done(int rank) {
    std::unique_lock lock(mutex_);
    const int64_t step = Come(rank);
    changed_.wait(lock, [&] { return completed_ >= step; });
  }

  // Between Show() and Done() only.
  const std::byte* InputOf(int rank) const { return ranks_[rank].input; }

  void End(const absl::Status& reason) {
    const std::lock_guard lock(mutex_);
    if (!ended_.ok()) return;
    ended_ = reason;
    changed_.notify_all();
  }

  void Leave(int rank) {
    const std::lock_guard lock(mutex_);
    ranks_[rank].left = true;
    changed_.notify_all();
  }

 private:
  struct Rank {
    Operation operation;
    const std::byte* input = nullptr;
    int64_t steps = 0;
    bool left = false;
  };

  int64_t Come(int rank) {
    const int64_t step = ++ranks_[rank].steps;
    if (Behind(step, false).empty()) {
      completed_ = step;
      changed_.notify_all();
    }
    return step;
  }

  std::vector<int> Behind(int64_t step, bool only_left) const {
    std::vector<int> behind;
    for (int rank = 0; rank < world_size(); ++rank) {
      if (ranks_[rank].steps < step && (ranks_[rank].left || !only_left)) behind.push_back(rank);
    }
    return behind;
  }

  bool LeftBefore(int64_t step) const { return !Behind(step, true).empty(); }

  absl::Status Missing(int64_t step, const Operation& operation) const {
    if (const std::vector<int> left = Behind(step, true); !left.empty()) {
      return WithRanksAtFault(absl::UnavailableError(absl::StrCat(RankList(left), " left before ",
                                                                  Describe(operation))),
                              left);
    }
    const std::vector<int> behind = Behind(step, false);
    return WithRanksAtFault(absl::DeadlineExceededError(absl::StrCat(
                                RankList(behind), " did not come to ", Describe(operation),
                                " within ", absl::FormatDuration(absl::Now() - operation.started))),
                            behind);
  }

  absl::Status CheckEqual(int rank) const {
    const Operation& mine = ranks_[rank].operation;
    for (int other = 0; other < world_size(); ++other) {
      const Operation& theirs = ranks_[other].operation;
      if (SameCall(theirs, mine)) continue;
      return WithRanksAtFault(
          absl::FailedPreconditionError(absl::StrCat("rank ", other, " is at ", Describe(theirs),
                                                     ", rank ", rank, " at ", Describe(mine))),
          {other});
    }
    return absl::OkStatus();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t completed_ = 0;    // guarded by mutex_
  std::vector<Rank> ranks_;  // guarded by mutex_
  absl::Status ended_;       // guarded by mutex_
};

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalGroup> group, Membership membership)
      : Communicator(membership), group_(std::move(group)) {}
  ~LocalCommunicator() override { group_->Leave(rank()); }

 private:
  absl::Status DoAllReduce(const Operation& operation, std::span<const int> group,
                           std::span<float> values, Reduction reduction,
                           Deadline deadline) override {
    absl::Status status = group_->Show(rank(), operation, values.data(), deadline);
    if (!status.ok()) return status;
    // Each rank reads and writes its own shard only of its group's buffers, until all have.
    const std::vector<ShardRange> shards = ShardsOf(group, values.size());
    const ShardRange& own = shards[PlaceIn(group, rank())];
    ReduceShard(group, own, reduction, values.data() + own.begin);
    group_->Done(rank());
    status = group_->Show(rank(), operation, values.data(), deadline);
    if (!status.ok()) return status;
    for (size_t place = 0; place < group.size(); ++place) {
      const ShardRange& shard = shards[place];
      if (group[place] == rank() || shard.size() == 0) continue;
      std::memcpy(values.data() + shard.begin, FloatsOf(group[place]) + shard.begin,
                  shard.size() * sizeof(float));
    }
    group_->Done(rank());
    return absl::OkStatus();
  }

  absl::Status DoReduceScatter(const Operation& operation, std::span<const float> input,
                               std::span<float> output, Reduction reduction,
                               Deadline deadline) override {
    absl::Status status = group_->Show(rank(), operation, input.data(), deadline);
    if (!status.ok()) return status;
    ReduceShard(everyone(), ShardOf(input.size(), rank(), world_size()), reduction, output.data());
    group_->Done(rank());
    return absl::OkStatus();
  }

  absl::Status DoAllGather(const Operation& operation, std::span<const std::byte> input,
                           std::span<std::byte> output, Deadline deadline) override {
    absl::Status status = group_->Show(rank(), operation, input.data(), deadline);
    if (!status.ok()) return status;
    for (int peer = 0; peer < world_size() && !input.empty(); ++peer) {
      std::byte* place = output.data() + peer * input.size();
      if (place != group_->InputOf(peer)) {
        std::memcpy(place, group_->InputOf(peer), input.size());
      }
    }
    group_->Done(rank());
    return absl::OkStatus();
  }

  absl::Status DoBroadcast(const Operation& operation, std::span<std::byte> values, int root,
                           Deadline deadline) override {
    absl::Status status = group_->Show(rank(), operation, values.data(), deadline);
    if (!status.ok()) return status;
    if (root != rank() && !values.empty()) {
      std::memcpy(values.data(), group_->InputOf(root), values.size());
    }
    group_->Done(rank());
    return absl::OkStatus();
  }

  absl::Status DoBarrier(const Operation& operation, Deadline deadline) override {
    absl::Status status = group_->Show(rank(), operation, nullptr, deadline);
    if (status.ok()) group_->Done(rank());
    return status;
  }

  void DoAbort(const absl::Status& reason) override { group_->End(reason); }

  const float* FloatsOf(int peer) const {
    return reinterpret_cast<const float*>(group_->InputOf(peer));
  }

  void ReduceShard(std::span<const int> group, const ShardRange& shard, Reduction reduction,
                   float* output) const {
    std::vector<const float*> inputs;
    for (const int peer : group) inputs.push_back(FloatsOf(peer) + shard.begin);
    ReduceInRankOrder(inputs, reduction, output, shard.size());
  }

  const std::shared_ptr<LocalGroup> group_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeLocalCommunicators(int world_size,
                                                                  int64_t generation) {
  const auto group = std::make_shared<LocalGroup>(world_size);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < world_size; ++rank) {
    communicators.push_back(std::make_unique<LocalCommunicator>(
        group, Membership{.rank = rank, .world_size = world_size, .generation = generation}));
  }
  return communicators;
}

}  // namespace muster::worker
