// What is wrong with a node on which pods stand, and from when on they count as lost.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "cluster/snapshot.h"

namespace muster::cluster {

struct NodeTrouble {
  enum class Kind {
    kNotReady,  // the kubelet says so, or says nothing any more
    kGoing,     // Karpenter, or somebody else, is removing it; what runs there runs on
    kGone,      // there is no such Node, or its machine is known to be off
  };
  Kind kind = Kind::kNotReady;
  std::string what;  // "isn't Ready since 10:00:40Z: Kubelet stopped posting node status."
  absl::Time since;
  // Pods there count as lost from then on; never while the node is only going.
  absl::Time lost_at;

  bool operator==(const NodeTrouble&) const = default;
};

// `info` is the node as it is now, null if there is none; `before` is what was wrong with it until
// now. nullopt: nothing is, or it hasn't come up yet.
//
// Not Ready: `grace` after the condition changed (the Node says when, so another process counts the
// same), because a kubelet that restarts or a connection that breaks for a moment comes back, and
// the training on it never stopped; at once if the node is being removed besides, or carries taint
// node.kubernetes.io/out-of-service or node.cloudprovider.kubernetes.io/shutdown. Going: never, as
// long as it is Ready. Karpenter drains a node, but waits with pods that carry do-not-disrupt, as
// all members do, until they end or its NodePool's terminationGracePeriod is over
// (pkg/utils/pod/scheduling.go IsEvictable v1.8): a training that may go on for hours is not
// restarted for that. Members that are evicted or die with their machine are lost then.
std::optional<NodeTrouble> TroubleOf(const NodeInfo* info, const std::optional<NodeTrouble>& before,
                                     absl::Time now, absl::Duration grace);

}  // namespace muster::cluster
