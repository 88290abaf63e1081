// kubeconfig files (clientcmd v1), as kubectl reads them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kube/client/client_config.h"

namespace muster::kube {

// The files merged as clientcmd does: for each cluster, user and context the first file that names
// it wins, and so does the first current-context; relative paths are relative to their own file.
// Files that don't exist are passed over unless all are missing. Errors name file and entry
// ("users[gpu].exec: ...").
absl::StatusOr<ClientConfig> LoadKubeconfig(const std::vector<std::string>& paths,
                                            const KubeconfigUse& use = {});

}  // namespace muster::kube
