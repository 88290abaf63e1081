// Small readers of log text. All are linear in the text's length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace muster::worker {

// Appends texts and whole numbers in decimal.
template <typename... Parts>
void Append(std::string* text, const Parts&... parts) {
  const auto append = [text](const auto& part) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) {
      text->append(std::to_string(part));
    } else {
      text->append(std::string_view(part));
    }
  };
  (append(parts), ...);
}

template <typename... Parts>
std::string Concat(const Parts&... parts) {
  std::string text;
  Append(&text, parts...);
  return text;
}

// Without the blanks around it.
std::string_view StripBlanks(std::string_view text);

// In lower case, of ASCII letters.
std::string Lowered(std::string_view text);

// Takes `prefix` off the front of `text` if that begins with it.
bool ConsumePrefix(std::string_view* text, std::string_view prefix);

// The decimal number at the beginning of `text`, after blanks; nothing if there is none or it
// doesn't fit.
std::optional<int64_t> LeadingNumber(std::string_view text);

// The number after the first occurrence of `word` in `text`.
std::optional<int64_t> NumberAfter(std::string_view text, std::string_view word);

// What stands between the first `begin` and the next of the characters `ends` (or the end of
// `text`); empty if there is no `begin`.
std::string_view TextAfter(std::string_view text, std::string_view begin, std::string_view ends);

// At most `limit` bytes of `text` (an ellipsis included) as valid UTF-8 without control characters
// and without terminal escape sequences, so that it may go into a terminal or into JSON; bytes that
// are no UTF-8 become U+FFFD. `limit` is at least 3.
std::string Printable(std::string_view text, size_t limit);

inline bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool HasDigit(std::string_view text);

}  // namespace muster::worker
