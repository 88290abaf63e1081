// A machine for tests, made up by filling in its fields.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "worker/diagnose/text.h"
#include "worker/preflight/machine.h"

namespace muster::worker {

inline constexpr int64_t kGiB = int64_t{1} << 30;

// A healthy p4d.24xlarge as a pod with all of its GPUs and EFA devices sees it, until a test
// changes it.
struct MadeUpMachine : public Machine {
  MadeUpMachine() {
    inventory = GpuInventory{.driver_version = "580.95.05", .cuda_version = 13000};
    for (int i = 0; i < 8; ++i) {
      inventory->gpus.push_back({.index = i,
                                 .uuid = Concat("GPU-", i),
                                 .name = "NVIDIA A100-SXM4-40GB",
                                 .total_bytes = 40 * kGiB,
                                 .free_bytes = 40 * kGiB,
                                 .uncorrected_ecc_errors = 0});
    }
    files["/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"] = "5120\n";
    for (int i = 0; i < 4; ++i) {
      const std::string name = Concat("rdmap", i, "s27");
      folders["/sys/class/infiniband"].push_back(name);
      files[Concat("/sys/class/infiniband/", name, "/device/vendor")] = "0x1d0f\n";
      folders["/dev/infiniband"].push_back(Concat("uverbs", i));
    }
    libraries = {"libnccl-net.so"};
    shared_memory = FilesystemSize{.total_bytes = 8 * kGiB, .free_bytes = 8 * kGiB};
  }

  absl::StatusOr<GpuInventory> Gpus() override { return inventory; }
  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    const auto file = files.find(path);
    if (file == files.end()) return absl::NotFoundError(path);
    return file->second;
  }
  absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) override {
    const auto folder = folders.find(path);
    if (folder == folders.end()) return absl::NotFoundError(path);
    return folder->second;
  }
  absl::StatusOr<FilesystemSize> Filesystem(const std::string& path) override {
    if (path != "/dev/shm") return absl::NotFoundError(path);
    return shared_memory;
  }
  std::optional<int64_t> LockedMemoryLimit() override { return locked_memory; }
  std::optional<std::string> Environment(const std::string& name) override {
    const auto variable = environment.find(name);
    if (variable == environment.end()) return std::nullopt;
    return variable->second;
  }
  absl::Status LoadLibrary(const std::string& name) override {
    if (libraries.contains(name)) return absl::OkStatus();
    return absl::NotFoundError(Concat(name, ": cannot open shared object file"));
  }

  absl::StatusOr<Fabric> AskFabric() override { return fabric; }

  absl::StatusOr<Fabric> fabric = Fabric{.libfabric = "2.1",
                                         .gpu_devices = 4,
                                         .plugin = "libnccl-net.so",
                                         .protocol = "SENDRECV",
                                         .provider = "efa",
                                         .devices = 4,
                                         .gpu_memory = true};
  absl::StatusOr<GpuInventory> inventory = absl::NotFoundError("no GPU driver here");
  std::map<std::string, std::string> files;
  std::map<std::string, std::vector<std::string>> folders;
  absl::StatusOr<FilesystemSize> shared_memory = FilesystemSize();
  std::optional<int64_t> locked_memory;  // no limit
  std::map<std::string, std::string> environment;
  std::set<std::string> libraries;
};

}  // namespace muster::worker
