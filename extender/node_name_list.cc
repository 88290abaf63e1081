#include "extender/node_name_list.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace muster::extender {
namespace {

// Looks at every byte, whatever it finds, so that the compiler can look at many at once.
bool IsPlain(std::string_view text) {
  return std::accumulate(text.begin(), text.end(), true, [](bool plain, char c) {
    return plain & (c >= ' ') & (c <= '~') & (c != '\\');
  });
}

// Small sums of pieces of a known size, for the same reason.
size_t CountQuotes(std::string_view text) {
  constexpr size_t kPiece = 128;
  size_t sum = 0;
  for (; text.size() >= kPiece; text.remove_prefix(kPiece)) {
    const char* piece = text.data();
    uint8_t quotes = 0;
    for (size_t i = 0; i < kPiece; ++i) quotes = static_cast<uint8_t>(quotes + (piece[i] == '"'));
    sum += quotes;
  }
  return sum + static_cast<size_t>(std::count(text.begin(), text.end(), '"'));
}

}  // namespace

// Within a string every quote is escaped, so in valid JSON the text below is a key; and as the list
// that follows holds strings only, which the caller sees, the brace after it is the document's own.
std::optional<SplitNodeNames> Split(std::string_view document) {
  constexpr std::string_view kBefore = ",\"NodeNames\":[";
  constexpr std::string_view kAfter = "]}";
  const size_t key = document.find(kBefore);
  if (key == std::string_view::npos || !document.ends_with(kAfter)) return std::nullopt;
  const size_t begin = key + kBefore.size();
  const size_t end = document.size() - kAfter.size();
  if (begin > end) return std::nullopt;
  const std::string_view names = document.substr(begin, end - begin);
  if (!IsPlain(names)) return std::nullopt;
  SplitNodeNames split{.rest = {}, .names = names, .quotes = CountQuotes(names)};
  split.rest.reserve(key + 64);
  split.rest.append(document.substr(0, key)).push_back('}');
  return split;
}

}  // namespace muster::extender
