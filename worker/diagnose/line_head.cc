#include "worker/diagnose/line_head.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "worker/diagnose/line_progress.h"
#include "worker/diagnose/log_time.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

constexpr int kMaxPrefixes = 6;
constexpr size_t kMaxLevelAt = 120;  // a level that stands later isn't the line's own
constexpr int kMaxRankNumber = 1'000'000;

size_t DigitsAt(std::string_view text) {
  return std::min(text.find_first_not_of("0123456789"), text.size());
}

std::optional<int> RankNumber(std::string_view text) {
  const auto number = LeadingNumber(text);
  if (!number || *number < 0 || *number > kMaxRankNumber) return std::nullopt;
  return static_cast<int>(*number);
}

// The length of "gpu-7 train[880]: ", as syslog and the journal write it after the time, or of
// "gpu-7 train: "; after other times words like these are the message's. The kernel writes records
// of its own, no process's output.
size_t SyslogTag(std::string_view text, bool process_said) {
  const size_t blank = text.find(' ');
  const size_t end = text.find(": ");
  if (blank == 0 || end == std::string_view::npos || blank >= end) return 0;
  if (!absl::ascii_isalnum(static_cast<unsigned char>(text[0]))) return 0;
  std::string_view tag = text.substr(blank + 1, end - blank - 1);
  const size_t bracket = tag.find('[');
  if (tag.empty() || bracket == 0 || tag == "kernel" || tag.find(' ') != tag.npos) return 0;
  return process_said && (bracket == tag.npos || !tag.ends_with(']')) ? 0 : end + 2;
}

// Takes a bar that stands between a name and what that wrote off the front of `text`.
bool IsBar(std::string_view* text) {
  std::string_view rest = *text;
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  if (!ConsumePrefix(&rest, "|") || (!rest.empty() && !ConsumePrefix(&rest, " "))) return false;
  *text = rest;
  return true;
}

// The length of the prefix that `text` begins with, 0 if it begins with none; sets `head`'s rank
// and pod where the prefix says them.
using Prefix = size_t (*)(std::string_view text, LineHead* head);

size_t Host(std::string_view text, LineHead* head);

// Whether what follows a time surely says who wrote the line.
bool BeginsWithName(std::string_view text);

// "2026-03-02T10:41:17.123456789Z ", "... stdout F ", "May 27 15:02:40 ", "18:11:06.680 [rank4]:"
size_t CollectorsTime(std::string_view text, LineHead* /*head*/) {
  const bool date = text.size() > 20 && IsDigit(text[0]) && text[4] == '-' && text[10] == 'T';
  const size_t end = text.find(' ');
  if (date && end != std::string_view::npos && end < 40) {
    for (const std::string_view stream : {" stdout F ", " stderr F ", " stdout P ", " stderr P "}) {
      if (text.substr(end).starts_with(stream)) return end + stream.size();
    }
    const std::string_view zone = text.substr(19, end - 19);
    if (zone.ends_with('Z') || zone.ends_with("Z:") || zone.find_first_of("+-") != zone.npos) {
      return end + 1;
    }
  }
  if (text.size() > 16 && text[3] == ' ' && text[6] == ' ' && text[9] == ':' && text[12] == ':' &&
      text[15] == ' ' && IsDigit(text[5]) && IsDigit(text[14])) {
    return SyslogTag(text.substr(16), false) > 0 ? 16 : 0;
  }
  // "<14>1 2026-03-02T10:41:17Z gpu-7 train 880 - - " of RFC 5424
  if (text.starts_with('<') && text.substr(0, 8).find(">1 ") != text.npos) {
    constexpr int kFields = 6;  // after the number
    size_t at = text.find(' ') + 1;
    for (int field = 0; field < kFields && at != 0; ++field) at = text.find(' ', at) + 1;
    return at;
  }
  const size_t time = TimeLength(text);
  if (time == 0) return 0;
  // A supervisor's "2026-03-02 10:41:17,123 ERROR [worker-1] " of what it passes on.
  for (const std::string_view level : {"INFO ", "WARNING ", "ERROR ", "DEBUG "}) {
    LineHead ignored{};
    const std::string_view rest = text.substr(time);
    if (rest.starts_with(level) && rest.substr(level.size()).starts_with('[') &&
        Host(rest.substr(level.size()), &ignored) > 0) {
      return time + level.size();
    }
  }
  return BeginsWithName(text.substr(time)) ? time : 0;
}

// Takes "rank", perhaps of the whole job, in upper or lower case off the front of `text`.
bool ConsumeRankWord(std::string_view* text) {
  constexpr size_t kLongest = 12;
  const std::string start = Lowered(text->substr(0, kLongest));
  for (const std::string_view word :
       {"rank", "global_rank", "global rank", "globalrank", "global-rank", "world_rank"}) {
    if (!start.starts_with(word)) continue;
    text->remove_prefix(word.size());
    return true;
  }
  return false;
}

// "[rank3]:", "[default3]:" and "[3]:" of torchrun; "[Rank 3] ", "rank 3: ", "(rank=3/16) ",
// "<rank:3> " and the like of programs' own and of scripts that start them.
size_t TorchRank(std::string_view text, LineHead* head) {
  constexpr std::string_view kOpen = "[(<{";
  constexpr std::string_view kClose = "])>}";
  std::string_view rest = text;
  const size_t bracket = rest.empty() ? rest.npos : kOpen.find(rest.front());
  if (bracket != rest.npos) rest.remove_prefix(1);
  const bool torchrun = bracket == 0 && ConsumePrefix(&rest, "default");
  const bool named = !torchrun && ConsumeRankWord(&rest);
  if (!named && bracket != 0) return 0;
  const std::string_view between = rest.substr(0, rest.find_first_of("0123456789"));
  const bool equals = between == "=" || between == ":";
  const bool joined = between.empty() || equals || between == " " || between == "-" ||
                      between == "_" || between == "#" || between == ": " || between == " = ";
  if (named ? !joined : !between.empty()) return 0;
  rest.remove_prefix(between.size());
  const std::string_view number = rest;
  const size_t digits = DigitsAt(rest);
  rest.remove_prefix(digits);
  if (digits == 0) return 0;
  if (named && rest.starts_with('/') && DigitsAt(rest.substr(1)) > 0) {
    rest.remove_prefix(1 + DigitsAt(rest.substr(1)));
  }
  if (bracket != rest.npos && !ConsumePrefix(&rest, kClose.substr(bracket, 1))) return 0;
  const bool bar = bracket == rest.npos && IsBar(&rest);
  const bool colon = !bar && ConsumePrefix(&rest, ":");
  const bool set_off = !bar && ConsumePrefix(&rest, " ");
  // "[0]:" alone is a heading of torchrun's summary; "[0] " may be anything.
  const bool whole = bar                    ? true
                     : !named && !torchrun  ? colon && !StripBlanks(rest).empty()
                     : bracket != text.npos ? colon || set_off || rest.starts_with('[')
                     : equals               ? colon || set_off
                                            : colon && set_off;
  if (!whole) return 0;
  (named ? head->rank : head->index) = RankNumber(number);
  return text.size() - rest.size();
}

// The rank in a process's name, "rank3" or "trainer.rank-3"; "r3" may be another number.
void ReadRankInName(std::string_view name, LineHead* head) {
  const std::string lowered = Lowered(name);
  const size_t at = lowered.rfind("rank");
  std::string_view rest = std::string_view(lowered).substr(at == lowered.npos ? 0 : at + 4);
  if (at == lowered.npos) {
    if (!ConsumePrefix(&rest, "r") || rest.empty() || DigitsAt(rest) != rest.size()) return;
    head->index = RankNumber(rest);
    return;
  }
  if (at >= 6 && lowered.substr(0, at).ends_with("local_")) return;
  rest.remove_prefix(std::min(rest.find_first_not_of("-_.:=#"), rest.size()));
  if (DigitsAt(rest) > 0) head->rank = RankNumber(rest);
}

bool MayBePod(std::string_view name);

bool IsOfProcessName(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         std::string_view("._@/:#=-").find(c) != std::string_view::npos;
}

// "train-3  | " of docker compose, "rank3 | " and "web.1   | " of supervisors, also after a word
// for what the line is ("log train-3 | "). Levels, in upper case, stand there in some programs'
// lines.
size_t NamedColumn(std::string_view text, LineHead* head) {
  constexpr size_t kLongest = 80;
  const auto take_name = [](std::string_view from) {
    const std::string_view start = from.substr(0, kLongest);
    const auto end = std::ranges::find_if_not(start, IsOfProcessName);
    return start.substr(0, static_cast<size_t>(end - start.begin()));
  };
  std::string_view rest = text;
  // "0|train  | " of pm2
  if (const size_t digits = DigitsAt(rest); digits > 0 && rest.substr(digits).starts_with('|')) {
    rest.remove_prefix(digits + 1);
  }
  std::string_view name = take_name(rest);
  if (name.empty() || !absl::ascii_isalpha(static_cast<unsigned char>(name[0]))) return 0;
  if (std::ranges::none_of(name, [](char c) { return absl::ascii_islower(c) || IsDigit(c); })) {
    return 0;
  }
  rest.remove_prefix(name.size());
  if (rest.size() > 1 && rest[0] == ' ' && IsOfProcessName(rest[1])) {
    name = take_name(rest.substr(1));
    rest.remove_prefix(1 + name.size());
    LineHead said{};
    ReadRankInName(name, &said);
    if (!MayBePod(name) && !said.rank) return 0;
  }
  if (!IsBar(&rest)) return 0;
  ReadRankInName(name, head);
  if (!head->rank && !head->index && (IsDigit(name.back()) || MayBePod(name))) {
    head->pod = name;
  }
  return text.size() - rest.size();
}

size_t SrunTask(std::string_view text, LineHead* head) {
  const size_t blanks = std::min<size_t>(text.find_first_not_of(' '), 4);
  if (blanks >= text.size()) return 0;
  const size_t digits = DigitsAt(text.substr(blanks));
  if (digits == 0 || digits > 5 || !text.substr(blanks + digits).starts_with(": ")) return 0;
  head->index = RankNumber(text.substr(blanks));
  return blanks + digits + 2;
}

// "[1,3]<stderr>:" of mpirun, "[3]<stderr>:" of horovodrun, perhaps after "Mon Jan  5 10:00:00
// 2026".
size_t MpirunRank(std::string_view text, LineHead* head) {
  constexpr size_t kDate = sizeof("Mon Jan  5 10:00:00 2026") - 1;
  const bool dated = text.size() > kDate && text[kDate] == '[' && text[3] == ' ' &&
                     text[13] == ':' && text[16] == ':';
  const size_t begin = dated ? kDate : 0;
  if (!text.substr(begin).starts_with('[')) return 0;
  size_t number = begin + 1;
  size_t end = number + DigitsAt(text.substr(number));
  if (end > number && text.substr(end).starts_with(',')) {
    number = end + 1;
    end = number + DigitsAt(text.substr(number));
  }
  if (end == number) return 0;
  for (const std::string_view stream : {"]<stderr>:", "]<stdout>:"}) {
    if (!text.substr(end).starts_with(stream)) continue;
    head->rank = RankNumber(text.substr(number));
    return end + stream.size();
  }
  return 0;
}

size_t KubectlPod(std::string_view text, LineHead* head) {
  if (!text.starts_with("[pod/")) return 0;
  const size_t end = text.find("] ");
  if (end == std::string_view::npos) return 0;
  head->pod = TextAfter(text.substr(0, end), "[pod/", "/");
  return end + 2;
}

// "(RayTrainWorker pid=4009, ip=10.0.5.89) ", and "(trainer) " of other collectors.
size_t RayWorker(std::string_view text, LineHead* /*head*/) {
  if (!text.starts_with('(')) return 0;
  const size_t end = text.substr(0, 160).find(") ");
  if (end == std::string_view::npos) return 0;
  const std::string_view inside = text.substr(0, end);
  const bool known = inside.find(" pid=") != inside.npos || inside.find(" rank=") != inside.npos ||
                     inside.find(' ') == inside.npos;
  return known ? end + 2 : 0;
}

// "10.0.5.89: " and "train-3: " of pdsh, "[train-3] " of others: lower case with digits and a dot
// or dash.
size_t Host(std::string_view text, LineHead* /*head*/) {
  std::string_view rest = text;
  const bool bracket = ConsumePrefix(&rest, "[");
  const auto after = std::ranges::find_if_not(rest.substr(0, 80), [](char c) {
    return IsDigit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '.' || c == '_';
  });
  const std::string_view name = rest.substr(0, static_cast<size_t>(after - rest.begin()));
  if (name.empty() || name.find_first_of("-._") == name.npos) return 0;
  if (!IsDigit(name.back()) && !MayBePod(name)) return 0;
  rest.remove_prefix(name.size());
  if (bracket) {
    if (!ConsumePrefix(&rest, "]: ") && !ConsumePrefix(&rest, "] ")) return 0;
  } else if (!ConsumePrefix(&rest, ": ")) {
    return 0;
  }
  return text.size() - rest.size();
}

// Whether a line surely begins here: one of a traceback, a launcher's, or an exception.
bool BeginsLine(std::string_view text) {
  const size_t colon = text.substr(0, 80).find_first_of(": ");
  const std::string_view word = text.substr(0, colon);
  const bool glog = text.size() > 2 && (text[0] == 'W' || text[0] == 'E' || text[0] == 'I') &&
                    IsDigit(text[1]) && IsDigit(text[2]);
  return text.starts_with("  ") || text.starts_with('[') || text.starts_with('{') ||
         text.starts_with("^C") || text.ends_with("Traceback (most recent call last):") || glog ||
         ((colon == text.npos || text[colon] == ':') &&
          (word.ends_with("Error") || word.ends_with("Exception") || word.ends_with("Interrupt")));
}

// "node2: " of pdsh: letters and a number, which a program's own words may look like as well.
size_t ShortHost(std::string_view text, LineHead* /*head*/) {
  constexpr size_t kLongest = 16;
  const size_t colon = text.substr(0, kLongest).find(": ");
  if (colon == std::string_view::npos || colon < 3 || !IsDigit(text[colon - 1])) return 0;
  const std::string_view name = text.substr(0, colon);
  const auto number = std::ranges::find_if(name, IsDigit);
  const auto letters = static_cast<size_t>(number - name.begin());
  const bool named =
      letters > 1 &&
      std::ranges::all_of(name.substr(0, letters), [](char c) { return c >= 'a' && c <= 'z'; }) &&
      std::ranges::all_of(name.substr(letters), IsDigit);
  return named && BeginsLine(text.substr(colon + 2)) ? colon + 2 : 0;
}

bool IsOfName(char c) { return IsDigit(c) || (c >= 'a' && c <= 'z') || c == '-'; }

// Whether it is of the kind that Kubernetes makes up: "x7k2p", without vowels.
bool IsMadeUp(std::string_view end) {
  constexpr size_t kLength = 5;
  return end.size() == kLength &&
         end.find_first_not_of("bcdfghjklmnpqrstvwxz2456789") == end.npos &&
         !std::ranges::all_of(end, IsDigit);
}

// Whether it looks like a pod's name: it ends in a number, or in what Kubernetes makes up.
bool MayBePod(std::string_view name) {
  const size_t dash = name.rfind('-');
  if (dash == name.npos || !std::ranges::all_of(name, IsOfName) || IsDigit(name[0])) {
    return false;
  }
  return IsDigit(name.back()) || IsMadeUp(name.substr(dash + 1));
}

// "train-3 pytorch " of stern, at the beginning of a line; a program's own words may look like it,
// so the name is believed before what surely begins a line.
size_t SternPod(std::string_view text, LineHead* head) {
  const size_t end = text.substr(0, 80).find(' ');
  if (end == std::string_view::npos || !MayBePod(text.substr(0, end))) return 0;
  const std::string_view name = text.substr(0, end);
  const std::string_view rest = text.substr(end + 1, 64);
  const auto after = std::ranges::find_if_not(rest, IsOfName);
  const auto length = static_cast<size_t>(after - rest.begin());
  if (length < 2 || after == rest.end() || *after != ' ') return 0;
  const std::string_view body = text.substr(end + 1 + length + 1);
  const bool surely = IsMadeUp(name.substr(name.rfind('-') + 1));
  if (surely || body.starts_with('[') || body.starts_with("Traceback ")) head->pod = name;
  return text.size() - body.size();
}

// "[ml/train-3/pytorch] ", "[train-3 pytorch] ", "[train-3:pytorch] "
size_t BracketedPod(std::string_view text, LineHead* head) {
  constexpr size_t kLongest = 120;
  if (!text.starts_with('[') || text.size() < 4) return 0;
  const size_t close = text.substr(0, kLongest).find("] ");
  if (close == text.npos) return 0;
  std::string_view inside = text.substr(1, close - 1);
  if (inside.find_first_of("/ :") == inside.npos) return 0;
  for (int part = 0; part < 3 && !inside.empty(); ++part) {
    const size_t end = std::min(inside.find_first_of("/ :"), inside.size());
    if (MayBePod(inside.substr(0, end))) {
      head->pod = inside.substr(0, end);
      return close + 2;
    }
    inside.remove_prefix(std::min(end + 1, inside.size()));
  }
  return 0;
}

// "{app="train", pod="train-3"} " of Loki.
size_t LokiLabels(std::string_view text, LineHead* head) {
  constexpr size_t kLongest = 600;
  if (text.size() < 4 || text[0] != '{' ||
      !absl::ascii_isalpha(static_cast<unsigned char>(text[1]))) {
    return 0;
  }
  const size_t end = text.substr(0, kLongest).find("\"} ");
  if (end == text.npos || text.find("=\"") > end) return 0;
  std::string_view labels = text.substr(0, end + 1);
  for (const std::string_view key : {"{pod=\"", " pod=\"", ",pod=\"", "pod_name=\""}) {
    if (head->pod.empty()) head->pod = TextAfter(labels, key, "\"");
  }
  return end + 3;
}

// "app[worker.1]: " after a time, without a host.
size_t TaggedProcess(std::string_view text, LineHead* /*head*/) {
  constexpr size_t kLongest = 64;
  const size_t open = text.substr(0, kLongest).find('[');
  if (open == 0 || open == text.npos || !std::ranges::all_of(text.substr(0, open), IsOfName)) {
    return 0;
  }
  const size_t close = text.substr(0, kLongest).find("]: ");
  if (close == text.npos || close < open) return 0;
  const std::string_view inside = text.substr(open + 1, close - open - 1);
  const bool one = inside.find(' ') == inside.npos && HasDigit(inside);
  return one && text.substr(0, open) != "kernel" ? close + 3 : 0;
}

constexpr std::array<Prefix, 11> kPrefixes = {CollectorsTime, TorchRank,  NamedColumn, SrunTask,
                                              MpirunRank,     KubectlPod, RayWorker,   Host,
                                              BracketedPod,   LokiLabels, ShortHost};

bool BeginsWithName(std::string_view text) {
  LineHead ignored{};
  constexpr std::array<Prefix, 7> kNames = {TorchRank,    NamedColumn, MpirunRank,   KubectlPod,
                                            BracketedPod, LokiLabels,  TaggedProcess};
  const bool named =
      std::ranges::any_of(kNames, [&](Prefix prefix) { return prefix(text, &ignored) > 0; });
  // What stands in brackets alone is what programs call their parts.
  const bool of_ray = text.find(" pid=") != text.npos && RayWorker(text, &ignored) > 0;
  return named || of_ray || (!text.starts_with('[') && Host(text, &ignored) > 0) ||
         SyslogTag(text, true) > 0;
}

// "2024-09-30 05:40:44.810923: E external/xla/..." of XLA, from the letter on; otherwise `body`.
std::string_view WithoutXlaTime(std::string_view body) {
  constexpr size_t kTime = sizeof("2024-09-30 05:40:44.810923: ") - 1;
  const bool timed = body.size() > kTime + 2 && body[4] == '-' && body[10] == ' ' &&
                     body[13] == ':' && body[19] == '.' && body.substr(26, 2) == ": " &&
                     body[kTime + 1] == ' ';
  return timed ? body.substr(kTime) : body;
}

// "[E302 10:44:12.7 ProcessGroupNCCL.cpp:685]", "[W socket.cpp:464]", "E0302 10:41:18.826000 7 ..."
Severity GlogSeverity(std::string_view body) {
  const std::string_view after_time = WithoutXlaTime(body);
  const bool xla = after_time.size() != body.size();
  body = after_time;
  const bool bracket = ConsumePrefix(&body, "[");
  if (body.size() < 6) return Severity::kUnsaid;
  const size_t digits = DigitsAt(body.substr(1));
  const bool dated = (digits == 3 || digits == 4) && body[digits + 1] == ' ';
  const bool undated = bracket && digits == 0 && body[1] == ' ' &&
                       body.substr(0, 60).find(".cpp:") != std::string_view::npos;
  if (!dated && !undated && !xla) return Severity::kUnsaid;
  switch (body[0]) {
    case 'I':
      return Severity::kInfo;
    case 'W':
      return Severity::kWarning;
    case 'E':
    case 'F':
      return Severity::kError;
    default:
      return Severity::kUnsaid;
  }
}

struct Level {
  std::string_view word;
  Severity severity;
};

// NCCL WARN and libfabric's <warn> are their only words for what failed.
constexpr std::array<Level, 21> kLevels = {{
    {" NCCL WARN ", Severity::kError}, {"<warn>", Severity::kError},
    {" NCCL INFO ", Severity::kInfo},  {"<info>", Severity::kInfo},
    {"[ERROR]", Severity::kError},     {" ERROR ", Severity::kError},
    {"ERROR:", Severity::kError},      {"CRITICAL", Severity::kError},
    {"[WARNING]", Severity::kWarning}, {" WARNING ", Severity::kWarning},
    {"WARNING:", Severity::kWarning},  {"[WARN]", Severity::kWarning},
    {" WARN ", Severity::kWarning},    {"Warning: ", Severity::kWarning},
    {"[INFO]", Severity::kInfo},       {" INFO ", Severity::kInfo},
    {"INFO:", Severity::kInfo},        {"[DEBUG]", Severity::kInfo},
    {" DEBUG ", Severity::kInfo},      {"DEBUG:", Severity::kInfo},
    {"warning: ", Severity::kWarning},
}};

constexpr std::string_view kFirstOfLevels = " <[EWIDCw";

// What follows `"KEY":` in a line that is a JSON object, without blanks; empty if it isn't there.
std::string_view JsonValue(std::string_view body, std::string_view key) {
  if (!body.starts_with('{')) return {};
  const size_t at = body.find(key);
  if (at == std::string_view::npos) return {};
  body.remove_prefix(at + key.size());
  return body.substr(std::min(body.find_first_not_of(' '), body.size()));
}

// What follows "level=" or the like where a line's words are of that form, as in "time=...
// level=info msg=...".
std::string_view LogfmtLevel(std::string_view body) {
  constexpr std::array<std::string_view, 4> kKeys = {"level", "severity", "levelname", "lvl"};
  const std::string_view start = body.substr(0, kMaxLevelAt);
  for (size_t at = start.find('='); at != start.npos; at = start.find('=', at + 1)) {
    const size_t blank = start.substr(0, at).rfind(' ');
    const std::string_view key = start.substr(blank + 1, at - blank - 1);
    if (std::ranges::find(kKeys, key) != kKeys.end()) return body.substr(at + 1);
  }
  return {};
}

// By the level that a record in JSON or of "KEY=VALUE" words says.
Severity RecordSeverity(std::string_view body) {
  constexpr std::array<std::string_view, 5> kKeys = {
      "\"level\":", "\"severity\":", "\"levelname\":", "\"lvl\":", ""};
  for (const std::string_view key : kKeys) {
    std::string_view level = key.empty() ? LogfmtLevel(body) : JsonValue(body, key);
    ConsumePrefix(&level, "\"");
    if (level.empty()) continue;
    switch (absl::ascii_tolower(static_cast<unsigned char>(level[0]))) {
      case 'e':
      case 'c':
      case 'f':
        return Severity::kError;
      case 'w':
        return Severity::kWarning;
      case 'i':
      case 'd':
        return Severity::kInfo;
      default:
        break;
    }
  }
  return Severity::kUnsaid;
}

Severity SeverityOf(std::string_view body) {
  if (const Severity glog = GlogSeverity(body); glog != Severity::kUnsaid) return glog;
  if (const Severity told = RecordSeverity(body); told != Severity::kUnsaid) return told;
  const std::string_view start = body.substr(0, kMaxLevelAt);
  // The level that stands first.
  for (const Level& level : kLevels) {
    if (level.word[0] == ' ' && start.starts_with(level.word.substr(1))) return level.severity;
  }
  for (size_t at = start.find_first_of(kFirstOfLevels); at != start.npos;
       at = start.find_first_of(kFirstOfLevels, at + 1)) {
    for (const Level& level : kLevels) {
      if (level.word[0] == start[at] && start.substr(at).starts_with(level.word)) {
        return level.severity;
      }
    }
  }
  return Severity::kUnsaid;
}

}  // namespace

LineHead HeadOf(std::string_view line) {
  LineHead head{.body = line, .source = {}, .pod = {}};
  size_t taken = SternPod(line, &head);
  size_t source_from = 0;
  for (int i = 0; i < kMaxPrefixes; ++i) {
    size_t length = 0;
    for (const Prefix prefix : kPrefixes) {
      length = prefix(line.substr(taken), &head);
      if (length == 0) continue;
      if (prefix == CollectorsTime) {
        head.source.append(line.substr(source_from, taken - source_from));
        source_from = taken + length;
        const std::string_view rest = line.substr(taken + length);
        const size_t tag = SyslogTag(rest, IsDigit(line[taken]));
        length += tag > 0 ? tag : TaggedProcess(rest, &head);
      }
      break;
    }
    if (length == 0) break;
    taken += length;
  }
  head.body = line.substr(taken);
  head.source.append(line.substr(source_from, taken - source_from));
  head.severity = SeverityOf(head.body);
  if (!head.rank) head.rank = RankOf(head.body);
  head.rank_is_index = !head.rank && head.index.has_value();
  if (head.rank_is_index) head.rank = head.index;
  return head;
}

namespace {

bool HoldsAny(std::string_view text, std::span<const std::string_view> words) {
  return std::ranges::any_of(words,
                             [&](std::string_view word) { return text.find(word) != text.npos; });
}

// Whether a word of a heading is a log's name: "logs/rank_3.err", "train-3.log:".
bool NamesLog(std::string_view word) {
  while (!word.empty() && std::string_view(":,;)]}>\"'").find(word.back()) != word.npos) {
    word.remove_suffix(1);
  }
  constexpr std::array<std::string_view, 7> kEnds = {".log",   ".txt",    ".out",   ".err",
                                                     ".jsonl", "/stderr", "/stdout"};
  return word.size() > 4 &&
         std::ranges::any_of(kEnds, [&](std::string_view end) { return word.ends_with(end); });
}

// Whether `text` is a command that shows a log or an object.
bool ShowsLog(std::string_view text) {
  for (const std::string_view who : {"sudo ", "ssh "}) ConsumePrefix(&text, who);
  constexpr std::array<std::string_view, 9> kCommands = {"kubectl ", "oc ",         "stern ",
                                                         "docker ",  "podman ",     "crictl ",
                                                         "dmesg",    "journalctl ", "aws logs "};
  const auto begins = [&](std::string_view begin) { return text.starts_with(begin); };
  if (std::ranges::any_of(kCommands, begins)) return true;
  constexpr std::array<std::string_view, 5> kReaders = {"cat ", "tail ", "head ", "less ", "zcat "};
  const std::string_view last = text.substr(text.rfind(' ') + 1);
  return std::ranges::any_of(kReaders, begins) && (NamesLog(last) || last.find('/') != last.npos);
}

// The rest of a line behind what marks a heading ("==> ", "--- ", "## ", "[", ">>> "), and whether
// any does.
bool ConsumeMark(std::string_view* line) {
  constexpr std::string_view kMarks = "=-#*~>+:_<%";
  const size_t marks = std::min(line->find_first_not_of(kMarks), line->size());
  std::string_view rest = line->substr(marks);
  // "# kubectl logs" and "% cat" of a shell are told by what follows.
  const bool blank = ConsumePrefix(&rest, " ");
  const bool bracket = marks > 1 && !blank && rest.starts_with('[');
  if (bracket) rest.remove_prefix(1);
  if (marks == 0 || rest.empty() || !(blank || bracket || marks > 2)) return false;
  *line = rest;
  return true;
}

}  // namespace

bool BeginsPart(std::string_view line) {
  constexpr size_t kLongest = 200;
  if (line.empty() || line.size() > kLongest) return line.starts_with("$ ");
  const char first = line[0];
  const bool letter = absl::ascii_isalpha(static_cast<unsigned char>(first));
  if (first == ' ' || IsDigit(first)) return false;
  // "root@node-3:~# dmesg -T" and "ubuntu@login:/logs$ cat a.log"
  if (letter) {
    const size_t prompt = line.find_first_of("#$");
    const size_t user = line.find('@');
    if (prompt != line.npos && user < prompt && line.substr(0, prompt).find(' ') == line.npos &&
        line.substr(prompt + 1).starts_with(' ')) {
      return ShowsLog(line.substr(prompt + 2));
    }
    for (const std::string_view word : {"File: ", "file: ", "Log: ", "Log of ", "Logs of ",
                                        "Logs for ", "Log for ", "Output of ", "Pod: ", "pod/"}) {
      std::string_view rest = line;
      if (!ConsumePrefix(&rest, word)) continue;
      if (NamesLog(rest)) return true;
      rest = rest.substr(0, rest.find_first_of(" :/"));
      if (MayBePod(rest)) return true;
    }
  }
  // "logs/rank_3.err:" alone; programs print names of logs, without the colon.
  if (letter || first == '/' || first == '.') {
    return line.ends_with(':') && line.find(' ') == line.npos && NamesLog(line);
  }
  // What more shows before a file's name.
  constexpr size_t kOfMore = 10;
  if (first == ':') return line.size() > kOfMore && line.find_first_not_of(':') == line.npos;
  if (line.starts_with("$ ") || (line.starts_with("==> ") && line.ends_with(" <=="))) return true;
  if (line.starts_with("[file: ") || line.starts_with("[File: ")) return NamesLog(line);
  std::string_view rest = line;
  if (!ConsumeMark(&rest) || line.find("poch") != line.npos) return false;
  const size_t marks = line.size() - rest.size();
  if (ShowsLog(rest)) return true;
  // One mark is a comment, or a program's own.
  if (marks < 3) return false;
  constexpr std::array<std::string_view, 13> kPlaces = {
      "log",  "kubectl", "dmesg",      "journal", "kernel", "pod",  "node",
      "host", "event",   "nvidia-smi", "member",  "rank",   "lines"};
  constexpr std::array<std::string_view, 5> kMarks = {"--- ", "=== ", "== ", "### ", "==> "};
  const bool heading =
      std::ranges::any_of(kMarks, [&](std::string_view mark) { return line.starts_with(mark); });
  if (heading && HoldsAny(rest, kPlaces)) return true;
  const std::string_view word = rest.substr(0, rest.find(' '));
  if (NamesLog(word)) return true;
  while (!rest.empty() && std::string_view("=-#*~<>+:_] ").find(rest.back()) != rest.npos) {
    rest.remove_suffix(1);
  }
  // "----- rank 3 -----", "##### train-3"
  std::string_view name = rest;
  for (const std::string_view kind :
       {"pod/", "pod ", "Pod ", "container ", "begin ", "BEGIN ", "from "}) {
    ConsumePrefix(&name, kind);
  }
  if (MayBePod(name.substr(0, name.find_first_of(" /:")))) return true;
  LineHead ignored{};
  const std::string heading_of_rank = Concat(rest, ": ");
  return TorchRank(heading_of_rank, &ignored) == heading_of_rank.size();
}

std::optional<int> RankOf(std::string_view line) {
  for (const std::string_view key : {"\"rank\":", "\"global_rank\":"}) {
    if (const std::string_view value = JsonValue(line, key); !value.empty() && IsDigit(value[0])) {
      return RankNumber(value);
    }
  }
  if (const size_t at = line.find(" rank="); at != line.npos) {
    const bool logfmt =
        line.starts_with("time=") || line.starts_with("ts=") || !LogfmtLevel(line).empty();
    const auto rank = logfmt ? RankNumber(line.substr(at + 6)) : std::nullopt;
    if (rank) return rank;
  }
  for (const std::string_view word : {"[rank", "[Rank", " Rank "}) {
    for (size_t at = line.find(word); at != std::string_view::npos; at = line.find(word, at + 1)) {
      std::string_view rest = line.substr(at + word.size());
      const auto rank = LeadingNumber(rest);
      if (!rank || *rank < 0 || *rank > 1'000'000) continue;
      rest.remove_prefix(rest.find_first_not_of(" 0123456789") == std::string_view::npos
                             ? rest.size()
                             : rest.find_first_not_of(" 0123456789"));
      if (rest.starts_with(']')) return static_cast<int>(*rank);
    }
  }
  return std::nullopt;
}

std::string_view NcclProcessOf(std::string_view line) {
  const size_t nccl = line.find(" NCCL ");
  if (nccl == std::string_view::npos) return {};
  // The first word with two numbers after colons, as in "node-0:194:712"; a clock time's first part
  // is a number, and a host's name isn't.
  std::string_view rest = line.substr(0, nccl);
  while (!rest.empty()) {
    rest.remove_prefix(std::min(rest.find_first_not_of(" ["), rest.size()));
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(word.size());
    const size_t thread = word.rfind(':');
    if (thread == std::string_view::npos || thread == 0) continue;
    const size_t process = word.rfind(':', thread - 1);
    if (process == std::string_view::npos || process == 0) continue;
    const std::string_view host = word.substr(0, process);
    const bool numbers = LeadingNumber(word.substr(thread + 1)).has_value() &&
                         LeadingNumber(word.substr(process + 1)).has_value();
    const bool named = std::ranges::any_of(host, [](char c) { return !IsDigit(c); });
    if (numbers && named && absl::ascii_isalnum(static_cast<unsigned char>(host.front())))
      return word.substr(0, thread);
  }
  return {};
}

namespace {

// "tests/test_io.py::test_disk_full PASSED   [ 92%]"
bool NamesTest(std::string_view body) {
  const size_t name = body.find("::");
  if (name == std::string_view::npos || body.substr(0, name).find(' ') != body.npos) return false;
  constexpr std::array<std::string_view, 6> kOutcomes = {" PASSED", " SKIPPED", " XFAIL",
                                                         " XPASS",  " FAILED",  " ERROR"};
  return std::ranges::any_of(kOutcomes, [&](std::string_view outcome) {
    return body.substr(name).find(outcome) != std::string_view::npos;
  });
}

// Takes out what stands between two `mark`s; the view is into `line` or `plain`.
std::string_view WithoutBetween(char mark, std::string_view line, std::string* plain) {
  size_t open = line.find(mark);
  if (open == std::string_view::npos) return line;
  size_t from = 0;
  for (; open != std::string_view::npos; open = line.find(mark, from)) {
    const size_t close = line.find(mark, open + 1);
    if (close == std::string_view::npos) break;
    plain->append(line.substr(from, open + 1 - from));
    plain->push_back(mark);
    from = close + 1;
  }
  plain->append(line.substr(from));
  return *plain;
}

}  // namespace

std::string_view WithoutQuotes(std::string_view line, std::string_view body, std::string* plain) {
  constexpr std::array<std::string_view, 13> kSpeakers = {
      "prompt",       "user",          "assistant", "human",          "question",
      "answer",       "completion",    "generated", "generated text", "sample",
      "model output", "sample output", "prediction"};
  constexpr size_t kLongestName = 40;
  std::string_view text =
      body.substr(std::min(body.find_first_not_of(" \t>#*-|<[\"'"), body.size()));
  const size_t colon = text.substr(0, kLongestName).find_first_of(":]|>=");
  if (colon != std::string_view::npos) {
    const std::string name = Lowered(text.substr(0, colon));
    const bool speaks = std::ranges::any_of(kSpeakers, [&](std::string_view speaker) {
      return name.starts_with(speaker) &&
             std::ranges::none_of(name.substr(speaker.size()), [](char c) {
               return absl::ascii_isalpha(static_cast<unsigned char>(c));
             });
    });
    if (speaks) return {};
  }
  if (NamesTest(body)) return {};
  // A record in JSON quotes all of its words.
  const bool marks = line.find('"') != line.npos && !body.starts_with('{') && IsProgress(body);
  return WithoutBetween(marks ? '"' : '`', line, plain);
}

}  // namespace muster::worker
