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

// "[PG ID 1 PG GUID 1 Rank 0]": operations are counted per group.
std::string GroupIn(std::string_view line) {
  const std::string_view label = TextAfter(line, "[PG ", "]");
  return Printable(label.substr(0, std::min(label.find(" Rank "), label.size())), kMaxGroup);
}

// The numbers after "Rank " or "Ranks " that stand before "failed to pass".
std::set<int> RanksBefore(std::string_view text) {
  std::set<int> ranks;
  const size_t at = text.rfind("Rank");
  if (at == std::string_view::npos) return ranks;
  text.remove_prefix(at + 4);
  ConsumePrefix(&text, "s");
  while (ranks.size() < kMaxRanksKept) {
    const auto rank = LeadingNumber(text);
    if (!rank || *rank < 0 || *rank > 1'000'000) break;
    ranks.insert(static_cast<int>(*rank));
    const size_t comma = text.find(',');
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return ranks;
}

}  // namespace

void CollectiveProgress::Read(std::string_view line) {
  if (const size_t at = line.find(" failed to pass monitoredBarrier"); at != line.npos) {
    if (missed_.size() < kMaxRanksKept) missed_.merge(RanksBefore(line.substr(0, at)));
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
}

CollectiveProgress::Behind CollectiveProgress::Stragglers() const {
  if (!missed_.empty()) {
    Behind behind;
    for (const int rank : missed_) {
      if (behind.ranks.size() < kMaxNamed) behind.ranks.push_back(rank);
    }
    behind.detail = Concat("rank ", absl::StrJoin(behind.ranks, ", "), " didn't come to a barrier");
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
  return {};
}

}  // namespace muster::worker
