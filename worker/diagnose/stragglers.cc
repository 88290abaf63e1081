#include "worker/diagnose/stragglers.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_join.h"
#include "worker/diagnose/line_head.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

constexpr size_t kMaxRanksKept = 4096;
constexpr size_t kMaxGroup = 253;
constexpr int kLargestRankRead = 1'000'000;

// "[PG ID 1 PG GUID 1 Rank 0]": operations are counted per group.
std::string GroupIn(std::string_view line) {
  const std::string_view label = TextAfter(line, "[PG ", "]");
  return Printable(label.substr(0, std::min(label.find(" Rank "), label.size())), kMaxGroup);
}

// The numbers in "3, 5" after the character at `at`.
std::set<int> RanksFrom(std::string_view text, size_t at) {
  std::set<int> ranks;
  if (at >= text.size()) return ranks;
  text.remove_prefix(at + 1);
  while (ranks.size() < kMaxRanksKept) {
    const auto rank = LeadingNumber(text);
    if (!rank || *rank < 0 || *rank > kLargestRankRead) break;
    ranks.insert(static_cast<int>(*rank));
    const size_t comma = text.find(',');
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return ranks;
}

// The same after the last "Rank " or "Ranks ".
std::set<int> RanksBefore(std::string_view text) {
  const size_t at = text.rfind("Rank");
  return at == text.npos ? std::set<int>() : RanksFrom(text, text.find(' ', at));
}

}  // namespace

// One report of Horovod's on who is waited for follows another; the last one counts.
bool CollectiveProgress::ReadStalled(std::string_view line) {
  if (line.ends_with("Missing ranks:")) {
    in_stalled_ = true;
    stalled_.clear();
    return true;
  }
  if (!in_stalled_) return false;
  // "[1,0]<stderr>:3: [DistributedAdam_Allreduce/..."
  const size_t end = line.find(": [");
  const size_t before = end == line.npos ? line.npos : line.substr(0, end).find_last_of(" :");
  const auto rank = end == line.npos
                        ? std::nullopt
                        : LeadingNumber(line.substr(before == line.npos ? 0 : before + 1));
  in_stalled_ = rank && *rank >= 0 && *rank <= kLargestRankRead;
  if (in_stalled_ && stalled_.size() < kMaxRanksKept) stalled_.insert(static_cast<int>(*rank));
  return in_stalled_;
}

void CollectiveProgress::Read(std::string_view line) {
  if (ReadStalled(line)) return;
  if (const size_t at = line.find(" failed to pass monitoredBarrier"); at != line.npos) {
    if (missed_.size() < kMaxRanksKept) missed_.merge(RanksBefore(line.substr(0, at)));
    return;
  }
  // PyTorch's own analysis.
  for (const std::string_view words :
       {"] are the lagging ranks", "] finished collective #", "] joined but didn't finish"}) {
    const size_t at = line.find(words);
    if (at == line.npos) continue;
    if (missed_.size() < kMaxRanksKept) missed_.merge(RanksFrom(line, line.rfind('[', at)));
    return;
  }
  if (const size_t at = line.find(" is running collective"); at != line.npos) {
    const std::set<int> by = RanksBefore(line.substr(0, at));
    const auto odd = NumberAfter(line.substr(at), "but Rank ");
    if (by.size() != 1 || !odd || *odd < 0 || *odd > kLargestRankRead) return;
    if (differ_.size() < kMaxRanksKept) differ_[static_cast<int>(*odd)].insert(*by.begin());
    return;
  }
  size_t at = line.find("ast enqueued ");
  if (at == std::string_view::npos) return;
  const std::optional<int> rank = RankOf(line);
  const auto enqueued = NumberAfter(line.substr(at), "work: ");
  if (!rank || !enqueued || size_ >= kMaxRanksKept) return;
  // The first that a rank says: later ones are of the time of its end.
  size_ += enqueued_[GroupIn(line)].emplace(*rank, *enqueued).second ? 1 : 0;
}

void CollectiveProgress::Merge(const CollectiveProgress& other) {
  for (const auto& [group, ranks] : other.enqueued_) {
    enqueued_[group].insert(ranks.begin(), ranks.end());
  }
  missed_.insert(other.missed_.begin(), other.missed_.end());
  stalled_.insert(other.stalled_.begin(), other.stalled_.end());
  went_on_.insert(other.went_on_.begin(), other.went_on_.end());
  for (const auto& [rank, by] : other.differ_) differ_[rank].insert(by.begin(), by.end());
}

CollectiveProgress::Behind CollectiveProgress::Stragglers() const {
  if (const std::set<int>& missed = missed_.empty() ? stalled_ : missed_; !missed.empty()) {
    Behind behind;
    for (const int rank : missed) {
      if (behind.ranks.size() < kMaxNamed) behind.ranks.push_back(rank);
    }
    behind.detail =
        Concat("rank ", absl::StrJoin(behind.ranks, ", "), " didn't come to a collective");
    return behind;
  }
  for (const auto& [group, ranks] : enqueued_) {
    const auto [least, most] =
        std::ranges::minmax_element(ranks, {}, [](const auto& rank) { return rank.second; });
    if (least->second == most->second) continue;
    Behind behind;
    for (const auto& [rank, enqueued] : ranks) {
      if (enqueued == least->second && behind.ranks.size() < kMaxNamed) {
        behind.ranks.push_back(rank);
      }
    }
    behind.detail =
        Concat("rank ", absl::StrJoin(behind.ranks, ", "), " is behind: it had enqueued ",
               least->second, " collectives of its group when others had enqueued ", most->second);
    return behind;
  }
  if (went_on_.size() == 1) {
    const int rank = *went_on_.begin();
    return {.ranks = {rank},
            .detail = Concat("rank ", rank, " was still at other work when others gave up")};
  }
  return {};
}

std::optional<int> CollectiveProgress::Odd() const {
  std::optional<int> odd;
  size_t most = 1;  // one rank alone can't tell which of two differs
  for (const auto& [rank, by] : differ_) {
    if (by.size() == most) odd.reset();
    if (by.size() > most) odd = rank;
    most = std::max(most, by.size());
  }
  return odd;
}

}  // namespace muster::worker
