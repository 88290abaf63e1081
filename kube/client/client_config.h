// Which API server to talk to, and as whom: from a kubeconfig or from inside a pod.
//
// The rules are those of k8s.io/client-go v0.34 (tools/clientcmd, rest/config.go). What isn't
// supported (auth-provider, username and password, impersonation) is an error that says so, never
// left out silently.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kube/client/credentials.h"

namespace muster::kube {

struct ClientConfig {
  std::string server;           // "https://host:6443", maybe with a path; no trailing slash
  std::string ca_pem;           // empty: the system's authorities
  bool insecure = false;        // the server's certificate is not verified
  std::string tls_server_name;  // name to verify instead of the host; empty: the host
  std::string proxy_url;        // empty: none
  // Without a proxy_url, that of $HTTPS_PROXY, but for $NO_PROXY.
  bool proxy_of_environment = false;
  std::string name_space;                    // of the context or the pod; "default" if it has none
  std::shared_ptr<Credentials> credentials;  // never null
};

struct KubeconfigUse {
  std::string context = {};  // empty: current-context
  // By a person's command, as kubectl: a credential plugin may ask him at his terminal, if standard
  // input is one, and his environment's proxy counts.
  bool by_person = false;
};

// In this order: the file named; the files of $KUBECONFIG; the pod this process runs in
// ($KUBERNETES_SERVICE_HOST), unless a context is named; ~/.kube/config.
absl::StatusOr<ClientConfig> LoadClientConfig(const std::string& kubeconfig,
                                              const KubeconfigUse& use = {});

// The pod's service account, mounted in `folder`. FailedPrecondition outside a pod.
absl::StatusOr<ClientConfig> LoadInClusterConfig(
    const std::string& folder = "/var/run/secrets/kubernetes.io/serviceaccount");

}  // namespace muster::kube
