// Karpenter's emptiness: removes nodes that no pod needs
// (pkg/controllers/disruption controller.go, emptiness.go, validation.go, types.go v1.8).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kube/simulators/api_client.h"
#include "kube/simulators/karpenter_state.h"

namespace muster::kube::simulators {

class KarpenterEmptiness {
 public:
  // Neither is owned; both outlive it.
  KarpenterEmptiness(KarpenterState* state, ApiClient* client);

  // Looks for empty nodes if a look is due. To be called before what has happened since the last
  // call is taken in: a look that comes a little late still sees what was there at its time.
  void Look(absl::Time now);
  // Removes what was chosen 15 s ago and is still empty. True if it was time to.
  bool Validate(absl::Time now);
  absl::Time NextWake() const;

 private:
  // Until when the node is protected though it is empty; nullopt if nothing but an event can make
  // it a candidate.
  std::optional<absl::Time> ProtectedUntil(const NodeClaim& claim) const;
  bool IsCandidate(const NodeClaim& claim, absl::Time now) const;
  void Remove(const KarpenterState::ClaimEntry& claim);

  KarpenterState* const state_;
  ApiClient* const client_;
  // It looks every 10 s.
  absl::Time looked_at_ = absl::InfinitePast();
  // Chosen claims, and when they are looked at again.
  std::vector<std::string> chosen_;
  absl::Time validate_at_ = absl::InfiniteFuture();
};

}  // namespace muster::kube::simulators
