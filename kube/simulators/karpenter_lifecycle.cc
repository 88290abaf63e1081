#include "kube/simulators/karpenter_lifecycle.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "kube/objects/time_text.h"
#include "kube/objects/well_known.h"
#include "kube/simulators/claim_conditions.h"

namespace muster::kube::simulators {
namespace {

using Json = nlohmann::json;

// liveness.go
constexpr absl::Duration kLaunchTimeout = absl::Minutes(5);
constexpr absl::Duration kRegistrationTimeout = absl::Minutes(15);
// A write that failed for another reason than a conflict.
// podevents/controller.go
constexpr absl::Duration kPodEventDedupe = absl::Seconds(10);

absl::Time LastPodEvent(const Json& claim) {
  auto status = claim.find("status");
  if (status == claim.end()) return absl::InfinitePast();
  auto text = status->find("lastPodEventTime");
  if (text == status->end() || !text->is_string()) return absl::InfinitePast();
  return ReadTimeText(text->get<std::string>()).value_or(absl::InfinitePast());
}

ObjectReference ClaimReference(const NodeClaim& claim) {
  return {"karpenter.sh/v1", "NodeClaim", "", claim.meta.name, claim.meta.uid};
}

bool HasCondition(const NodeClaim& claim, std::string_view type) {
  return claim.conditions.contains(type);
}

}  // namespace

absl::Duration ConsolidateAfter(const NodePool& pool) {
  absl::Duration after = absl::ZeroDuration();
  if (pool.consolidate_after.empty()) return after;
  if (absl::ParseDuration(pool.consolidate_after, &after)) return after;
  return absl::InfiniteDuration();
}

KarpenterLifecycle::KarpenterLifecycle(KarpenterState* state, SimulatedCloud* cloud,
                                       ApiClient* client, absl::Duration termination)
    : state_(state), cloud_(cloud), client_(client), termination_(termination) {}

void KarpenterLifecycle::OnPod(const Pod* before, const Pod* pod) {
  const Pod* either = pod == nullptr ? before : pod;
  if (!either->IsBound()) return;
  const auto* node = state_->nodes().Find(either->node_name);
  const auto* claim = node == nullptr ? nullptr : state_->ClaimOf(node->object);
  if (claim == nullptr) return;
  if (claim->object.meta.deletion_time) dirty_.insert(claim->object.meta.name);
  if (pod == nullptr || IsOwnedByDaemonSet(*pod)) return;
  bool bound = before == nullptr || !before->IsBound();
  bool ended = before != nullptr && !before->IsTerminal() && pod->IsTerminal();
  bool ending = before != nullptr && !before->IsDeleting() && pod->IsDeleting();
  if (!bound && !ended && !ending) return;
  had_pod_event_.insert(claim->object.meta.name);
  dirty_.insert(claim->object.meta.name);
}

void KarpenterLifecycle::OnNode(const Node* before, const Node* node) {
  for (const Node* one : {before, node}) {
    const auto* claim = one == nullptr ? nullptr : state_->ClaimOf(*one);
    if (claim != nullptr) dirty_.insert(claim->object.meta.name);
  }
}

void KarpenterLifecycle::OnClaim(const std::string& name) { dirty_.insert(name); }

void KarpenterLifecycle::OnPool() {
  for (const auto& [name, claim] : state_->claims().entries()) dirty_.insert(name);
}

bool KarpenterLifecycle::Run(absl::Time now) {
  while (std::optional<std::string> name = timers_.PopDue(now)) dirty_.insert(*name);
  if (dirty_.empty()) return false;
  std::set<std::string> names = std::exchange(dirty_, {});
  for (const std::string& name : names) Reconcile(name, now);
  return true;
}

KarpenterLifecycle::Launch& KarpenterLifecycle::LaunchOf(const NodeClaim& claim, absl::Time now) {
  auto [it, added] = launches_.try_emplace(claim.meta.name);
  Launch& launch = it->second;
  if (!added && launch.uid == claim.meta.uid) return launch;
  launch = Launch();
  launch.uid = claim.meta.uid;
  // One that somebody else launched is left as it is.
  if (claim.IsTrue("Launched")) return launch;
  launch.behavior = cloud_->NextLaunch(claim.node_pool);
  launch.launch_at = now + launch.behavior.launch;
  return launch;
}

bool KarpenterLifecycle::LostItsPool(const NodeClaim& claim) const {
  for (const OwnerReference& owner : claim.meta.owners) {
    if (owner.kind != "NodePool") continue;
    const auto* pool = state_->pools().Find(owner.name);
    return pool == nullptr || pool->object.meta.uid != owner.uid;
  }
  return false;
}

bool KarpenterLifecycle::TimedOut(const NodeClaim& claim, absl::Time now) {
  if (claim.IsTrue("Registered")) return false;
  absl::Duration timeout = claim.IsTrue("Launched") ? kRegistrationTimeout : kLaunchTimeout;
  absl::Time at = claim.meta.creation_time + timeout;
  if (now >= at) return true;
  timers_.SetIfEarlier(claim.meta.name, at);
  return false;
}

void KarpenterLifecycle::Reconcile(const std::string& name, absl::Time now) {
  const ClaimEntry* entry = state_->claims().Find(name);
  timers_.Cancel(name);
  if (entry == nullptr) {
    const auto launch = launches_.find(name);
    if (launch != launches_.end() && launch->second.instance) {
      cloud_->Terminate(*launch->second.instance);
    }
    launches_.erase(name);
    had_pod_event_.erase(name);
    return;
  }
  const NodeClaim& claim = entry->object;
  Launch& launch = LaunchOf(claim, now);
  const auto* node = state_->NodeOf(claim);
  absl::Status done;
  if (claim.meta.deletion_time) {
    done = Finalize(*entry, &launch, now);
  } else if (LostItsPool(claim) || TimedOut(claim, now) ||
             (node != nullptr && node->object.meta.deletion_time)) {
    done = client_->Delete(NodeClaimPath(name), claim.meta.uid);
  } else if (!claim.IsTrue("Launched")) {
    done = Buy(*entry, &launch, now);
  } else {
    done = BringUp(*entry, &launch, now);
  }
  // After a conflict the newer object's event is on its way; what isn't there needs nothing.
  if (!done.ok() && !absl::IsAborted(done) && !absl::IsNotFound(done)) {
    timers_.SetIfEarlier(name, now + kWriteRetry);
  }
}

absl::Status KarpenterLifecycle::PatchClaimStatus(const ClaimEntry& entry, const Json& changed) {
  const Json& stored = entry.stored->value();
  auto before = stored.find("status");
  Json patch = Json::object();
  for (const auto& [field, value] : changed.at("status").items()) {
    if (before != stored.end() && before->contains(field) && before->at(field) == value) continue;
    patch[field] = value;
  }
  if (patch.empty()) return absl::OkStatus();
  return client_->Patch(NodeClaimPath(entry.object.meta.name) + "/status", {{"status", patch}});
}

absl::Status KarpenterLifecycle::Buy(const ClaimEntry& entry, Launch* launch, absl::Time now) {
  const NodeClaim& claim = entry.object;
  if (now < launch->launch_at) {
    timers_.SetIfEarlier(claim.meta.name, launch->launch_at);
    return absl::OkStatus();
  }
  LabelRequirements requirements = LabelRequirements::FromLabels(claim.meta.labels);
  requirements.Add(claim.requirements);
  if (!launch->instance) {
    absl::StatusOr<SimulatedCloud::Instance> bought =
        cloud_->Buy(requirements, claim.requests, launch->behavior.insufficient_capacity, now);
    if (!bought.ok()) {
      client_->RecordEvent(
          ClaimReference(claim), /*warning=*/true, "InsufficientCapacityError",
          "NodeClaim " + claim.meta.name + " event: " + std::string(bought.status().message()));
      return client_->Delete(NodeClaimPath(claim.meta.name), claim.meta.uid);
    }
    launch->instance = *std::move(bought);
    launch->register_at = launch->behavior.never_registers ? absl::InfiniteFuture()
                                                           : now + launch->behavior.registration;
  }
  Json changed = entry.stored->value();
  Json labels = Json::object();
  for (const auto& [key, value] : SimulatedCloud::LabelsOf(*launch->instance)) labels[key] = value;
  // A requirement with one value becomes a label, as far as kubelets may have it.
  for (const auto& [key, values] : requirements.keys()) {
    std::optional<std::string> value = values.Single();
    if (value && key != kHostnameLabel) labels[key] = *value;
  }
  for (const auto& [key, value] : claim.meta.labels) labels[key] = value;
  Json metadata = {{"labels", labels}};
  if (claim.meta.finalizers.empty()) metadata["finalizers"] = {kTerminationFinalizer};
  absl::Status labelled = client_->Patch(NodeClaimPath(claim.meta.name), {{"metadata", metadata}});
  if (!labelled.ok()) return labelled;
  Json& status = changed["status"];
  status["providerID"] = launch->instance->provider_id;
  status["imageID"] = launch->instance->image;
  status["capacity"] = AmountsJson(launch->instance->type->capacity);
  status["allocatable"] = AmountsJson(launch->instance->type->Allocatable());
  ClaimConditions conditions(&changed, now);
  conditions.SetTrue("Launched");
  conditions.SetUnknown("Registered", "NodeNotFound", "Node not registered with cluster");
  return PatchClaimStatus(entry, changed);
}

absl::Status KarpenterLifecycle::BringUp(const ClaimEntry& entry, Launch* launch, absl::Time now) {
  const NodeClaim& claim = entry.object;
  if (had_pod_event_.erase(claim.meta.name) > 0 &&
      now - LastPodEvent(entry.stored->value()) >= kPodEventDedupe) {
    // What else there is to do comes with the claim's own event.
    return client_->Patch(NodeClaimPath(claim.meta.name) + "/status",
                          {{"status", {{"lastPodEventTime", TimeText(now)}}}});
  }
  const auto* node = state_->NodeOf(claim);
  if (!claim.IsTrue("Registered")) {
    if (node != nullptr) return Register(entry, *node, now);
    if (!launch->instance) return absl::OkStatus();
    if (now < launch->register_at) {
      timers_.SetIfEarlier(claim.meta.name, launch->register_at);
      return absl::OkStatus();
    }
    return CreateNode(claim, *launch);
  }
  if (node != nullptr && launch->instance) {
    absl::Status ran = RunKubelet(claim, *node, launch, now);
    if (!ran.ok()) return ran;
  }
  if (!claim.IsTrue("Initialized")) return Initialize(entry, node, now);
  return MarkConsolidatable(entry, now);
}

absl::Status KarpenterLifecycle::MarkConsolidatable(const ClaimEntry& entry, absl::Time now) {
  const NodeClaim& claim = entry.object;
  const auto* pool = state_->pools().Find(claim.node_pool);
  if (pool == nullptr) return absl::OkStatus();
  absl::Time last = LastPodEvent(entry.stored->value());
  if (last == absl::InfinitePast()) last = claim.conditions.at("Initialized").last_transition;
  absl::Time at = last + ConsolidateAfter(pool->object);
  timers_.SetIfEarlier(claim.meta.name, at <= now ? absl::InfiniteFuture() : at);
  bool should = at <= now;
  if (should == HasCondition(claim, "Consolidatable")) return absl::OkStatus();
  Json changed = entry.stored->value();
  if (should) {
    ClaimConditions(&changed, now).SetTrue("Consolidatable");
  } else {
    Json& conditions = changed["status"]["conditions"];
    std::erase_if(conditions.get_ref<Json::array_t&>(),
                  [](const Json& condition) { return condition["type"] == "Consolidatable"; });
  }
  return PatchClaimStatus(entry, changed);
}

}  // namespace muster::kube::simulators
