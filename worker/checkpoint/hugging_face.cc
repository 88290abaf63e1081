#include "worker/checkpoint/hugging_face.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "nlohmann/json.hpp"

namespace muster::worker {
namespace {

constexpr uint64_t kMostIndex = 64 << 20;
constexpr std::string_view kGpt2Prefix = "transformer.";

std::vector<int64_t> ShapeInFile(const Parameter& parameter) {
  if (!parameter.decays) {
    return {parameter.rows};
  }
  if (parameter.transposed_in_file) {
    return {parameter.columns, parameter.file_rows};
  }
  return {parameter.file_rows, parameter.columns};
}

// to[columns][rows] = from[rows][columns] transposed.
void Transpose(int64_t rows, int64_t columns, std::span<const float> from, std::span<float> to) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      to[c * rows + r] = from[r * columns + c];
    }
  }
}

absl::StatusOr<std::vector<std::string>> FilesOf(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    return std::vector<std::string>{path};
  }
  const std::string index = path + "/model.safetensors.index.json";
  if (!std::filesystem::exists(index, error)) {
    return std::vector<std::string>{path + "/model.safetensors"};
  }
  const absl::StatusOr<std::string> text = ReadFile(index, kMostIndex);
  if (!text.ok()) {
    return text.status();
  }
  const nlohmann::json json = nlohmann::json::parse(*text, /*cb=*/nullptr,
                                                    /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return absl::DataLossError(fmt::format("{}: has no weight_map", index));
  }
  std::set<std::string> names;
  for (const nlohmann::json& name : json["weight_map"]) {
    // Names of neighbours only: an index must not lead elsewhere.
    if (!name.is_string() || name.get<std::string>().find('/') != std::string::npos) {
      return absl::DataLossError(
          fmt::format("{}: weight_map names something that is no file beside it", index));
    }
    names.insert(path + "/" + name.get<std::string>());
  }
  return std::vector<std::string>(names.begin(), names.end());
}

}  // namespace

absl::StatusOr<HuggingFaceWeights> HuggingFaceWeights::Open(const ParameterLayout& layout,
                                                            const std::string& path) {
  const absl::StatusOr<std::vector<std::string>> paths = FilesOf(path);
  if (!paths.ok()) {
    return paths.status();
  }
  std::vector<std::shared_ptr<const SafetensorsFile>> files;
  for (const std::string& name : *paths) {
    absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(name);
    if (!file.ok()) {
      return file.status();
    }
    files.push_back(std::make_shared<const SafetensorsFile>(*std::move(file)));
  }
  HuggingFaceWeights weights(layout);
  for (const Parameter& parameter : layout.parameters()) {
    if (absl::Status status = weights.Find(files, parameter); !status.ok()) {
      return absl::Status(status.code(),
                          fmt::format("{}: {}", path, std::string(status.message())));
    }
  }
  return weights;
}

absl::Status HuggingFaceWeights::Find(
    const std::vector<std::shared_ptr<const SafetensorsFile>>& files, const Parameter& parameter) {
  std::string_view name = parameter.name;
  const std::string_view full = name;
  if (name.starts_with(kGpt2Prefix)) {
    name.remove_prefix(kGpt2Prefix.size());
  }
  for (const auto& file : files) {
    const SafetensorsEntry* entry = file->Find(full);
    if (entry == nullptr) {
      entry = file->Find(name);
    }
    if (entry == nullptr) {
      continue;
    }
    if (entry->shape != ShapeInFile(parameter)) {
      return absl::InvalidArgumentError(fmt::format(
          "tensor \"{}\" is [{}], the model's is [{}]; these are the weights of "
          "another model",
          full, fmt::join(entry->shape, ", "), fmt::join(ShapeInFile(parameter), ", ")));
    }
    sources_.push_back({.file = file, .entry = *entry});
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      fmt::format("tensor \"{}\" is missing; these are the weights of another model", full));
}

absl::Status HuggingFaceWeights::Read(int64_t offset, std::span<float> values) const {
  const int64_t end = offset + static_cast<int64_t>(values.size());
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Parameter& parameter = layout_.parameters()[i];
    const int64_t begin = std::max(offset, parameter.offset);
    const int64_t stop = std::min(end, parameter.offset + parameter.size());
    if (begin >= stop) {
      continue;
    }
    std::vector<float> whole(parameter.size());
    const std::span<float> used = std::span(whole).first(parameter.file_rows * parameter.columns);
    if (absl::Status status = sources_[i].file->Read(sources_[i].entry, 0, used); !status.ok()) {
      return status;
    }
    if (parameter.transposed_in_file) {
      const std::vector<float> in_file(used.begin(), used.end());
      Transpose(parameter.columns, parameter.file_rows, in_file, used);
    }
    std::copy(whole.begin() + (begin - parameter.offset), whole.begin() + (stop - parameter.offset),
              values.begin() + (begin - offset));
  }
  return absl::OkStatus();
}

absl::Status WriteHuggingFace(const ParameterLayout& layout, std::span<const float> parameters,
                              const std::string& path) {
  std::vector<float> transposed;
  std::vector<SafetensorsTensor> tensors;
  for (const Parameter& parameter : layout.parameters()) {
    const auto values =
        parameters.subspan(parameter.offset, parameter.file_rows * parameter.columns);
    const auto produce = [&transposed, &parameter,
                          values]() -> absl::StatusOr<std::span<const float>> {
      if (!parameter.transposed_in_file) {
        return values;
      }
      transposed.resize(values.size());
      Transpose(parameter.file_rows, parameter.columns, values, transposed);
      return std::span<const float>(transposed);
    };
    tensors.push_back(
        {.name = parameter.name, .shape = ShapeInFile(parameter), .produce = produce});
  }
  return WriteSafetensors(path, {{"format", "pt"}}, tensors);
}

}  // namespace muster::worker
