// How the training state is spread over ranks, each of which owns a chunk of every unit
// (shard_layout.h).
//
//                  parameters        gradients        moments       a rank keeps, with N ranks
//   data parallel  all               all              all           16 bytes a parameter
//   ZeRO-1         all               all              own chunks    8 + 8/N
//   ZeRO-3         own chunks, and   own chunks, and  own chunks    16/N, and two units of each
//                  a unit in use     a unit in use
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/communicator/communicator.h"
#include "worker/model/optimizer.h"
#include "worker/model/parameter_units.h"
#include "worker/training/engine.h"
#include "worker/training/shard_layout.h"

namespace muster::worker {

enum class Sharding { kDataParallel, kZero1, kZero3 };

// "ddp", "zero1", "zero3"; InvalidArgument lists them.
absl::StatusOr<Sharding> ParseSharding(std::string_view name);

std::string_view ShardingName(Sharding sharding);

// Bytes of the table above, for one of that many ranks.
int64_t StateBytes(const ParameterLayout& layout, Sharding sharding, int world_size);

// The parameters, gradients and moments that one rank keeps. Used by one thread; every rank makes
// the same calls. Errors are the communicator's.
class ShardedState : public ParameterUnits {
 public:
  // Both must outlive this. `timeout` is that of each collective.
  ShardedState(const ParameterLayout& layout, Sharding sharding, Communicator& communicator,
               absl::Duration timeout);

  absl::StatusOr<std::span<const float>> Acquire(int unit) override;
  void Release(int unit) override;
  absl::StatusOr<std::span<float>> AcquireGradient(int unit) override;
  absl::Status ReleaseGradient(int unit) override;

  absl::Status Load(const StateSource& source);
  void ZeroGradients();
  // After the last micro-batch: gradients become sums over all ranks.
  absl::Status ReduceGradients();
  // Of the sums, over all parameters; the same on every rank.
  absl::StatusOr<double> GradientNorm();
  absl::Status Update(const OptimizerConfig& config, int64_t step, double gradient_factor);
  // The chunks that this rank owns, where they hold anything.
  std::vector<StateRange> OwnedState() const;

 private:
  using Part = ShardLayout::Part;
  using Unit = ShardLayout::Unit;

  // What this rank keeps of parameters and gradients, and what it updates.
  const Part& Kept(const Unit& unit) const {
    return sharding_ == Sharding::kZero3 ? unit.chunk : unit.whole;
  }
  const Part& Updated(const Unit& unit) const {
    return sharding_ == Sharding::kDataParallel ? unit.whole : unit.chunk;
  }
  // Where the unit's chunk of this rank begins within a buffer of kept parts.
  int64_t ChunkInKept(const Unit& unit) const {
    return sharding_ == Sharding::kZero3 ? unit.chunk.begin : unit.own;
  }
  absl::Status GatherParameters();

  const ParameterLayout& layout_;
  const ShardLayout shards_;
  const Sharding sharding_;
  Communicator& communicator_;
  const absl::Duration timeout_;
  std::vector<float> parameters_, gradients_, first_moment_, second_moment_;
  std::map<int, std::vector<float>> gathered_, unit_gradients_;  // ZeRO-3: units in use
};

// The sum of every rank's value, added in the order of ranks in double precision.
absl::StatusOr<double> SumOverRanks(Communicator& communicator, double value,
                                    absl::Duration timeout);

}  // namespace muster::worker
