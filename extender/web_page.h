// The page at "/", for whoever wants to know why a job doesn't start: web/, compiled in. It asks
// REST, and nobody else.
#pragma once

#include <span>
#include <string_view>

namespace muster::extender {

struct WebFile {
  const char* path;  // "/page.js"; "/" is the page itself
  const char* content_type;
  std::string_view text;
};

std::span<const WebFile> WebFiles();

}  // namespace muster::extender
