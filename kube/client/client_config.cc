#include "kube/client/client_config.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/time/clock.h"
#include "kube/client/kubeconfig.h"

namespace muster::kube {
namespace {

constexpr size_t kMaxCaBytes = 1 << 20;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::vector<std::string> SplitPaths(const std::string& list) {
  std::vector<std::string> paths;
  size_t begin = 0;
  while (begin <= list.size()) {
    const size_t end = std::min(list.find(':', begin), list.size());
    if (end > begin) paths.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

}  // namespace

absl::StatusOr<ClientConfig> LoadClientConfig(const std::string& kubeconfig,
                                              const KubeconfigUse& use) {
  if (!kubeconfig.empty()) return LoadKubeconfig({kubeconfig}, use);
  const std::vector<std::string> paths = SplitPaths(Environment("KUBECONFIG"));
  if (!paths.empty()) return LoadKubeconfig(paths, use);
  if (!Environment("KUBERNETES_SERVICE_HOST").empty() && use.context.empty()) {
    return LoadInClusterConfig();
  }
  const std::string fallback = Environment("HOME") + "/.kube/config";
  if (std::filesystem::exists(fallback)) return LoadKubeconfig({fallback}, use);
  return absl::FailedPreconditionError(
      fmt::format("no cluster to talk to: no kubeconfig named, $KUBECONFIG and "
                  "$KUBERNETES_SERVICE_HOST not set, and {} does not exist",
                  fallback));
}

absl::StatusOr<ClientConfig> LoadInClusterConfig(const std::string& folder) {
  const std::string host = Environment("KUBERNETES_SERVICE_HOST");
  const std::string port = Environment("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return absl::FailedPreconditionError(
        "not in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set");
  }
  ClientConfig config;
  const bool is_v6 = host.find(':') != std::string::npos;
  config.server = fmt::format("https://{}:{}", is_v6 ? fmt::format("[{}]", host) : host, port);
  auto ca = ReadSmallFile(folder + "/ca.crt", kMaxCaBytes);
  if (!ca.ok()) return ca.status();
  config.ca_pem = *std::move(ca);
  const auto name_space = ReadSmallFile(folder + "/namespace", 1024);
  config.name_space = name_space.ok() && !name_space->empty() ? *name_space : "default";
  config.credentials = FileCredentials({folder + "/token", "", ""}, {}, [] { return absl::Now(); });
  return config;
}

}  // namespace muster::kube
