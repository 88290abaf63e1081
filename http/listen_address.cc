#include "http/listen_address.h"

#include <charconv>

#include "fmt/format.h"

namespace muster::http {

absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text) {
  const auto invalid = [text](std::string_view why) {
    return absl::InvalidArgumentError(
        fmt::format("address \"{}\": {} (want HOST:PORT or [IPV6]:PORT)", text, why));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return invalid("no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.starts_with('[')) {
    if (!host.ends_with(']')) return invalid("unbalanced brackets");
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return invalid("an IPv6 address needs brackets");
  }
  ListenAddress address;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size()) {
    return invalid(fmt::format("port \"{}\" is not 0 to 65535", port));
  }
  address.host = host.empty() ? "0.0.0.0" : std::string(host);
  return address;
}

}  // namespace muster::http
