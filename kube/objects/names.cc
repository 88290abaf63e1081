#include "kube/objects/names.h"

#include <algorithm>
#include <cctype>

namespace muster::kube {
namespace {

bool IsLower(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool IsAlphanumeric(char c) { return IsLower(c) || (c >= 'A' && c <= 'Z'); }

bool IsNamePart(std::string_view text) {
  if (text.empty() || text.size() > 63) return false;
  if (!IsAlphanumeric(text.front()) || !IsAlphanumeric(text.back())) return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return IsAlphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}

}  // namespace

bool IsDnsLabel(std::string_view text) {
  if (text.empty() || text.size() > 63) return false;
  if (!IsLower(text.front()) || !IsLower(text.back())) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return IsLower(c) || c == '-'; });
}

bool IsDnsSubdomain(std::string_view text) {
  if (text.empty() || text.size() > 253) return false;
  while (true) {
    size_t dot = text.find('.');
    std::string_view part = text.substr(0, dot);
    if (part.empty() || !IsLower(part.front()) || !IsLower(part.back())) return false;
    if (!std::all_of(part.begin(), part.end(), [](char c) { return IsLower(c) || c == '-'; })) {
      return false;
    }
    if (dot == std::string_view::npos) return true;
    text.remove_prefix(dot + 1);
  }
}

bool IsQualifiedName(std::string_view text) {
  size_t slash = text.find('/');
  if (slash == std::string_view::npos) return IsNamePart(text);
  return IsDnsSubdomain(text.substr(0, slash)) && IsNamePart(text.substr(slash + 1));
}

bool IsLabelValue(std::string_view text) { return text.empty() || IsNamePart(text); }

std::string CamelCaseOf(std::string_view enumerator) {
  std::string out;
  bool upper = true;
  for (char c : enumerator) {
    if (c == '_') {
      upper = true;
      continue;
    }
    out.push_back(static_cast<char>(upper ? c : std::tolower(static_cast<unsigned char>(c))));
    upper = false;
  }
  return out;
}

}  // namespace muster::kube
