#include "worker/launch/host.h"

#include <netdb.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <climits>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace muster::worker {
namespace {

bool IsDeviceFile(const std::string& name) {
  constexpr absl::string_view kPrefix = "nvidia";
  return name.size() > kPrefix.size() && absl::StartsWith(name, kPrefix) &&
         std::all_of(name.begin() + kPrefix.size(), name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

int CountDevices(const Environment& environment, const std::string& device_folder) {
  if (const auto visible = environment.find("CUDA_VISIBLE_DEVICES"); visible != environment.end()) {
    int count = 0;
    for (absl::string_view device : absl::StrSplit(visible->second, ',')) {
      // CUDA ignores what follows the first one that makes no sense.
      if (device.empty() || device == "-1" || device == "NoDevFiles") break;
      ++count;
    }
    return count;
  }
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(device_folder, error)) {
    if (IsDeviceFile(entry.path().filename().string())) ++count;
  }
  return count;
}

int Processors() {
  cpu_set_t set;
  int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  // "max 100000" without a limit, "800000 100000" for eight processors.
  std::ifstream limit("/sys/fs/cgroup/cpu.max");
  double quota = 0;
  double period = 0;
  if (limit >> quota >> period && period > 0) {
    count = std::min(count, static_cast<int>(quota / period));
  }
  return std::max(1, count);
}

Host ThisHost(const Environment& environment) {
  char name[HOST_NAME_MAX + 1] = {};
  gethostname(name, sizeof name - 1);
  Host host = {.name = name, .devices = CountDevices(environment)};
  addrinfo hints = {};
  hints.ai_flags = AI_CANONNAME;
  addrinfo* found = nullptr;
  if (getaddrinfo(name, nullptr, &hints, &found) != 0) return host;
  const std::string full = found->ai_canonname == nullptr ? "" : found->ai_canonname;
  freeaddrinfo(found);
  // /etc/hosts may say "localhost" first.
  if (absl::StartsWith(full, host.name)) host.name = full;
  return host;
}

}  // namespace muster::worker
