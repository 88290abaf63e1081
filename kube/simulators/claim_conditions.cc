#include "kube/simulators/claim_conditions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "kube/objects/time_text.h"
#include "kube/simulators/api_client.h"

namespace muster::kube::simulators {
namespace {

using Json = nlohmann::json;

constexpr std::array<const char*, 3> kDependents = {"Launched", "Registered", "Initialized"};

Json& ConditionsOf(Json* claim) {
  Json& conditions = (*claim)["status"]["conditions"];
  if (!conditions.is_array()) conditions = Json::array();
  return conditions;
}

bool IsDependent(const std::string& type) {
  return type == "Ready" ||
         std::find(kDependents.begin(), kDependents.end(), type) != kDependents.end();
}

}  // namespace

ClaimConditions::ClaimConditions(Json* claim, absl::Time now)
    : claim_(claim), conditions_(ConditionsOf(claim)), now_(now) {
  for (const char* type : kDependents) {
    bool there = std::any_of(conditions_.begin(), conditions_.end(),
                             [&](const Json& condition) { return condition["type"] == type; });
    if (!there) SetUnknown(type, "AwaitingReconciliation", "object is awaiting reconciliation");
  }
}

void ClaimConditions::SetTrue(const std::string& type) { Set(type, "True", type, ""); }

void ClaimConditions::SetUnknown(const std::string& type, const std::string& reason,
                                 const std::string& message) {
  Set(type, "Unknown", reason, message);
}

void ClaimConditions::Set(const std::string& type, const std::string& status,
                          const std::string& reason, const std::string& message) {
  Json condition = {{"type", type},
                    {"status", status},
                    {"reason", reason},
                    {"message", message},
                    {"lastTransitionTime", TimeText(now_)}};
  const Json& metadata = (*claim_)["metadata"];
  if (metadata.contains("generation")) condition["observedGeneration"] = metadata["generation"];
  auto old = std::find_if(conditions_.begin(), conditions_.end(),
                          [&](const Json& one) { return one["type"] == type; });
  if (old == conditions_.end()) {
    // The first state of a dependent condition began with the claim.
    if (IsDependent(type) && metadata.contains("creationTimestamp")) {
      condition["lastTransitionTime"] = metadata["creationTimestamp"];
    }
  } else {
    if ((*old)["status"] == status) {
      condition["lastTransitionTime"] = (*old)["lastTransitionTime"];
    }
    conditions_.erase(old);
  }
  conditions_.push_back(std::move(condition));
  std::stable_sort(conditions_.begin(), conditions_.end(), [](const Json& a, const Json& b) {
    bool a_root = a["type"] == "Ready", b_root = b["type"] == "Ready";
    if (a_root || b_root) return !a_root && b_root;
    return a["lastTransitionTime"] < b["lastTransitionTime"];
  });
  if (type != "Ready") UpdateReady();
}

void ClaimConditions::UpdateReady() {
  std::vector<std::string> waiting;
  for (const Json& condition : conditions_) {
    const std::string& type = condition["type"].get_ref<const std::string&>();
    if (type == "Ready" || !IsDependent(type) || condition["status"] == "True") continue;
    waiting.push_back(
        fmt::format("{}={}", type, condition["status"].get_ref<const std::string&>()));
  }
  if (waiting.empty()) return SetTrue("Ready");
  SetUnknown("Ready", "ReconcilingDependents", fmt::format("{}", fmt::join(waiting, ", ")));
}

}  // namespace muster::kube::simulators
