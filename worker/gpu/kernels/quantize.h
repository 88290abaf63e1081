// Matrices in FP8, as the tensor cores multiply them: a byte a value, and one scale for the whole
// matrix, by which its largest value becomes the format's largest.
//
//   FindLargest(context, rows * columns, x, scale);                      // a pass over x,
//   Quantize(context, rows, columns, x, format, scale, y, transposed);   // and a second one
//
// A scale is cleared before (zero bytes). The pass for the largest is not needed where the kernel
// that made x has noted it. A value that is no number stays none, and makes the others none if it
// was seen before the scale was made.
#pragma once

#include "worker/gpu/kernels/launch.h"

namespace muster::worker {

using Fp8 = uint8_t;  // in either format

// Exponent and mantissa: E4M3 up to 448, in steps of an eighth; E5M2 up to 57,344, of a quarter.
enum class Fp8Format { kE4M3, kE5M2 };

// On the device, aligned as cuBLASLt wants what it reads.
struct alignas(16) Fp8Scale {
  float unit;     // what a stored 1 stands for
  float largest;  // absolute value
};

// scale.largest = the largest of itself and |x[size]|; `size` is a multiple of 8.
void FindLargest(const LaunchContext& context, int64_t size, const Bf16* x, Fp8Scale* scale);

// y[R][C] and transposed[C][R], of which either may be null, become x[R][C] / scale.unit, which
// follows from scale.largest. R and C are multiples of 16.
void Quantize(const LaunchContext& context, int64_t rows, int64_t columns, const Bf16* x,
              Fp8Format format, Fp8Scale* scale, Fp8* y, Fp8* transposed);

}  // namespace muster::worker
