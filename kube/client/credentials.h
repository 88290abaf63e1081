// Where the client's identity comes from, and how long it lasts.
//
// Secrets live in these values only: they have no printer, and no error text contains them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::kube {

struct Identity {
  std::string token;            // bearer; empty without one
  std::string certificate_pem;  // for TLS client authentication; empty without one
  std::string key_pem;
  // When to fetch anew. InfiniteFuture: never, not even when the server says 401.
  absl::Time refresh_at = absl::InfiniteFuture();
};

class Credentials {
 public:
  virtual ~Credentials() = default;
  // May read files or run a program, so it may block for seconds. Called by one thread at a time.
  virtual absl::StatusOr<Identity> Fetch() = 0;
};

// Always the same.
std::unique_ptr<Credentials> FixedCredentials(Identity identity);

// `first`, once, and then what `others` fetches: who logs in before he begins does it once.
std::unique_ptr<Credentials> StartingWith(Identity first, std::shared_ptr<Credentials> others);

// Parts of an identity that are read from files, which others rotate (kubelet a service account's
// token, for example): read anew every minute. An empty path takes the part from `fixed`.
struct CredentialFiles {
  std::string token;
  std::string certificate;
  std::string key;
};
std::unique_ptr<Credentials> FileCredentials(CredentialFiles files, Identity fixed,
                                             std::function<absl::Time()> now);

// A credential plugin (client.authentication.k8s.io/v1 and v1beta1): run for an ExecCredential,
// which is kept until it expires. `fixed` has what the plugin doesn't give.
struct ExecPlugin {
  std::string command;  // a path with a slash is relative to nothing: resolve it first
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> environment;
  std::string api_version;
  std::string install_hint;
  // JSON of spec.cluster for KUBERNETES_EXEC_INFO; empty unless the plugin wants it.
  std::string cluster_json;
  absl::Duration timeout = absl::Seconds(30);
  bool interactive = false;  // it has this process's standard input and error
};
std::unique_ptr<Credentials> ExecCredentials(ExecPlugin plugin, Identity fixed,
                                             std::function<absl::Time()> now);

// The whole file, at most `max_bytes`; surrounding white space stays. Errors name the path.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes);

}  // namespace muster::kube
