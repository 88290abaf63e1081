// Choosing nodes without levels. Greedy by size finds how few nodes suffice; as the sum of the
// largest then exceeds what is needed by less than one node's worth (the slack), only exchanges
// that cost no more than the slack can make the choice cheaper. Those are searched exactly, by
// dynamic programming over (pods of the largest nodes given up, slack spent), up to a slack of
// kMostSlack; beyond that the largest nodes are taken as they are.

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "cluster/tree_fill.h"

namespace muster::cluster {
namespace {

// Bins of one size, cheapest first.
struct Group {
  size_t begin = 0, end = 0;  // in the sorted bins
  int fits = 0;
  int in_largest = 0;  // how many of them are among the largest bins that suffice
  int size() const { return static_cast<int>(end - begin); }
};

// Chooses as many bins as the largest that suffice, at the least cost. Walks the groups from the
// largest size down; `given_up` of the largest bins are owed and must be made up for by smaller
// ones, which spends slack.
class Exchange {
 public:
  Exchange(const std::vector<Bin>& bins, size_t largest, int slack)
      : bins_(bins), slack_(slack), pivot_(bins[largest - 1].fits) {
    FindGroups(largest);
  }

  // How many bins of each group, by group.
  const std::vector<Group>& groups() const { return groups_; }
  std::vector<int> Solve() {
    std::vector<std::vector<Step>> steps;
    std::vector<Step> now((slack_ + 1) * (slack_ + 1));
    now[0].cost = Bin::Cost{};
    for (const Group& group : groups_) {
      steps.push_back(Advance(group, now));
      now = steps.back();
    }
    // Everything given up is made up for; the slack may be spent or not.
    int best = -1;
    for (int spent = 0; spent <= slack_; ++spent) {
      if (now[spent].cost && (best < 0 || *now[spent].cost < *now[best].cost)) best = spent;
    }
    return Trace(steps, best);
  }

 private:
  struct Step {
    std::optional<Bin::Cost> cost;  // absent: can't be reached
    int from = 0;
    int taken = 0;
  };

  int Index(int given_up, int spent) const { return given_up * (slack_ + 1) + spent; }

  void FindGroups(size_t largest) {
    for (size_t i = 0; i < bins_.size(); ++i) {
      if (pivot_ - bins_[i].fits > slack_) break;
      if (groups_.empty() || groups_.back().fits != bins_[i].fits) {
        groups_.push_back({.begin = i, .end = i, .fits = bins_[i].fits, .in_largest = 0});
      }
      groups_.back().end = i + 1;
      if (i < largest) ++groups_.back().in_largest;
    }
  }

  std::vector<Step> Advance(const Group& group, const std::vector<Step>& now) const {
    std::vector<Step> next(now.size());
    int fewest = std::max(0, group.in_largest - slack_);
    int most = std::min(group.size(), group.in_largest + slack_);
    Bin::Cost cost;
    for (int i = 0; i < fewest; ++i) cost = cost + bins_[group.begin + i].cost;
    for (int taken = fewest; taken <= most; ++taken) {
      int give_up = group.in_largest - taken;
      int spend = give_up * (group.fits - pivot_);
      for (int given_up = 0; given_up <= slack_; ++given_up) {
        for (int spent = 0; spent <= slack_; ++spent) {
          const Step& from = now[Index(given_up, spent)];
          int owed = given_up + give_up;
          int paid = spent + spend;
          if (!from.cost || owed < 0 || owed > slack_ || paid > slack_) continue;
          Step& to = next[Index(owed, paid)];
          Bin::Cost sum = *from.cost + cost;
          if (!to.cost || sum < *to.cost) to = {sum, Index(given_up, spent), taken};
        }
      }
      if (taken < most) cost = cost + bins_[group.begin + taken].cost;
    }
    return next;
  }

  std::vector<int> Trace(const std::vector<std::vector<Step>>& steps, int at) const {
    std::vector<int> taken(steps.size());
    for (size_t g = steps.size(); g-- > 0;) {
      taken[g] = steps[g][at].taken;
      at = steps[g][at].from;
    }
    return taken;
  }

  const std::vector<Bin>& bins_;
  const int slack_;
  const int pivot_;  // the smallest size among the largest bins that suffice
  std::vector<Group> groups_;
};

// Brings the bins that may be chosen to the front, large ones first, then cheap ones, and drops the
// others: of each size only the cheapest can be, as many as all pods need and kMostSlack more.
void SortLargest(std::vector<Bin>* bins, int pods) {
  std::map<int, size_t, std::greater<>> end;  // by size: where its bins are to end
  for (const Bin& bin : *bins) ++end[bin.fits];
  std::vector<Bin> by_size(bins->size());
  size_t sum = 0;
  for (auto& [fits, position] : end) sum += std::exchange(position, sum);
  for (const Bin& bin : *bins) by_size[end[bin.fits]++] = bin;
  bins->clear();
  size_t begin = 0;
  for (const auto& [fits, position] : end) {
    const size_t needed = static_cast<size_t>((pods + fits - 1) / fits) + kMostSlack;
    const size_t kept = std::min(position - begin, needed);
    const auto first = by_size.begin() + static_cast<std::ptrdiff_t>(begin);
    std::partial_sort(first, first + static_cast<std::ptrdiff_t>(kept),
                      by_size.begin() + static_cast<std::ptrdiff_t>(position),
                      [](const Bin& a, const Bin& b) {
                        return std::tie(a.cost, a.position) < std::tie(b.cost, b.position);
                      });
    bins->insert(bins->end(), first, first + static_cast<std::ptrdiff_t>(kept));
    begin = position;
  }
}

// The chosen bins, of the sorted ones.
std::vector<Bin> Choose(const std::vector<Bin>& bins, int pods) {
  size_t largest = 0;
  int64_t room = 0;
  while (largest < bins.size() && room < pods) room += bins[largest++].fits;
  int64_t slack = room - pods;
  if (slack <= 0 || slack > kMostSlack) return {bins.begin(), bins.begin() + largest};
  Exchange exchange(bins, largest, static_cast<int>(slack));
  std::vector<int> taken = exchange.Solve();
  std::vector<Bin> chosen;
  for (size_t g = 0; g < taken.size(); ++g) {
    auto first = bins.begin() + exchange.groups()[g].begin;
    chosen.insert(chosen.end(), first, first + taken[g]);
  }
  return chosen;
}

}  // namespace

std::vector<Bin> FewestBins(std::vector<Bin> bins, int pods) {
  if (pods <= 0) return {};
  for (Bin& bin : bins) bin.fits = std::min(bin.fits, pods);
  SortLargest(&bins, pods);
  return Choose(bins, pods);
}

}  // namespace muster::cluster
