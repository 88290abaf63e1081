#include "cluster/claim_sight.h"

#include <algorithm>

#include "cluster/node_stage.h"
#include "fmt/format.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

// operatorpkg's reason of a condition that nobody has looked at yet.
constexpr std::string_view kAwaiting = "AwaitingReconciliation";

const kube::Condition* ConditionOf(const kube::NodeClaim& claim, std::string_view type) {
  auto it = claim.conditions.find(type);
  return it == claim.conditions.end() ? nullptr : &it->second;
}

// Since when a condition is true; the Node may be ahead of its claim: just now.
absl::Time Since(const kube::NodeClaim& claim, std::string_view condition) {
  const kube::Condition* found = ConditionOf(claim, condition);
  const bool known =
      found != nullptr && found->status == "True" && found->last_transition != absl::InfinitePast();
  return known ? found->last_transition : absl::InfiniteFuture();
}

// The value of a label that the claim has or asks for, or what it leaves open: "a or 2 others".
std::string Asked(const NodeInfo& info, std::string_view key) {
  if (const std::string* label = info.node->meta.Label(key)) return *label;
  for (const kube::Requirement& requirement : info.claim->requirements) {
    if (requirement.key != key || requirement.op != kube::SelectorOperator::kIn) continue;
    if (requirement.values.empty()) continue;
    const size_t others = requirement.values.size() - 1;
    return fmt::format("{} or {} other{}", requirement.values.front(), others,
                       others == 1 ? "" : "s");
  }
  return "";
}

bool HasStartupTaint(const NodeInfo& info) {
  return std::ranges::any_of(info.object->taints, [&](const kube::Taint& taint) {
    return IsLifecycleTaint(taint) ||
           std::ranges::any_of(info.claim->startup_taints, [&](const kube::Taint& startup) {
             return startup.key == taint.key && startup.effect == taint.effect;
           });
  });
}

BringUp StageOf(const NodeInfo& info) {
  switch (info.readiness.stage) {
    case NodeStage::kRequested:
      return BringUp::kLaunch;
    case NodeStage::kLaunched:
      return BringUp::kRegistration;
    case NodeStage::kRegistered:
    case NodeStage::kInitialized:
      return BringUp::kInitialization;
    case NodeStage::kUsable:
      return BringUp::kDone;
    case NodeStage::kGoing:
      break;
  }
  if (!info.claim->IsTrue("Launched")) return BringUp::kLaunch;
  if (!info.claim->IsTrue("Registered")) return BringUp::kRegistration;
  return info.claim->IsTrue("Initialized") ? BringUp::kDone : BringUp::kInitialization;
}

void ReadLaunch(const kube::NodeClaim& claim, ClaimSight* sight) {
  sight->since = claim.meta.creation_time;
  const kube::Condition* launched = ConditionOf(claim, "Launched");
  if (launched == nullptr || launched->reason.empty() || launched->reason == kAwaiting) return;
  sight->words = fmt::format("{}{}{}", launched->reason, launched->message.empty() ? "" : ": ",
                             launched->message);
  sight->failing = true;
}

void ReadInitialization(const NodeInfo& info, ClaimSight* sight) {
  sight->since = Since(*info.claim, "Registered");
  sight->words = info.readiness.message;
  if (info.object == nullptr || !info.object->ready) return;
  if (HasStartupTaint(info)) {
    sight->startup_taint = true;
  } else if (!info.readiness.shortages.empty()) {
    sight->incomplete = sight->failing = true;
  }
}

}  // namespace

ClaimSight SightOf(const NodeInfo& info) {
  const kube::NodeClaim& claim = *info.claim;
  ClaimSight sight;
  sight.name = claim.meta.name;
  sight.node = info.object == nullptr ? "" : info.object->meta.name;
  sight.node_pool = claim.node_pool;
  sight.instance_type = Asked(info, kube::kInstanceTypeLabel);
  sight.zone = Asked(info, kube::kZoneLabel);
  sight.stage = StageOf(info);
  sight.since = claim.meta.creation_time;
  sight.going = info.readiness.stage == NodeStage::kGoing;
  if (sight.going) {
    const kube::Condition* why = ConditionOf(claim, "DisruptionReason");
    if (why != nullptr && why->status == "True") sight.words = why->reason;
  } else if (sight.stage == BringUp::kLaunch) {
    ReadLaunch(claim, &sight);
  } else if (sight.stage == BringUp::kRegistration) {
    sight.since = Since(claim, "Launched");
    sight.words = info.readiness.message;
  } else if (sight.stage == BringUp::kInitialization) {
    ReadInitialization(info, &sight);
  }
  return sight;
}

std::string ClaimSight::Wanted() const {
  return fmt::format("{}{}{} (NodePool {})", instance_type.empty() ? "a node" : instance_type,
                     zone.empty() ? "" : " in ", zone, node_pool);
}

std::string ClaimSight::Title() const {
  const std::string type = instance_type.empty() ? ""
                                                 : fmt::format("{}{}{}, ", instance_type,
                                                               zone.empty() ? "" : " in ", zone);
  return fmt::format("{} ({}NodePool {})", node.empty() ? "nodeclaim/" + name : "node " + node,
                     type, node_pool);
}

}  // namespace muster::cluster
