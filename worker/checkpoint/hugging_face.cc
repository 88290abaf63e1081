#include "worker/checkpoint/hugging_face.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/hugging_face_config.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostIndex = 64 << 20;
constexpr std::string_view kGpt2Prefix = "transformer.";
constexpr std::string_view kOneFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";

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
  if (!fs::is_directory(path, error)) {
    return std::vector<std::string>{path};
  }
  const std::string index = fmt::format("{}/{}", path, kIndexFile);
  if (!fs::exists(index, error)) {
    return std::vector<std::string>{fmt::format("{}/{}", path, kOneFile)};
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

namespace {

// The tensors of one file.
struct WeightFile {
  std::vector<SafetensorsTensor> tensors;
  int64_t bytes = 0;
};

absl::StatusOr<std::vector<float>> ReadInFileOrder(const Parameter& parameter,
                                                   const ParameterSource& source) {
  std::vector<float> values(parameter.file_rows * parameter.columns);
  if (absl::Status status = source(parameter.offset, values); !status.ok()) {
    return status;
  }
  if (parameter.transposed_in_file) {
    const std::vector<float> in_memory = values;
    Transpose(parameter.file_rows, parameter.columns, in_memory, values);
  }
  return values;
}

// `values` holds the tensor that is being written.
std::vector<WeightFile> DivideAmongFiles(const ParameterLayout& layout,
                                         const ParameterSource& source,
                                         const ExportOptions& options, std::vector<float>& values) {
  std::vector<WeightFile> files(1);
  for (const Parameter& parameter : layout.parameters()) {
    const int64_t bytes =
        parameter.file_rows * parameter.columns * SafetensorsTypeBytes(options.type);
    if (files.back().bytes > 0 && files.back().bytes + bytes > options.most_shard_bytes) {
      files.emplace_back();
    }
    files.back().bytes += bytes;
    files.back().tensors.push_back(
        {.name = parameter.name,
         .shape = ShapeInFile(parameter),
         .produce = [&parameter, &source, &values]() -> absl::StatusOr<std::span<const float>> {
           absl::StatusOr<std::vector<float>> read = ReadInFileOrder(parameter, source);
           if (!read.ok()) return read.status();
           values = *std::move(read);
           return std::span<const float>(values);
         },
         .type = options.type});
  }
  return files;
}

absl::Status WriteWeights(const ParameterLayout& layout, const ParameterSource& source,
                          const std::string& directory, const ExportOptions& options) {
  std::vector<float> values;
  const std::vector<WeightFile> files = DivideAmongFiles(layout, source, options, values);
  nlohmann::json index = {{"weight_map", nlohmann::json::object()}};
  int64_t total = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name =
        files.size() == 1 ? std::string(kOneFile)
                          : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    const absl::Status status =
        WriteSafetensors(directory + "/" + name, {{"format", "pt"}}, files[i].tensors);
    if (!status.ok()) {
      return status;
    }
    total += files[i].bytes;
    for (const SafetensorsTensor& tensor : files[i].tensors) {
      index["weight_map"][tensor.name] = name;
    }
  }
  if (files.size() == 1) {
    return absl::OkStatus();
  }
  index["metadata"] = {{"total_size", total}};
  return WriteFileWhole(fmt::format("{}/{}", directory, kIndexFile), index.dump(2) + "\n");
}

}  // namespace

absl::Status WriteHuggingFace(const ModelConfig& model, const ParameterSource& source,
                              const std::string& directory, const ExportOptions& options) {
  std::error_code error;
  if (fs::exists(directory, error) && !fs::is_empty(directory, error)) {
    return absl::FailedPreconditionError(fmt::format(
        "{}: is there already, and not an empty directory; name another one", directory));
  }
  // What a crash left goes first.
  const std::string partial = directory + ".partial";
  fs::remove_all(partial, error);
  absl::Status status = MakeDirectory(partial);
  if (status.ok()) {
    status = WriteWeights(ParameterLayout(model), source, partial, options);
  }
  if (status.ok()) {
    const bool single = options.type == SafetensorsType::kF32;
    status = WriteFileWhole(partial + "/config.json",
                            HuggingFaceConfigText(model, single ? "float32" : "bfloat16"));
  }
  if (status.ok()) {
    status = FlushDirectory(partial);
  }
  if (!status.ok()) {
    fs::remove_all(partial, error);
    return status;
  }
  fs::remove(directory, error);  // the empty one
  return Rename(partial, directory);
}

}  // namespace muster::worker
