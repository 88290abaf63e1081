// Addresses as they are given on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace muster::http {

struct ListenAddress {
  std::string host;  // without brackets
  uint16_t port = 0;
};

// "127.0.0.1:8888", "[::1]:0", ":8080" (every IPv4 address). InvalidArgument quoting the text.
absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text);

}  // namespace muster::http
