#include "kube/objects/quantity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>

#include "fmt/format.h"

namespace muster::kube {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// More decimal digits than any int64 has: a number with this many before its point is too large.
constexpr int kTooManyDigits = 20;

struct Suffix {
  std::string_view text;
  int base;
  int exponent;
};

constexpr std::array<Suffix, 16> kSuffixes = {{
    {"", 10, 0},
    {"n", 10, -9},
    {"u", 10, -6},
    {"m", 10, -3},
    {"k", 10, 3},
    {"M", 10, 6},
    {"G", 10, 9},
    {"T", 10, 12},
    {"P", 10, 15},
    {"E", 10, 18},
    {"Ki", 2, 10},
    {"Mi", 2, 20},
    {"Gi", 2, 30},
    {"Ti", 2, 40},
    {"Pi", 2, 50},
    {"Ei", 2, 60},
}};

// A quantity's text, taken apart: (-)digits * base^exponent, with a point before the last
// `fraction_digits` of digits.
struct Parts {
  bool negative = false;
  std::string digits;
  int fraction_digits = 0;
  int base = 10;
  int exponent = 0;
};

int DecimalPlaces(QuantityUnit unit) {
  switch (unit) {
    case QuantityUnit::kWhole:
      return 0;
    case QuantityUnit::kMilli:
      return 3;
    case QuantityUnit::kNano:
      return 9;
  }
  return 0;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// "e5", "E-3", "e+2". The exponent's magnitude is cut to int32 by the original; what survives an
// exponent past a few dozen is zero or too large either way, so it is clamped here.
std::optional<int> ParseExponent(std::string_view text) {
  if (text.size() < 2 || (text[0] != 'e' && text[0] != 'E')) return std::nullopt;
  text.remove_prefix(1);
  bool negative = text[0] == '-';
  if (negative || text[0] == '+') text.remove_prefix(1);
  if (text.empty() || !std::all_of(text.begin(), text.end(), IsDigit)) return std::nullopt;
  constexpr int kClamp = 1'000'000;
  int value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value > kClamp) value = kClamp;
  return negative ? -value : value;
}

std::optional<Parts> Split(std::string_view text) {
  Parts parts;
  size_t pos = 0;
  if (pos < text.size() && (text[pos] == '-' || text[pos] == '+')) {
    parts.negative = text[pos] == '-';
    ++pos;
  }
  while (pos < text.size() && IsDigit(text[pos])) parts.digits.push_back(text[pos++]);
  if (pos < text.size() && text[pos] == '.') {
    ++pos;
    while (pos < text.size() && IsDigit(text[pos])) {
      parts.digits.push_back(text[pos++]);
      ++parts.fraction_digits;
    }
  }
  if (parts.digits.empty()) return std::nullopt;
  std::string_view suffix = text.substr(pos);
  for (const Suffix& known : kSuffixes) {
    if (suffix != known.text) continue;
    parts.base = known.base;
    parts.exponent = known.exponent;
    return parts;
  }
  std::optional<int> exponent = ParseExponent(suffix);
  if (!exponent) return std::nullopt;
  parts.exponent = *exponent;
  return parts;
}

// The magnitude rounded up to whole, or nullopt past int64. `shift` is the power of ten to
// multiply by.
std::optional<int64_t> DecimalMagnitude(const Parts& parts, int shift) {
  size_t first = parts.digits.find_first_not_of('0');
  if (first == std::string::npos) return 0;
  std::string_view digits = std::string_view(parts.digits).substr(first);
  int64_t point = static_cast<int64_t>(digits.size()) - parts.fraction_digits + shift;
  if (point >= kTooManyDigits) return std::nullopt;
  if (point <= 0) return 1;
  unsigned __int128 value = 0;
  for (int64_t i = 0; i < point; ++i) {
    int digit = i < static_cast<int64_t>(digits.size()) ? digits[i] - '0' : 0;
    value = value * 10 + digit;
  }
  if (point < static_cast<int64_t>(digits.size()) &&
      digits.find_first_not_of('0', point) != std::string_view::npos) {
    value += 1;
  }
  if (value > static_cast<unsigned __int128>(kMax)) return std::nullopt;
  return static_cast<int64_t>(value);
}

// Multiplies the decimal fraction 0.`digits` in place and returns what grew past the point.
int64_t MultiplyFraction(std::string& digits, uint64_t factor) {
  unsigned __int128 carry = 0;
  for (size_t i = digits.size(); i-- > 0;) {
    carry += static_cast<unsigned __int128>(digits[i] - '0') * factor;
    digits[i] = static_cast<char>('0' + static_cast<int>(carry % 10));
    carry /= 10;
  }
  return static_cast<int64_t>(carry);
}

std::optional<int64_t> BinaryMagnitude(const Parts& parts, QuantityUnit unit) {
  Parts integer_part = parts;
  integer_part.digits.resize(parts.digits.size() - parts.fraction_digits);
  integer_part.fraction_digits = 0;
  std::string fraction = parts.digits.substr(integer_part.digits.size());
  std::optional<int64_t> integer = DecimalMagnitude(integer_part, 0);

  unsigned __int128 whole = 0;
  if (integer) {
    whole = (static_cast<unsigned __int128>(*integer) << parts.exponent) +
            MultiplyFraction(fraction, uint64_t{1} << parts.exponent);
  }
  if (!integer || whole >= static_cast<unsigned __int128>(kMax)) {
    if (unit != QuantityUnit::kWhole) return std::nullopt;
    return kMax;
  }
  if (unit != QuantityUnit::kWhole) {
    const uint64_t parts_of_one = unit == QuantityUnit::kMilli ? 1'000 : 1'000'000'000;
    whole = whole * parts_of_one + MultiplyFraction(fraction, parts_of_one);
  }
  if (fraction.find_first_not_of('0') != std::string::npos) whole += 1;
  if (whole > static_cast<unsigned __int128>(kMax)) return std::nullopt;
  return static_cast<int64_t>(whole);
}

// `value` with the largest power of `step` that divides it moved into a suffix.
std::string WithSuffix(int64_t value, int64_t step, const std::array<std::string_view, 7>& names) {
  size_t power = 0;
  while (value != 0 && value % step == 0 && power + 1 < names.size()) {
    value /= step;
    ++power;
  }
  return fmt::format("{}{}", value, names[power]);
}

std::string Decimal(int64_t value) {
  return WithSuffix(value, 1000, {"", "k", "M", "G", "T", "P", "E"});
}

std::string Binary(int64_t value) {
  return WithSuffix(value, 1024, {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"});
}

}  // namespace

QuantityUnit UnitOf(std::string_view resource) {
  return resource == "cpu" ? QuantityUnit::kMilli : QuantityUnit::kWhole;
}

absl::StatusOr<int64_t> ParseQuantity(std::string_view text, QuantityUnit unit) {
  std::optional<Parts> parts = Split(text);
  if (!parts) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not a quantity", text));
  }
  std::optional<int64_t> magnitude =
      parts->base == 2 ? BinaryMagnitude(*parts, unit)
                       : DecimalMagnitude(*parts, parts->exponent + DecimalPlaces(unit));
  if (!magnitude) {
    return absl::OutOfRangeError(fmt::format("\"{}\" is out of range: the largest amount is {}",
                                             text, FormatQuantity(kMax, unit)));
  }
  return parts->negative ? -*magnitude : *magnitude;
}

std::string FormatQuantity(int64_t value, QuantityUnit unit) {
  if (unit == QuantityUnit::kNano) {
    if (value % 1'000'000 != 0) {
      return value % 1'000 != 0 ? fmt::format("{}n", value) : fmt::format("{}u", value / 1'000);
    }
    return FormatQuantity(value / 1'000'000, QuantityUnit::kMilli);
  }
  if (unit == QuantityUnit::kMilli) {
    if (value % 1000 != 0) return fmt::format("{}m", value);
    return Decimal(value / 1000);
  }
  std::string decimal = Decimal(value);
  std::string binary = Binary(value);
  return binary.size() <= decimal.size() ? binary : decimal;
}

}  // namespace muster::kube
