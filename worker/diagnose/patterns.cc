#include "worker/diagnose/patterns.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstring>
#include <map>

#include "absl/strings/ascii.h"

namespace muster::worker {
namespace {

constexpr std::string_view kThen = " ... ";
constexpr std::string_view kUnless = " unless ";

bool IsNumeral(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

bool IsOfWord(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }

// The rows of causes.txt by the first four letters of their first word: a line is gone through
// once, and only rows that begin as it goes on from there are compared.
class PatternIndex {
 public:
  explicit PatternIndex(std::span<const CauseRow> rows) {
    for (const CauseRow& row : rows) {
      if (row.kind == RowKind::kXid) continue;
      if (row.kind == RowKind::kUntil || row.kind == RowKind::kDespite) {
        recoveries_.push_back({row.cause, row.text, row.kind == RowKind::kDespite});
      } else {
        patterns_.push_back(Parse(row));
      }
    }
    std::ranges::stable_sort(recoveries_, {}, &Recovery::word);
    for (const Pattern& pattern : patterns_) {
      const uint32_t key = Key(pattern.words.front());
      by_key_[key].push_back(&pattern);
      keys_.set(Fold(key));
    }
  }

  std::span<const Pattern> patterns() const { return patterns_; }
  std::span<const Recovery> recoveries() const { return recoveries_; }

  template <typename Visitor>
  void Visit(std::string_view text, Visitor visit) const {
    for (size_t at = 0; at + kMinFirstWord <= text.size(); ++at) {
      const uint32_t key = Key(text.substr(at));
      if (!keys_.test(Fold(key))) continue;
      const auto found = by_key_.find(key);
      if (found == by_key_.end()) continue;
      const bool within = at > 0 && IsOfWord(text[at - 1]);
      for (const Pattern* pattern : found->second) {
        if (within && IsOfWord(pattern->words.front().front())) continue;
        visit(*pattern, text.substr(at));
      }
    }
  }

 private:
  static Pattern Parse(const CauseRow& row) {
    Pattern pattern{.cause = row.cause, .kind = row.kind, .words = {}, .absent = {}, .letters = 0};
    std::string_view rest = row.text;
    for (size_t at = rest.rfind(kUnless); at != std::string_view::npos; at = rest.rfind(kUnless)) {
      pattern.absent.push_back(rest.substr(at + kUnless.size()));
      rest = rest.substr(0, at);
    }
    for (size_t at = rest.find(kThen); at != std::string_view::npos; at = rest.find(kThen)) {
      pattern.words.push_back(rest.substr(0, at));
      rest.remove_prefix(at + kThen.size());
    }
    pattern.words.push_back(rest);
    for (const std::string_view word : pattern.words) pattern.letters += word.size();
    return pattern;
  }

  static uint32_t Key(std::string_view text) {
    std::array<char, kMinFirstWord> letters = {};
    text.copy(letters.data(), letters.size());
    uint32_t key = 0;
    std::memcpy(&key, letters.data(), sizeof(key));
    return key;
  }

  static size_t Fold(uint32_t key) { return (key * 2'654'435'761U) >> 16U; }

  std::vector<Pattern> patterns_;
  std::vector<Recovery> recoveries_;
  std::map<uint32_t, std::vector<const Pattern*>> by_key_;
  std::bitset<1U << 16U> keys_;
};

const PatternIndex& Index() {
  static const auto* const kIndex = new PatternIndex(BuiltInCauses().rows);
  return *kIndex;
}

RowKind RowOf(Doing doing) {
  switch (doing) {
    case Doing::kData:
      return RowKind::kData;
    case Doing::kCheckpoint:
      return RowKind::kCheckpoint;
    case Doing::kSharing:
      return RowKind::kSharing;
    case Doing::kUnsaid:
      break;
  }
  return RowKind::kRaised;
}

bool IsOfDoing(RowKind kind) {
  return kind == RowKind::kData || kind == RowKind::kCheckpoint || kind == RowKind::kSharing;
}

bool MayMatch(RowKind row, TextKind text, Doing doing) {
  switch (text) {
    case TextKind::kMessage:
      return row == RowKind::kShows || row == RowKind::kWarned || row == RowKind::kResult;
    case TextKind::kException:
      return row == RowKind::kShows || row == RowKind::kRaised || row == RowKind::kResult ||
             row == RowKind::kWraps || (IsOfDoing(row) && row == RowOf(doing));
    case TextKind::kQuiet:
      return row == RowKind::kWarned || row == RowKind::kResult;
    case TextKind::kNcclInfo:
      return row == RowKind::kInfo;
    case TextKind::kEvent:
      break;
  }
  return row == RowKind::kShows || row == RowKind::kWarned || row == RowKind::kEvent ||
         row == RowKind::kResult;
}

// Whether `text` begins with the first word and holds the others after it.
bool Begins(const Pattern& pattern, std::string_view text) {
  if (!text.starts_with(pattern.words.front())) return false;
  text.remove_prefix(pattern.words.front().size());
  for (const std::string_view word : std::span(pattern.words).subspan(1)) {
    const size_t at = text.find(word);
    if (at == std::string_view::npos) return false;
    text.remove_prefix(at + word.size());
  }
  // "status=12" isn't the beginning of "status=120".
  return text.empty() || !IsNumeral(pattern.words.back().back()) || !IsNumeral(text.front());
}

bool HoldsAny(std::string_view text, std::span<const std::string_view> words) {
  return std::ranges::any_of(
      words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

// How much a kind of row says.
int Weight(RowKind kind) {
  if (kind == RowKind::kResult) return 0;
  return kind == RowKind::kWraps ? 1 : 2;
}

bool CountsMore(const Pattern& a, const Pattern& b) {
  if (Weight(a.kind) != Weight(b.kind)) return Weight(a.kind) > Weight(b.kind);
  if (a.letters != b.letters) return a.letters > b.letters;
  return IsOfDoing(a.kind) && !IsOfDoing(b.kind);
}

}  // namespace

std::span<const Pattern> Patterns() { return Index().patterns(); }

const Pattern* FindPattern(std::string_view text, TextKind kind, Doing doing) {
  const Pattern* best = nullptr;
  Index().Visit(text, [&](const Pattern& pattern, std::string_view from_here) {
    if (!MayMatch(pattern.kind, kind, doing)) return;
    if (best != nullptr && !CountsMore(pattern, *best)) return;
    if (!Begins(pattern, from_here)) return;
    if (HoldsAny(text, pattern.absent)) return;
    best = &pattern;
  });
  return best;
}

std::span<const Recovery> Recoveries() { return Index().recoveries(); }

}  // namespace muster::worker
