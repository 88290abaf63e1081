// A model's weights in Hugging Face's form: the names, shapes and orientations that
// GPT2LMHeadModel and LlamaForCausalLM load and save.
#pragma once

#include <cstdint>
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

// Writes all parameters, given in the layout's order, as one safetensors file in F32.
absl::Status WriteHuggingFace(const ParameterLayout& layout, std::span<const float> parameters,
                              const std::string& path);

}  // namespace muster::worker
