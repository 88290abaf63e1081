#include "worker/diagnose/line_head.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

constexpr int kMaxPrefixes = 6;
constexpr size_t kMaxLevelAt = 120;  // a level that stands later isn't the line's own
constexpr int kMaxRankNumber = 1'000'000;

bool IsDigitChar(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

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
  std::string_view tag = text.substr(blank + 1, end - blank - 1);
  const size_t bracket = tag.find('[');
  if (tag.empty() || bracket == 0 || tag == "kernel" || tag.find(' ') != tag.npos) return 0;
  return process_said && (bracket == tag.npos || !tag.ends_with(']')) ? 0 : end + 2;
}

// The length of the prefix that `text` begins with, 0 if it begins with none; sets `head`'s rank
// and pod where the prefix says them.
using Prefix = size_t (*)(std::string_view text, LineHead* head);

size_t Host(std::string_view text, LineHead* head);

// "2026-03-02T10:41:17.123456789Z ", "... stdout F ", "May 27 15:02:40 ", "18:11:06.680 [rank4]:"
size_t CollectorsTime(std::string_view text, LineHead* /*head*/) {
  const bool date = text.size() > 20 && IsDigitChar(text[0]) && text[4] == '-' && text[10] == 'T';
  const size_t end = text.find(' ');
  if (date && end != std::string_view::npos && end < 40) {
    for (const std::string_view stream : {" stdout F ", " stderr F ", " stdout P ", " stderr P "}) {
      if (text.substr(end).starts_with(stream)) return end + stream.size();
    }
    const std::string_view zone = text.substr(19, end - 19);
    return zone.ends_with('Z') || zone.ends_with("Z:") || zone.find_first_of("+-") != zone.npos
               ? end + 1
               : 0;
  }
  if (text.size() > 16 && text[3] == ' ' && text[6] == ' ' && text[9] == ':' && text[12] == ':' &&
      text[15] == ' ' && IsDigitChar(text[5]) && IsDigitChar(text[14])) {
    return SyslogTag(text.substr(16), false) > 0 ? 16 : 0;
  }
  // A supervisor's "2026-03-02 10:41:17,123 ERROR [worker-1] " of what it passes on.
  if (text.size() > 24 && IsDigitChar(text[0]) && text[4] == '-' && text[10] == ' ' &&
      text[13] == ':' && text[16] == ':') {
    std::string_view rest = text.substr(19);
    rest.remove_prefix(std::min(rest.find_first_not_of(",.0123456789"), rest.size()));
    for (const std::string_view level : {" INFO ", " WARNING ", " ERROR ", " DEBUG "}) {
      LineHead ignored{};
      if (rest.starts_with(level) && rest.substr(level.size()).starts_with('[') &&
          Host(rest.substr(level.size()), &ignored) > 0) {
        return text.size() - rest.size() + level.size();
      }
    }
  }
  const bool clock = text.size() > 14 && IsDigitChar(text[0]) && text[2] == ':' && text[5] == ':' &&
                     text[8] == '.' && text.substr(12).starts_with(" [rank");
  return clock ? 13 : 0;
}

// "[rank3]:", "[default3]:" and "[3]:" of torchrun; "[Rank 3] ", "rank 3: " and the like of
// programs' own.
size_t TorchRank(std::string_view text, LineHead* head) {
  for (const std::string_view word :
       {"[rank", "[Rank", "[RANK", "[default", "[", "rank=", "rank", "Rank"}) {
    if (!text.starts_with(word)) continue;
    const bool bracket = word.front() == '[';
    const size_t blank = word.size() > 1 && text.substr(word.size()).starts_with(' ') ? 1 : 0;
    const size_t digits = DigitsAt(text.substr(word.size() + blank));
    std::string_view rest = text.substr(word.size() + blank + digits);
    if (digits == 0 || (bracket && !ConsumePrefix(&rest, "]"))) continue;
    const bool colon = ConsumePrefix(&rest, ":");
    const bool set_off = ConsumePrefix(&rest, " ");
    // "[0]:" alone is a heading of torchrun's summary; "[0] " may be anything.
    const bool whole = word == "["                  ? colon && !StripBlanks(rest).empty()
                       : bracket || word == "rank=" ? colon || set_off
                                                    : colon && set_off;
    if (!whole) continue;
    const bool is_index = word == "[" || word == "[default";
    (is_index ? head->index : head->rank) = RankNumber(text.substr(word.size()));
    return text.size() - rest.size();
  }
  return 0;
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

// "10.0.5.89: " and "train-3: " of pdsh, "train-3  | " of docker compose, "[train-3] " of others:
// lower case with digits and a dot or dash.
size_t Host(std::string_view text, LineHead* head) {
  std::string_view rest = text;
  const bool bracket = ConsumePrefix(&rest, "[");
  const auto after = std::ranges::find_if_not(rest.substr(0, 80), [](char c) {
    return IsDigitChar(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '.' || c == '_';
  });
  const std::string_view name = rest.substr(0, static_cast<size_t>(after - rest.begin()));
  if (name.empty() || !IsDigitChar(name.back()) || name.find_first_of("-._") == name.npos) return 0;
  rest.remove_prefix(name.size());
  if (bracket) {
    if (!ConsumePrefix(&rest, "]: ") && !ConsumePrefix(&rest, "] ")) return 0;
  } else if (!ConsumePrefix(&rest, ": ")) {
    const size_t bar = std::min(rest.find_first_not_of(' '), rest.size());
    if (!rest.substr(bar).starts_with("| ")) return 0;
    rest.remove_prefix(bar + 2);
    head->pod = name;
  }
  return text.size() - rest.size();
}

// Whether a line surely begins here: one of a traceback, a launcher's, or an exception.
bool BeginsLine(std::string_view text) {
  const size_t colon = text.substr(0, 80).find_first_of(": ");
  const std::string_view word = text.substr(0, colon);
  const bool glog = text.size() > 2 && (text[0] == 'W' || text[0] == 'E' || text[0] == 'I') &&
                    IsDigitChar(text[1]) && IsDigitChar(text[2]);
  return text.starts_with("  ") || text.starts_with('[') || text.starts_with('{') ||
         text.starts_with("^C") || text.ends_with("Traceback (most recent call last):") || glog ||
         ((colon == text.npos || text[colon] == ':') &&
          (word.ends_with("Error") || word.ends_with("Exception") || word.ends_with("Interrupt")));
}

// "node2: " of pdsh: letters and a number, which a program's own words may look like as well.
size_t ShortHost(std::string_view text, LineHead* /*head*/) {
  constexpr size_t kLongest = 16;
  const size_t colon = text.substr(0, kLongest).find(": ");
  if (colon == std::string_view::npos || colon < 3 || !IsDigitChar(text[colon - 1])) return 0;
  const std::string_view name = text.substr(0, colon);
  const auto number = std::ranges::find_if(name, IsDigitChar);
  const auto letters = static_cast<size_t>(number - name.begin());
  const bool named =
      letters > 1 &&
      std::ranges::all_of(name.substr(0, letters), [](char c) { return c >= 'a' && c <= 'z'; }) &&
      std::ranges::all_of(name.substr(letters), IsDigitChar);
  return named && BeginsLine(text.substr(colon + 2)) ? colon + 2 : 0;
}

// "train-3 pytorch " of stern, at the beginning of a line; a program's own words may look like it,
// so the name is believed before what surely begins a line.
size_t SternPod(std::string_view text, LineHead* head) {
  const size_t end = text.substr(0, 80).find(' ');
  if (end == std::string_view::npos || end < 3 || !IsDigitChar(text[end - 1])) return 0;
  const std::string_view name = text.substr(0, end);
  const auto of_name = [](char c) { return IsDigitChar(c) || (c >= 'a' && c <= 'z') || c == '-'; };
  if (name.find('-') == name.npos || IsDigitChar(name[0]) || !std::ranges::all_of(name, of_name)) {
    return 0;
  }
  const std::string_view rest = text.substr(end + 1, 64);
  const auto after = std::ranges::find_if_not(rest, of_name);
  const auto length = static_cast<size_t>(after - rest.begin());
  if (length < 2 || after == rest.end() || *after != ' ') return 0;
  const std::string_view body = text.substr(end + 1 + length + 1);
  if (body.starts_with('[') || body.starts_with("Traceback ")) head->pod = name;
  return text.size() - body.size();
}

constexpr std::array<Prefix, 8> kPrefixes = {CollectorsTime, TorchRank, SrunTask, MpirunRank,
                                             KubectlPod,     RayWorker, Host,     ShortHost};

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

// What follows `"KEY":` in a line that is a JSON object, without blanks; empty if it isn't there.
std::string_view JsonValue(std::string_view body, std::string_view key) {
  if (!body.starts_with('{')) return {};
  const size_t at = body.find(key);
  if (at == std::string_view::npos) return {};
  body.remove_prefix(at + key.size());
  return body.substr(std::min(body.find_first_not_of(' '), body.size()));
}

Severity JsonSeverity(std::string_view body) {
  for (const std::string_view key : {"\"level\":", "\"severity\":", "\"levelname\":", "\"lvl\":"}) {
    std::string_view level = JsonValue(body, key);
    if (!ConsumePrefix(&level, "\"") || level.empty()) continue;
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
  if (const Severity json = JsonSeverity(body); json != Severity::kUnsaid) return json;
  const std::string_view start = body.substr(0, kMaxLevelAt);
  // The level that stands first.
  size_t first = std::string_view::npos;
  Severity severity = Severity::kUnsaid;
  for (const Level& level : kLevels) {
    const size_t at = start.find(level.word);
    if (at >= first) continue;
    first = at;
    severity = level.severity;
  }
  return severity;
}

bool HasDigit(std::string_view text) { return std::ranges::any_of(text, IsDigitChar); }

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
        if (source_from == taken) source_from = taken + length;
        length += SyslogTag(line.substr(taken + length), IsDigitChar(line[taken]));
      }
      break;
    }
    if (length == 0) break;
    taken += length;
  }
  head.body = line.substr(taken);
  head.source = line.substr(source_from, taken - source_from);
  head.severity = SeverityOf(head.body);
  if (!head.rank) head.rank = RankOf(head.body);
  head.rank_is_index = !head.rank && head.index.has_value();
  if (head.rank_is_index) head.rank = head.index;
  return head;
}

std::optional<int> RankOf(std::string_view line) {
  for (const std::string_view key : {"\"rank\":", "\"global_rank\":"}) {
    if (const std::string_view value = JsonValue(line, key);
        !value.empty() && IsDigitChar(value[0])) {
      return RankNumber(value);
    }
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
    const bool named = std::ranges::any_of(host, [](char c) { return !IsDigitChar(c); });
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

bool IsRestart(std::string_view body) {
  constexpr std::array<std::string_view, 6> kWords = {
      "will restart worker group", "Restarting worker group", "Restarting training worker group",
      "FailureDecision.RETRY",     "SLURM_RESTART_COUNT=",    "requeue job"};
  return std::ranges::any_of(
      kWords, [&](std::string_view word) { return body.find(word) != std::string_view::npos; });
}

namespace {

// "NAME   RESTARTS   COMPLETED   AGE" of kubectl and the like.
bool IsTableHead(std::string_view body) {
  return body.find("   ") != body.npos && std::ranges::all_of(body, [](char c) {
           return absl::ascii_isupper(static_cast<unsigned char>(c)) ||
                  std::string_view(" -_/()%").find(c) != std::string_view::npos;
         });
}

}  // namespace

bool IsCompletion(std::string_view body) {
  constexpr std::array<std::string_view, 15> kWords = {
      "raining done",     "raining complete",  "raining finished",       "raining has finished",
      "inished training", "ompleted training", "successfully finished",  "WorkerState.SUCCEEDED",
      "  Job completed",  "'train_runtime'",   "Trainer.fit` stopped: ", "raining is done",
      "all done",         "COMPLETED ",        "] RUNNING -> FINISHED"};
  if (IsTableHead(body)) return false;
  // Of the result that Ray gives back.
  if (StripBlanks(body) == "error=None,") return true;
  return std::ranges::any_of(
      kWords, [&](std::string_view word) { return body.find(word) != std::string_view::npos; });
}

bool IsLastWord(std::string_view body) {
  if (body.starts_with("====")) {
    return body.find(" passed") != body.npos && body.find(" failed") == body.npos &&
           body.find(" error") == body.npos;
  }
  return body.ends_with("un complete") || body.ends_with("un completed");
}

std::optional<int64_t> ExitCodeIn(std::string_view body) {
  if (body.starts_with(' ') || body.starts_with('+')) return std::nullopt;
  // What runs before a job or after it.
  constexpr std::array<std::string_view, 6> kOthers = {"rolog", "pilog",   "hook",
                                                       "check", "cleanup", "init"};
  if (std::ranges::any_of(kOthers,
                          [&](std::string_view word) { return body.find(word) != body.npos; })) {
    return std::nullopt;
  }
  while (!body.empty() && (body.back() == '.' || body.back() == ')' || body.back() == ' ')) {
    body.remove_suffix(1);
  }
  size_t number = body.size();
  while (number > 0 && IsDigitChar(body[number - 1])) --number;
  std::string_view before = body.substr(0, number);
  const bool negative = before.ends_with('-');
  if (negative) before.remove_suffix(1);
  const auto code = LeadingNumber(body.substr(number));
  const size_t words = before.find_last_not_of(" :=");
  if (!code || words == before.npos || words + 1 == before.size()) return std::nullopt;
  before = before.substr(0, words + 1);
  constexpr std::array<std::string_view, 8> kWords = {" exit",      " exit code",   " exit status",
                                                      " with code", " with status", " return code",
                                                      " exitcode",  " rc"};
  const std::string said =
      Lowered(Concat(" ", before.substr(before.size() - std::min<size_t>(before.size(), 16))));
  const bool known =
      std::ranges::any_of(kWords, [&](std::string_view word) { return said.ends_with(word); });
  return known ? std::optional(negative ? -*code : *code) : std::nullopt;
}

std::optional<bool> LossIsFinite(std::string_view body) {
  const std::string line = Lowered(body);
  const std::string_view text = line;
  constexpr std::string_view kLoss = "loss";
  std::optional<bool> finite;
  for (size_t at = text.find(kLoss); at != text.npos; at = text.find(kLoss, at + 1)) {
    const std::string_view before = text.substr(0, at);
    const size_t word = before.find_last_of(" ,{|\"'") + 1;
    const std::string_view own = before.substr(word);
    const bool of_validation = own.starts_with("val") || own.starts_with("eval") ||
                               own.starts_with("test") || before.ends_with("val ") ||
                               before.ends_with("validation ") || before.ends_with("eval ") ||
                               before.ends_with("test ");
    std::string_view value = text.substr(at + kLoss.size());
    const size_t gap = std::min(value.find_first_not_of(" \t:='\""), value.size());
    value.remove_prefix(gap);
    if (gap == 0 || value.empty() || of_validation) continue;
    ConsumePrefix(&value, "tensor(");
    ConsumePrefix(&value, "-");
    if (IsDigitChar(value[0])) {
      finite = true;
    } else if (value.starts_with("nan") || value.starts_with("inf")) {
      finite = finite.value_or(false);
    }
  }
  return finite;
}

bool ScaleIsZero(std::string_view body) {
  constexpr std::string_view kScale = "scale";
  for (size_t at = body.find(kScale); at != body.npos; at = body.find(kScale, at + 1)) {
    std::string_view value = body.substr(at + kScale.size());
    const size_t gap = std::min(value.find_first_not_of(" :='\""), value.size());
    value = value.substr(gap);
    const size_t end = std::min(value.find_first_not_of("0123456789.e+-"), value.size());
    const std::string_view number = value.substr(0, end);
    const bool zero = number.starts_with('0') && number.find_first_of("123456789") == number.npos;
    if (gap > 0 && zero) return true;
  }
  return false;
}

bool IsProgress(std::string_view body) {
  constexpr std::array<std::string_view, 14> kWords = {
      "'loss'", "\"loss\"", "loss:", "loss=", "loss ", "Loss:",     "Loss ",
      "Loss=",  "it/s",     "s/it]", "s/it,", "tok/s", "samples/s", "elapsed time per iteration"};
  constexpr size_t kLongest = 2000;
  if (body.size() > kLongest || !HasDigit(body)) return false;
  return std::ranges::any_of(
      kWords, [&](std::string_view word) { return body.find(word) != std::string_view::npos; });
}

}  // namespace muster::worker
