// What Karpenter sees of the cluster: its watches, which node belongs to which NodeClaim, which
// pods stand where, and for which nodes pods were recently meant
// (pkg/controllers/state of sigs.k8s.io/karpenter v1.8).
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "kube/objects/workload.h"
#include "kube/simulators/api_client.h"

namespace muster::kube::simulators {

inline constexpr std::string_view kDisruptedTaint = "karpenter.sh/disrupted";
inline constexpr std::string_view kNotReadyTaint = "node.kubernetes.io/not-ready";
inline constexpr const char* kTerminationFinalizer = "karpenter.sh/termination";

// Would Karpenter buy a node for it (pkg/utils/pod/scheduling.go IsProvisionable)?
bool IsProvisionable(const Pod& pod);
bool IsOwnedByDaemonSet(const Pod& pod);
// Neither ended nor ending.
bool IsActive(const Pod& pod);
// Active, and something that would have to run elsewhere if its node went.
bool IsReschedulable(const Pod& pod);
bool HasDoNotDisrupt(const ObjectMeta& meta);
bool HasTaint(const Node& node, std::string_view key);
// Taints that every new node has for a while (pkg/scheduling/taints.go KnownEphemeralTaints).
bool IsEphemeralTaint(const Taint& taint);
bool LabelIsTrue(const ObjectMeta& meta, std::string_view label);

class KarpenterState {
 public:
  using PodEntry = ObjectCache<Pod>::Entry;
  using NodeEntry = ObjectCache<Node>::Entry;
  using ClaimEntry = ObjectCache<NodeClaim>::Entry;
  using PoolEntry = ObjectCache<NodePool>::Entry;

  // Told of every change after the state has taken it in; null stands for absent.
  struct Listener {
    std::function<void(const std::string& key, const Pod* before, const Pod* now)> on_pod;
    std::function<void(const std::string& name, const Node* before, const Node* now)> on_node;
    std::function<void(const std::string& name)> on_claim;
    std::function<void()> on_pool;
  };

  KarpenterState(embedded::ApiServer* server, Listener listener);

  // Takes in what has arrived; true if anything did.
  bool Sync();

  const ObjectCache<Pod>& pods() const { return pods_; }
  const ObjectCache<Node>& nodes() const { return nodes_; }
  const ObjectCache<NodeClaim>& claims() const { return claims_; }
  const ObjectCache<NodePool>& pools() const { return pools_; }
  const ObjectCache<DaemonSet>& daemon_sets() const { return daemon_sets_; }
  const std::set<std::string>& provisionable_pods() const { return provisionable_; }

  // nullptr if there is none.
  const NodeEntry* NodeOf(const NodeClaim& claim) const;
  const ClaimEntry* ClaimOf(const Node& node) const;
  std::vector<const Pod*> PodsOn(std::string_view node) const;

  // True once every NodeClaim is launched; nothing is bought or removed before.
  bool Synced() const;

  // What the node has or will have. A resource that isn't there yet is taken from the claim until
  // the node is initialized. `node` may be null.
  static ResourceList Capacity(const NodeClaim& claim, const Node* node);
  static ResourceList Allocatable(const NodeClaim& claim, const Node* node);

  void Nominate(const std::string& claim, absl::Time until);
  // InfinitePast if never.
  absl::Time NominatedUntil(const std::string& claim) const;

 private:
  void OnPod(const std::string& key, const Pod* before, const Pod* now);
  void OnNode(const std::string& name, const Node* before, const Node* now);
  void OnClaim(const std::string& name, const NodeClaim* before, const NodeClaim* now);

  const Listener listener_;
  ObjectCache<Pod> pods_;
  ObjectCache<Node> nodes_;
  ObjectCache<NodeClaim> claims_;
  ObjectCache<NodePool> pools_;
  ObjectCache<DaemonSet> daemon_sets_;
  std::set<std::string> provisionable_;
  std::map<std::string, std::set<std::string>, std::less<>> pods_on_;
  std::map<std::string, std::string> node_by_provider_;
  std::map<std::string, std::string> claim_by_provider_;
  std::map<std::string, absl::Time> nominated_until_;
};

}  // namespace muster::kube::simulators
