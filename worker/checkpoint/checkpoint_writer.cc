#include <algorithm>
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

}  // namespace

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

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

absl::Status CheckpointWriter::Begin(const CheckpointInfo& info,
                                     const std::vector<StateRange>& ranges) {
  if (thread_.joinable()) {
    return absl::FailedPreconditionError(
        fmt::format("the checkpoint of step {} is still being written", info_.step));
  }
  info_ = info;
  copy_.clear();
  size_t floats = 0;
  for (const StateRange& range : ranges) {
    floats += range.parameters.size() + range.first_moment.size() + range.second_moment.size();
  }
  copy_.reserve(floats);
  for (const StateRange& range : ranges) {
    for (const auto values : {range.parameters, range.first_moment, range.second_moment}) {
      copy_.insert(copy_.end(), values.begin(), values.end());
    }
  }
  std::vector<SafetensorsTensor> tensors;
  size_t at = 0;
  for (const StateRange& range : ranges) {
    const size_t size = range.parameters.size();
    for (const std::string_view kind : kStateNames) {
      const std::span<const float> values = std::span(copy_).subspan(at, size);
      tensors.push_back({.name = fmt::format("{}.{}", kind, range.offset),
                         .shape = {static_cast<int64_t>(size)},
                         .produce = [values] { return values; }});
      at += size;
    }
  }
  written_ = false;
  thread_ = std::thread([this, tensors = std::move(tensors)] { Write(tensors); });
  return absl::OkStatus();
}

void CheckpointWriter::Write(const std::vector<SafetensorsTensor>& tensors) {
  const std::string partial = PartialPath(options_.directory, info_.step);
  absl::Status status = MakeDirectory(partial);
  if (status.ok()) {
    const uint32_t checksum = Crc32c(std::as_bytes(std::span(copy_)));
    status = WriteSafetensors(ShardPath(partial, options_.rank, options_.world_size),
                              {{std::string(kChecksum), fmt::format("{:08x}", checksum)}}, tensors);
  }
  if (status.ok()) {
    status = FlushDirectory(partial);
  }
  result_ = status;
  written_ = true;
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
                                   {"identity", info_.identity}};
  if (absl::Status status = WriteFileWhole(ManifestPath(partial), manifest.dump(1) + "\n");
      !status.ok()) {
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
