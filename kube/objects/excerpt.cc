#include "kube/objects/excerpt.h"

#include <simdjson.h>

#include <algorithm>

namespace muster::kube {

std::string Excerpt(std::string_view text, size_t limit) {
  const bool cut = text.size() > limit;
  if (cut) {
    while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) --limit;
    text = text.substr(0, limit);
  }
  std::string excerpt(text);
  if (!simdjson::validate_utf8(excerpt.data(), excerpt.size())) {
    std::replace_if(excerpt.begin(), excerpt.end(), [](unsigned char c) { return c >= 0x80; }, '?');
  }
  if (cut) excerpt += "...";
  return excerpt;
}

std::string FirstFew(const std::vector<std::string>& all, size_t most) {
  std::string text;
  for (size_t i = 0; i < all.size() && i < most; ++i) text += (i == 0 ? "" : "; ") + all[i];
  if (all.size() > most) text += "; and " + std::to_string(all.size() - most) + " more";
  return text;
}

}  // namespace muster::kube
