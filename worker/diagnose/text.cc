#include "worker/diagnose/text.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/ascii.h"

namespace muster::worker {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::string_view kEllipsis = "\xE2\x80\xA6";

uint8_t ByteAt(std::string_view text, size_t at) { return static_cast<uint8_t>(text[at]); }

// The length of the well-formed UTF-8 sequence that `text` begins with, or 0.
size_t SequenceLength(std::string_view text) {
  const uint8_t lead = ByteAt(text, 0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : lead >= 0xE0 && lead <= 0xEF ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((ByteAt(text, i) & 0xC0U) != 0x80U) return 0;
  }
  const uint8_t second = ByteAt(text, 1);
  const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool surrogate = lead == 0xED && second >= 0xA0;
  const bool beyond = lead == 0xF4 && second >= 0x90;
  return overlong || surrogate || beyond ? 0 : length;
}

// The length of the escape sequence (ESC [ ... letter) that `text` begins with.
size_t EscapeLength(std::string_view text) {
  if (text.size() < 2 || text[1] != '[') return 1;
  size_t end = 2;
  while (end < text.size() && (absl::ascii_isdigit(ByteAt(text, end)) || text[end] == ';')) ++end;
  return std::min(end + 1, text.size());
}

}  // namespace

std::string_view StripBlanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::string Lowered(std::string_view text) {
  std::string lowered(text);
  absl::AsciiStrToLower(&lowered);
  return lowered;
}

bool ConsumePrefix(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

std::optional<int64_t> LeadingNumber(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

std::optional<int64_t> NumberAfter(std::string_view text, std::string_view word) {
  const size_t at = text.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  return LeadingNumber(text.substr(at + word.size()));
}

std::string_view TextAfter(std::string_view text, std::string_view begin, std::string_view ends) {
  const size_t at = text.find(begin);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + begin.size());
  return text.substr(0, text.find_first_of(ends));
}

std::string Printable(std::string_view text, size_t limit) {
  std::string printable;
  size_t room_for_ellipsis = 0;  // the length up to which an ellipsis still fits
  while (!text.empty()) {
    size_t taken = 1;
    std::string_view shown;
    if (text[0] == '\x1B') {
      taken = EscapeLength(text);
    } else if (text[0] == '\t') {
      shown = " ";
    } else if (!absl::ascii_iscntrl(ByteAt(text, 0))) {
      taken = SequenceLength(text);
      shown = taken == 0 ? kReplacement : text.substr(0, taken);
      taken = std::max<size_t>(taken, 1);
    }
    if (printable.size() + shown.size() > limit) {
      printable.resize(room_for_ellipsis);
      return printable.append(kEllipsis);
    }
    printable.append(shown);
    if (printable.size() + kEllipsis.size() <= limit) room_for_ellipsis = printable.size();
    text.remove_prefix(taken);
  }
  return printable;
}

bool HasDigit(std::string_view text) { return std::ranges::any_of(text, IsDigit); }

}  // namespace muster::worker
