#include "kube/embedded/api_path.h"

#include <algorithm>
#include <vector>

namespace muster::kube::embedded {
namespace {

std::vector<std::string> Segments(std::string_view path) {
  std::vector<std::string> segments;
  while (!path.empty()) {
    size_t slash = path.find('/');
    if (slash != 0) segments.emplace_back(path.substr(0, slash));
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  return segments;
}

// Names are DNS names; anything else leads nowhere, and may not be text at all.
bool IsPlainText(std::string_view path) {
  return std::all_of(path.begin(), path.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

bool IsNamespaceSubresource(const std::string& segment) {
  return segment == "status" || segment == "finalize";
}

}  // namespace

std::optional<ApiPath> ParseApiPath(std::string_view path) {
  if (!IsPlainText(path)) return std::nullopt;
  std::vector<std::string> segments = Segments(path);
  ApiPath out;
  size_t at = 0;
  if (segments.size() >= 2 && segments[0] == "api") {
    out.version = segments[1];
    at = 2;
  } else if (segments.size() >= 3 && segments[0] == "apis") {
    out.group = segments[1];
    out.version = segments[2];
    at = 3;
  } else {
    return std::nullopt;
  }
  size_t left = segments.size() - at;
  bool scoped = left >= 3 && segments[at] == "namespaces" &&
                (left != 3 || !out.group.empty() || !IsNamespaceSubresource(segments[at + 2]));
  if (scoped) {
    out.name_space = segments[at + 1];
    at += 2;
    left -= 2;
  }
  if (left > 3) return std::nullopt;
  if (left >= 1) out.plural = segments[at];
  if (left >= 2) out.name = segments[at + 1];
  if (left == 3) out.subresource = segments[at + 2];
  return out;
}

}  // namespace muster::kube::embedded
