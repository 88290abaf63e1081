// Arrays on the device for tests: numbers that bf16 can hold, so that the reference computes with
// the same inputs, and a measure of how far two results are apart.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "worker/gpu/kernels/launch.h"
#include "worker/model/parameter_layout.h"

namespace muster::worker {

// Uniform with that deviation, rounded to bf16.
inline std::vector<float> RandomValues(uint64_t seed, int64_t size, float deviation = 1) {
  std::vector<float> values(size);
  for (int64_t i = 0; i < size; ++i) {
    values[i] =
        __bfloat162float(__float2bfloat16(deviation * std::sqrt(3.0F) * HashedUniform(seed, i)));
  }
  return values;
}

// |a - b| / |b|; not a number if any of them isn't one.
inline double RelativeError(std::span<const float> a, std::span<const float> b) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

// Of one rounding of each value to bf16, with some room.
constexpr double kBf16Error = 4e-3;

inline void Check(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

// `T` is Bf16, float, double or int32_t; the host sees floats for Bf16. Begins as not-a-number
// (integers: -1), so that what isn't written shows.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(int64_t size) : size_(size) {
    Check(cudaMalloc(&data_, size * sizeof(T)));
    Check(cudaMemset(data_, 0xFF, size * sizeof(T)));
  }
  template <typename Value>
  explicit DeviceArray(const std::vector<Value>& values)
      : DeviceArray(static_cast<int64_t>(values.size())) {
    std::vector<T> converted(values.begin(), values.end());
    Check(cudaMemcpy(data_, converted.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return data_; }
  std::vector<float> Read() const {
    std::vector<T> values(size_);
    Check(cudaDeviceSynchronize());
    Check(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    std::vector<float> floats(size_);
    for (int64_t i = 0; i < size_; ++i) {
      floats[i] = static_cast<float>(values[i]);
    }
    return floats;
  }

 private:
  T* data_ = nullptr;
  int64_t size_;
};

// A context on the default stream.
class TestContext {
 public:
  explicit TestContext(int64_t width) : partials_(PartialFloats(kMultiprocessors, width)) {}
  operator LaunchContext() const {  // NOLINT(google-explicit-constructor)
    return {.multiprocessors = kMultiprocessors, .partials = partials_.data()};
  }

 private:
  static constexpr int kMultiprocessors = 7;  // so that every block has several rows
  DeviceArray<float> partials_;
};

}  // namespace muster::worker
