// Holds: which gangs keep a node from being removed by Karpenter, and until when.
//
// Two annotations on the Node, always written together by compare-and-swap: muster.dev/holds, a
// JSON object of gang UID to RFC 3339 time, and karpenter.sh/do-not-disrupt: "true" while it has
// entries. A do-not-disrupt that was there before the first hold is left alone, then and for ever:
// muster.dev/hold-added marks the one that is ours to remove.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "cluster/journal.h"
#include "coscheduling/admission/owner.h"
#include "coscheduling/placement/placement.h"
#include "kube/objects/meta.h"

namespace muster::coscheduling {

inline constexpr std::string_view kHoldsAnnotation = "muster.dev/holds";
inline constexpr std::string_view kHoldAddedAnnotation = "muster.dev/hold-added";

// Gang UID -> until.
using Holds = std::map<std::string, absl::Time>;

// The holds a node carries; entries that can't be read are left out (and so removed by the next
// write).
Holds ReadHolds(const kube::StringMap& annotations);

// True if the node says anything of holds, readable or not.
bool HasHoldMarks(const kube::StringMap& annotations);

// The annotations to set (or, with nullopt, remove) so that the node carries exactly `want`; empty
// if it does already.
std::map<std::string, std::optional<std::string>> ChangeHolds(const kube::StringMap& annotations,
                                                              const Holds& want);

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
  Holds On(const std::string& node) const;

 private:
  struct Wanted {
    std::string uid;
    std::map<std::string, absl::Time> nodes;
  };
  void Replace(GangId gang, Wanted wanted);

  const Placement& placement_;
  absl::flat_hash_map<GangId, Wanted> of_gang_;
  std::map<std::string, Holds> wanted_;  // by node
  // What nodes say, and which nodes name a gang.
  std::map<std::string, Holds> seen_;
  absl::flat_hash_map<std::string, std::set<std::string>> naming_;
  std::set<std::string> touched_;  // nodes that may differ from what is wanted
};

}  // namespace muster::coscheduling
