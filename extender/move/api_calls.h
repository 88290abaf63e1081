// Requests of a command: one after the other, each waited for.
#pragma once

#include <functional>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kube/api.h"

namespace muster::extender {

class ApiCalls {
 public:
  // The transport must outlive it and answer on another thread. `sleep`: between tries.
  explicit ApiCalls(kube::Transport& transport, std::function<void(absl::Duration)> sleep)
      : transport_(transport), sleep_(std::move(sleep)) {}

  // Five tries at most, where the API server didn't answer, was busy or is going.
  absl::StatusOr<kube::Response> Call(const kube::Request& request) const;

  // All that `keep` lets through, page by page; nothing where the kind isn't served. Begun anew,
  // three times at most, where the pages have expired in between.
  using Keep = std::function<bool(const nlohmann::json& object)>;
  using Query = std::vector<std::pair<std::string, std::string>>;
  absl::StatusOr<std::vector<nlohmann::json>> List(const std::string& path, const Query& query = {},
                                                   const Keep& keep = nullptr) const;

 private:
  absl::StatusOr<std::vector<nlohmann::json>> ListOnce(const std::string& path, const Query& query,
                                                       const Keep& keep) const;

  kube::Transport& transport_;
  const std::function<void(absl::Duration)> sleep_;
};

// Exit codes of a command that changes a cluster.
struct CommandEnd {
  static constexpr int kDone = 0;    // nothing is left to do
  static constexpr int kLeft = 1;    // something is
  static constexpr int kFailed = 2;  // it couldn't be looked at, or changed
};

// The exit code of `command` on the cluster that this kubeconfig names; kFailed, and why on `err`,
// where it can't be read.
int OnCluster(const std::string& kubeconfig, std::ostream& err,
              const std::function<int(kube::Transport& transport)>& command);

}  // namespace muster::extender
