#include "worker/launch/standstill.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster::worker {
namespace {

constexpr size_t kMostNamed = 8;
constexpr int kIdle = 5;  // per cent
constexpr int kBusy = 90;

using Ranks = std::vector<const RankPicture*>;

std::string Named(const Ranks& ranks) {
  std::vector<std::string> names;
  for (const RankPicture* rank : ranks) {
    if (names.size() == kMostNamed) {
      names.push_back("...");
      break;
    }
    names.push_back(absl::StrCat(rank->rank));
  }
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(names, ", "));
}

Ranks Those(const std::vector<RankPicture>& ranks,
            const std::function<bool(const RankPicture&)>& are) {
  Ranks found;
  for (const RankPicture& rank : ranks) {
    if (are(rank)) found.push_back(&rank);
  }
  return found;
}

// "the other rank waits" / "the 7 others wait"
std::string TheOthers(size_t count, const char* one, const char* several) {
  return count == 1 ? absl::StrCat("the other one ", one)
                    : absl::StrCat("the ", count, " others ", several);
}

Standstill Behind(const Ranks& ranks, const std::string& detail) {
  return {.rank = ranks.front()->rank, .detail = absl::StrCat(Named(ranks), " ", detail)};
}

// Those at the place where fewest are, if that is clearly fewer than elsewhere.
Ranks OddOnes(const std::vector<RankPicture>& ranks,
              const std::function<std::string(const RankPicture&)>& place_of) {
  std::map<std::string, Ranks> places;
  for (const RankPicture& rank : ranks) places[place_of(rank)].push_back(&rank);
  if (places.size() < 2) return {};
  const auto fewer = [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); };
  const auto fewest = std::min_element(places.begin(), places.end(), fewer);
  const auto most = std::max_element(places.begin(), places.end(), fewer);
  return 2 * fewest->second.size() < most->second.size() + 1 ? fewest->second : Ranks();
}

std::string PlaceOf(const RankPicture& rank) {
  const Frame* frame = UserFrame(rank.stack);
  return frame == nullptr ? "" : ToText(*frame);
}

std::optional<Standstill> ByStacks(const std::vector<RankPicture>& ranks) {
  const Ranks told = Those(ranks, [](const RankPicture& rank) { return !rank.stack.empty(); });
  if (told.size() < 2) return std::nullopt;
  const Ranks waiting = Those(ranks, [](const RankPicture& rank) {
    return !rank.stack.empty() && WaitsForOthers(rank.stack);
  });
  Ranks behind = Those(ranks, [](const RankPicture& rank) {
    return !rank.stack.empty() && !WaitsForOthers(rank.stack);
  });
  // All wait, perhaps for different things; or none of them where it is known that ranks wait.
  if (behind.empty() || waiting.empty()) {
    std::vector<RankPicture> with_stacks;
    for (const RankPicture* rank : told) with_stacks.push_back(*rank);
    const Ranks odd = OddOnes(with_stacks, PlaceOf);
    behind.clear();
    for (const RankPicture* one : odd) {
      behind.push_back(*std::find_if(told.begin(), told.end(), [&](const RankPicture* rank) {
        return rank->rank == one->rank;
      }));
    }
  }
  if (behind.empty()) return std::nullopt;
  const auto other = std::find_if(told.begin(), told.end(), [&](const RankPicture* rank) {
    return std::find(behind.begin(), behind.end(), rank) == behind.end();
  });
  if (other == told.end()) return std::nullopt;
  return Behind(behind,
                absl::StrCat(behind.size() == 1 ? "is" : "are", " at ", PlaceOf(*behind.front()),
                             " while ", TheOthers(told.size() - behind.size(), "waits", "wait"),
                             " at ", PlaceOf(**other)));
}

}  // namespace

Standstill WhoIsBehind(const std::vector<RankPicture>& ranks, const Standstill& told) {
  const Ranks stopped = Those(ranks, [](const RankPicture& rank) { return rank.state == 'T'; });
  if (!stopped.empty() && stopped.size() < ranks.size()) {
    return Behind(stopped, "was stopped by a signal (SIGSTOP) and doesn't run");
  }
  if (told.rank.has_value()) return told;
  if (const std::optional<Standstill> by_stacks = ByStacks(ranks)) return *by_stacks;
  const Ranks storage = Those(ranks, [](const RankPicture& rank) { return rank.state == 'D'; });
  if (!storage.empty() && storage.size() < ranks.size()) {
    return Behind(storage, absl::StrCat("waits for a device or a volume in the kernel (",
                                        storage.front()->wait_channel, ")"));
  }
  const Ranks idle =
      Those(ranks, [](const RankPicture& rank) { return rank.gpu_use.value_or(kBusy) < kIdle; });
  const Ranks busy =
      Those(ranks, [](const RankPicture& rank) { return rank.gpu_use.value_or(0) >= kBusy; });
  if (!idle.empty() && !busy.empty() && idle.size() < ranks.size()) {
    return Behind(idle, absl::StrCat("has given its GPU nothing to do, while ",
                                     TheOthers(busy.size(), "spins", "spin"), " in a collective"));
  }
  const Ranks odd = OddOnes(ranks, [](const RankPicture& rank) { return rank.wait_channel; });
  if (!odd.empty()) {
    const auto place = [](const RankPicture& rank) {
      return rank.wait_channel.empty() ? "running" : "in " + rank.wait_channel;
    };
    const auto other = std::find_if(ranks.begin(), ranks.end(), [&](const RankPicture& rank) {
      return rank.wait_channel != odd.front()->wait_channel;
    });
    return {.rank = odd.front()->rank,
            .detail = absl::StrCat(Named(odd), " is ", place(*odd.front()), " while others are ",
                                   place(*other))};
  }
  if (ranks.size() == 1) {
    const std::string place = PlaceOf(ranks.front());
    return {.rank = ranks.front().rank,
            .detail = place.empty() ? "the only rank of this pod does nothing"
                                    : absl::StrCat("rank ", ranks.front().rank, " is at ", place)};
  }
  const std::string where = ranks.empty() ? "" : PlaceOf(ranks.front());
  return {.rank = std::nullopt,
          .detail = where.empty() ? "all ranks of this pod wait alike"
                                  : absl::StrCat("all ranks of this pod wait at ", where)};
}

}  // namespace muster::worker
