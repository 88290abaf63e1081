// Which part of each unit of the flat buffer (worker/model/parameter_layout.h) each rank owns.
//
// A unit is cut into as many equal chunks as there are ranks, the last ones perhaps shorter or
// empty; rank r owns chunk r of every unit. A buffer holds either all units, each padded to equal
// chunks, or one rank's chunk of each.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/model/parameter_layout.h"

namespace muster::worker {

class ShardLayout {
 public:
  // One unit's place in a buffer: `size` floats of which `used` are parameters, from `offset` of
  // the flat buffer on.
  struct Part {
    int64_t offset = 0;
    int64_t used = 0;
    int64_t size = 0;
    int64_t begin = 0;  // in the buffer
  };
  struct Unit {
    Part whole;       // in a buffer of all units
    Part chunk;       // of this rank, in a buffer of its chunks
    int64_t own = 0;  // where this rank's chunk begins in a buffer of all units
  };

  // Chunks are multiples of `multiple` floats.
  ShardLayout(const ParameterLayout& layout, int world_size, int rank, int64_t multiple = 1);

  const std::vector<Unit>& units() const { return units_; }
  int64_t whole_size() const { return whole_size_; }  // floats of a buffer of all units
  int64_t chunk_size() const { return chunk_size_; }  // floats of a buffer of this rank's chunks

 private:
  std::vector<Unit> units_;
  int64_t whole_size_ = 0;
  int64_t chunk_size_ = 0;
};

}  // namespace muster::worker
