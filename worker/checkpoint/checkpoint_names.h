// Names within a directory of checkpoints.
#pragma once

#include <string>
#include <string_view>

#include "fmt/format.h"

namespace muster::worker {

inline constexpr std::string_view kPartialSuffix = ".partial";
inline constexpr std::string_view kStepPrefix = "step-";
inline constexpr std::string_view kChecksum = "crc32c";
inline constexpr std::string_view kStateNames[] = {"parameters", "first_moment", "second_moment"};

inline std::string ManifestPath(const std::string& checkpoint) {
  return checkpoint + "/manifest.json";
}

inline std::string ShardPath(const std::string& checkpoint, int rank, int world_size) {
  return fmt::format("{}/shard-{:05}-of-{:05}.safetensors", checkpoint, rank, world_size);
}

}  // namespace muster::worker
