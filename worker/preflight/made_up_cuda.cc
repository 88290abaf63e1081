// CUDA's driver interface for tests, as libcuda.so.1: GPUs whose memory is the process's, and which
// are done with everything at once. MADE_UP_GPUS says how many (2 unless set); with
// MADE_UP_CUDA=ecc the second one's memory fails under its first all-reduce, while the others wait
// for it.
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>
#include <string_view>
#include <vector>

namespace {

constexpr int kSuccess = 0;
constexpr int kNoDevice = 100;
constexpr int kUncorrectable = 214;
constexpr size_t kFree = size_t{32} << 20;
constexpr size_t kTotal = size_t{64} << 20;

using Time = std::chrono::steady_clock::time_point;

// A context, a stream and an event are what they are the handles of; all live as long as the
// process.
std::array<int, 16> contexts = {};
int stream = 0;
thread_local int current = 0;
std::mutex mutex;
std::list<Time> events;                // guarded by mutex
std::list<std::vector<char>> buffers;  // guarded by mutex

int Count() {
  const char* count = std::getenv("MADE_UP_GPUS");
  return count == nullptr ? 2 : std::atoi(count);
}

}  // namespace

extern "C" {

// NOLINTBEGIN(readability-identifier-naming): the names are NVIDIA's.

int cuInit(unsigned int /*flags*/) { return Count() == 0 ? kNoDevice : kSuccess; }
int cuGetErrorString(int error, const char** text) {
  *text = error == kUncorrectable ? "uncorrectable ECC error encountered"
          : error == kNoDevice    ? "no CUDA-capable device is detected"
                                  : "made-up error";
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  *count = Count();
  return kSuccess;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return kSuccess;
}
int cuDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", 16 * (device + 1));
  return kSuccess;
}
int cuDevicePrimaryCtxRetain(int** context, int device) {
  contexts[device] = device;
  *context = &contexts[device];
  return kSuccess;
}
int cuCtxSetCurrent(const int* context) {
  current = *context;
  return kSuccess;
}
int cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = kFree;
  *total = kTotal;
  return kSuccess;
}
int cuMemAlloc_v2(char** address, size_t bytes) {
  const std::lock_guard lock(mutex);
  *address = buffers.emplace_back(bytes).data();
  return kSuccess;
}
int cuMemcpyHtoDAsync_v2(char* to, const void* from, size_t bytes, int* /*stream*/) {
  std::memcpy(to, from, bytes);
  return kSuccess;
}
int cuMemcpyDtoHAsync_v2(void* to, const char* from, size_t bytes, int* /*stream*/) {
  std::memcpy(to, from, bytes);
  return kSuccess;
}
int cuStreamCreate(int** made, unsigned int /*flags*/) {
  *made = &stream;
  return kSuccess;
}
int cuStreamSynchronize(int* /*stream*/) { return kSuccess; }
int cuEventCreate(Time** event, unsigned int /*flags*/) {
  const std::lock_guard lock(mutex);
  *event = &events.emplace_back();
  return kSuccess;
}
int cuEventRecord(Time* event, int* /*stream*/) {
  *event = std::chrono::steady_clock::now();
  return kSuccess;
}
int cuEventSynchronize(Time* /*event*/) {
  const char* how = std::getenv("MADE_UP_CUDA");
  if (how == nullptr || std::string_view(how) != "ecc") return kSuccess;
  if (current == 1) return kUncorrectable;
  while (true) pause();
}
int cuEventElapsedTime(float* milliseconds, const Time* begin, const Time* end) {
  *milliseconds = std::chrono::duration<float, std::milli>(*end - *begin).count();
  return kSuccess;
}

// NOLINTEND(readability-identifier-naming)

}  // extern "C"
