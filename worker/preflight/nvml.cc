#include "worker/preflight/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/cleanup/cleanup.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

// NVML's binary interface, as far as it is used (nvml.h of CUDA 12 and 13).
using Device = struct DeviceHandle*;
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct Utilization {
  unsigned int gpu;
  unsigned int memory;
};
struct ProcessInfo {
  unsigned int pid;
  unsigned long long used_gpu_memory;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};
constexpr char kLibrary[] = "libnvidia-ml.so.1";
constexpr int kSuccess = 0;
constexpr int kUncorrected = 1;  // NVML_MEMORY_ERROR_TYPE_UNCORRECTED
constexpr int kVolatile = 0;     // NVML_VOLATILE_ECC: since the driver was loaded
constexpr unsigned long long kNotAvailable = ~0ULL;

class Library {
 public:
  explicit Library(void* handle) : handle_(handle) {}

  // Calls a function of the library by name; an error number if it has none of this name.
  template <typename... Arguments>
  int Call(const char* name, Arguments... arguments) const {
    constexpr int kFunctionNotFound = 13;  // NVML_ERROR_FUNCTION_NOT_FOUND
    void* symbol = dlsym(handle_, name);
    if (symbol == nullptr) return kFunctionNotFound;
    return reinterpret_cast<int (*)(Arguments...)>(symbol)(arguments...);
  }

 private:
  void* handle_;
};

std::string TextOf(const Library& nvml, const char* function, Device device) {
  std::array<char, 256> text = {};
  const int error =
      nvml.Call(function, device, text.data(), static_cast<unsigned int>(text.size() - 1));
  return error == kSuccess ? std::string(text.data()) : "";
}

std::vector<GpuProcess> ProcessesOf(const Library& nvml, Device device) {
  std::array<ProcessInfo, 64> processes = {};
  auto count = static_cast<unsigned int>(processes.size());
  if (nvml.Call("nvmlDeviceGetComputeRunningProcesses_v3", device, &count, processes.data()) !=
      kSuccess) {
    return {};
  }
  std::vector<GpuProcess> result;
  for (unsigned int i = 0; i < std::min<size_t>(count, processes.size()); ++i) {
    const unsigned long long bytes = processes[i].used_gpu_memory;
    result.push_back({.pid = processes[i].pid,
                      .bytes = bytes == kNotAvailable ? 0 : static_cast<int64_t>(bytes)});
  }
  return result;
}

Gpu ReadGpu(const Library& nvml, int index, Device device) {
  Gpu gpu{.index = index,
          .uuid = TextOf(nvml, "nvmlDeviceGetUUID", device),
          .name = TextOf(nvml, "nvmlDeviceGetName", device),
          .processes = ProcessesOf(nvml, device)};
  Memory memory = {};
  if (nvml.Call("nvmlDeviceGetMemoryInfo", device, &memory) == kSuccess) {
    gpu.total_bytes = static_cast<int64_t>(memory.total);
    gpu.free_bytes = static_cast<int64_t>(memory.free);
  }
  unsigned long long errors = 0;
  if (nvml.Call("nvmlDeviceGetTotalEccErrors", device, kUncorrected, kVolatile, &errors) ==
      kSuccess) {
    gpu.uncorrected_ecc_errors = static_cast<int64_t>(errors);
  }
  unsigned int corrected_rows = 0;
  unsigned int uncorrected_rows = 0;
  unsigned int pending = 0;
  unsigned int failed = 0;
  if (nvml.Call("nvmlDeviceGetRemappedRows", device, &corrected_rows, &uncorrected_rows, &pending,
                &failed) == kSuccess) {
    gpu.row_remapping_failed = failed != 0;
    gpu.row_remapping_pending = pending != 0;
  }
  return gpu;
}

absl::Status Failed(const char* function, int error) {
  return absl::UnavailableError(Concat(function, " failed with NVML error ", error));
}

}  // namespace

std::vector<int> ReadGpuUse() {
  void* handle = dlopen(kLibrary, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return {};
  const absl::Cleanup unload = [handle] { dlclose(handle); };
  const Library nvml(handle);
  if (nvml.Call("nvmlInit_v2") != kSuccess) return {};
  const absl::Cleanup shutdown = [&nvml] { nvml.Call("nvmlShutdown"); };
  unsigned int count = 0;
  if (nvml.Call("nvmlDeviceGetCount_v2", &count) != kSuccess) return {};
  std::vector<int> use;
  for (unsigned int i = 0; i < count; ++i) {
    Device device = nullptr;
    Utilization utilization = {};
    if (nvml.Call("nvmlDeviceGetHandleByIndex_v2", i, &device) != kSuccess ||
        nvml.Call("nvmlDeviceGetUtilizationRates", device, &utilization) != kSuccess) {
      return {};
    }
    use.push_back(static_cast<int>(utilization.gpu));
  }
  return use;
}

absl::StatusOr<GpuInventory> ReadGpuInventory() {
  void* handle = dlopen(kLibrary, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return absl::NotFoundError(Concat("no GPU driver here: ", dlerror()));
  const absl::Cleanup unload = [handle] { dlclose(handle); };
  const Library nvml(handle);
  if (const int error = nvml.Call("nvmlInit_v2"); error != kSuccess) {
    return Failed("nvmlInit_v2", error);
  }
  const absl::Cleanup shutdown = [&nvml] { nvml.Call("nvmlShutdown"); };
  GpuInventory inventory;
  std::array<char, 96> version = {};
  if (nvml.Call("nvmlSystemGetDriverVersion", version.data(),
                static_cast<unsigned int>(version.size() - 1)) == kSuccess) {
    inventory.driver_version = version.data();
  }
  nvml.Call("nvmlSystemGetCudaDriverVersion_v2", &inventory.cuda_version);
  unsigned int count = 0;
  if (const int error = nvml.Call("nvmlDeviceGetCount_v2", &count); error != kSuccess) {
    return Failed("nvmlDeviceGetCount_v2", error);
  }
  for (unsigned int i = 0; i < count; ++i) {
    Device device = nullptr;
    // One that has fallen off the bus has no handle any more.
    if (const int error = nvml.Call("nvmlDeviceGetHandleByIndex_v2", i, &device);
        error != kSuccess) {
      return Failed("nvmlDeviceGetHandleByIndex_v2", error);
    }
    inventory.gpus.push_back(ReadGpu(nvml, static_cast<int>(i), device));
  }
  return inventory;
}

}  // namespace muster::worker
