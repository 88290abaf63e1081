// How far a NodeClaim has come, what it waits for, and in whose words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "cluster/snapshot.h"

namespace muster::cluster {

// What a NodeClaim has before it. Karpenter's conditions Launched, Registered, Initialized; the
// last one ends here only when the node is usable, with all its devices.
enum class BringUp : uint8_t { kLaunch, kRegistration, kInitialization, kDone };
inline constexpr size_t kBringUps = 3;  // kDone isn't one to wait for

// A NodeClaim as it stands.
struct ClaimSight {
  std::string name;
  std::string node;  // empty until there is one
  std::string node_pool;
  std::string instance_type;  // or several: "p4d.24xlarge or 2 others"
  std::string zone;           // likewise; empty where any will do
  BringUp stage = BringUp::kLaunch;
  absl::Time since;            // when this stage began, as far as the object says
  bool startup_taint = false;  // while it is being initialized: all but such a taint is done
  bool incomplete = false;     // likewise; devices are missing
  std::string words;           // Karpenter's, the provider's, or those of node_stage.h
  bool failing = false;        // it won't pass this stage by waiting
  bool going = false;          // marked for deletion or disruption

  std::string Wanted() const;  // "p4d.24xlarge in us-west-2a (NodePool gpu-efa)"
  // "node ip-10-0-1-7 (p4d.24xlarge in us-west-2a, NodePool gpu-efa)", or by the claim.
  std::string Title() const;
};

// `info` has a NodeClaim.
ClaimSight SightOf(const NodeInfo& info);

}  // namespace muster::cluster
