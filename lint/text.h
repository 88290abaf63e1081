// Text put together and taken apart, without copies of what is taken apart.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::lint {

// What fmt prints for each of them, one after the other.
template <typename... Parts>
void Append(std::string* out, const Parts&... parts) {
  (fmt::format_to(std::back_inserter(*out), "{}", parts), ...);
}

template <typename... Parts>
std::string Concat(const Parts&... parts) {
  std::string text;
  Append(&text, parts...);
  return text;
}

// The pieces between any of the separators, empty ones too. Views into `text`.
inline std::vector<std::string_view> Split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> pieces;
  while (true) {
    const size_t end = text.find_first_of(separators);
    pieces.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

// The same without empty pieces.
inline std::vector<std::string_view> SplitWords(std::string_view text,
                                                std::string_view separators = " \t\r") {
  std::vector<std::string_view> words = Split(text, separators);
  std::erase_if(words, [](std::string_view word) { return word.empty(); });
  return words;
}

// What is before and after the first separator; the second is empty if there is none.
inline std::pair<std::string_view, std::string_view> SplitOnce(std::string_view text,
                                                               char separator) {
  const size_t at = text.find(separator);
  if (at == std::string_view::npos) return {text, ""};
  return {text.substr(0, at), text.substr(at + 1)};
}

// "1 pod", "2 pods".
inline std::string Counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// The whole text as a decimal integer.
inline bool ParseInt(std::string_view text, int64_t* out) {
  const auto [parsed, error] = std::from_chars(text.begin(), text.end(), *out);
  return error == std::errc() && parsed == text.end();
}

}  // namespace muster::lint
