#include "coscheduling/placement/planner/packing.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "coscheduling/placement/planner/search.h"

namespace muster::coscheduling::planner {
namespace {

// Sums over nodes of amounts that are each within 64 bits.
using Wide = __int128;

Slots PackOneClass(const Problem& problem, const std::vector<int>& candidates, int member_class) {
  const MemberClass& wanted = problem.classes[member_class];
  std::vector<Bin> bins;
  bins.reserve(candidates.size());
  for (int node : candidates) {
    int fits = FitCount(wanted, problem.FreeOf(node), wanted.size());
    bins.push_back(MakeBin(problem, member_class, node, fits));
  }
  Slots slots;
  for (const Take& take : FillFewestNodes(std::move(bins), wanted.size())) {
    slots.push_back({take.node, member_class, take.count});
  }
  return slots;
}

std::vector<int> ByScarcity(const Scope& scope, std::vector<int> order) {
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return scope.candidates[a].size() < scope.candidates[b].size();
  });
  return order;
}

bool EachClassFits(const Problem& problem, const Scope& scope) {
  for (size_t c = 0; c < problem.classes.size(); ++c) {
    const MemberClass& wanted = problem.classes[c];
    int left = wanted.size();
    for (int node : scope.candidates[c]) {
      if (left <= 0) break;
      left -= FitCount(wanted, problem.FreeOf(node), left);
    }
    if (left > 0) return false;
  }
  return true;
}

Slots PackGreedily(const Problem& problem, const Scope& scope,
                   const std::vector<int>& class_order) {
  Room room(problem);
  Slots slots;
  for (int c : class_order) {
    int left = problem.classes[c].size();
    std::vector<Bin> used, unused;
    for (int node : scope.candidates[c]) {
      int fits = room.Fits(c, node, left);
      if (fits > 0) (room.Used(node) ? used : unused).push_back(MakeBin(problem, c, node, fits));
    }
    auto take_from = [&](std::vector<Bin> bins) {
      for (const Take& take : FillFewestNodes(std::move(bins), left)) {
        room.Take(c, take.node, take.count);
        slots.push_back({take.node, c, take.count});
        left -= take.count;
      }
    };
    take_from(std::move(used));
    take_from(std::move(unused));
  }
  return slots;
}

class MixedPacking {
 public:
  MixedPacking(const Problem& problem, const Scope& scope, SearchBudget* budget)
      : problem_(problem), scope_(scope), nodes_(NodesOf(scope)), budget_(*budget) {}

  Slots Pack() {
    std::vector<int> hardest_first = HardestFirst(problem_, nodes_);
    Consider(PackGreedily(problem_, scope_, hardest_first));
    Consider(PackGreedily(problem_, scope_, ByScarcity(scope_, hardest_first)));
    if (!Everyone()) {
      if (auto slots = PackByFlow(problem_, scope_)) Consider(std::move(*slots));
    }
    Search();
    return best_;
  }

 private:
  bool Everyone() const { return best_score_.placed == problem_.members(); }

  void Consider(Slots slots) {
    Score score = ScoreOf(problem_, slots);
    if (considered_ && !Better(score, best_score_)) return;
    considered_ = true;
    best_score_ = score;
    best_ = std::move(slots);
  }

  void Search() {
    // Whether everyone can be placed is known; only a better plan could be found.
    bool settled = Everyone() || !EachClassFits(problem_, scope_) ||
                   FewestNodes(problem_, nodes_) > static_cast<int>(nodes_.size());
    if (settled && problem_.members() > kMostMembersSearched) return;
    Scope thinned = ThinOut(problem_, scope_, /*with_relations=*/false);
    int64_t pairs = static_cast<int64_t>(NodesOf(thinned).size()) * problem_.members();
    if (settled && pairs > kMostPairsSearched) return;
    Consider(SearchPacking(problem_, thinned, best_score_, &budget_));
  }

  const Problem& problem_;
  const Scope& scope_;
  const std::vector<int> nodes_;
  SearchBudget& budget_;
  bool considered_ = false;
  Score best_score_;
  Slots best_;
};

}  // namespace

std::vector<int> HardestFirst(const Problem& problem, const std::vector<int>& nodes) {
  // Far above any cluster; keeps the products below within Wide.
  constexpr Wide kMost = Wide{1} << 62;
  std::vector<Wide> free(problem.resources.size());
  for (size_t r = 0; r < free.size(); ++r) {
    for (int node : nodes) free[r] += problem.FreeOf(node)[r];
    free[r] = std::min(free[r], kMost);
  }
  struct Share {
    Wide part = 0, whole = 1;
    bool operator>(const Share& other) const { return part * other.whole > other.part * whole; }
  };
  std::vector<Share> shares;
  for (const MemberClass& member_class : problem.classes) {
    Share largest;
    for (size_t r = 0; r < free.size(); ++r) {
      Share share{member_class.request[r], std::max<Wide>(free[r], 1)};
      if (share > largest) largest = share;
    }
    shares.push_back(largest);
  }
  std::vector<int> order(problem.classes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return shares[a] > shares[b]; });
  return order;
}

int FewestNodes(const Problem& problem, const std::vector<int>& nodes) {
  int fewest = 1;
  std::vector<int64_t> free(nodes.size());
  for (size_t r = 0; r < problem.resources.size(); ++r) {
    Wide wanted = 0;
    for (const MemberClass& member_class : problem.classes) {
      wanted += static_cast<Wide>(member_class.request[r]) * member_class.size();
    }
    for (size_t i = 0; i < nodes.size(); ++i) free[i] = problem.FreeOf(nodes[i])[r];
    std::sort(free.begin(), free.end(), std::greater<>());
    int needed = 0;
    while (wanted > 0 && needed < static_cast<int>(free.size())) wanted -= free[needed++];
    fewest = std::max(fewest, wanted > 0 ? static_cast<int>(free.size()) + 1 : needed);
  }
  return fewest;
}

Slots Pack(const Problem& problem, const Scope& scope, SearchBudget* budget) {
  if (problem.classes.size() == 1) return PackOneClass(problem, scope.candidates[0], 0);
  return MixedPacking(problem, scope, budget).Pack();
}

}  // namespace muster::coscheduling::planner
