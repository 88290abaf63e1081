// A text for tests, in which each token follows from the one before.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/model/parameter_layout.h"
#include "worker/model/transformer.h"

namespace muster::worker {

struct MadeUpText {
  MadeUpText(int seed, int sequences, int length, int vocabulary) {
    for (int sequence = 0; sequence < sequences; ++sequence) {
      auto token =
          static_cast<int32_t>((double{HashedUniform(seed, sequence)} + 1) / 2 * vocabulary);
      for (int t = 0; t < length; ++t) {
        tokens.push_back(token);
        token = (token * 3 + 7) % vocabulary;
        targets.push_back(token);
      }
    }
  }
  Batch batch() const { return {.tokens = tokens, .targets = targets}; }

  std::vector<int32_t> tokens, targets;
};

}  // namespace muster::worker
