// The parameters of a block by role, the same for both families.
#pragma once

#include "worker/model/parameter_layout.h"

namespace muster::worker {

// Pointers into a unit's parameters (Float const) or their gradients. Biases are null in Llama;
// `qkv` is its q, k and v, `up` its gate and up, each one matrix because they are neighbours.
template <typename Float>
struct BlockView {
  Float* norm1;
  Float* norm1_bias = nullptr;
  Float* qkv;
  Float* qkv_bias = nullptr;
  Float* projection;
  Float* projection_bias = nullptr;
  Float* norm2;
  Float* norm2_bias = nullptr;
  Float* up;
  Float* up_bias = nullptr;
  Float* down;
  Float* down_bias = nullptr;
};

// `data` is where the unit of block `layer` begins.
template <typename Float>
BlockView<Float> ViewBlock(const ParameterLayout& layout, Family family, int layer, Float* data) {
  const auto parameters = layout.UnitParameters(1 + layer);
  const auto at = [&](int i) { return data + (parameters[i].offset - parameters[0].offset); };
  if (family == Family::kLlama) {
    return {.norm1 = at(0),
            .qkv = at(1),
            .projection = at(4),
            .norm2 = at(5),
            .up = at(6),
            .down = at(8)};
  }
  return {.norm1 = at(0),
          .norm1_bias = at(1),
          .qkv = at(2),
          .qkv_bias = at(3),
          .projection = at(4),
          .projection_bias = at(5),
          .norm2 = at(6),
          .norm2_bias = at(7),
          .up = at(8),
          .up_bias = at(9),
          .down = at(10),
          .down_bias = at(11)};
}

}  // namespace muster::worker
