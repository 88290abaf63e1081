// Which pods to evict so that others fit: whole groups, or members that a group can do without.
//
// The rule. All that may be evicted stands in one order, the most dispensable first: members beyond
// those that their group needs, one by one; then whole groups; either by the lowest priority, then
// the youngest group, then the fewest devices lost, then by name (of one group's members the last
// in rank first). A group that goes whole takes those with it that it could do without. Of the sets
// that make room and that the disruption budgets allow together, that one is taken whose least
// dispensable entry comes first in this order; of several with that entry the one of which this
// holds for the next, and so on, a set that has no more entries before all others. So nobody is in
// it who could stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cluster/disruption_budgets.h"
#include "kube/objects/pod.h"

namespace muster::cluster {

struct EvictableGroup {
  std::string name;
  int64_t priority = 0;
  absl::Time created;
  // On nodes, in rank order. Not owned.
  std::vector<const kube::Pod*> members;
  size_t needed = 0;  // the first of them, which go only together
};

struct Victims {
  std::vector<size_t> whole;              // of the groups, the most dispensable first
  std::vector<const kube::Pod*> surplus;  // of groups that stay, likewise
  std::vector<const kube::Pod*> pods;     // all that go
};

// Whether there is room once these are gone. More of them never make less room.
using FitsWithout = std::function<bool(const std::vector<const kube::Pod*>& gone)>;

// Nullopt if nothing that may be evicted makes room. `leaving`: pods that budgets don't know yet to
// be going. Asks `fits` some log2(entries) times for each entry that goes. Where what fits is more
// than several entries' common budget allows, the sets are tried in their order, kMostTrials of
// them at most; after that budgets are given to the entries in order, and what exceeds them stays.
std::optional<Victims> ChooseVictims(const std::vector<EvictableGroup>& groups,
                                     const DisruptionBudgets& budgets,
                                     const std::vector<const kube::Pod*>& leaving,
                                     const FitsWithout& fits);
inline constexpr int kMostTrials = 300;

}  // namespace muster::cluster
