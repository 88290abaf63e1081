#include "worker/gpu/gpu_engine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "worker/communicator/local_communicator.h"
#include "worker/gpu/cuda_status.h"

namespace muster::worker {
namespace {

// A staged micro-batch: tokens, targets, order, distinct, first (kernels/embedding.h).
int64_t StagedIntegers(int64_t rows) { return 5 * rows + 1; }

// Dense, FLOP/s, as the vendor's data sheets say; 0 for what isn't listed. The table is of bf16: a
// GPU that has FP8 does twice as much in it.
double PeakFlops(std::string_view gpu, Precision precision) {
  constexpr std::array<std::pair<std::string_view, double>, 9> kPeaks = {{
      {"B300", 2.25e15},
      {"GB200", 2.5e15},
      {"B200", 2.25e15},
      {"H200", 0.989e15},
      {"H100 PCIe", 0.756e15},
      {"H100", 0.989e15},
      {"A100", 0.312e15},
      {"L40S", 0.362e15},
      {"L4", 0.121e15},
  }};
  const auto* const found = std::find_if(kPeaks.begin(), kPeaks.end(), [gpu](const auto& peak) {
    return gpu.find(peak.first) != std::string_view::npos;
  });
  return found == kPeaks.end() ? 0 : found->second * (precision == Precision::kFp8 ? 2 : 1);
}

AdamWFactors FactorsOf(const OptimizerConfig& config, int64_t step) {
  const double rate = LearningRate(config, step);
  const auto count = static_cast<double>(step + 1);
  return {.beta1 = static_cast<float>(config.beta1),
          .beta2 = static_cast<float>(config.beta2),
          .step_size = static_cast<float>(rate / (1 - std::pow(config.beta1, count))),
          .correction = static_cast<float>(std::sqrt(1 - std::pow(config.beta2, count))),
          .epsilon = static_cast<float>(config.epsilon),
          .keep = static_cast<float>(1 - rate * config.weight_decay),
          .clip_norm = static_cast<float>(config.clip_norm)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuEngine>> GpuEngine::Create(const Options& options,
                                                             Communicator& communicator) {
  if (absl::Status status = Validate(options.optimizer); !status.ok()) {
    return status;
  }
  auto engine = std::unique_ptr<GpuEngine>(new GpuEngine(options, communicator));
  const auto agreed = [&](absl::Status result) {
    const absl::Status status = AgreeOnResult(communicator, result, options.communication.timeout);
    return status.ok() ? result : status;
  };
  absl::Status status = agreed(engine->Prepare());
  if (status.ok()) status = engine->Choose();
  if (status.ok()) status = agreed(engine->Allocate());
  if (status.ok()) status = engine->MakePlans();
  if (status.ok()) status = engine->Connect();
  if (!status.ok()) {
    return status;
  }
  return engine;
}

absl::StatusOr<ShardingChoice> GpuEngine::PreviewSharding(const Options& options, int world_size) {
  const std::vector<std::unique_ptr<Communicator>> alone = MakeLocalCommunicators(1);
  GpuEngine engine(options, *alone.front());
  if (absl::Status status = engine.Prepare(); !status.ok()) {
    return status;
  }
  const absl::StatusOr<DeviceRoom> room = Room(world_size);
  if (!room.ok()) {
    return room.status();
  }
  return ChooseSharding(engine.Needs(world_size), *room);
}

GpuEngine::~GpuEngine() {
  // First, because it may be what the stream waits for.
  nccl_.reset();
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  timeline_.reset();
  for (const Staging& staging : staging_) {
    if (staging.copied != nullptr) cudaEventDestroy(staging.copied);
  }
  if (summed_ != nullptr) cudaEventDestroy(summed_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

absl::Status GpuEngine::Prepare() {
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices);
      error != cudaSuccess || options_.device >= devices) {
    return absl::NotFoundError(fmt::format("GPU {} is not there: {} ({} GPUs)", options_.device,
                                           cudaGetErrorString(error), devices));
  }
  absl::Status status = CudaStatus(cudaSetDevice(options_.device), "choosing the GPU");
  status.Update(CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"));
  status.Update(CudaStatus(cudaEventCreateWithFlags(&summed_, cudaEventDisableTiming), "an event"));
  for (Staging& staging : staging_) {
    status.Update(
        CudaStatus(cudaEventCreateWithFlags(&staging.copied, cudaEventDisableTiming), "an event"));
  }
  if (!status.ok()) {
    return status;
  }
  cudaDeviceProp properties = {};
  status = CudaStatus(cudaGetDeviceProperties(&properties, options_.device), "asking for the GPU");
  status.Update(CheckComputeCapability(options_.precision, properties.name, properties.major,
                                       properties.minor));
  if (!status.ok()) {
    return status;
  }
  gpu_name_ = properties.name;
  peak_flops_ = PeakFlops(properties.name, options_.precision);
  absl::StatusOr<std::unique_ptr<GpuTransformer>> transformer =
      GpuTransformer::Create({.model = options_.model,
                              .sequences = options_.sequences,
                              .sequence = options_.sequence,
                              .recompute = options_.recompute,
                              .attention = options_.attention,
                              .deterministic = options_.deterministic,
                              .precision = options_.precision},
                             stream_);
  if (!transformer.ok()) {
    return transformer.status();
  }
  transformer_ = *std::move(transformer);
  return absl::OkStatus();
}

std::unique_ptr<DeviceState> GpuEngine::MakeState(Sharding sharding, int rank,
                                                  int world_size) const {
  return std::make_unique<DeviceState>(
      layout(),
      DeviceState::Options{.sharding = sharding,
                           .gradient_reduction = options_.gradient_reduction,
                           .tied = options_.model.tied_head},
      rank, world_size);
}

std::vector<ShardingNeed> GpuEngine::Needs(int world_size) {
  std::vector<Sharding> candidates = {Sharding::kDataParallel, Sharding::kZero1, Sharding::kZero3};
  if (options_.sharding.has_value()) {
    candidates = {*options_.sharding};
  } else if (world_size == 1) {
    candidates.resize(1);
  }
  std::vector<ShardingNeed> needs;
  for (const Sharding sharding : candidates) {
    // All ranks' chunks are of one size.
    const std::unique_ptr<DeviceState> state = MakeState(sharding, 0, world_size);
    MemoryCutter plan;
    TakeMemory(plan, *state);
    needs.push_back({.sharding = sharding, .bytes = plan.bytes(), .plan = DescribePlan(plan)});
  }
  return needs;
}

absl::StatusOr<DeviceRoom> GpuEngine::Room(int world_size) {
  // What NCCL takes outside of the plan.
  const int64_t beside = world_size == 1 ? 0 : int64_t{1} << 30;
  size_t free = 0;
  size_t total = 0;
  const absl::Status status = CudaStatus(cudaMemGetInfo(&free, &total), "asking for free memory");
  if (!status.ok()) {
    return status;
  }
  return DeviceRoom{.free_bytes = static_cast<int64_t>(free) - beside,
                    .total_bytes = static_cast<int64_t>(total)};
}

absl::Status GpuEngine::Choose() {
  absl::StatusOr<DeviceRoom> room = Room(ranks_.world_size());
  // A rank that can't tell has none.
  const absl::StatusOr<ShardingChoice> choice =
      ChooseSharding(Needs(ranks_.world_size()), room.value_or(DeviceRoom()), ranks_,
                     options_.communication.timeout);
  if (choice.ok()) {
    choice_ = *choice;
  }
  return choice.status();
}

absl::Status GpuEngine::Allocate() {
  absl::Status status = CudaStatus(cudaSetDevice(options_.device), "choosing the GPU");
  if (!status.ok()) {
    return status;
  }
  state_ = MakeState(choice_.sharding, ranks_.rank(), ranks_.world_size());
  token_counts_.resize(options_.model.vocabulary);
  MemoryCutter plan;
  TakeMemory(plan, *state_);
  memory_text_ = DescribePlan(plan);
  planned_bytes_ = plan.bytes();
  absl::StatusOr<DeviceMemory> memory = AllocateDevice(plan);
  if (!memory.ok()) {
    return memory.status();
  }
  memory_ = *std::move(memory);
  MemoryCutter cutter(memory_.get());
  TakeMemory(cutter, *state_);

  const int64_t staged = StagedIntegers(transformer_->tokens()) * int64_t{sizeof(int32_t)};
  absl::StatusOr<PinnedMemory> pinned =
      AllocatePinned(2 * staged + static_cast<int64_t>(sizeof(StepSums)) + 16);
  if (!pinned.ok()) {
    return pinned.status();
  }
  pinned_ = *std::move(pinned);
  host_sums_ = reinterpret_cast<StepSums*>(pinned_.get());
  for (int i = 0; i < 2; ++i) {
    staging_[i].host = reinterpret_cast<int32_t*>(pinned_.get() + sizeof(StepSums) +
                                                  static_cast<int64_t>(i) * staged);
  }

  absl::StatusOr<std::unique_ptr<Gemms>> gemms =
      Gemms::Create(gemm_workspace_, options_.plan_cache);
  if (!gemms.ok()) {
    return gemms.status();
  }
  gemms_ = *std::move(gemms);
  return absl::OkStatus();
}

absl::Status GpuEngine::MakePlans() {
  // Weights as in training, because how fast a product runs depends on what is multiplied.
  state_->FillForTiming(transformer_->context());
  return MakePlansAlike(
      ranks_, gemms_->kind(), gemms_->cache(),
      [&] { return transformer_->MakePlans(*gemms_, *state_); }, options_.communication.timeout);
}

absl::Status GpuEngine::Connect() {
  if (ranks_.world_size() > 1) {
    absl::StatusOr<std::unique_ptr<NcclCommunicator>> nccl =
        NcclCommunicator::Create(ranks_, options_.communication);
    if (!nccl.ok()) {
      return nccl.status();
    }
    nccl_ = *std::move(nccl);
  }
  absl::Status status = state_->Start(transformer_->context(), nccl_.get());
  if (status.ok() && options_.copies_state) {
    status = state_->PrepareCopies();
  }
  return status;
}

std::string GpuEngine::Description() const {
  const bool several = ranks_.world_size() > 1;
  return fmt::format(
      "{} GPU{}: {}, {}{}; {}", ranks_.world_size(),
      several ? fmt::format("s, rank 0's {}", gpu_name_) : fmt::format(", {}", gpu_name_),
      PrecisionName(options_.precision),
      several ? fmt::format("gradients reduced in {}, ",
                            GradientReductionName(options_.gradient_reduction))
              : "",
      !several ? "alone"
      : options_.sharding.has_value()
          ? fmt::format("{} as set", ShardingName(choice_.sharding))
          : fmt::format("{} chosen: it {}", ShardingName(choice_.sharding), choice_.reason),
      memory_text_);
}

int64_t GpuEngine::memory_bytes() const {
  size_t free = 0;
  size_t total = 0;
  cudaMemGetInfo(&free, &total);
  return static_cast<int64_t>(total - free);
}

void GpuEngine::TakeMemory(MemoryCutter& cutter, DeviceState& state) {
  state.TakeMemory(cutter);
  transformer_->TakeMemory(cutter, state.weights_stay());
  gemm_workspace_ = cutter.Take<std::byte>("products", Gemms::kWorkspaceBytes);
  sums_ = cutter.Take<StepSums>("scratch", 1);
  for (Staging& staging : staging_) {
    staging.device = cutter.Take<int32_t>("scratch", StagedIntegers(transformer_->tokens()));
  }
}

absl::Status GpuEngine::CopyToDevice(const Staging& staging, int64_t first, int64_t count) {
  absl::Status status =
      CudaStatus(cudaMemcpyAsync(staging.device + first, staging.host + first,
                                 count * sizeof(int32_t), cudaMemcpyHostToDevice, stream_),
                 "copying a batch");
  status.Update(CudaStatus(cudaEventRecord(staging.copied, stream_), "an event"));
  return status;
}

absl::StatusOr<DeviceBatch> GpuEngine::Stage(const Batch& batch) {
  const int64_t rows = transformer_->tokens();
  if (static_cast<int64_t>(batch.tokens.size()) != rows ||
      static_cast<int64_t>(batch.targets.size()) != rows) {
    return absl::InvalidArgumentError(fmt::format("{} tokens and {} targets; a micro-batch has {}",
                                                  batch.tokens.size(), batch.targets.size(), rows));
  }
  for (const std::span<const int32_t> tokens : {batch.tokens, batch.targets}) {
    for (const int32_t token : tokens) {
      if (token < 0 || token >= options_.model.vocabulary) {
        return absl::InvalidArgumentError(
            fmt::format("token {} is not in the model's vocabulary of {}; was the data made by "
                        "another tokenizer?",
                        token, options_.model.vocabulary));
      }
    }
  }
  next_staging_ = 1 - next_staging_;
  const Staging& staging = staging_[next_staging_];
  if (absl::Status status = WaitFor(staging.copied, "the last batch"); !status.ok()) {
    return status;
  }
  std::copy(batch.tokens.begin(), batch.tokens.end(), staging.host);
  std::copy(batch.targets.begin(), batch.targets.end(), staging.host + rows);
  if (absl::Status status = CopyToDevice(staging, 0, 2 * rows); !status.ok()) {
    return status;
  }
  return DeviceBatch{.tokens = staging.device, .targets = staging.device + rows};
}

absl::StatusOr<TokenOrder> GpuEngine::StageTokenOrder() {
  const int64_t rows = transformer_->tokens();
  const Staging& staging = staging_[next_staging_];
  const int32_t* tokens = staging.host;
  int32_t* order = staging.host + 2 * rows;
  int32_t* distinct = order + rows;
  int32_t* first = distinct + rows;
  std::fill(token_counts_.begin(), token_counts_.end(), 0);
  for (int64_t i = 0; i < rows; ++i) {
    ++token_counts_[tokens[i]];
  }
  int32_t begin = 0;
  int64_t count = 0;
  for (int32_t token = 0; token < options_.model.vocabulary; ++token) {
    const int32_t occurrences = token_counts_[token];
    token_counts_[token] = begin;
    if (occurrences > 0) {
      distinct[count] = token;
      first[count] = begin;
      ++count;
      begin += occurrences;
    }
  }
  first[count] = begin;
  for (int64_t i = 0; i < rows; ++i) {
    order[token_counts_[tokens[i]]++] = static_cast<int32_t>(i);
  }
  if (absl::Status status = CopyToDevice(staging, 2 * rows, StagedIntegers(rows) - 2 * rows);
      !status.ok()) {
    return status;
  }
  return TokenOrder{.order = staging.device + 2 * rows,
                    .distinct = staging.device + 3 * rows,
                    .first = staging.device + 4 * rows,
                    .tokens = count};
}

double GpuEngine::MeanFactor(size_t batches) const {
  return 1.0 / (static_cast<double>(batches) * static_cast<double>(transformer_->tokens()) *
                ranks_.world_size());
}

absl::Status GpuEngine::Begin() {
  // Another engine of this process may have chosen another one.
  absl::Status status = CudaStatus(cudaSetDevice(options_.device), "choosing the GPU");
  status.Update(CudaStatus(cudaMemsetAsync(sums_, 0, sizeof(StepSums), stream_), "clearing"));
  status.Update(state_->Begin());
  return status;
}

absl::Status GpuEngine::WaitFor(cudaEvent_t event, std::string_view doing) {
  return nccl_ != nullptr ? nccl_->WaitFor(event, doing)
                          : CudaStatus(cudaEventSynchronize(event), doing);
}

absl::Status GpuEngine::SendSums() {
  absl::Status status = CudaStatus(
      cudaMemcpyAsync(host_sums_, sums_, sizeof(StepSums), cudaMemcpyDeviceToHost, stream_),
      "copying sums");
  status.Update(CudaStatus(cudaEventRecord(summed_, stream_), "an event"));
  return status;
}

absl::StatusOr<StepSums> GpuEngine::Sums() {
  if (absl::Status status = WaitFor(summed_, "a step"); !status.ok()) {
    return status;
  }
  return *host_sums_;
}

absl::StatusOr<StepResult> GpuEngine::Step(int64_t step, std::span<const Batch> batches) {
  const double scale = MeanFactor(batches.size());
  if (absl::Status status = Begin(); !status.ok()) {
    return status;
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    const absl::StatusOr<DeviceBatch> staged = Stage(batches[i]);
    if (!staged.ok()) {
      return staged.status();
    }
    state_->BeginMicroBatch(i == 0, i + 1 == batches.size());
    if (absl::Status status = transformer_->LossAndGradient(
            *staged, [this] { return StageTokenOrder(); }, scale, *state_, sums_);
        !status.ok()) {
      return status;
    }
  }
  absl::Status status = state_->FinishGradients();
  Mark("waiting for gradients");
  state_->AddSquaredNorm(sums_);
  Mark("gradient norm");
  status.Update(state_->SumOverRanks(sums_));
  status.Update(SendSums());
  Mark("sums over ranks");
  status.Update(state_->Update(FactorsOf(options_.optimizer, step), sums_));
  Mark("AdamW");
  if (!status.ok()) {
    return status;
  }
  const absl::StatusOr<StepSums> sums = Sums();
  if (!sums.ok()) {
    return sums.status();
  }
  const double norm = std::sqrt(sums->squared_norm);
  // As AdamW has decided for itself.
  return StepResult{.loss = sums->loss,
                    .gradient_norm = norm,
                    .learning_rate = LearningRate(options_.optimizer, step),
                    .skipped = !std::isfinite(sums->loss) || !std::isfinite(norm)};
}

absl::StatusOr<double> GpuEngine::Loss(std::span<const Batch> batches) {
  const double scale = MeanFactor(batches.size());
  if (absl::Status status = Begin(); !status.ok()) {
    return status;
  }
  for (const Batch& batch : batches) {
    const absl::StatusOr<DeviceBatch> staged = Stage(batch);
    if (!staged.ok()) {
      return staged.status();
    }
    if (absl::Status status = transformer_->Loss(*staged, scale, *state_, sums_); !status.ok()) {
      return status;
    }
  }
  absl::Status status = state_->SumOverRanks(sums_);
  status.Update(SendSums());
  if (!status.ok()) {
    return status;
  }
  const absl::StatusOr<StepSums> sums = Sums();
  return sums.ok() ? absl::StatusOr<double>(sums->loss) : sums.status();
}

absl::Status GpuEngine::Load(const StateSource& source) {
  absl::Status status = CudaStatus(cudaSetDevice(options_.device), "choosing the GPU");
  return status.ok() ? state_->Load(source) : status;
}

absl::StatusOr<std::unique_ptr<StateCopy>> GpuEngine::CopyState() {
  absl::Status status = CudaStatus(cudaSetDevice(options_.device), "choosing the GPU");
  return status.ok() ? state_->CopyState() : status;
}

void GpuEngine::MeasureParts(bool on) {
  timeline_ = on ? std::make_unique<Timeline>(stream_) : nullptr;
  transformer_->SetTimeline(timeline_.get());
}

std::map<std::string, double> GpuEngine::Parts() {
  return timeline_ == nullptr ? std::map<std::string, double>() : timeline_->Collect();
}

}  // namespace muster::worker
