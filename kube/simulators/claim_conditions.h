// The status conditions of a NodeClaim, kept as Karpenter keeps them
// (github.com/awslabs/operatorpkg status/condition_set.go).
#pragma once

#include <string>

#include "absl/time/time.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::kube::simulators {

// Works on status.conditions of a claim's JSON in place: the transition time stays while the status
// does, and Ready follows Launched, Registered and Initialized.
class ClaimConditions {
 public:
  // `claim` must outlive it and has metadata.
  ClaimConditions(nlohmann::json* claim, absl::Time now);

  void SetTrue(const std::string& type);
  void SetUnknown(const std::string& type, const std::string& reason, const std::string& message);

 private:
  void Set(const std::string& type, const std::string& status, const std::string& reason,
           const std::string& message);
  void UpdateReady();

  nlohmann::json* const claim_;
  nlohmann::json& conditions_;
  const absl::Time now_;
};

}  // namespace muster::kube::simulators
