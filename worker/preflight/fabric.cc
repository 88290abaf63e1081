#include "worker/preflight/fabric.h"

#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <array>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string_view>

#include "nlohmann/json.hpp"
#include "worker/diagnose/text.h"
#include "worker/preflight/apart.h"
#include "worker/preflight/checks.h"

namespace muster::worker {
namespace {

constexpr size_t kMostWarnings = 1000;

template <typename Function>
Function* Find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

// ---- libfabric ----

void AskLibfabric(Fabric& fabric) {
  // It stays loaded: so does what it loads in turn.
  void* library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fabric.libfabric_error = dlerror();
    return;
  }
  auto* const version = Find<uint32_t()>(library, "fi_version");
  auto* const get =
      Find<int(uint32_t, const char*, const char*, uint64_t, const fi_info*, fi_info**)>(
          library, "fi_getinfo");
  auto* const copy = Find<fi_info*(const fi_info*)>(library, "fi_dupinfo");
  auto* const free_info = Find<void(fi_info*)>(library, "fi_freeinfo");
  auto* const message = Find<const char*(int)>(library, "fi_strerror");
  if (version == nullptr || get == nullptr || copy == nullptr || free_info == nullptr ||
      message == nullptr) {
    fabric.libfabric_error = "libfabric.so.1 lacks functions";
    return;
  }
  fabric.libfabric = Concat(FI_MAJOR(version()), ".", FI_MINOR(version()));
  // As aws-ofi-nccl asks, from that version of the interface on in which libfabric promises not to
  // call CUDA itself.
  fi_info* hints = copy(nullptr);
  hints->caps = FI_MSG | FI_RMA | FI_HMEM | FI_LOCAL_COMM | FI_REMOTE_COMM;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_HMEM | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  fi_info* found = nullptr;
  const int error = get(FI_VERSION(1, 18), nullptr, nullptr, 0, hints, &found);
  free_info(hints);
  if (error != 0) fabric.libfabric_error = message(-error);
  // A device is offered in several ways.
  std::set<std::string> devices;
  for (const fi_info* info = found; info != nullptr; info = info->next) {
    if (std::string_view(info->fabric_attr->prov_name) == "efa") {
      devices.insert(info->domain_attr->name);
    }
  }
  fabric.gpu_devices = static_cast<int>(devices.size());
  if (error == 0 && fabric.gpu_devices == 0) fabric.libfabric_error = "it has no EFA device";
  if (found != nullptr) free_info(found);
}

// ---- NCCL's plugin ----

// NCCL's interface to network plugins, as far as it is used (nccl_net.h of NCCL 2.27 and 2.28).
enum LogLevel { kLogWarning = 2 };
using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);
constexpr int kPointerCuda = 2;  // NCCL_PTR_CUDA
struct NetworkConfig {
  int traffic_class = -1;  // NCCL_NET_TRAFFIC_CLASS_UNDEF
};
// Begins as every version's.
struct NetworkProperties {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointer_support;
};
struct NetworkV10 {
  const char* name;
  int (*init)(Logger log, void* profiler);
  int (*devices)(int* count);
  int (*properties)(int device, void* properties);
};
struct NetworkV11 {
  const char* name;
  int (*init)(void** context, uint64_t communicator, NetworkConfig* config, Logger log,
              void* profiler);
  int (*devices)(int* count);
  int (*properties)(int device, void* properties);
};

std::mutex said_mutex;
std::string warnings;  // guarded by said_mutex
std::string protocol;  // guarded by said_mutex
std::string provider;  // guarded by said_mutex

// What it says is the only way to learn what it chose.
void Hear(int level, unsigned long /*flags*/, const char* /*file*/, int /*line*/,
          const char* format, ...) {
  std::array<char, 1024> line = {};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line.data(), line.size(), format, arguments);
  va_end(arguments);
  const std::string_view text = line.data();
  const std::lock_guard lock(said_mutex);
  const char* debug = std::getenv("NCCL_DEBUG");
  if (debug != nullptr && std::string_view(debug) == "INFO")
    std::fprintf(stderr, "%s\n", line.data());
  const std::string_view chosen = TextAfter(text, "Using transport protocol ", " ");
  if (!chosen.empty()) protocol = chosen;
  const std::string_view selected = TextAfter(text, "Selected provider is ", ", ");
  if (!selected.empty()) provider = selected;
  if (level == kLogWarning && warnings.size() < kMostWarnings) {
    Append(&warnings, warnings.empty() ? "" : "; ", text);
  }
}

void AskPlugin(Fabric& fabric) {
  const char* name = std::getenv("NCCL_NET_PLUGIN");
  fabric.plugin = NetworkPluginFile(name == nullptr ? "" : name);
  void* library = dlopen(fabric.plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fabric.plugin_error = dlerror();
    return;
  }
  auto* const v11 = Find<NetworkV11>(library, "ncclNetPlugin_v11");
  auto* const v10 = Find<NetworkV10>(library, "ncclNetPlugin_v10");
  if (v11 == nullptr && v10 == nullptr) {
    fabric.plugin_error = Concat(fabric.plugin, " is for another version of NCCL");
    return;
  }
  void* context = nullptr;
  NetworkConfig config;
  const int error =
      v11 != nullptr ? v11->init(&context, 0, &config, Hear, nullptr) : v10->init(Hear, nullptr);
  int count = 0;
  const int no_count =
      error != 0 ? error : (v11 != nullptr ? v11->devices(&count) : v10->devices(&count));
  // Larger than any version's.
  union {
    NetworkProperties begin;
    std::array<std::byte, 4096> whole;
  } properties = {.whole = {}};
  const int unknown =
      no_count != 0 || count == 0
          ? 1
          : (v11 != nullptr ? v11->properties(0, &properties) : v10->properties(0, &properties));
  const std::lock_guard lock(said_mutex);
  if (unknown != 0) {
    fabric.plugin_error =
        warnings.empty() ? Concat("it ends its start with NCCL error ", error) : warnings;
    return;
  }
  fabric.protocol = protocol;
  fabric.provider = provider;
  fabric.devices = count;
  fabric.gpu_memory = (properties.begin.pointer_support & kPointerCuda) != 0;
}

}  // namespace

Fabric AskFabric() {
  Fabric fabric;
  AskLibfabric(fabric);
  AskPlugin(fabric);
  return fabric;
}

absl::StatusOr<Fabric> AskFabricApart(absl::Duration timeout) {
  const absl::StatusOr<ApartEnd> end =
      RunApart({"muster-worker", "fabric", "--output=json"}, {.timeout = timeout});
  if (!end.ok()) return end.status();
  if (end->how == ApartEnd::How::kLate) {
    return absl::DeadlineExceededError("libfabric and NCCL's plugin don't end their start");
  }
  if (end->how == ApartEnd::How::kSignalled) {
    return absl::UnavailableError(
        Concat("libfabric or NCCL's plugin ends the process with signal ", end->number));
  }
  return ParseFabric(end->answer);
}

int RunFabric(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  const std::string argument = arguments.empty() ? "--output=text" : arguments[0];
  if (arguments.size() > 1 || (argument != "--output=text" && argument != "--output=json")) {
    err << "usage: muster-worker fabric [--output=text|json]\n";
    return 2;
  }
  const Fabric fabric = AskFabric();
  out << (argument == "--output=json" ? FabricJson(fabric) : FabricText(fabric)) << std::flush;
  return fabric.provider == "efa" && fabric.gpu_memory ? 0
                                                       : CauseOf(CauseId::kNoEfaProvider).exit_code;
}

std::string FabricText(const Fabric& fabric) {
  std::string text = Concat("libfabric  ", fabric.libfabric.empty() ? "none" : fabric.libfabric,
                            ": ", fabric.gpu_devices, " EFA devices take GPU memory");
  if (!fabric.libfabric_error.empty()) Append(&text, "; ", fabric.libfabric_error);
  Append(&text, "\nplugin     ", fabric.plugin, ": ");
  if (fabric.protocol.empty()) {
    Append(&text, "doesn't start: ", fabric.plugin_error, "\n");
  } else {
    Append(&text, "protocol ", fabric.protocol, " on ", fabric.devices, " devices of provider ",
           fabric.provider, fabric.gpu_memory ? ", with" : ", without", " GPU memory\n");
  }
  return text;
}

std::string FabricJson(const Fabric& fabric) {
  const nlohmann::json json = {{"libfabric", fabric.libfabric},
                               {"gpuDevices", fabric.gpu_devices},
                               {"libfabricError", fabric.libfabric_error},
                               {"plugin", fabric.plugin},
                               {"protocol", fabric.protocol},
                               {"provider", fabric.provider},
                               {"devices", fabric.devices},
                               {"gpuMemory", fabric.gpu_memory},
                               {"pluginError", fabric.plugin_error}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

absl::StatusOr<Fabric> ParseFabric(const std::string& text) {
  // Libraries may have written before it.
  const size_t begin = text.find("{\n");
  const nlohmann::json json = nlohmann::json::parse(
      begin == std::string::npos ? text : text.substr(begin), nullptr, /*allow_exceptions=*/false);
  try {
    return Fabric{.libfabric = json.at("libfabric"),
                  .gpu_devices = json.at("gpuDevices"),
                  .libfabric_error = json.at("libfabricError"),
                  .plugin = json.at("plugin"),
                  .protocol = json.at("protocol"),
                  .provider = json.at("provider"),
                  .devices = json.at("devices"),
                  .gpu_memory = json.at("gpuMemory"),
                  .plugin_error = json.at("pluginError")};
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(Concat("what libfabric chose can't be read: ", error.what()));
  }
}

}  // namespace muster::worker
