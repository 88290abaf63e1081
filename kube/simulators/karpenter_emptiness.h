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

  // Does what is due; true if it was anything.
  bool Run(absl::Time now);
  absl::Time NextWake() const;

 private:
  // Until when the node is protected though it is empty; nullopt if nothing but an event can make
  // it a candidate.
  std::optional<absl::Time> ProtectedUntil(const NodeClaim& claim) const;
  bool IsCandidate(const NodeClaim& claim, absl::Time now) const;
  void Select(absl::Time now);
  void Validate(absl::Time now);
  void Remove(const KarpenterState::ClaimEntry& claim);
  absl::Time NextPollFrom(absl::Time time) const;

  KarpenterState* const state_;
  ApiClient* const client_;
  // Polls are this and every 10 s after it.
  absl::Time polled_at_ = absl::InfinitePast();
  // Chosen claims, and when they are looked at again.
  std::vector<std::string> chosen_;
  absl::Time validate_at_ = absl::InfiniteFuture();
};

}  // namespace muster::kube::simulators
