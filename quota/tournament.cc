#include "quota/tournament.h"

#include <algorithm>
#include <iterator>

#include "absl/container/flat_hash_map.h"
#include "quota/fair_share.h"

namespace muster::quota {
namespace {

struct Contender {
  Entry* entry = nullptr;
  // Of the child of the cohort under which it stands, with what it asks for.
  Share share;
  bool borrows = false;  // something of what it asks for
};

class Tournament {
 public:
  Tournament(Ledger& ledger, const std::vector<Entry*>& entries) : ledger_(ledger) {
    for (Entry* entry : entries) {
      by_node_[ledger.layout().queue(entry->queue).node] = entry;
    }
  }

  Entry* WinnerUnder(int node) {
    if (auto it = by_node_.find(node); it != by_node_.end()) return it->second;
    const QuotaTree::Node& cohort = ledger_.tree().node(node);
    Contender best;
    for (const std::vector<int>* children : {&cohort.child_cohorts, &cohort.child_queues}) {
      for (int child : *children) {
        Entry* entry = WinnerUnder(child);
        if (entry == nullptr) continue;
        const Contender contender = Contend(*entry, child);
        if (best.entry == nullptr || IsFairer(contender, best)) best = contender;
      }
    }
    return best.entry;
  }

 private:
  Contender Contend(Entry& entry, int node) {
    const int queue = ledger_.layout().queue(entry.queue).node;
    const std::vector<PairAmount>& usage = entry.assignment.usage;
    QuotaTree& tree = ledger_.tree();
    tree.AddUsage(queue, usage);
    Contender contender = {&entry, DominantShare(tree, ledger_.names(), node)};
    contender.borrows = std::ranges::any_of(usage, [&](const PairAmount& each) {
      return each.amount > 0 && Borrows(tree, node, each.pair);
    });
    tree.RemoveUsage(queue, usage);
    return contender;
  }
  static bool IsFairer(const Contender& a, const Contender& b) {
    if (a.borrows != b.borrows) return !a.borrows;
    const int order = CompareShares(a.share, b.share);
    return order != 0 ? order < 0 : ByRank()(a.entry, b.entry);
  }

  Ledger& ledger_;
  absl::flat_hash_map<int, Entry*> by_node_;
};

}  // namespace

void SortClassically(std::vector<Entry*>& entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry* a, const Entry* b) {
    if (a->assignment.borrowing != b->assignment.borrowing) {
      return a->assignment.borrowing < b->assignment.borrowing;
    }
    return ByRank()(a, b);
  });
}

Entry* TakeFairest(Ledger& ledger, int root, std::vector<Entry*>& entries) {
  Entry* winner = Tournament(ledger, entries).WinnerUnder(root);
  std::erase(entries, winner);
  return winner;
}

}  // namespace muster::quota
