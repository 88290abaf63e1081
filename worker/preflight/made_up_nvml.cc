// NVML of a machine with two GPUs, for tests: as libnvidia-ml.so.1 beside no libcuda.so.1. They are
// healthy, unless MADE_UP_REMAPPING says of the second one's rows that remapping is "pending" or
// has "failed". It has the functions that nvml.cc asks for; those that aren't here are as in an
// older driver.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

constexpr unsigned int kGpus = 2;
constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 2;
constexpr unsigned long long kMemory = 80ULL << 30;

struct Memory {
  unsigned long long total, free, used;
};

int gpus[kGpus] = {0, 1};

int Write(char* text, unsigned int size, const char* format, int number) {
  std::snprintf(text, size, format, number);
  return kSuccess;
}

}  // namespace

extern "C" {

// NOLINTBEGIN(readability-identifier-naming): the names are NVIDIA's.

int nvmlInit_v2() { return kSuccess; }
int nvmlShutdown() { return kSuccess; }
int nvmlSystemGetDriverVersion(char* text, unsigned int size) {
  return Write(text, size, "580.95.%02d", 5);
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = kGpus;
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, int** device) {
  if (index >= kGpus) return kInvalidArgument;
  *device = &gpus[index];
  return kSuccess;
}
int nvmlDeviceGetUUID(const int* device, char* text, unsigned int size) {
  return Write(text, size, "GPU-00000000-0000-0000-0000-%012d", *device);
}
int nvmlDeviceGetName(const int* /*device*/, char* text, unsigned int size) {
  return Write(text, size, "NVIDIA H100 %dGB HBM3", 80);
}
int nvmlDeviceGetMemoryInfo(const int* /*device*/, Memory* memory) {
  *memory = {.total = kMemory, .free = kMemory, .used = 0};
  return kSuccess;
}
int nvmlDeviceGetRemappedRows(const int* device, unsigned int* corrected, unsigned int* uncorrected,
                              unsigned int* pending, unsigned int* failed) {
  const char* said = std::getenv("MADE_UP_REMAPPING");
  const std::string_view how = said == nullptr || *device == 0 ? "" : said;
  *corrected = 0;
  *uncorrected = how.empty() ? 0 : 1;
  *pending = how == "pending" ? 1 : 0;
  *failed = how == "failed" ? 1 : 0;
  return kSuccess;
}

// NOLINTEND(readability-identifier-naming)

}  // extern "C"
