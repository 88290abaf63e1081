// A model's weights in Hugging Face's form: the names, shapes and orientations that
// GPT2LMHeadModel and LlamaForCausalLM load and save.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/model/parameter_layout.h"

namespace muster::worker {

// Weights to start from. Threads: const methods by several.
class HuggingFaceWeights {
 public:
  // `path` is a .safetensors file, or a directory with model.safetensors, or with
  // model.safetensors.index.json and the files that it names. Every parameter of the layout must be
  // there in its shape (GPT-2's names with or without "transformer."), vocabulary without padding;
  // further tensors, such as GPT-2's attention masks or its tied head, are not read.
  // InvalidArgument names the first tensor that is missing or of another shape. The layout must
  // outlive this.
  static absl::StatusOr<HuggingFaceWeights> Open(const ParameterLayout& layout,
                                                 const std::string& path);

  // The `values.size()` floats of the flat buffer from `offset` on; padding is zero. Reads each
  // tensor that the range touches.
  absl::Status Read(int64_t offset, std::span<float> values) const;

 private:
  struct Source {
    std::shared_ptr<const SafetensorsFile> file;
    SafetensorsEntry entry;
  };

  explicit HuggingFaceWeights(const ParameterLayout& layout) : layout_(layout) {}
  absl::Status Find(const std::vector<std::shared_ptr<const SafetensorsFile>>& files,
                    const Parameter& parameter);

  const ParameterLayout& layout_;
  std::vector<Source> sources_;  // by parameter
};

// Fills in the floats of the flat buffer from `offset` on.
using ParameterSource = std::function<absl::Status(int64_t offset, std::span<float> values)>;

struct ExportOptions {
  SafetensorsType type = SafetensorsType::kF32;
  int64_t most_shard_bytes = 5'000'000'000;  // of tensors; one that is larger has a file of its own
};

// Makes the directory with what from_pretrained() loads: config.json, the weights in one file or in
// several with their index. It has its name only when all of it is on disk. One tensor is in memory
// at a time. FailedPrecondition if there is something under that name other than an empty
// directory.
absl::Status WriteHuggingFace(const ModelConfig& model, const ParameterSource& source,
                              const std::string& directory, const ExportOptions& options = {});

}  // namespace muster::worker
