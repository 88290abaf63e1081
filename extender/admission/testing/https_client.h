// A caller of the webhook that trusts one bundle only, as the API server does.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace muster::extender {

struct HttpsAnswer {
  int status = 0;
  std::string body;
};

// One POST on a connection of its own to 127.0.0.1:port, called by `server_name` (a DNS name or
// 127.0.0.1). Unavailable with the TLS error if the server can't be trusted.
absl::StatusOr<HttpsAnswer> HttpsPost(const std::string& server_name, uint16_t port,
                                      const std::string& ca_bundle, const std::string& path,
                                      const std::string& body);

}  // namespace muster::extender
