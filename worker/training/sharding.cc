#include "worker/training/sharding.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "fmt/format.h"

namespace muster::worker {
namespace {

template <typename Float>
std::span<Float> Slice(std::span<Float> buffer, int64_t begin, int64_t size) {
  return buffer.subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
}

std::span<float> Slice(std::vector<float>& buffer, int64_t begin, int64_t size) {
  return Slice(std::span<float>(buffer), begin, size);
}

std::span<const float> Slice(const std::vector<float>& buffer, int64_t begin, int64_t size) {
  return Slice(std::span<const float>(buffer), begin, size);
}

}  // namespace

absl::StatusOr<Sharding> ParseSharding(std::string_view name) {
  if (name == "ddp") {
    return Sharding::kDataParallel;
  }
  if (name == "zero1") {
    return Sharding::kZero1;
  }
  if (name == "zero3") {
    return Sharding::kZero3;
  }
  return absl::InvalidArgumentError(
      fmt::format("sharding \"{}\" is not known; known are: ddp, zero1, zero3", name));
}

std::string_view ShardingName(Sharding sharding) {
  switch (sharding) {
    case Sharding::kDataParallel:
      return "ddp";
    case Sharding::kZero1:
      return "zero1";
    case Sharding::kZero3:
      break;
  }
  return "zero3";
}

int64_t StateBytes(const ParameterLayout& layout, Sharding sharding, int world_size) {
  constexpr int64_t kEach = sizeof(float);
  const int64_t all = kEach * layout.size();
  const int64_t own = all / world_size;
  switch (sharding) {
    case Sharding::kDataParallel:
      return 4 * all;
    case Sharding::kZero1:
      return 2 * all + 2 * own;
    case Sharding::kZero3:
      break;
  }
  int64_t largest = 0;
  for (const ParameterLayout::Unit& unit : layout.units()) {
    largest = std::max(largest, unit.size);
  }
  return 4 * own + 2 * 2 * kEach * largest;
}

ShardedState::ShardedState(const ParameterLayout& layout, Sharding sharding,
                           Communicator& communicator, absl::Duration timeout)
    : layout_(layout),
      shards_(layout, communicator.world_size(), communicator.rank()),
      sharding_(sharding),
      communicator_(communicator),
      timeout_(timeout) {
  const int64_t kept = sharding == Sharding::kZero3 ? shards_.chunk_size() : shards_.whole_size();
  const int64_t updated =
      sharding == Sharding::kDataParallel ? shards_.whole_size() : shards_.chunk_size();
  parameters_.resize(kept);
  gradients_.resize(kept);
  first_moment_.resize(updated);
  second_moment_.resize(updated);
}

absl::StatusOr<std::span<const float>> ShardedState::Acquire(int unit) {
  const Unit& place = shards_.units()[unit];
  if (sharding_ != Sharding::kZero3) {
    return Slice(std::as_const(parameters_), place.whole.begin, place.whole.used);
  }
  std::vector<float>& whole = gathered_[unit];
  whole.resize(place.whole.size);
  if (absl::Status status = communicator_.AllGather(
          Slice(std::as_const(parameters_), place.chunk.begin, place.chunk.size),
          std::span<float>(whole), timeout_);
      !status.ok()) {
    return status;
  }
  return Slice(std::as_const(whole), 0, place.whole.used);
}

void ShardedState::Release(int unit) { gathered_.erase(unit); }

absl::StatusOr<std::span<float>> ShardedState::AcquireGradient(int unit) {
  const Unit& place = shards_.units()[unit];
  if (sharding_ != Sharding::kZero3) {
    return Slice(gradients_, place.whole.begin, place.whole.used);
  }
  std::vector<float>& whole = unit_gradients_[unit];
  whole.assign(place.whole.size, 0);
  return Slice(whole, 0, place.whole.used);
}

absl::Status ShardedState::ReleaseGradient(int unit) {
  if (sharding_ != Sharding::kZero3) {
    return absl::OkStatus();
  }
  const Part& chunk = shards_.units()[unit].chunk;
  std::vector<float> sum(chunk.size);
  absl::Status status =
      communicator_.ReduceScatter(unit_gradients_[unit], sum, Reduction::kSum, timeout_);
  unit_gradients_.erase(unit);
  for (int64_t i = 0; i < chunk.size; ++i) {
    gradients_[chunk.begin + i] += sum[i];
  }
  return status;
}

absl::Status ShardedState::Load(const StateSource& source) {
  for (const Unit& unit : shards_.units()) {
    const Part& kept = Kept(unit);
    const Part& updated = Updated(unit);
    absl::Status status =
        source(StateKind::kParameters, kept.offset, Slice(parameters_, kept.begin, kept.used));
    if (status.ok()) {
      status = source(StateKind::kFirstMoment, updated.offset,
                      Slice(first_moment_, updated.begin, updated.used));
    }
    if (status.ok()) {
      status = source(StateKind::kSecondMoment, updated.offset,
                      Slice(second_moment_, updated.begin, updated.used));
    }
    if (!status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

void ShardedState::ZeroGradients() { std::fill(gradients_.begin(), gradients_.end(), 0.0F); }

absl::Status ShardedState::ReduceGradients() {
  for (const Unit& unit : shards_.units()) {
    absl::Status status;
    const std::span<float> whole = sharding_ == Sharding::kZero3
                                       ? std::span<float>()
                                       : Slice(gradients_, unit.whole.begin, unit.whole.size);
    if (sharding_ == Sharding::kDataParallel) {
      status = communicator_.AllReduce(whole, Reduction::kSum, timeout_);
    } else if (sharding_ == Sharding::kZero1) {
      status = communicator_.ReduceScatter(
          whole, Slice(gradients_, ChunkInKept(unit), unit.chunk.size), Reduction::kSum, timeout_);
    }
    if (!status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<double> ShardedState::GradientNorm() {
  double own = 0;
  for (const Unit& unit : shards_.units()) {
    own += SquaredNorm(Slice(std::as_const(gradients_), ChunkInKept(unit), unit.chunk.used));
  }
  const absl::StatusOr<double> all = SumOverRanks(communicator_, own, timeout_);
  return all.ok() ? absl::StatusOr<double>(std::sqrt(*all)) : all;
}

absl::Status ShardedState::Update(const OptimizerConfig& config, int64_t step,
                                  double gradient_factor) {
  for (const Unit& unit : shards_.units()) {
    const Part& part = Updated(unit);
    const int64_t kept =
        sharding_ == Sharding::kDataParallel ? unit.whole.begin : ChunkInKept(unit);
    UpdateAdamW(config, layout_, step, gradient_factor,
                {.offset = part.offset,
                 .parameters = Slice(parameters_, kept, part.used),
                 .gradients = Slice(std::as_const(gradients_), kept, part.used),
                 .first_moment = Slice(first_moment_, part.begin, part.used),
                 .second_moment = Slice(second_moment_, part.begin, part.used)});
  }
  return sharding_ == Sharding::kZero1 ? GatherParameters() : absl::OkStatus();
}

absl::Status ShardedState::GatherParameters() {
  for (const Unit& unit : shards_.units()) {
    if (absl::Status status = communicator_.AllGather(
            Slice(std::as_const(parameters_), ChunkInKept(unit), unit.chunk.size),
            Slice(parameters_, unit.whole.begin, unit.whole.size), timeout_);
        !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

std::vector<StateRange> ShardedState::OwnedState() const {
  std::vector<StateRange> ranges;
  for (const Unit& unit : shards_.units()) {
    const int64_t size = unit.chunk.used;
    const int64_t moments =
        sharding_ == Sharding::kDataParallel ? ChunkInKept(unit) : unit.chunk.begin;
    if (size > 0) {
      ranges.push_back({.offset = unit.chunk.offset,
                        .parameters = Slice(parameters_, ChunkInKept(unit), size),
                        .first_moment = Slice(first_moment_, moments, size),
                        .second_moment = Slice(second_moment_, moments, size)});
    }
  }
  return ranges;
}

absl::StatusOr<double> SumOverRanks(Communicator& communicator, double value,
                                    absl::Duration timeout) {
  std::vector<double> values(communicator.world_size());
  if (absl::Status status = communicator.AllGather(
          std::as_bytes(std::span(&value, 1)), std::as_writable_bytes(std::span(values)), timeout);
      !status.ok()) {
    return status;
  }
  double sum = 0;
  for (const double of_rank : values) {
    sum += of_rank;
  }
  return sum;
}

}  // namespace muster::worker
