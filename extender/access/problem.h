// What an answer says that isn't what was asked for: application/problem+json (RFC 9457).
#pragma once

#include <string>
#include <string_view>

#include "http/server.h"

namespace muster::extender {

// The text that HTTP has for the status; "Error" for one that it has none for.
std::string_view TitleOf(int status);

// Bytes of `detail` that aren't UTF-8 are replaced.
http::Response Problem(int status, const std::string& detail);

}  // namespace muster::extender
