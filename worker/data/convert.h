// Text, or ids that another tokenizer made, into token files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::worker {

// The byte-level tokenizer: a token for each byte, and one for the end of a document.
inline constexpr int64_t kEndOfText = 256;
inline constexpr int64_t kByteVocabulary = 257;

// Each input is a document. Returns how many tokens were written to `output`.
absl::StatusOr<int64_t> ConvertText(const std::vector<std::string>& inputs,
                                    const std::string& output);

// How ids lie in a file without a header of ours, little-endian.
enum class TokenEncoding {
  kUint16,
  kUint32,
  kLlmC,  // llm.c's .bin: 256 int32 (magic 20240520 or 20240801, version, count), then the ids
};

// The ids of all inputs, one after another. InvalidArgument for an id outside of `vocabulary`,
// DataLoss for a file that is not as the encoding says.
absl::StatusOr<int64_t> ConvertTokens(const std::vector<std::string>& inputs,
                                      TokenEncoding encoding, int64_t vocabulary,
                                      const std::string& output);

}  // namespace muster::worker
