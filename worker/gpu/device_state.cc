#include "worker/gpu/device_state.h"

#include <algorithm>
#include <utility>

#include "worker/gpu/cuda_status.h"

namespace muster::worker {
namespace {

constexpr int64_t kLoadFloats = int64_t{16} << 20;  // at a time
constexpr int64_t kChunkMultiple = 8;               // of floats: what kernels read at once

// One block is computed, another one fetched.
constexpr int kWeightTurns = 2;
// One block's gradient is made, the one before it gets a bias's, the one after it is reduced.
constexpr int kGradientTurns = 3;

std::vector<DecayRun> DecayRunsOf(const ParameterLayout& layout) {
  std::vector<DecayRun> runs;
  for (const Parameter& parameter : layout.parameters()) {
    const int64_t end = parameter.offset + parameter.size();
    if (!runs.empty() && runs.back().decays == parameter.decays) {
      runs.back().end = end;
    } else {
      runs.push_back({.end = end, .decays = parameter.decays});
    }
  }
  return runs;
}

absl::Status MakeEvent(cudaEvent_t& event) {
  return CudaStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
}

void Destroy(cudaEvent_t event) {
  if (event != nullptr) cudaEventDestroy(event);
}

class DeviceStateCopy : public StateCopy {
 public:
  DeviceStateCopy(int device, cudaEvent_t copied, std::vector<StateRange> ranges)
      : device_(device), copied_(copied), ranges_(std::move(ranges)) {}

  absl::StatusOr<std::vector<StateRange>> Ranges() const override {
    // The thread that asks has chosen none, and GPU 0 may be another rank's.
    absl::Status status = CudaStatus(cudaSetDevice(device_), "choosing the GPU");
    status.Update(CudaStatus(cudaEventSynchronize(copied_), "copying the state"));
    if (!status.ok()) {
      return status;
    }
    return ranges_;
  }

 private:
  int device_;
  cudaEvent_t copied_;
  std::vector<StateRange> ranges_;
};

}  // namespace

DeviceState::DeviceState(const ParameterLayout& layout, const Options& options, int rank,
                         int world_size)
    : layout_(layout),
      sharding_(world_size == 1 ? Sharding::kDataParallel : options.sharding),
      shards_(layout, world_size, rank, kChunkMultiple),
      host_decay_runs_(DecayRunsOf(layout)),
      weight_slots_(static_cast<int>(layout.units().size()), kWeightTurns, options.tied),
      gradient_slots_(static_cast<int>(layout.units().size()), kGradientTurns, options.tied) {
  MakeRanges(world_size);
  MakeNormRuns();
  if (world_size > 1 && options.gradient_reduction == GradientReduction::kBf16) {
    for (const ShardLayout::Unit& unit : shards_.units()) {
      rounded_size_ = std::max(rounded_size_, unit.whole.size);
    }
  }
  if (partitioned()) {
    slots_.resize(weight_slots_.slots());
    slot_gradients_.resize(gradient_slots_.slots());
  }
}

void DeviceState::MakeRanges(int world_size) {
  if (world_size == 1) {
    // Without padding units follow one another.
    owned_.push_back({.size = layout_.size()});
    updated_ = owned_;
    return;
  }
  for (size_t i = 0; i < shards_.units().size(); ++i) {
    const ShardLayout::Unit& unit = shards_.units()[i];
    const auto index = static_cast<int>(i);
    const Range own = {
        .offset = unit.chunk.offset,
        .size = unit.chunk.used,
        .kept = partitioned() ? unit.chunk.begin : unit.own,
        .updated = sharding_ == Sharding::kDataParallel ? unit.own : unit.chunk.begin,
        .unit = index};
    owned_.push_back(own);
    updated_.push_back(sharding_ == Sharding::kDataParallel ? Range{.offset = unit.whole.offset,
                                                                    .size = unit.whole.used,
                                                                    .kept = unit.whole.begin,
                                                                    .updated = unit.whole.begin,
                                                                    .unit = index}
                                                            : own);
  }
}

void DeviceState::MakeNormRuns() {
  // Returns where the parameter goes.
  const auto place = [this](const Parameter& parameter) {
    const int64_t begin_of = norm_size_;
    for (const Range& range : updated_) {
      const int64_t begin = std::max(range.offset, parameter.offset);
      const int64_t end = std::min(range.offset + range.size, parameter.offset + parameter.size());
      if (begin < end) {
        host_norm_runs_.push_back({.parameter = range.updated + (begin - range.offset),
                                   .gradient = range.kept + (begin - range.offset),
                                   .to = begin_of + (begin - parameter.offset),
                                   .size = end - begin});
      }
    }
    norm_size_ += parameter.size();
    return begin_of;
  };
  const std::vector<Parameter>& parameters = layout_.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    // Nothing else begins with one. A bias, where a norm has one, is the vector that follows.
    if (parameters[i].initial != Parameter::Initial::kOne) continue;
    NormPlace norm = {.weight = place(parameters[i]), .bias = std::nullopt};
    if (i + 1 < parameters.size() && parameters[i + 1].columns == 1) {
      norm.bias = place(parameters[i + 1]);
    }
    norm_places_.push_back(norm);
  }
}

DeviceState::~DeviceState() {
  if (copy_stream_ != nullptr) {
    cudaStreamSynchronize(copy_stream_);
    cudaStreamDestroy(copy_stream_);
  }
  Destroy(state_ready_);
  Destroy(state_copied_);
  Destroy(norms_shared_);
  for (const Slot& slot : slots_) {
    Destroy(slot.gathered);
    Destroy(slot.released);
  }
  for (const GradientSlot& slot : slot_gradients_) Destroy(slot.reduced);
  for (cudaEvent_t event : gathered_) Destroy(event);
}

void DeviceState::TakeMemory(MemoryCutter& cutter) {
  const int64_t kept = partitioned() ? shards_.chunk_size() : shards_.whole_size();
  const int64_t updated =
      sharding_ == Sharding::kDataParallel ? shards_.whole_size() : shards_.chunk_size();
  weights_ = cutter.Take<Bf16>("weights", kept);
  gradients_ = cutter.Take<float>("gradients", kept);
  parameters_ = cutter.Take<float>("parameters", updated);
  first_moment_ = cutter.Take<float>("moments", updated);
  second_moment_ = cutter.Take<float>("moments", updated);
  norm_partials_ =
      cutter.Take<double>("scratch", kNormPartials * static_cast<int64_t>(owned_.size()));
  decay_runs_ = cutter.Take<DecayRun>("scratch", static_cast<int64_t>(host_decay_runs_.size()));
  norm_runs_ = cutter.Take<ParameterRun>("scratch", static_cast<int64_t>(host_norm_runs_.size()));
  norm_values_ = cutter.Take<float>("weights", norm_size_);
  norms_.clear();
  for (const NormPlace& norm : norm_places_) {
    norms_.push_back({.weight = norm_values_ + norm.weight,
                      .bias = norm.bias.has_value() ? norm_values_ + *norm.bias : nullptr});
  }
  rounded_ = cutter.Take<Bf16>("gradients", rounded_size_);
  if (!partitioned()) {
    return;
  }
  std::vector<int64_t> weights(slots_.size());
  std::vector<int64_t> gradients(slot_gradients_.size());
  int64_t largest_chunk = 0;
  for (size_t i = 0; i < shards_.units().size(); ++i) {
    const auto index = static_cast<int>(i);
    const ShardLayout::Unit& unit = shards_.units()[i];
    int64_t& slot = weights[weight_slots_.SlotOf(index)];
    int64_t& gradient = gradients[gradient_slots_.SlotOf(index)];
    slot = std::max(slot, unit.whole.size);
    gradient = std::max(gradient, unit.whole.size);
    largest_chunk = std::max(largest_chunk, unit.chunk.size);
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].weights = cutter.Take<Bf16>("units in use", weights[i]);
  }
  for (size_t i = 0; i < slot_gradients_.size(); ++i) {
    slot_gradients_[i].data = cutter.Take<float>("units in use", gradients[i]);
  }
  chunk_sum_ = cutter.Take<float>("units in use", rounds() ? 0 : largest_chunk);
}

void DeviceState::FillForTiming(const LaunchContext& context) {
  constexpr float kDeviation = 0.02F;
  if (!partitioned()) {
    FillRandom(context, shards_.whole_size(), kDeviation, weights_);
    return;
  }
  for (size_t i = 0; i < shards_.units().size(); ++i) {
    FillRandom(context, shards_.units()[i].whole.size, kDeviation,
               slots_[weight_slots_.SlotOf(static_cast<int>(i))].weights);
  }
}

absl::Status DeviceState::MakeEvents() {
  absl::Status status = MakeEvent(norms_shared_);
  status.Update(MakeEvent(state_ready_));
  status.Update(MakeEvent(state_copied_));
  status.Update(
      CudaStatus(cudaStreamCreateWithFlags(&copy_stream_, cudaStreamNonBlocking), "a stream"));
  for (Slot& slot : slots_) {
    status.Update(MakeEvent(slot.gathered));
    status.Update(MakeEvent(slot.released));
  }
  for (GradientSlot& slot : slot_gradients_) status.Update(MakeEvent(slot.reduced));
  if (sharding_ == Sharding::kZero1) {
    gathered_.resize(shards_.units().size());
    for (cudaEvent_t& event : gathered_) status.Update(MakeEvent(event));
  }
  return status;
}

absl::Status DeviceState::Clear() {
  absl::Status status;
  const auto clear = [&](void* memory, int64_t bytes) {
    status.Update(CudaStatus(cudaMemsetAsync(memory, 0, bytes, context_.stream), "clearing"));
  };
  const int64_t kept = partitioned() ? shards_.chunk_size() : shards_.whole_size();
  const int64_t updated =
      sharding_ == Sharding::kDataParallel ? shards_.whole_size() : shards_.chunk_size();
  constexpr int64_t kFloat = sizeof(float);
  clear(weights_, kept * static_cast<int64_t>(sizeof(Bf16)));
  clear(gradients_, kept * kFloat);
  for (float* state : {parameters_, first_moment_, second_moment_}) clear(state, updated * kFloat);
  clear(norm_values_, norm_size_ * kFloat);
  // Padding is reduced too.
  for (size_t i = 0; partitioned() && i < shards_.units().size(); ++i) {
    clear(slot_gradients_[gradient_slots_.SlotOf(static_cast<int>(i))].data,
          shards_.units()[i].whole.size * kFloat);
  }
  return status;
}

absl::Status DeviceState::Start(const LaunchContext& context, NcclCommunicator* communicator) {
  context_ = context;
  communicator_ = communicator;
  for (GradientSlot& slot : slot_gradients_) slot.in_use = false;
  absl::Status status = MakeEvents();
  status.Update(Clear());
  status.Update(CudaStatus(cudaMemcpyAsync(decay_runs_, host_decay_runs_.data(),
                                           host_decay_runs_.size() * sizeof(DecayRun),
                                           cudaMemcpyHostToDevice, context_.stream),
                           "copying"));
  status.Update(CudaStatus(cudaMemcpyAsync(norm_runs_, host_norm_runs_.data(),
                                           host_norm_runs_.size() * sizeof(ParameterRun),
                                           cudaMemcpyHostToDevice, context_.stream),
                           "copying"));
  status.Update(CudaStatus(cudaStreamSynchronize(context_.stream), "preparing the state"));
  return status;
}

absl::Status DeviceState::Begin() {
  if (!std::exchange(weights_changed_, false) || !communicates_weights()) {
    return absl::OkStatus();
  }
  absl::Status status = ShareNorms();
  for (size_t unit = 0; unit < gathered_.size() && status.ok(); ++unit) {
    status = GatherWeights(static_cast<int>(unit));
  }
  return status;
}

absl::Status DeviceState::ClearNorms() {
  if (!communicates_weights()) return absl::OkStatus();
  return CudaStatus(cudaMemsetAsync(norm_values_, 0, norm_size_ * sizeof(float), context_.stream),
                    "clearing");
}

absl::Status DeviceState::ShareNorms() {
  absl::Status status = communicator_->Follow(context_.stream);
  status.Update(communicator_->AllReduce(norm_values_, norm_size_));
  status.Update(CudaStatus(cudaEventRecord(norms_shared_, communicator_->stream()), "an event"));
  return status;
}

absl::StatusOr<const NormWeights*> DeviceState::AcquireNorms() {
  if (communicates_weights()) {
    if (absl::Status status =
            CudaStatus(cudaStreamWaitEvent(context_.stream, norms_shared_), "an event");
        !status.ok()) {
      return status;
    }
  }
  return norms_.data();
}

void DeviceState::BeginMicroBatch(bool first, bool last) {
  first_ = first;
  last_ = last;
}

absl::Status DeviceState::GatherWeights(int unit) {
  const ShardLayout::Unit& place = shards_.units()[unit];
  absl::Status status =
      communicator_->AllGather(weights_ + place.own, weights_ + place.whole.begin,
                               place.chunk.size * static_cast<int64_t>(sizeof(Bf16)));
  status.Update(CudaStatus(cudaEventRecord(gathered_[unit], communicator_->stream()), "an event"));
  return status;
}

absl::Status DeviceState::Fetch(int unit) {
  const Slot& slot = slots_[weight_slots_.SlotOf(unit)];
  const ShardLayout::Part& chunk = shards_.units()[unit].chunk;
  absl::Status status =
      CudaStatus(cudaStreamWaitEvent(communicator_->stream(), slot.released), "an event");
  status.Update(communicator_->AllGather(weights_ + chunk.begin, slot.weights,
                                         chunk.size * static_cast<int64_t>(sizeof(Bf16))));
  status.Update(CudaStatus(cudaEventRecord(slot.gathered, communicator_->stream()), "an event"));
  weight_slots_.Put(unit);
  return status;
}

absl::StatusOr<const Bf16*> DeviceState::Acquire(int unit) {
  const ShardLayout::Unit& place = shards_.units()[unit];
  if (!partitioned()) {
    if (!gathered_.empty()) {
      if (absl::Status status =
              CudaStatus(cudaStreamWaitEvent(context_.stream, gathered_[unit]), "an event");
          !status.ok()) {
        return status;
      }
    }
    return weights_ + place.whole.begin;
  }
  const Slot& slot = slots_[weight_slots_.SlotOf(unit)];
  if (communicator_ == nullptr) {
    return slot.weights;
  }
  unfetched_ = std::nullopt;
  absl::Status status = weight_slots_.Holds(unit) ? absl::OkStatus() : Fetch(unit);
  status.Update(CudaStatus(cudaStreamWaitEvent(context_.stream, slot.gathered), "an event"));
  unfetched_ = weight_slots_.Next(unit);
  return status.ok() ? absl::StatusOr<const Bf16*>(slot.weights) : status;
}

void DeviceState::Release(int unit) {
  if (partitioned() && communicator_ != nullptr) {
    cudaEventRecord(slots_[weight_slots_.SlotOf(unit)].released, context_.stream);
  }
}

absl::StatusOr<DeviceUnits::Gradient> DeviceState::AcquireGradient(int unit) {
  if (!partitioned()) {
    return Gradient{.data = gradients_ + shards_.units()[unit].whole.begin,
                    .into = first_ ? Into::kAssign : Into::kAdd};
  }
  GradientSlot& slot = slot_gradients_[gradient_slots_.SlotOf(unit)];
  if (communicator_ != nullptr && !std::exchange(slot.in_use, true)) {
    const bool unreduced = std::ranges::any_of(unreduced_, [&](int other) {
      return gradient_slots_.SlotOf(other) == gradient_slots_.SlotOf(unit);
    });
    absl::Status status = unreduced ? CommunicateWaiting() : absl::OkStatus();
    status.Update(CudaStatus(cudaStreamWaitEvent(context_.stream, slot.reduced), "an event"));
    if (!status.ok()) {
      return status;
    }
  }
  // Each micro-batch's is reduced by itself.
  return Gradient{.data = slot.data, .into = Into::kAssign};
}

absl::Status DeviceState::ReduceWhole(const ShardLayout::Unit& place, float* whole) {
  if (!rounds()) {
    return communicator_->AllReduce(whole, place.whole.size);
  }
  const LaunchContext beside = {.stream = communicator_->stream()};
  RoundToBf16(beside, place.whole.size, whole, rounded_);
  absl::Status status = communicator_->AllReduce(rounded_, place.whole.size);
  FromBf16(beside, place.whole.size, rounded_, Into::kAssign, whole);
  return status;
}

absl::Status DeviceState::ReduceChunk(const ShardLayout::Unit& place, const float* whole, Into into,
                                      float* own) {
  const int64_t size = place.chunk.size;
  const LaunchContext beside = {.stream = communicator_->stream()};
  if (rounds()) {
    RoundToBf16(beside, place.whole.size, whole, rounded_);
    Bf16* chunk = rounded_ + (place.own - place.whole.begin);
    absl::Status status = communicator_->ReduceScatter(rounded_, chunk, size);
    FromBf16(beside, size, chunk, into, own);
    return status;
  }
  absl::Status status =
      communicator_->ReduceScatter(whole, into == Into::kAdd ? chunk_sum_ : own, size);
  if (into == Into::kAdd) {
    AddTo(beside, size, chunk_sum_, own);
  }
  return status;
}

absl::Status DeviceState::ReleaseGradient(int unit) {
  if (communicator_ == nullptr) {
    return absl::OkStatus();
  }
  if (partitioned()) {
    slot_gradients_[gradient_slots_.SlotOf(unit)].in_use = false;
  } else if (!last_) {
    return absl::OkStatus();
  }
  unreduced_.push_back(unit);
  // A backward ends with the embeddings.
  return unit == 0 ? CommunicateWaiting() : absl::OkStatus();
}

absl::Status DeviceState::BeginShared() {
  return communicator_ == nullptr ? absl::OkStatus() : CommunicateWaiting();
}

absl::Status DeviceState::CommunicateWaiting() {
  if (!unfetched_.has_value() && unreduced_.empty()) return absl::OkStatus();
  absl::Status status = communicator_->Follow(context_.stream);
  // Weights first: they are needed sooner.
  if (const std::optional<int> unit = std::exchange(unfetched_, std::nullopt); unit.has_value()) {
    status.Update(Fetch(*unit));
  }
  for (const int unit : std::exchange(unreduced_, {})) status.Update(ReduceGradient(unit));
  return status;
}

absl::Status DeviceState::ReduceGradient(int unit) {
  const ShardLayout::Unit& place = shards_.units()[unit];
  if (partitioned()) {
    const GradientSlot& slot = slot_gradients_[gradient_slots_.SlotOf(unit)];
    absl::Status status = ReduceChunk(place, slot.data, first_ ? Into::kAssign : Into::kAdd,
                                      gradients_ + place.chunk.begin);
    status.Update(CudaStatus(cudaEventRecord(slot.reduced, communicator_->stream()), "an event"));
    return status;
  }
  float* whole = gradients_ + place.whole.begin;
  return sharding_ == Sharding::kDataParallel
             ? ReduceWhole(place, whole)
             : ReduceChunk(place, whole, Into::kAssign, gradients_ + place.own);
}

absl::Status DeviceState::FinishGradients() {
  return communicator_ == nullptr ? absl::OkStatus() : communicator_->Precede(context_.stream);
}

void DeviceState::AddSquaredNorm(StepSums* sums) {
  for (size_t i = 0; i < owned_.size(); ++i) {
    SquaredNormOf(context_, owned_[i].size, gradients_ + owned_[i].kept,
                  norm_partials_ + static_cast<int64_t>(i) * kNormPartials);
  }
  muster::worker::AddSquaredNorm(context_, kNormPartials * static_cast<int64_t>(owned_.size()),
                                 norm_partials_, sums);
}

absl::Status DeviceState::SumOverRanks(StepSums* sums) {
  if (communicator_ == nullptr) {
    return absl::OkStatus();
  }
  static_assert(sizeof(StepSums) == 2 * sizeof(double));
  absl::Status status = communicator_->Follow(context_.stream);
  status.Update(communicator_->AllReduce(reinterpret_cast<double*>(sums), 2));
  status.Update(communicator_->Precede(context_.stream));
  return status;
}

absl::Status DeviceState::Update(const AdamWFactors& factors, const StepSums* sums) {
  absl::Status status = CudaStatus(cudaStreamWaitEvent(context_.stream, state_copied_), "an event");
  ++weights_version_;
  // All units need their norms: what is gathered must not delay them.
  status.Update(ClearNorms());
  CopyRunsAhead(context_, factors, sums, static_cast<int>(host_norm_runs_.size()), norm_runs_,
                {.gradients = gradients_,
                 .parameters = parameters_,
                 .first_moment = first_moment_,
                 .second_moment = second_moment_},
                norm_values_);
  if (communicates_weights()) status.Update(ShareNorms());
  for (const Range& range : updated_) {
    if (range.size > 0) {
      AdamW(context_, factors, sums, static_cast<int>(host_decay_runs_.size()), decay_runs_,
            {.offset = range.offset,
             .size = range.size,
             .gradients = gradients_ + range.kept,
             .parameters = parameters_ + range.updated,
             .first_moment = first_moment_ + range.updated,
             .second_moment = second_moment_ + range.updated,
             .weights = weights_ + range.kept});
    }
    // In the order of need, and beside AdamW as far as that lasts: the next forward's products
    // share the multiprocessors less well.
    if (!gathered_.empty()) {
      status.Update(communicator_->Follow(context_.stream));
      status.Update(GatherWeights(range.unit));
    }
  }
  if (communicates_weights()) {
    // ZeRO-3's next fetch.
    status.Update(communicator_->Follow(context_.stream));
    weight_slots_.Clear();
  }
  status.Update(LaunchStatus("AdamW"));
  return status;
}

absl::Status DeviceState::Load(const StateSource& source) {
  std::vector<float> values;
  absl::Status status = CudaStatus(cudaStreamWaitEvent(context_.stream, state_copied_), "an event");
  // The last step's weights may still be gathered, and its norms added up in their place.
  if (communicator_ != nullptr) status.Update(communicator_->Finish("the last step's weights"));
  if (!status.ok()) {
    return status;
  }
  const auto load = [&](StateKind kind, float* to, const Range& range) {
    for (int64_t at = 0; at < range.size && status.ok(); at += kLoadFloats) {
      values.resize(std::min(kLoadFloats, range.size - at));
      status = source(kind, range.offset + at, values);
      if (!status.ok()) return;
      status = CudaStatus(
          cudaMemcpyAsync(to + range.updated + at, values.data(), values.size() * sizeof(float),
                          cudaMemcpyHostToDevice, context_.stream),
          "copying the state");
      status.Update(CudaStatus(cudaStreamSynchronize(context_.stream), "copying the state"));
    }
  };
  for (const Range& range : updated_) {
    load(StateKind::kParameters, parameters_, range);
    load(StateKind::kFirstMoment, first_moment_, range);
    load(StateKind::kSecondMoment, second_moment_, range);
    if (!status.ok()) {
      return status;
    }
    if (range.size > 0) {
      RoundToBf16(context_, range.size, parameters_ + range.updated, weights_ + range.kept);
    }
  }
  weights_changed_ = true;
  ++weights_version_;
  weight_slots_.Clear();
  status.Update(ClearNorms());
  CopyRuns(context_, static_cast<int>(host_norm_runs_.size()), norm_runs_, parameters_,
           norm_values_);
  status.Update(LaunchStatus("rounding parameters"));
  return status;
}

absl::Status DeviceState::PrepareCopies() {
  int64_t size = 0;
  for (const Range& range : owned_) size += range.size;
  absl::StatusOr<PinnedMemory> pinned =
      AllocatePinned(3 * size * static_cast<int64_t>(sizeof(float)));
  if (pinned.ok()) host_state_ = *std::move(pinned);
  return pinned.status();
}

absl::StatusOr<std::unique_ptr<StateCopy>> DeviceState::CopyState() {
  absl::Status status = host_state_ == nullptr ? PrepareCopies() : absl::OkStatus();
  status.Update(CudaStatus(cudaEventRecord(state_ready_, context_.stream), "an event"));
  status.Update(CudaStatus(cudaStreamWaitEvent(copy_stream_, state_ready_), "an event"));
  if (!status.ok()) {
    return status;
  }
  auto* to = reinterpret_cast<float*>(host_state_.get());
  const auto copy = [&](const float* from, const Range& range) {
    status.Update(CudaStatus(cudaMemcpyAsync(to, from + range.updated, range.size * sizeof(float),
                                             cudaMemcpyDeviceToHost, copy_stream_),
                             "copying the state"));
    const std::span<const float> copied(to, static_cast<size_t>(range.size));
    to += range.size;
    return copied;
  };
  std::vector<StateRange> ranges;
  for (const Range& range : owned_) {
    if (range.size > 0) {
      ranges.push_back({.offset = range.offset,
                        .parameters = copy(parameters_, range),
                        .first_moment = copy(first_moment_, range),
                        .second_moment = copy(second_moment_, range)});
    }
  }
  status.Update(CudaStatus(cudaEventRecord(state_copied_, copy_stream_), "an event"));
  int device = 0;
  status.Update(CudaStatus(cudaGetDevice(&device), "asking for the GPU"));
  if (!status.ok()) {
    return status;
  }
  return std::make_unique<DeviceStateCopy>(device, state_copied_, std::move(ranges));
}

}  // namespace muster::worker
