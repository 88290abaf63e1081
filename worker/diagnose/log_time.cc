#include "worker/diagnose/log_time.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/time/civil_time.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

constexpr size_t kPrefix = 96;  // a time that stands later in the line isn't the line's own

bool IsWord(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }

// Takes exactly `digits` digits off the front of `text`.
std::optional<int> Take(std::string_view* text, size_t digits) {
  if (text->size() < digits) return std::nullopt;
  int value = 0;
  for (size_t i = 0; i < digits; ++i) {
    if (!IsDigit((*text)[i])) return std::nullopt;
    value = value * 10 + ((*text)[i] - '0');
  }
  text->remove_prefix(digits);
  return value;
}

bool TakeChar(std::string_view* text, std::string_view choices) {
  if (text->empty() || choices.find(text->front()) == choices.npos) return false;
  text->remove_prefix(1);
  return true;
}

absl::Duration TakeFraction(std::string_view* text) {
  std::string_view rest = *text;
  if (!TakeChar(&rest, ".,")) return absl::ZeroDuration();
  int64_t nanoseconds = 0;
  int64_t unit = 100'000'000;
  while (!rest.empty() && IsDigit(rest.front())) {
    nanoseconds += unit * (rest.front() - '0');
    unit /= 10;
    rest.remove_prefix(1);
  }
  *text = rest;
  return absl::Nanoseconds(nanoseconds);
}

// "HH:MM:SS[.fraction]"
std::optional<absl::Duration> TakeClock(std::string_view* text) {
  const auto hour = Take(text, 2);
  if (!hour || !TakeChar(text, ":")) return std::nullopt;
  const auto minute = Take(text, 2);
  if (!minute || !TakeChar(text, ":")) return std::nullopt;
  const auto second = Take(text, 2);
  if (!second || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  return absl::Hours(*hour) + absl::Minutes(*minute) + absl::Seconds(*second) + TakeFraction(text);
}

// "Z", "+09:00", "-0330" or nothing.
absl::Duration TakeOffset(std::string_view text) {
  if (text.empty() || (text[0] != '+' && text[0] != '-')) return absl::ZeroDuration();
  const int sign = text[0] == '-' ? -1 : 1;
  text.remove_prefix(1);
  const auto hour = Take(&text, 2);
  TakeChar(&text, ":");
  const auto minute = Take(&text, 2);
  return hour && minute ? sign * (absl::Hours(*hour) + absl::Minutes(*minute))
                        : absl::ZeroDuration();
}

std::optional<absl::Time> Day(int year, int month, int day) {
  const absl::CivilDay civil(year, month, day);
  if (civil.month() != month || civil.day() != day) return std::nullopt;
  return absl::FromCivil(civil, absl::UTCTimeZone());
}

// "2026-01-01 12:08:32" and its kin.
std::optional<LineTime> IsoTime(std::string_view text) {
  const auto year = Take(&text, 4);
  if (!year || !TakeChar(&text, "-")) return std::nullopt;
  const auto month = Take(&text, 2);
  if (!month || !TakeChar(&text, "-")) return std::nullopt;
  const auto day = Take(&text, 2);
  if (!day || !TakeChar(&text, " T_")) return std::nullopt;
  const auto clock = TakeClock(&text);
  const auto date = Day(*year, *month, *day);
  if (!clock || !date) return std::nullopt;
  return LineTime{.time = *date + *clock - TakeOffset(text)};
}

// "E0101 11:10:18.826000"; PyTorch's C++ part writes the month without its zero.
std::optional<LineTime> GlogTime(std::string_view text) {
  if (!TakeChar(&text, "IWEF")) return std::nullopt;
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits != 3 && digits != 4) return std::nullopt;
  const auto month = Take(&text, digits - 2);
  const auto day = Take(&text, 2);
  if (!month || !day || !TakeChar(&text, " ")) return std::nullopt;
  const auto clock = TakeClock(&text);
  const auto date = Day(2000, *month, *day);
  if (!clock || !date) return std::nullopt;
  return LineTime{.time = *date + *clock, .has_year = false};
}

int MonthNumber(std::string_view name) {
  constexpr std::array<std::string_view, 12> kNames = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto* found = std::ranges::find(kNames, name);
  return found == kNames.end() ? 0 : static_cast<int>(found - kNames.begin()) + 1;
}

// "[Thu Jan  1 12:08:32 2026]"
std::optional<LineTime> KernelTime(std::string_view line) {
  if (line.size() < 26 || line[0] != '[' || line[4] != ' ' || line[8] != ' ') return std::nullopt;
  const int month = MonthNumber(line.substr(5, 3));
  const auto day = LeadingNumber(line.substr(9, 2));
  std::string_view rest = line.substr(12);
  const auto clock = TakeClock(&rest);
  const auto year = LeadingNumber(rest);
  if (month == 0 || !day || !clock || !year || *year < 1970 || *year > 9999) return std::nullopt;
  const auto date = Day(static_cast<int>(*year), month, static_cast<int>(*day));
  if (!date) return std::nullopt;
  return LineTime{.time = *date + *clock};
}

// "May 27 15:02:40 node-0 kernel: ", as syslog and the journal write it.
std::optional<LineTime> SyslogTime(std::string_view line) {
  if (line.size() < 16 || line[3] != ' ' || line[6] != ' ' || line[15] != ' ') return std::nullopt;
  const int month = MonthNumber(line.substr(0, 3));
  const auto day = LeadingNumber(line.substr(4, 2));
  std::string_view rest = line.substr(7);
  const auto clock = TakeClock(&rest);
  if (month == 0 || !day || !clock) return std::nullopt;
  const auto date = Day(2000, month, static_cast<int>(*day));
  if (!date) return std::nullopt;
  return LineTime{.time = *date + *clock, .has_year = false};
}

// "Finished:     Thu, 01 Jan 2026 12:08:33 +0000"
std::optional<LineTime> DescribeTime(std::string_view line) {
  line = StripBlanks(line);
  if (!ConsumePrefix(&line, "Finished:")) return std::nullopt;
  const size_t comma = line.find(", ");
  if (comma == std::string_view::npos) return std::nullopt;
  line.remove_prefix(comma + 2);
  const auto day = Take(&line, 2);
  if (!day || line.size() < 6) return std::nullopt;
  const int month = MonthNumber(line.substr(1, 3));
  line.remove_prefix(5);
  const auto year = Take(&line, 4);
  if (!year || month == 0 || !TakeChar(&line, " ")) return std::nullopt;
  const auto clock = TakeClock(&line);
  const auto date = Day(*year, month, *day);
  if (!clock || !date) return std::nullopt;
  TakeChar(&line, " ");
  return LineTime{.time = *date + *clock - TakeOffset(line)};
}

// "libfabric:194:1767269312::efa:..."
std::optional<LineTime> LibfabricTime(std::string_view line) {
  const size_t at = line.substr(0, kPrefix).find("libfabric:");
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view process = TextAfter(line.substr(at), "libfabric:", ":");
  const size_t second = at + 10 + process.size() + 1;
  if (second >= line.size()) return std::nullopt;
  const auto epoch = LeadingNumber(line.substr(second));
  if (!epoch || *epoch < 1'000'000'000 || *epoch > 100'000'000'000) return std::nullopt;
  return LineTime{.time = absl::FromUnixSeconds(*epoch)};
}

// The length of `shape` if `text` begins like it.
size_t TakeShape(std::string_view text, std::string_view shape) {
  if (text.size() < shape.size()) return 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool fits = shape[i] == '0'   ? IsDigit(text[i])
                      : shape[i] == '-' ? text[i] == '-' || text[i] == '/' || text[i] == '.'
                      : shape[i] == 'T' ? text[i] == 'T' || text[i] == ' ' || text[i] == '_'
                                        : text[i] == shape[i];
    if (!fits) return 0;
  }
  return shape.size();
}

}  // namespace

size_t TimeLength(std::string_view text) {
  const size_t whole = text.size();
  const bool bracket = ConsumePrefix(&text, "[") || ConsumePrefix(&text, "(");
  const auto word = [&](size_t letters) {
    return text.size() > letters && text[letters] == ' ' &&
           std::ranges::all_of(text.substr(0, letters), [](char c) {
             return absl::ascii_isalpha(static_cast<unsigned char>(c));
           });
  };
  constexpr size_t kDay = 3;  // letters, and those of a month
  if (word(kDay) && text.size() > kDay + 2 && TakeShape(text.substr(kDay + 1), "0000-00-00") > 0) {
    text.remove_prefix(kDay + 1);
  }
  size_t taken = 0;
  for (const std::string_view date :
       {"0000-00-00T", "0000-00-00, ", "00-00T", "00-00-0000T", "00-00-00T"}) {
    taken = TakeShape(text, date);
    if (taken > 0) break;
  }
  if (taken == 0 && word(kDay)) {
    const size_t day = text.find_first_not_of(' ', kDay);
    const size_t digits = day == text.npos ? 0 : text.substr(day).find_first_not_of("0123456789");
    if (digits == 1 || digits == 2) taken = day + digits + 1;
  }
  text.remove_prefix(std::min(taken, text.size()));
  const size_t clock = TakeShape(text, "00:00:00");
  if (clock == 0) return 0;
  text.remove_prefix(clock);
  text.remove_prefix(std::min(text.find_first_not_of(".,0123456789"), text.size()));
  if (!ConsumePrefix(&text, "Z") && !ConsumePrefix(&text, " UTC") &&
      (text.starts_with('+') || text.starts_with('-'))) {
    text.remove_prefix(1);
    text.remove_prefix(std::min(text.find_first_not_of(":0123456789"), text.size()));
  }
  if (bracket && !ConsumePrefix(&text, "]") && !ConsumePrefix(&text, ")")) return 0;
  ConsumePrefix(&text, ":");
  // More blanks are the message's.
  const bool set_off = ConsumePrefix(&text, " ");
  for (const std::string_view mark : {"- ", "| "}) ConsumePrefix(&text, mark);
  return set_off || bracket ? whole - text.size() : 0;
}

std::optional<LineTime> TimeOf(std::string_view line) {
  if (const auto time = KernelTime(line)) return time;
  if (const auto time = SyslogTime(line)) return time;
  if (const auto time = LibfabricTime(line)) return time;
  for (size_t at = 0; at < std::min(line.size(), kPrefix); ++at) {
    if (at > 0 && IsWord(line[at - 1])) continue;
    const auto time = IsDigit(line[at]) ? IsoTime(line.substr(at)) : GlogTime(line.substr(at));
    if (time) return time;
  }
  return DescribeTime(line);
}

bool IsOfKernel(std::string_view line) {
  line = line.substr(0, kPrefix);
  if (KernelTime(line) || line.find(" kernel: ") != line.npos) return true;
  constexpr size_t kMicroseconds = 6;
  for (size_t at = line.find('['); at != line.npos; at = line.find('[', at + 1)) {
    std::string_view rest = line.substr(at + 1);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const size_t seconds = std::min(rest.find_first_not_of("0123456789"), rest.size());
    rest.remove_prefix(seconds);
    if (seconds == 0 || !TakeChar(&rest, ".")) continue;
    if (Take(&rest, kMicroseconds) && rest.starts_with("] ")) return true;
  }
  return false;
}

absl::Time WithYearNear(absl::Time time, absl::Time near) {
  const absl::CivilSecond civil = absl::ToCivilSecond(time, absl::UTCTimeZone());
  const absl::Duration fraction = time - absl::FromCivil(civil, absl::UTCTimeZone());
  const auto near_year = absl::ToCivilYear(near, absl::UTCTimeZone()).year();
  absl::Time nearest = absl::InfiniteFuture();
  for (auto year = near_year - 1; year <= near_year + 1; ++year) {
    const absl::CivilSecond moved(year, civil.month(), civil.day(), civil.hour(), civil.minute(),
                                  civil.second());
    const absl::Time candidate = absl::FromCivil(moved, absl::UTCTimeZone()) + fraction;
    if (absl::AbsDuration(candidate - near) < absl::AbsDuration(nearest - near)) {
      nearest = candidate;
    }
  }
  return nearest;
}

absl::Duration Since(const LineTime& a, const LineTime& b) {
  const absl::Time from = a.has_year || !b.has_year ? a.time : WithYearNear(a.time, b.time);
  const absl::Time to = b.has_year || !a.has_year ? b.time : WithYearNear(b.time, a.time);
  return to - from;
}

}  // namespace muster::worker
