// What preflight may ask of the machine that it runs on. Checks know only this, so tests make one
// up.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/preflight/fabric.h"

namespace muster::worker {

struct GpuProcess {
  int64_t pid = 0;  // as the host numbers it; a container sees its own numbers only
  int64_t bytes = 0;
};

struct Gpu {
  int index = 0;
  std::string uuid = {};  // "GPU-..."
  std::string name = {};
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
  std::vector<GpuProcess> processes = {};
  // Since the driver was loaded; no value where the GPU doesn't count them.
  std::optional<int64_t> uncorrected_ecc_errors = {};
  bool row_remapping_failed = false;
  bool row_remapping_pending = false;  // until the GPU is reset
};

struct GpuInventory {
  std::string driver_version = {};  // "580.95.05"
  int cuda_version = 0;             // the newest that the driver runs: 13000 is CUDA 13.0
  std::vector<Gpu> gpus = {};
};

struct FilesystemSize {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
};

// Called by one thread. Errors are what the system said.
class Machine {
 public:
  virtual ~Machine() = default;

  // By NVML; NotFound where there is no driver.
  virtual absl::StatusOr<GpuInventory> Gpus() = 0;
  // Small files of /proc and /sys.
  virtual absl::StatusOr<std::string> ReadFile(const std::string& path) = 0;
  // Names in a folder, sorted; NotFound if there is no such folder.
  virtual absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) = 0;
  virtual absl::StatusOr<FilesystemSize> Filesystem(const std::string& path) = 0;
  // RLIMIT_MEMLOCK in bytes; no value if there is no limit.
  virtual std::optional<int64_t> LockedMemoryLimit() = 0;
  virtual std::optional<std::string> Environment(const std::string& name) = 0;
  // Whether the dynamic linker finds a library by this name; the error is the linker's.
  virtual absl::Status LoadLibrary(const std::string& name) = 0;
  // What libfabric and NCCL's plugin choose, as AskFabricApart.
  virtual absl::StatusOr<Fabric> AskFabric() = 0;
};

// The machine that this process runs on. libnvidia-ml.so.1 is loaded when it is first asked for.
std::unique_ptr<Machine> ThisMachine();

}  // namespace muster::worker
