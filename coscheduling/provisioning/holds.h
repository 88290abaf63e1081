// Holds: which gangs keep a node from being removed by Karpenter, and until when
// (kube/objects/node_holds.h).
#pragma once

#include <map>
#include <set>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "cluster/journal.h"
#include "coscheduling/admission/owner.h"
#include "coscheduling/placement/placement.h"
#include "kube/objects/node_holds.h"

namespace muster::coscheduling {

// Every early node of a gang that waits is kept, and no other.
class NodeHolds : Owner {
 public:
  // `placement` outlives it.
  NodeHolds(const Owner& owner, const Placement& placement) : Owner(owner), placement_(placement) {}

  void Observe(const cluster::Journal& journal);
  // The nodes that the gang wants kept now. While it is `undecided`, because its record is being
  // written or taken over, what was held for it stays so.
  void Want(const Gang& gang, bool undecided);
  void Forget(GangId gang);
  // Writes what differs.
  void Reconcile();
  // What the node says; empty if it isn't known.
  kube::Holds On(const std::string& node) const;

 private:
  struct Wanted {
    std::string uid;
    std::map<std::string, absl::Time> nodes;
  };
  void Replace(GangId gang, Wanted wanted);

  const Placement& placement_;
  absl::flat_hash_map<GangId, Wanted> of_gang_;
  std::map<std::string, kube::Holds> wanted_;  // by node
  // What nodes say, and which nodes name a gang.
  std::map<std::string, kube::Holds> seen_;
  absl::flat_hash_map<std::string, std::set<std::string>> naming_;
  std::set<std::string> touched_;  // nodes that may differ from what is wanted
};

}  // namespace muster::coscheduling
