// Where each parameter of a model lies: one flat buffer, cut into units.
//
// A unit is what is needed at one time and therefore gathered, freed and reduced as a whole by
// ZeRO-3: unit 0 holds the embeddings, unit 1 + i block i, the last one the final norm and, where
// it is not tied, the head. Within the buffer units, and within units parameters, follow one
// another without gaps, so that any range of it belongs to known parameters: shards are ranges.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/model/model_config.h"

namespace muster::worker {

struct Parameter {
  enum class Initial { kZero, kOne, kRandom };

  std::string name;  // Hugging Face's
  // A matrix is row-major, [outputs][inputs]; a vector has one column.
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t file_rows = 0;            // without those that only pad the vocabulary
  int64_t offset = 0;               // in the flat buffer
  bool decays = false;              // weight decay applies: matrices and embeddings
  bool transposed_in_file = false;  // GPT-2's Conv1D weights are [inputs][outputs] there
  Initial initial = Initial::kRandom;
  float deviation = 0;  // of random initial values

  int64_t size() const { return rows * columns; }
};

class ParameterLayout {
 public:
  struct Unit {
    int64_t offset = 0;
    int64_t size = 0;
    int first_parameter = 0;
    int parameters = 0;
  };

  // The config must be valid.
  explicit ParameterLayout(const ModelConfig& config);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Unit>& units() const { return units_; }
  std::span<const Parameter> UnitParameters(int unit) const;
  int64_t size() const { return size_; }  // floats

  // Writes the initial values of the `values.size()` floats from `offset` of the flat buffer on.
  // Each value depends on the seed and its place alone, so that a rank can make its shard by
  // itself. Random values are uniform with the deviation GPT-2 uses: 0.02, and less by
  // sqrt(2 * layers) where a product is added to the residual stream.
  void Initialize(uint64_t seed, int64_t offset, std::span<float> values) const;

 private:
  void BeginUnit();
  void Add(Parameter parameter);
  void AddMatrix(std::string name, int64_t rows, int64_t columns, float deviation,
                 bool transposed_in_file = false);
  void AddEmbedding(std::string name, int64_t rows, int64_t file_rows, int64_t columns);
  void AddVector(std::string name, int64_t size, Parameter::Initial initial);
  void AddGpt2(const ModelConfig& config);
  void AddLlama(const ModelConfig& config);

  std::vector<Parameter> parameters_;
  std::vector<Unit> units_;
  int64_t size_ = 0;
};

// A float in [-1, 1) from 24 bits of SplitMix64's mix of seed and index.
float HashedUniform(uint64_t seed, uint64_t index);

}  // namespace muster::worker
