// Preemption under fair sharing: quota is taken from whoever has the largest share, as long as that
// doesn't only turn the unfairness around (Kueue v0.19.2, pkg/scheduler/preemption/fairsharing,
// with its default strategies LessThanOrEqualToFinalShare, then LessThanInitialShare).
#include <algorithm>
#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "quota/fair_share.h"
#include "quota/preemption_candidates.h"

namespace muster::quota {
namespace {

// Which queue is to give next: from the root down to the child with the largest share, as long as
// there are candidates below. Each queue that comes up must then lose a candidate or be dropped.
class LargestShareFirst {
 public:
  LargestShareFirst(const Ledger& ledger, int own_queue, const std::vector<Candidate>& candidates)
      : ledger_(ledger), tree_(ledger.tree()), own_(ledger.layout().queue(own_queue).node) {
    for (const Candidate& each : candidates) {
      candidates_[ledger.layout().queue(each.reservation->queue).node].push_back(each);
    }
    for (int at = tree_.node(own_).parent; at != kNoNode; at = tree_.node(at).parent) {
      own_way_.insert(at);
    }
  }

  // The node of a queue with candidates, or kNoNode at the end.
  int Next() {
    const int root = tree_.node(own_).root;
    if (root == own_) return Has(own_) && !done_.contains(own_) ? own_ : kNoNode;
    while (!done_.contains(root)) {
      const int found = Descend(root);
      if (found != kNoNode) return found;
    }
    return kNoNode;
  }
  bool Has(int node) const {
    auto it = candidates_.find(node);
    return it != candidates_.end() && !it->second.empty();
  }
  Candidate Pop(int node) {
    std::deque<Candidate>& all = candidates_[node];
    Candidate first = all.front();
    all.pop_front();
    return first;
  }
  void Drop(int node) { done_.insert(node); }

  // Shares of the two children of the lowest common cohort under which the own queue and `node`
  // are.
  struct Shares {
    Share own;
    Share other;
  };
  Shares SharesAt(int node) const {
    int other = node;
    while (!own_way_.contains(tree_.node(other).parent)) other = tree_.node(other).parent;
    int own = own_;
    while (tree_.node(own).parent != tree_.node(other).parent) own = tree_.node(own).parent;
    return {ShareOf(own), ShareOf(other)};
  }

 private:
  Share ShareOf(int node) const { return DominantShare(tree_, ledger_.names(), node); }
  bool IsDone(int node) const { return done_.contains(node); }

  // kNoNode if that only found nodes that have nothing more to give.
  int Descend(int cohort) {
    int queue = kNoNode;
    Share queue_share;
    for (int child : tree_.node(cohort).child_queues) {
      if (IsDone(child)) continue;
      const Share share = ShareOf(child);
      if ((!BorrowsAny(tree_, child) && child != own_) || !Has(child)) {
        done_.insert(child);
        continue;
      }
      const int order = queue == kNoNode ? 1 : CompareShares(share, queue_share);
      if (order > 0 ||
          (order == 0 && ComesBefore(candidates_[child].front(), candidates_[queue].front()))) {
        queue = child;
        queue_share = share;
      }
    }
    int below = kNoNode;
    Share below_share;
    for (int child : tree_.node(cohort).child_cohorts) {
      if (IsDone(child)) continue;
      const Share share = ShareOf(child);
      if (!BorrowsAny(tree_, child) && !own_way_.contains(child)) {
        done_.insert(child);
      } else if (below == kNoNode || CompareShares(share, below_share) >= 0) {
        below = child;
        below_share = share;
      }
    }
    if (queue == kNoNode && below == kNoNode) {
      done_.insert(cohort);
      return kNoNode;
    }
    const bool go_below =
        below != kNoNode && (queue == kNoNode || CompareShares(below_share, queue_share) >= 0);
    return go_below ? Descend(below) : queue;
  }

  const Ledger& ledger_;
  const QuotaTree& tree_;
  const int own_;
  absl::flat_hash_map<int, std::deque<Candidate>> candidates_;  // by node of the queue
  absl::flat_hash_set<int> own_way_;                            // cohorts above the own queue
  absl::flat_hash_set<int> done_;
};

class FairPreemption {
 public:
  FairPreemption(Ledger& ledger, const PreemptionRequest& request)
      : ledger_(ledger),
        request_(request),
        own_(ledger.layout().queue(request.queue).node),
        removal_(ledger) {}

  std::vector<Target> Run() {
    std::vector<Candidate> candidates = Collect();
    if (candidates.empty()) return {};
    std::sort(candidates.begin(), candidates.end(), ComesBefore);
    // Shares are those that would be, with the request.
    ledger_.tree().AddUsage(own_, request_.usage);
    const bool fits = TakeWhileFair(candidates) || TakeOnceMore();
    ledger_.tree().RemoveUsage(own_, request_.usage);
    if (!fits) return {};
    return FillBack(ledger_, request_, removal_, std::move(targets_), true);
  }

 private:
  std::vector<Candidate> Collect() const {
    const Layout& layout = ledger_.layout();
    std::vector<Candidate> candidates;
    AddCandidates(ledger_, request_, request_.queue, {}, candidates);
    const QuotaTree& tree = ledger_.tree();
    const int root = layout.queue(request_.queue).root;
    if (root == own_) return candidates;
    Candidate like;
    like.reason = VictimReason::kFairSharing;
    std::vector<int> cohorts = {root};
    for (size_t i = 0; i < cohorts.size(); ++i) {
      const QuotaTree::Node& cohort = tree.node(cohorts[i]);
      for (int child : cohort.child_queues) {
        if (child == own_ || IsWithinQuota(tree, child, request_.needed)) continue;
        AddCandidates(ledger_, request_, layout.queue_of_node[static_cast<size_t>(child)], like,
                      candidates);
      }
      cohorts.insert(cohorts.end(), cohort.child_cohorts.begin(), cohort.child_cohorts.end());
    }
    return candidates;
  }

  // Takes it, and says whether the request fits now.
  bool Take(const Candidate& candidate) {
    targets_.push_back({candidate.reservation, candidate.surplus_only, candidate.reason});
    removal_.Take(targets_.back());
    return FitsNow();
  }
  bool FitsNow() {
    ledger_.tree().RemoveUsage(own_, request_.usage);
    const bool fits = Fits(ledger_, request_, true);
    ledger_.tree().AddUsage(own_, request_.usage);
    return fits;
  }
  Share OtherShareWithout(const LargestShareFirst& order, int node, const Candidate& candidate) {
    Target target = {candidate.reservation, candidate.surplus_only, candidate.reason};
    removal_.Take(target);
    const Share share = order.SharesAt(node).other;
    removal_.PutBack(target);
    return share;
  }

  // From another queue only what leaves it with at least the share that the own side gets; anything
  // if the own queue stays within its quota, for then it only takes back what it had lent.
  bool TakeWhileFair(const std::vector<Candidate>& candidates) {
    const bool takes_back = IsWithinQuota(ledger_.tree(), own_, request_.needed);
    LargestShareFirst order(ledger_, request_.queue, candidates);
    for (int node = order.Next(); node != kNoNode; node = order.Next()) {
      if (node == own_ || takes_back) {
        Candidate candidate = order.Pop(node);
        if (node != own_) candidate.reason = VictimReason::kReclamation;
        if (Take(candidate)) return true;
        continue;
      }
      const Share own = order.SharesAt(node).own;
      while (order.Has(node)) {
        const Candidate candidate = order.Pop(node);
        if (CompareShares(own, OtherShareWithout(order, node, candidate)) > 0) {
          left_over_.push_back(candidate);
          continue;
        }
        if (Take(candidate)) return true;
        break;  // another queue's share may be the largest now
      }
    }
    return false;
  }

  // One more of each queue whose share is larger than what the own side gets.
  bool TakeOnceMore() {
    std::erase_if(left_over_, [](const Candidate& each) {
      return each.reservation->gone == Reservation::Part::kAll;
    });
    LargestShareFirst order(ledger_, request_.queue, left_over_);
    for (int node = order.Next(); node != kNoNode; node = order.Next()) {
      const LargestShareFirst::Shares shares = order.SharesAt(node);
      if (CompareShares(shares.own, shares.other) < 0 && Take(order.Pop(node))) return true;
      order.Drop(node);
    }
    return false;
  }

  Ledger& ledger_;
  const PreemptionRequest& request_;
  const int own_;
  Removal removal_;
  std::vector<Target> targets_;
  std::vector<Candidate> left_over_;
};

}  // namespace

std::vector<Target> FindFairTargets(Ledger& ledger, const PreemptionRequest& request) {
  return FairPreemption(ledger, request).Run();
}

}  // namespace muster::quota
