// Certificates of our own making, in memory only.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::kube::embedded {

struct ServerCertificate {
  std::string ca_pem;           // whom clients trust
  std::string certificate_pem;  // of the server
  std::string key_pem;          // its private key
};

// A new authority and, signed by it, a server certificate for IP addresses and host names. EC keys
// on P-256. Internal error with OpenSSL's words if that fails.
absl::StatusOr<ServerCertificate> MakeServerCertificate(const std::vector<std::string>& addresses,
                                                        const std::vector<std::string>& names,
                                                        absl::Time not_before,
                                                        absl::Duration lifetime);

}  // namespace muster::kube::embedded
