#include <algorithm>
#include <charconv>
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

constexpr uint64_t kMostManifest = 1 << 20;
constexpr int kMostShards = 100'000;
constexpr size_t kBlock = size_t{1} << 20;  // floats

// The whole text as a number from 0 on; false if it isn't one.
bool ParseNumber(std::string_view text, int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0;
}

absl::StatusOr<CheckpointInfo> ReadManifest(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMostManifest);
  if (!text.ok()) {
    return text.status();
  }
  const nlohmann::json json =
      nlohmann::json::parse(*text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  const auto number = [&](const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_number_unsigned();
  };
  if (!number("format") || !number("step") || !number("parameters") || !number("world_size") ||
      !json.contains("identity") || !json["identity"].is_string()) {
    return absl::DataLossError(fmt::format("{}: is not a checkpoint's manifest", path));
  }
  const auto text_of = [&](const char* key) {
    return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
  };
  if (json["format"] != 1) {
    return absl::DataLossError(fmt::format("{}: is of format {}; this worker reads 1", path,
                                           json["format"].get<uint64_t>()));
  }
  if (json["world_size"] < 1 || json["world_size"] > kMostShards) {
    return absl::DataLossError(
        fmt::format("{}: tells of {} shards", path, json["world_size"].get<uint64_t>()));
  }
  return CheckpointInfo{.step = json["step"].get<int64_t>(),
                        .parameters = json["parameters"].get<int64_t>(),
                        .world_size = json["world_size"].get<int>(),
                        .identity = json["identity"].get<std::string>(),
                        .course = text_of("course"),
                        .config = text_of("config")};
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> CommittedSteps(const std::string& directory) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    int64_t step = 0;
    if (name.starts_with(kStepPrefix) &&
        ParseNumber(std::string_view(name).substr(kStepPrefix.size()), step)) {
      steps.push_back(step);
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return FileError("list", directory, error.value());
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

absl::StatusOr<CheckpointReader> CheckpointReader::Open(const std::string& directory,
                                                        int64_t step) {
  const std::string path = CheckpointPath(directory, step);
  absl::StatusOr<CheckpointInfo> info = ReadManifest(ManifestPath(path));
  if (!info.ok()) {
    return info.status();
  }
  if (info->step != step) {
    return absl::DataLossError(fmt::format("{}: is of step {}", ManifestPath(path), info->step));
  }
  CheckpointReader reader;
  reader.info_ = *std::move(info);
  for (int rank = 0; rank < reader.info_.world_size; ++rank) {
    if (absl::Status status = reader.AddShard(ShardPath(path, rank, reader.info_.world_size));
        !status.ok()) {
      return status;
    }
  }
  if (absl::Status status = reader.CheckComplete(path); !status.ok()) {
    return status;
  }
  return reader;
}

absl::Status CheckpointReader::AddShard(const std::string& path) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) {
    return file.status();
  }
  for (const auto& [name, entry] : file->entries()) {
    const size_t dot = name.find('.');
    const auto* kind = std::find(std::begin(kStateNames), std::end(kStateNames),
                                 std::string_view(name).substr(0, dot));
    int64_t offset = 0;
    if (dot == std::string::npos || kind == std::end(kStateNames) || entry.type != "F32" ||
        !ParseNumber(std::string_view(name).substr(dot + 1), offset)) {
      return absl::DataLossError(
          fmt::format("{}: tensor \"{}\" is none of a checkpoint's", path, name));
    }
    if (entry.elements() == 0) {
      continue;  // of a rank that owns nothing of this unit
    }
    pieces_[kind - std::begin(kStateNames)].emplace(
        offset,
        Piece{.size = entry.elements(), .shard = static_cast<int>(shards_.size()), .entry = entry});
  }
  shards_.push_back({.file = *std::move(file)});
  return absl::OkStatus();
}

absl::Status CheckpointReader::CheckComplete(const std::string& directory) const {
  for (const auto& pieces : pieces_) {
    int64_t expected = 0;
    for (const auto& [offset, piece] : pieces) {
      if (offset != expected) {
        break;
      }
      expected += piece.size;
    }
    if (expected != info_.parameters) {
      return absl::DataLossError(
          fmt::format("{}: {} of {} parameters' {} are there from the start on", directory,
                      expected, info_.parameters, kStateNames[&pieces - pieces_]));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::CheckSum(const SafetensorsFile& file) {
  std::map<uint64_t, const SafetensorsEntry*> in_order;
  for (const auto& [name, entry] : file.entries()) {
    if (entry.end > entry.begin) {
      in_order[entry.begin] = &entry;
    }
  }
  uint32_t checksum = 0;
  std::vector<float> block;
  for (const auto& [begin, entry] : in_order) {
    for (int64_t first = 0; first < entry->elements(); first += kBlock) {
      block.resize(std::min<int64_t>(kBlock, entry->elements() - first));
      if (absl::Status status = file.Read(*entry, first, block); !status.ok()) {
        return status;
      }
      checksum = Crc32c(std::as_bytes(std::span(block)), checksum);
    }
  }
  const auto expected = file.metadata().find(kChecksum);
  if (expected == file.metadata().end()) {
    return absl::DataLossError(fmt::format("{}: has no checksum", file.path()));
  }
  if (const std::string found = fmt::format("{:08x}", checksum); expected->second != found) {
    return absl::DataLossError(fmt::format("{}: damaged: its checksum is {}, it should be {}",
                                           file.path(), found, expected->second));
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::Read(StateKind kind, int64_t offset, std::span<float> values) {
  const auto& pieces = pieces_[static_cast<int>(kind)];
  while (!values.empty()) {
    auto piece = pieces.upper_bound(offset);
    if (piece != pieces.begin()) {
      --piece;
    }
    if (piece == pieces.end() || offset < piece->first ||
        offset >= piece->first + piece->second.size) {
      return absl::OutOfRangeError(fmt::format("element {} is not in the checkpoint, which has {}",
                                               offset, info_.parameters));
    }
    Shard& shard = shards_[piece->second.shard];
    if (!shard.checked) {
      if (absl::Status status = CheckSum(shard.file); !status.ok()) {
        return status;
      }
      shard.checked = true;
    }
    const int64_t first = offset - piece->first;
    const auto count = std::min(static_cast<int64_t>(values.size()), piece->second.size - first);
    if (absl::Status status = shard.file.Read(piece->second.entry, first, values.first(count));
        !status.ok()) {
      return status;
    }
    values = values.subspan(count);
    offset += count;
  }
  return absl::OkStatus();
}

}  // namespace muster::worker
