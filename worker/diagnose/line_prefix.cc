#include "worker/diagnose/line_prefix.h"

#include <algorithm>
#include <array>
#include <map>

#include "absl/strings/ascii.h"
#include "worker/diagnose/log_time.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

constexpr size_t kMaxPieces = 8;
constexpr size_t kMaxWord = 80;
constexpr size_t kFewest = 4;  // lines that show a prefix
constexpr size_t kWordsOfFew = 8;
constexpr int kProofs = 2;  // that are wanted

// Letters of a shape.
constexpr char kTime = 'T';
constexpr char kLevel = 'L';
constexpr char kBrackets = 'B';
constexpr char kName = 'N';    // before a colon or a bar
constexpr char kPath = 'P';    // "trainer/0 "
constexpr char kSign = 'S';    // ">>> ", "- ", "|| "
constexpr char kWord = 'W';    // with digits, after a time
constexpr char kNumber = 'C';  // of the line, as cat -n and grep -n write it

struct Piece {
  char kind = '\0';
  std::string_view word;
  size_t length = 0;  // with what sets it off
};

bool IsOfWord(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         std::string_view("._@#=-").find(c) != std::string_view::npos;
}

bool IsLevel(std::string_view word) {
  constexpr std::array<std::string_view, 11> kLevels = {"INFO",    "WARNING",  "WARN", "ERROR",
                                                        "DEBUG",   "CRITICAL", "info", "error",
                                                        "warning", "warn",     "debug"};
  return std::ranges::find(kLevels, word) != kLevels.end();
}

size_t BlanksAt(std::string_view text) {
  return std::min(text.find_first_not_of(" \t"), text.size());
}

Piece InBrackets(std::string_view text) {
  constexpr std::string_view kOpen = "[({<";
  constexpr std::string_view kClose = "])}>";
  const size_t kind = kOpen.find(text[0]);
  if (kind == kOpen.npos) return {};
  const size_t end = text.substr(0, kMaxWord).find(kClose[kind]);
  if (end == text.npos || end < 2) return {};
  const std::string_view word = text.substr(1, end - 1);
  std::string_view rest = text.substr(end + 1);
  if (rest.starts_with("<std")) return {};  // of mpirun, which is known
  ConsumePrefix(&rest, ":");
  const bool next = !rest.empty() && kOpen.find(rest[0]) != kOpen.npos;
  if (!rest.empty() && !ConsumePrefix(&rest, " ") && !next) return {};
  // What ranks and NCCL's processes write is known, a level isn't the collector's.
  if (IsLevel(word)) return {.kind = kLevel, .word = word, .length = text.size() - rest.size()};
  return {.kind = kBrackets, .word = word, .length = text.size() - rest.size()};
}

// "launcher:" of "INFO:launcher:step 1", as Python's logging writes by default.
Piece LoggerOf(std::string_view text) {
  const std::string_view start = text.substr(0, kMaxWord);
  const auto after = std::ranges::find_if_not(start, IsOfWord);
  const auto length = static_cast<size_t>(after - start.begin());
  if (length == 0 || !text.substr(length).starts_with(':')) return {};
  return {.kind = kName, .word = text.substr(0, length), .length = length + 1};
}

// "     7\t" of cat -n, "7:" of grep -n.
Piece LineNumberAt(std::string_view text) {
  constexpr size_t kMostDigits = 7;
  const size_t blanks = std::min(text.find_first_not_of(' '), text.size());
  const std::string_view from = text.substr(blanks);
  const size_t digits = std::min(from.find_first_not_of("0123456789"), from.size());
  if (digits == 0 || digits > kMostDigits || digits == from.size()) return {};
  const bool cat = from[digits] == '\t';
  // srun sets its tasks' numbers off by one blank; more are a frame's.
  const std::string_view after = from.substr(digits + 1);
  const bool one_blank = after.starts_with(' ') && !after.starts_with("  ");
  const bool grep = blanks == 0 && from[digits] == ':' && !one_blank;
  if (!cat && !grep) return {};
  return {.kind = kNumber, .word = from.substr(0, digits), .length = blanks + digits + 1};
}

// "logs/train.log:" of grep.
Piece FileAt(std::string_view text) {
  const size_t colon = text.substr(0, kMaxWord).find(':');
  const std::string_view name = text.substr(0, colon);
  if (colon == text.npos || name.find(' ') != name.npos) return {};
  constexpr std::array<std::string_view, 4> kEnds = {".log", ".txt", ".out", ".err"};
  const bool log =
      std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
  return log ? Piece{.kind = kName, .word = name, .length = colon + 1} : Piece{};
}

Piece PieceOf(std::string_view text, bool after_time) {
  if (const size_t time = TimeLength(text); time > 0)
    return {.kind = kTime, .word = {}, .length = time};
  if (const Piece number = LineNumberAt(text); number.length > 0) return number;
  if (const Piece file = FileAt(text); file.length > 0) return file;
  if (const Piece group = InBrackets(text); group.length > 0) return group;
  const size_t sign = std::min(text.find_first_not_of(">|-*»›"), text.size());
  if (sign > 0 && sign < 8 && text.substr(sign).starts_with(' ')) {
    return {.kind = kSign, .word = text.substr(0, sign), .length = sign + 1};
  }
  const auto start = text.substr(0, kMaxWord);
  const auto after = std::ranges::find_if_not(start, IsOfWord);
  std::string_view word = start.substr(0, static_cast<size_t>(after - start.begin()));
  std::string_view rest = text.substr(word.size());
  if (IsLevel(word)) {
    ConsumePrefix(&rest, ":");
    rest.remove_prefix(BlanksAt(rest));
    for (const std::string_view mark : {"- ", "| "}) ConsumePrefix(&rest, mark);
    return {.kind = kLevel, .word = word, .length = text.size() - rest.size()};
  }
  if (word.empty()) return {};
  if (rest.starts_with('/') || rest.starts_with(':')) {
    // "trainer/0 ", "launcher:pump:88 - ", "trainer: "
    const std::string_view whole = start.substr(0, start.find(' '));
    if (whole.size() == start.size()) return {};
    rest = text.substr(whole.size() + 1);
    if (whole.ends_with(':')) return {.kind = kName, .word = whole, .length = whole.size() + 1};
    if (whole.find('/') != whole.npos && whole.find_first_of("'\"=,%|") == whole.npos) {
      return {.kind = kPath, .word = whole, .length = whole.size() + 1};
    }
    if (!ConsumePrefix(&rest, "- ") && !ConsumePrefix(&rest, "| ")) return {};
    return {.kind = kName, .word = whole, .length = text.size() - rest.size()};
  }
  const size_t blanks = BlanksAt(rest);
  std::string_view next = rest.substr(blanks);
  for (const std::string_view bar : {"| ", "|| ", "- ", "> ", ">> "}) {
    if (blanks > 0 && next.starts_with(bar)) {
      return {.kind = kName, .word = word, .length = word.size() + blanks + bar.size()};
    }
  }
  const bool marked = std::ranges::any_of(word, IsDigit);
  if (after_time && marked && blanks > 0) {
    return {.kind = kWord, .word = word, .length = word.size() + blanks};
  }
  return {};
}

// The pieces that `line` begins with, up to what is no piece.
std::vector<Piece> PiecesOf(std::string_view line, size_t most) {
  std::vector<Piece> pieces;
  bool after_time = false;
  while (pieces.size() < most && !line.empty()) {
    const bool after_level = !pieces.empty() && pieces.back().kind == kLevel &&
                             pieces.back().length == pieces.back().word.size() + 1 &&
                             *(line.data() - 1) == ':';
    const Piece piece = after_level ? LoggerOf(line) : PieceOf(line, after_time);
    if (piece.length == 0) break;
    after_time |= piece.kind == kTime;
    pieces.push_back(piece);
    line.remove_prefix(std::min(piece.length, line.size()));
    if (line.starts_with(' ')) break;  // a message that is indented
  }
  return pieces;
}

// That a line can be only what a process wrote, no record of a program that passes it on, is shown
// by one of a traceback, and by two of a launcher, of NCCL, or that are records themselves.
int ProofsIn(std::string_view text) {
  constexpr size_t kBeginning = 60;
  const std::string_view start = text.substr(0, kBeginning);
  const auto begins = [&](std::string_view word) { return text.starts_with(word); };
  if (start.find("Traceback (most recent call last):") != start.npos) return kProofs;
  if (begins("  File \"") || (begins("[rank") && start.find("  File \"") != start.npos)) {
    return kProofs;
  }
  std::string_view record = text;
  const bool bracket = ConsumePrefix(&record, "[");
  const bool lettered = record.size() > 8 && std::string_view("IWEF").find(record[0]) != text.npos;
  const bool glog = lettered && ((IsDigit(record[1]) && IsDigit(record[2]) && IsDigit(record[3])) ||
                                 (bracket && record[1] == ' ' && start.find(".cpp:") != text.npos));
  constexpr std::array<std::string_view, 7> kWords = {
      " NCCL INFO ", " NCCL WARN ", "<stderr>:", "[INFO]", "[ERROR]", " - INFO - ", " - ERROR - "};
  const bool other = glog || TimeLength(text) > 0 || begins("srun: ") || begins("slurmstepd: ") ||
                     begins("Fatal Python error") || begins("INFO:") ||
                     std::ranges::any_of(kWords, [&](std::string_view word) {
                       return start.find(word) != start.npos;
                     });
  return other ? 1 : 0;
}

// Whether the numbers that lines hold in place `at` become larger from line to line.
bool Increase(const std::vector<std::vector<Piece>>& lines, size_t at) {
  int64_t last = -1;
  for (const std::vector<Piece>& line : lines) {
    if (line.size() <= at || line[at].kind != kNumber) continue;
    const int64_t number = LeadingNumber(line[at].word).value_or(0);
    if (number <= last) return false;
    last = number;
  }
  return true;
}

}  // namespace

void LinePrefix::Learn(std::string_view line) {
  constexpr size_t kLongest = 512;
  if (is_learned_ || StripBlanks(line).empty()) return;
  lines_.emplace_back(line.substr(0, kLongest));
  if (lines_.size() >= kLines) Settle();
}

void LinePrefix::Settle() {
  if (is_learned_) return;
  is_learned_ = true;
  const std::vector<std::string> lines = std::move(lines_);
  lines_ = {};
  if (lines.size() < kFewest) return;
  // A log that was copied into another text may be indented as a whole.
  blanks_ = lines.front().size();
  for (const std::string& line : lines) blanks_ = std::min(blanks_, BlanksAt(line));
  if (std::ranges::all_of(lines,
                          [](const std::string& line) { return LineNumberAt(line).length > 0; })) {
    blanks_ = 0;
  }
  std::vector<std::vector<Piece>> pieces;
  for (const std::string& line : lines) {
    pieces.push_back(PiecesOf(std::string_view(line).substr(blanks_), kMaxPieces));
  }
  const size_t most = lines.size() - lines.size() / 10;
  for (size_t at = 0; at < kMaxPieces; ++at) {
    std::map<char, std::map<std::string, size_t>> kinds;
    for (const std::vector<Piece>& line : pieces) {
      if (line.size() > at) ++kinds[line[at].kind][std::string(line[at].word)];
    }
    const auto holds = std::ranges::find_if(kinds, [&](const auto& kind) {
      size_t count = 0;
      for (const auto& [word, lines_with] : kind.second) count += lines_with;
      return count >= most;
    });
    if (holds == kinds.end()) break;
    const auto& [kind, words] = *holds;
    if (kind == kNumber && !Increase(pieces, at)) break;
    const bool fixed = kind == kPath || kind == kSign || kind == kWord;
    if (words.size() > (fixed ? 1 : std::min(kWordsOfFew, lines.size() / 4 + 1)) && kind != kTime &&
        kind != kNumber) {
      break;
    }
    shape_.push_back(kind);
    std::set<std::string> known;
    if (kind == kName || fixed) {
      for (const auto& [word, unused] : words) known.insert(word);
    }
    words_.push_back(std::move(known));
    std::erase_if(pieces,
                  [&](const auto& line) { return line.size() <= at || line[at].kind != kind; });
  }
  // A sign or a word alone is a program's.
  if (shape_.find_first_not_of("W") == shape_.npos) shape_.clear();
  is_proven_ = shape_.find(kLevel) == shape_.npos;
  for (const std::string& line : lines) {
    std::string unused;
    if (!is_proven_) LengthIn(line, &unused);
  }
}

size_t LinePrefix::LengthIn(std::string_view line, std::string* source) {
  if (shape_.empty() && blanks_ == 0) return 0;
  if (BlanksAt(line) < blanks_) return 0;
  const std::vector<Piece> pieces = PiecesOf(line.substr(blanks_), shape_.size());
  if (pieces.size() < shape_.size()) return blanks_;
  size_t length = blanks_;
  for (size_t i = 0; i < pieces.size(); ++i) {
    // The kernel's records are no process's.
    if (pieces[i].kind != shape_[i] || pieces[i].word.starts_with("kernel")) return blanks_;
    if (!words_[i].empty() && !words_[i].contains(std::string(pieces[i].word))) return blanks_;
    length += pieces[i].length;
  }
  length = std::min(length, line.size());
  if (!is_proven_) is_proven_ = (proofs_ += ProofsIn(line.substr(length))) >= kProofs;
  if (!is_proven_) return blanks_;
  for (const Piece& piece : pieces) {
    if (piece.kind != kTime && piece.kind != kNumber) Append(source, piece.word, " ");
  }
  return length;
}

}  // namespace muster::worker
