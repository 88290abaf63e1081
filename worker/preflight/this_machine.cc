#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>

#include "worker/diagnose/text.h"
#include "worker/preflight/machine.h"
#include "worker/preflight/nvml.h"

namespace muster::worker {
namespace {

class LocalMachine : public Machine {
 public:
  absl::StatusOr<GpuInventory> Gpus() override { return ReadGpuInventory(); }

  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    std::ifstream file(path);
    std::string text(size_t{64} * 1024, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
    if (text.empty() && !file.eof()) return absl::NotFoundError(Concat("can't read ", path));
    return text;
  }

  absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) override {
    std::error_code error;
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
      names.push_back(entry.path().filename().string());
    }
    if (error) return absl::NotFoundError(Concat("can't list ", path, ": ", error.message()));
    std::ranges::sort(names);
    return names;
  }

  absl::StatusOr<FilesystemSize> Filesystem(const std::string& path) override {
    struct statvfs size = {};
    if (statvfs(path.c_str(), &size) != 0) {
      return absl::ErrnoToStatus(errno, Concat("can't ask for the size of ", path));
    }
    const auto block = static_cast<int64_t>(size.f_frsize);
    return FilesystemSize{.total_bytes = block * static_cast<int64_t>(size.f_blocks),
                          .free_bytes = block * static_cast<int64_t>(size.f_bavail)};
  }

  std::optional<int64_t> LockedMemoryLimit() override {
    rlimit limit = {};
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
      return std::nullopt;
    }
    constexpr auto kMost = static_cast<rlim_t>(std::numeric_limits<int64_t>::max());
    return static_cast<int64_t>(std::min(limit.rlim_cur, kMost));
  }

  std::optional<std::string> Environment(const std::string& name) override {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  }

  absl::StatusOr<Fabric> AskFabric() override { return AskFabricApart(absl::Minutes(1)); }

  absl::Status LoadLibrary(const std::string& name) override {
    void* handle = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) return absl::NotFoundError(dlerror());
    dlclose(handle);
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<Machine> ThisMachine() { return std::make_unique<LocalMachine>(); }

}  // namespace muster::worker
