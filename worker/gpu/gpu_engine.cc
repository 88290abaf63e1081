#include "worker/gpu/gpu_engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "fmt/format.h"
#include "worker/gpu/cuda_status.h"

namespace muster::worker {
namespace {

constexpr int64_t kLoadFloats = int64_t{16} << 20;  // at a time

// A staged micro-batch: tokens, targets, order, distinct, first (kernels/embedding.h).
int64_t StagedIntegers(int64_t rows) { return 5 * rows + 1; }

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
  if (communicator.world_size() != 1) {
    return absl::UnimplementedError(fmt::format(
        "the GPU engine trains on one GPU so far, not on {}", communicator.world_size()));
  }
  auto engine = std::unique_ptr<GpuEngine>(new GpuEngine(options));
  if (absl::Status status = engine->Initialize(); !status.ok()) {
    return status;
  }
  return engine;
}

GpuEngine::~GpuEngine() {
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  timeline_.reset();
  for (const Staging& staging : staging_) {
    if (staging.copied != nullptr) cudaEventDestroy(staging.copied);
  }
  if (summed_ != nullptr) cudaEventDestroy(summed_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

absl::Status GpuEngine::Initialize() {
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
  absl::StatusOr<std::unique_ptr<GpuTransformer>> transformer =
      GpuTransformer::Create({.model = options_.model,
                              .sequences = options_.sequences,
                              .sequence = options_.sequence,
                              .recompute = options_.recompute,
                              .plain_attention = options_.plain_attention,
                              .deterministic = options_.deterministic},
                             stream_);
  if (!transformer.ok()) {
    return transformer.status();
  }
  transformer_ = *std::move(transformer);
  host_decay_runs_ = DecayRunsOf(layout());
  token_counts_.resize(options_.model.vocabulary);

  MemoryCutter plan;
  TakeMemory(plan);
  memory_text_ = DescribePlan(plan);
  memory_bytes_ = plan.bytes();
  absl::StatusOr<DeviceMemory> memory = AllocateDevice(plan);
  if (!memory.ok()) {
    return memory.status();
  }
  memory_ = *std::move(memory);
  MemoryCutter cutter(memory_.get());
  TakeMemory(cutter);

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
  units_ = std::make_unique<ResidentDeviceUnits>(layout(), weights_, gradients_);
  // Weights as in training, because how fast a product runs depends on what is multiplied.
  FillRandom(transformer_->context(), layout().size(), 0.02F, weights_);
  if (status = transformer_->MakePlans(*gemms_, *units_); !status.ok()) {
    return status;
  }
  const size_t floats = layout().size() * sizeof(float);
  for (float* state : {parameters_, first_moment_, second_moment_, gradients_}) {
    status.Update(CudaStatus(cudaMemsetAsync(state, 0, floats, stream_), "clearing the state"));
  }
  status.Update(CudaStatus(cudaMemsetAsync(weights_, 0, layout().size() * sizeof(Bf16), stream_),
                           "clearing the state"));
  status.Update(CudaStatus(
      cudaMemcpyAsync(decay_runs_, host_decay_runs_.data(),
                      host_decay_runs_.size() * sizeof(DecayRun), cudaMemcpyHostToDevice, stream_),
      "copying"));
  status.Update(CudaStatus(cudaStreamSynchronize(stream_), "preparing the engine"));
  return status;
}

void GpuEngine::TakeMemory(MemoryCutter& cutter) {
  const int64_t size = layout().size();
  weights_ = cutter.Take<Bf16>("weights", size);
  gradients_ = cutter.Take<float>("gradients", size);
  parameters_ = cutter.Take<float>("parameters", size);
  first_moment_ = cutter.Take<float>("moments", size);
  second_moment_ = cutter.Take<float>("moments", size);
  transformer_->TakeMemory(cutter);
  gemm_workspace_ = cutter.Take<std::byte>("products", Gemms::kWorkspaceBytes);
  sums_ = cutter.Take<StepSums>("scratch", 1);
  norm_partials_ = cutter.Take<double>("scratch", kNormPartials);
  decay_runs_ = cutter.Take<DecayRun>("scratch", static_cast<int64_t>(host_decay_runs_.size()));
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
  if (absl::Status status = CudaStatus(cudaEventSynchronize(staging.copied), "the last batch");
      !status.ok()) {
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

absl::Status GpuEngine::Begin() {
  // Another engine of this process may have chosen another one.
  absl::Status status = CudaStatus(cudaSetDevice(options_.device), "choosing the GPU");
  status.Update(CudaStatus(cudaMemsetAsync(sums_, 0, sizeof(StepSums), stream_), "clearing"));
  return status;
}

absl::StatusOr<StepSums> GpuEngine::Sums() {
  if (absl::Status status = CudaStatus(cudaEventSynchronize(summed_), "a step"); !status.ok()) {
    return status;
  }
  return *host_sums_;
}

absl::Status GpuEngine::Update(int64_t step) {
  const LaunchContext& context = transformer_->context();
  SquaredNormOf(context, layout().size(), gradients_, norm_partials_);
  AddSquaredNorm(context, kNormPartials, norm_partials_, sums_);
  absl::Status status = CudaStatus(
      cudaMemcpyAsync(host_sums_, sums_, sizeof(StepSums), cudaMemcpyDeviceToHost, stream_),
      "copying sums");
  status.Update(CudaStatus(cudaEventRecord(summed_, stream_), "an event"));
  if (timeline_ != nullptr) timeline_->Mark("gradient norm");
  AdamW(context, FactorsOf(options_.optimizer, step), sums_,
        static_cast<int>(host_decay_runs_.size()), decay_runs_,
        {.offset = 0,
         .size = layout().size(),
         .gradients = gradients_,
         .parameters = parameters_,
         .first_moment = first_moment_,
         .second_moment = second_moment_,
         .weights = weights_});
  if (timeline_ != nullptr) timeline_->Mark("AdamW");
  status.Update(LaunchStatus("AdamW"));
  return status;
}

absl::StatusOr<StepResult> GpuEngine::Step(int64_t step, std::span<const Batch> batches) {
  const double scale =
      1.0 / (static_cast<double>(batches.size()) * static_cast<double>(transformer_->tokens()));
  if (absl::Status status = Begin(); !status.ok()) {
    return status;
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    const absl::StatusOr<DeviceBatch> staged = Stage(batches[i]);
    if (!staged.ok()) {
      return staged.status();
    }
    units_->SetInto(i == 0 ? Into::kAssign : Into::kAdd);
    if (absl::Status status = transformer_->LossAndGradient(
            *staged, [this] { return StageTokenOrder(); }, scale, *units_, sums_);
        !status.ok()) {
      return status;
    }
  }
  if (absl::Status status = Update(step); !status.ok()) {
    return status;
  }
  const absl::StatusOr<StepSums> sums = Sums();
  if (!sums.ok()) {
    return sums.status();
  }
  const double norm = std::sqrt(sums->squared_norm);
  const double rate = LearningRate(options_.optimizer, step);
  if (!std::isfinite(sums->loss) || !std::isfinite(norm)) {
    return absl::FailedPreconditionError(fmt::format(
        "step {}: the loss is {} and the gradient's norm {}; the parameters were not updated. "
        "Resume from the last checkpoint with a lower learning rate (now {:.3g}) or a longer "
        "warm-up, and look at the data of this step",
        step, sums->loss, norm, rate));
  }
  return StepResult{.loss = sums->loss, .gradient_norm = norm, .learning_rate = rate};
}

absl::StatusOr<double> GpuEngine::Loss(std::span<const Batch> batches) {
  const double scale =
      1.0 / (static_cast<double>(batches.size()) * static_cast<double>(transformer_->tokens()));
  if (absl::Status status = Begin(); !status.ok()) {
    return status;
  }
  for (const Batch& batch : batches) {
    const absl::StatusOr<DeviceBatch> staged = Stage(batch);
    if (!staged.ok()) {
      return staged.status();
    }
    if (absl::Status status = transformer_->Loss(*staged, scale, *units_, sums_); !status.ok()) {
      return status;
    }
  }
  absl::Status status = CudaStatus(
      cudaMemcpyAsync(host_sums_, sums_, sizeof(StepSums), cudaMemcpyDeviceToHost, stream_),
      "copying sums");
  status.Update(CudaStatus(cudaEventRecord(summed_, stream_), "an event"));
  if (!status.ok()) {
    return status;
  }
  const absl::StatusOr<StepSums> sums = Sums();
  return sums.ok() ? absl::StatusOr<double>(sums->loss) : sums.status();
}

float* GpuEngine::StateOf(StateKind kind) const {
  return kind == StateKind::kParameters    ? parameters_
         : kind == StateKind::kFirstMoment ? first_moment_
                                           : second_moment_;
}

absl::Status GpuEngine::Load(const StateSource& source) {
  std::vector<float> values;
  absl::Status status = CudaStatus(cudaSetDevice(options_.device), "choosing the GPU");
  for (const StateKind kind :
       {StateKind::kParameters, StateKind::kFirstMoment, StateKind::kSecondMoment}) {
    for (int64_t offset = 0; offset < layout().size() && status.ok(); offset += kLoadFloats) {
      values.resize(std::min(kLoadFloats, layout().size() - offset));
      status = source(kind, offset, values);
      if (status.ok()) {
        status = CudaStatus(
            cudaMemcpyAsync(StateOf(kind) + offset, values.data(), values.size() * sizeof(float),
                            cudaMemcpyHostToDevice, stream_),
            "copying the state");
        status.Update(CudaStatus(cudaStreamSynchronize(stream_), "copying the state"));
      }
    }
  }
  if (status.ok()) {
    RoundToBf16(transformer_->context(), layout().size(), parameters_, weights_);
    status = LaunchStatus("rounding parameters");
  }
  return status;
}

std::vector<StateRange> GpuEngine::OwnedState() const {
  const int64_t size = layout().size();
  if (host_state_ == nullptr) {
    absl::StatusOr<PinnedMemory> pinned =
        AllocatePinned(3 * size * static_cast<int64_t>(sizeof(float)));
    if (!pinned.ok()) {
      return {};
    }
    host_state_ = *std::move(pinned);
  }
  auto* state = reinterpret_cast<float*>(host_state_.get());
  float* to = state;
  cudaSetDevice(options_.device);
  for (const StateKind kind :
       {StateKind::kParameters, StateKind::kFirstMoment, StateKind::kSecondMoment}) {
    cudaMemcpyAsync(to, StateOf(kind), size * sizeof(float), cudaMemcpyDeviceToHost, stream_);
    to += size;
  }
  if (cudaStreamSynchronize(stream_) != cudaSuccess) {
    return {};
  }
  const auto part = [&](int index) {
    return std::span<const float>(state + index * size, static_cast<size_t>(size));
  };
  return {{.offset = 0, .parameters = part(0), .first_moment = part(1), .second_moment = part(2)}};
}

void GpuEngine::MeasureParts(bool on) {
  timeline_ = on ? std::make_unique<Timeline>(stream_) : nullptr;
  transformer_->SetTimeline(timeline_.get());
}

std::map<std::string, double> GpuEngine::Parts() {
  return timeline_ == nullptr ? std::map<std::string, double>() : timeline_->Collect();
}

}  // namespace muster::worker
