#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/checkpoint_names.h"
#include "worker/checkpoint/checksum.h"
#include "worker/checkpoint/file.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSummedBytes = size_t{64} << 20;  // between two looks at whether to stop

std::string PartialPath(const std::string& directory, int64_t step) {
  return CheckpointPath(directory, step) + std::string(kPartialSuffix);
}

absl::Status RemoveAll(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? FileError("remove", path, error.value()) : absl::OkStatus();
}

absl::Status RemovePartial(const std::string& directory) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kStepPrefix) && name.ends_with(kPartialSuffix)) {
      if (absl::Status status = RemoveAll(entry.path()); !status.ok()) {
        return status;
      }
    }
  }
  return error ? FileError("list", directory, error.value()) : absl::OkStatus();
}

class HostStateCopy : public StateCopy {
 public:
  explicit HostStateCopy(const std::vector<StateRange>& ranges) : ranges_(ranges) {
    size_t floats = 0;
    for (const StateRange& range : ranges_) {
      floats += range.parameters.size() + range.first_moment.size() + range.second_moment.size();
    }
    values_.reserve(floats);
    for (StateRange& range : ranges_) {
      for (std::span<const float>* values :
           {&range.parameters, &range.first_moment, &range.second_moment}) {
        const size_t at = values_.size();
        values_.insert(values_.end(), values->begin(), values->end());
        *values = std::span<const float>(values_.data() + at, values->size());
      }
    }
  }

  absl::StatusOr<std::vector<StateRange>> Ranges() const override { return ranges_; }

 private:
  std::vector<float> values_;
  std::vector<StateRange> ranges_;  // of values_
};

}  // namespace

std::unique_ptr<StateCopy> CopyState(const std::vector<StateRange>& ranges) {
  return std::make_unique<HostStateCopy>(ranges);
}

std::string CheckpointPath(const std::string& directory, int64_t step) {
  return fmt::format("{}/{}{:010}", directory, kStepPrefix, step);
}

absl::StatusOr<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Create(Options options) {
  if (options.keep < 1) {
    return absl::InvalidArgumentError(
        fmt::format("{} checkpoints to keep; there must be at least 1", options.keep));
  }
  if (absl::Status status = MakeDirectory(options.directory); !status.ok()) {
    return status;
  }
  if (options.rank == 0) {
    if (absl::Status status = RemovePartial(options.directory); !status.ok()) {
      return status;
    }
  }
  // Not make_unique: the constructor is private.
  return std::unique_ptr<CheckpointWriter>(new CheckpointWriter(std::move(options)));
}

CheckpointWriter::~CheckpointWriter() = default;

absl::Status CheckpointWriter::Begin(const CheckpointInfo& info, std::unique_ptr<StateCopy> copy) {
  if (thread_.joinable()) {
    return absl::FailedPreconditionError(
        fmt::format("the checkpoint of step {} is still being written", info_.step));
  }
  info_ = info;
  written_ = false;
  thread_ = std::jthread([this, copy = std::move(copy)](const std::stop_token& stop) mutable {
    result_ = Write(*copy, stop);
    // Before anyone is told that a next one may be made.
    copy.reset();
    written_ = true;
  });
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Write(const StateCopy& copy, const std::stop_token& stop) const {
  const absl::StatusOr<std::vector<StateRange>> ranges = copy.Ranges();
  if (!ranges.ok()) {
    return ranges.status();
  }
  const std::string partial = PartialPath(options_.directory, info_.step);
  if (absl::Status status = MakeDirectory(partial); !status.ok()) {
    return status;
  }
  uint32_t checksum = 0;
  std::vector<SafetensorsTensor> tensors;
  for (const StateRange& range : *ranges) {
    const std::array kinds = {range.parameters, range.first_moment, range.second_moment};
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      const std::span<const float> values = kinds[kind];
      for (std::span<const std::byte> rest = std::as_bytes(values); !rest.empty();) {
        if (stop.stop_requested()) {
          return absl::CancelledError(fmt::format("{}: given up", partial));
        }
        const auto piece = rest.first(std::min(rest.size(), kSummedBytes));
        checksum = Crc32c(piece, checksum);
        rest = rest.subspan(piece.size());
      }
      tensors.push_back({.name = fmt::format("{}.{}", kStateNames[kind], range.offset),
                         .shape = {static_cast<int64_t>(values.size())},
                         .produce = [values] { return values; }});
    }
  }
  if (absl::Status status = WriteSafetensors(
          ShardPath(partial, options_.rank, options_.world_size),
          {{std::string(kChecksum), fmt::format("{:08x}", checksum)}}, tensors, stop);
      !status.ok()) {
    return status;
  }
  return FlushDirectory(partial);
}

absl::Status CheckpointWriter::Wait() {
  if (!thread_.joinable()) {
    return absl::OkStatus();
  }
  thread_.join();
  return result_;
}

absl::Status CheckpointWriter::Commit() {
  const std::string partial = PartialPath(options_.directory, info_.step);
  const std::string committed = CheckpointPath(options_.directory, info_.step);
  const nlohmann::json manifest = {{"format", 1},
                                   {"step", info_.step},
                                   {"parameters", info_.parameters},
                                   {"world_size", info_.world_size},
                                   {"identity", info_.identity},
                                   {"course", info_.course},
                                   {"config", info_.config}};
  // A path in it may be no UTF-8.
  const std::string text =
      manifest.dump(1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
  if (absl::Status status = WriteFileWhole(ManifestPath(partial), text + "\n"); !status.ok()) {
    return status;
  }
  if (absl::Status status = FlushDirectory(partial); !status.ok()) {
    return status;
  }
  std::error_code error;
  if (fs::exists(committed, error)) {
    // Of a run that couldn't be resumed from here: it went back further.
    const std::string replaced = fmt::format("{}.replaced{}", committed, kPartialSuffix);
    if (absl::Status status = RemoveAll(replaced); !status.ok()) {
      return status;
    }
    if (absl::Status status = Rename(committed, replaced); !status.ok()) {
      return status;
    }
  }
  if (absl::Status status = Rename(partial, committed); !status.ok()) {
    return status;
  }
  if (absl::Status status = FlushDirectory(options_.directory); !status.ok()) {
    return status;
  }
  return RemoveOldest();
}

absl::Status CheckpointWriter::Drop() {
  return RemoveAll(PartialPath(options_.directory, info_.step));
}

absl::Status CheckpointWriter::RemoveOldest() {
  const absl::StatusOr<std::vector<int64_t>> steps = CommittedSteps(options_.directory);
  if (!steps.ok()) {
    return steps.status();
  }
  const auto keep = static_cast<size_t>(options_.keep);
  for (size_t i = 0; i + keep < steps->size(); ++i) {
    if (absl::Status status = Rename(CheckpointPath(options_.directory, (*steps)[i]),
                                     PartialPath(options_.directory, (*steps)[i]));
        !status.ok()) {
      return status;
    }
  }
  return RemovePartial(options_.directory);
}

}  // namespace muster::worker
