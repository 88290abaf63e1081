#include "kube/simulators/karpenter_provisioner.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "kube/objects/well_known.h"

namespace muster::kube::simulators {
namespace {

using Json = nlohmann::json;

constexpr absl::Duration kRetry = absl::Seconds(10);
constexpr absl::Duration kMinNomination = absl::Seconds(10);
// events.go: FailedScheduling is repeated after 5 minutes, others after 2; Nominated has a token
// bucket of 10 that gets 5 a second.
constexpr absl::Duration kQuietAfterFailure = absl::Minutes(5);
constexpr absl::Duration kQuietAfterNomination = absl::Minutes(2);
constexpr double kNominationBurst = 10;
constexpr double kNominationsPerSecond = 5;
constexpr int kNameAttempts = 8;

ObjectReference PodReference(const std::string& key, const std::string& uid) {
  size_t slash = key.find('/');
  return {"v1", "Pod", key.substr(0, slash), key.substr(slash + 1), uid};
}

std::string_view OperatorName(SelectorOperator op) {
  switch (op) {
    case SelectorOperator::kIn:
      return "In";
    case SelectorOperator::kNotIn:
      return "NotIn";
    case SelectorOperator::kExists:
      return "Exists";
    case SelectorOperator::kDoesNotExist:
      return "DoesNotExist";
    case SelectorOperator::kGt:
      return "Gt";
    case SelectorOperator::kLt:
      return "Lt";
  }
  return "";
}

Json RequirementsJson(const LabelRequirements& requirements) {
  Json list = Json::array();
  for (const auto& [key, values] : requirements.keys()) {
    Requirement requirement = values.ToRequirement(key);
    Json one = {{"key", key}, {"operator", OperatorName(requirement.op)}};
    if (!requirement.values.empty()) one["values"] = requirement.values;
    list.push_back(std::move(one));
  }
  return list;
}

const Json& TemplateOf(const Json& pool) { return pool.at("spec").at("template"); }

// Unknown fields of a NodePool may have any type.
std::string TextAt(const Json& object, const char* field) {
  auto it = object.is_object() ? object.find(field) : object.end();
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

// Labels that each node of the pool gets.
StringMap PoolLabels(const NodePool& pool, const Json& stored) {
  StringMap labels = pool.labels;
  labels[std::string(kNodePoolLabel)] = pool.meta.name;
  const Json& spec = TemplateOf(stored).at("spec");
  auto reference = spec.find("nodeClassRef");
  if (reference == spec.end()) return labels;
  std::string group = TextAt(*reference, "group");
  std::string kind = TextAt(*reference, "kind");
  std::transform(kind.begin(), kind.end(), kind.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (!group.empty() && !kind.empty()) labels[group + "/" + kind] = TextAt(*reference, "name");
  return labels;
}

std::vector<Taint> NodeTaints(const Node& node) {
  std::vector<Taint> taints = node.taints;
  // The node lifecycle controller's taint of cordoned nodes.
  if (node.unschedulable) {
    taints.push_back({"node.kubernetes.io/unschedulable", "", TaintEffect::kNoSchedule});
  }
  return taints;
}

LabelRequirements NodeLabels(const StringMap& labels, const std::string& name) {
  LabelRequirements requirements = LabelRequirements::FromLabels(labels);
  if (!labels.contains(kHostnameLabel)) {
    requirements.Add(std::string(kHostnameLabel), ValueSet::In({name}));
  }
  return requirements;
}

}  // namespace

void BatchingWindow::Trigger(const std::string& uid, absl::Time now) {
  if (!uids_.insert(uid).second) return;
  if (closes_at_ == absl::InfiniteFuture()) opened_at_ = now;
  closes_at_ = std::min(now + idle_, opened_at_ + max_);
}

void BatchingWindow::Close() {
  uids_.clear();
  closes_at_ = absl::InfiniteFuture();
}

KarpenterProvisioner::KarpenterProvisioner(KarpenterState* state, SimulatedCloud* cloud,
                                           ApiClient* client, absl::Duration batch_idle,
                                           absl::Duration batch_max)
    : state_(state),
      cloud_(cloud),
      client_(client),
      nomination_(std::max(2 * batch_max, kMinNomination)),
      window_(batch_idle, batch_max) {}

void KarpenterProvisioner::Trigger(const std::string& timer, const std::string& uid,
                                   absl::Time now) {
  window_.Trigger(uid, now);
  retries_.SetIfEarlier(timer, now + kRetry);
}

void KarpenterProvisioner::OnPod(const std::string& key, const Pod* pod, absl::Time now) {
  if (pod != nullptr && IsProvisionable(*pod)) {
    Trigger("pod/" + key, pod->meta.uid, now);
  } else {
    retries_.Cancel("pod/" + key);
  }
}

void KarpenterProvisioner::OnNode(const std::string& name, const Node* node, absl::Time now) {
  if (node != nullptr && HasTaint(*node, kDisruptedTaint)) {
    Trigger("node/" + name, node->meta.uid, now);
  } else {
    retries_.Cancel("node/" + name);
  }
}

void KarpenterProvisioner::TriggerAgain(const std::string& timer, absl::Time now) {
  size_t slash = timer.find('/');
  std::string key = timer.substr(slash + 1);
  if (timer.starts_with("pod/")) {
    const auto* entry = state_->pods().Find(key);
    OnPod(key, entry == nullptr ? nullptr : &entry->object, now);
  } else {
    const auto* entry = state_->nodes().Find(key);
    OnNode(key, entry == nullptr ? nullptr : &entry->object, now);
  }
}

bool KarpenterProvisioner::Run(absl::Time now) {
  bool ran = false;
  while (Retries() && retries_.Next() <= now) {
    TriggerAgain(*retries_.PopDue(now), now);
    ran = true;
  }
  if (window_.closes_at() > now) return ran;
  window_.Close();
  // Otherwise the batch is forgotten: its pods come again with their next retry.
  if (state_->Synced()) Provision(now);
  return true;
}

absl::Time KarpenterProvisioner::NextWake() const {
  return Retries() ? std::min(window_.closes_at(), retries_.Next()) : window_.closes_at();
}

// Without a NodePool a retry finds nothing but what the try before found.
bool KarpenterProvisioner::Retries() const { return !state_->pools().entries().empty(); }

void KarpenterProvisioner::Provision(absl::Time now) {
  std::vector<PackingPod> pods = PodsToPlace(now);
  if (pods.empty()) return;
  std::erase_if(reported_until_, [&](const auto& entry) { return entry.second <= now; });
  std::vector<PackingPool> pools = Pools();
  if (pools.empty()) {
    for (const PackingPod& pod : pods) ReportFailure(pod.key, pod.uid, "no nodepools found", now);
    return;
  }
  IsOffered is_offered = [&](const InstanceType& type, const Offering& offering) {
    return cloud_->IsOffered(type, offering, now);
  };
  PackingResult result = Pack(pods, Nodes(), std::move(pools), cloud_->types(), is_offered);
  for (const auto& [pod, reason] : result.failures) ReportFailure(pod->key, pod->uid, reason, now);
  for (const auto& [name, placed] : result.on_nodes) {
    // The name is the claim's until its node has registered.
    const auto* node = state_->nodes().Find(name);
    const auto* claim =
        node == nullptr ? state_->claims().Find(name) : state_->ClaimOf(node->object);
    std::string target;
    if (claim != nullptr) {
      state_->Nominate(claim->object.meta.name, now + nomination_);
      target = "nodeclaim/" + claim->object.meta.name;
    }
    if (node != nullptr) target += (target.empty() ? "node/" : ", node/") + name;
    for (const PackingPod* pod : placed) ReportNomination(*pod, target, now);
  }
  for (const PlannedClaim& claim : result.claims) CreateClaim(claim, now);
}

std::vector<PackingPod> KarpenterProvisioner::PodsToPlace(absl::Time now) {
  std::vector<PackingPod> pods;
  auto add = [&](const std::string& key, const Pod& pod) {
    if (!pod.spec_error.empty()) return;
    if (pod.spec->uses_resource_claims) {
      ReportFailure(key, pod.meta.uid,
                    "pod has Dynamic Resource Allocation requirements that are not yet supported "
                    "by Karpenter",
                    now);
      return;
    }
    pods.push_back({key, pod.meta.uid, pod.meta.creation_time, pod.spec});
  };
  for (const std::string& key : state_->provisionable_pods()) {
    add(key, state_->pods().Find(key)->object);
  }
  // Room for what has to leave the nodes that go.
  for (const auto& [name, claim] : state_->claims().entries()) {
    if (!claim->object.meta.deletion_time) continue;
    const auto* node = state_->NodeOf(claim->object);
    if (node == nullptr) continue;
    for (const Pod* pod : state_->PodsOn(node->object.meta.name)) {
      if (IsReschedulable(*pod) && !HasDoNotDisrupt(pod->meta)) add(pod->meta.FullName(), *pod);
    }
  }
  return pods;
}

PackingNode KarpenterProvisioner::NodeFor(const NodeClaim& claim, const Node* node) const {
  bool registered = node != nullptr && LabelIsTrue(node->meta, kRegisteredLabel);
  bool initialized = node != nullptr && LabelIsTrue(node->meta, kInitializedLabel);
  PackingNode result;
  result.name = registered ? node->meta.name : claim.meta.name;
  result.labels = NodeLabels(registered ? node->meta.labels : claim.meta.labels, result.name);
  result.taints = registered ? NodeTaints(*node) : claim.taints;
  if (!initialized) {
    std::erase_if(result.taints, [&](const Taint& taint) {
      return IsEphemeralTaint(taint) ||
             std::find(claim.startup_taints.begin(), claim.startup_taints.end(), taint) !=
                 claim.startup_taints.end();
    });
  }
  result.free =
      Free(KarpenterState::Allocatable(claim, node),
           node == nullptr ? std::string_view() : node->meta.name, result.labels, result.taints);
  return result;
}

std::vector<PackingNode> KarpenterProvisioner::Nodes() const {
  std::vector<std::pair<bool, PackingNode>> nodes;  // whether it isn't initialized
  for (const auto& [name, claim] : state_->claims().entries()) {
    if (claim->object.meta.deletion_time || !claim->object.error.empty()) continue;
    const auto* entry = state_->NodeOf(claim->object);
    const Node* node = entry == nullptr ? nullptr : &entry->object;
    bool initialized = node != nullptr && LabelIsTrue(node->meta, kInitializedLabel);
    nodes.emplace_back(!initialized, NodeFor(claim->object, node));
  }
  for (const auto& [name, entry] : state_->nodes().entries()) {
    const Node& node = entry->object;
    if (state_->ClaimOf(node) != nullptr || node.meta.deletion_time || !node.error.empty()) {
      continue;
    }
    PackingNode unmanaged{name, NodeLabels(node.meta.labels, name), NodeTaints(node), {}};
    unmanaged.free = Free(node.allocatable, name, unmanaged.labels, unmanaged.taints);
    nodes.emplace_back(false, std::move(unmanaged));
  }
  std::sort(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second.name) < std::tie(b.first, b.second.name);
  });
  std::vector<PackingNode> result;
  for (auto& [late, node] : nodes) result.push_back(std::move(node));
  return result;
}

ResourceList KarpenterProvisioner::DaemonRequests(const LabelRequirements& labels,
                                                  const std::vector<Taint>& taints,
                                                  bool allow_unknown_well_known) const {
  ResourceList total;
  for (const auto& [key, entry] : state_->daemon_sets().entries()) {
    const DaemonSet& daemon_set = entry->object;
    if (!daemon_set.error.empty()) continue;
    if (!CanRunOn(*daemon_set.pod_spec, labels, taints, allow_unknown_well_known)) continue;
    // Past int64 no node could take it: the amounts so far say enough.
    total.Add(daemon_set.pod_spec->requests).IgnoreError();
  }
  return total;
}

ResourceList KarpenterProvisioner::Free(ResourceList allocatable, std::string_view node,
                                        const LabelRequirements& labels,
                                        const std::vector<Taint>& taints) const {
  ResourceList daemons = DaemonRequests(labels, taints, false);
  ResourceList free = std::move(allocatable);
  for (const Pod* pod : state_->PodsOn(node)) {
    if (pod->IsTerminal()) continue;
    if (!free.Subtract(pod->spec->requests).ok()) return {};
    if (IsOwnedByDaemonSet(*pod)) daemons.Subtract(pod->spec->requests).IgnoreError();
  }
  for (const auto& [name, amount] : daemons.entries()) {
    if (amount > 0) free.Set(name, free.Get(name) - amount);
  }
  return free;
}

std::vector<PackingPool> KarpenterProvisioner::Pools() const {
  std::vector<const KarpenterState::PoolEntry*> order;
  for (const auto& [name, entry] : state_->pools().entries()) {
    const NodePool& pool = entry->object;
    bool is_static = entry->stored->value().at("spec").contains("replicas");
    if (pool.meta.deletion_time || !pool.ready || !pool.error.empty() || is_static) continue;
    order.push_back(entry.get());
  }
  // By weight; equal weights by name, backwards (pkg/utils/nodepool OrderByWeight).
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::tie(a->object.weight, a->object.meta.name) >
           std::tie(b->object.weight, b->object.meta.name);
  });
  std::vector<PackingPool> pools;
  for (const auto* entry : order) {
    const NodePool& pool = entry->object;
    PackingPool packing;
    packing.name = pool.meta.name;
    packing.requirements.Add(pool.requirements);
    packing.requirements.Add(
        LabelRequirements::FromLabels(PoolLabels(pool, entry->stored->value())));
    packing.taints = pool.taints;
    packing.daemon_requests = DaemonRequests(packing.requirements, packing.taints, true);
    packing.remaining = pool.limits;
    if (packing.remaining) {
      for (const auto& [name, claim] : state_->claims().entries()) {
        if (claim->object.node_pool != pool.meta.name) continue;
        const auto* node = state_->NodeOf(claim->object);
        ResourceList used =
            KarpenterState::Capacity(claim->object, node == nullptr ? nullptr : &node->object);
        const ResourceList limits = *packing.remaining;
        for (const auto& [resource, limit] : limits.entries()) {
          packing.remaining->Set(resource, limit - used.Get(resource));
        }
      }
    }
    pools.push_back(std::move(packing));
  }
  return pools;
}

void KarpenterProvisioner::CreateClaim(const PlannedClaim& planned, absl::Time now) {
  const KarpenterState::PoolEntry* pool = state_->pools().Find(planned.pool);
  const Json& stored = pool->stored->value();
  LabelRequirements requirements = planned.requirements;
  std::vector<std::string> types;
  for (const InstanceType* type : planned.types) types.push_back(type->name);
  requirements.Add("node.kubernetes.io/instance-type", ValueSet::In(types));

  Json spec = TemplateOf(stored).at("spec");
  spec["requirements"] = RequirementsJson(requirements);
  spec["resources"] = {{"requests", AmountsJson(planned.requests)}};
  Json labels = Json::object();
  for (const auto& [key, value] : PoolLabels(pool->object, stored)) labels[key] = value;
  Json claim = {{"apiVersion", "karpenter.sh/v1"},
                {"kind", "NodeClaim"},
                {"metadata",
                 {{"labels", labels},
                  {"finalizers", Json::array({kTerminationFinalizer})},
                  {"ownerReferences", Json::array({{{"apiVersion", "karpenter.sh/v1"},
                                                    {"kind", "NodePool"},
                                                    {"name", planned.pool},
                                                    {"uid", pool->object.meta.uid},
                                                    {"blockOwnerDeletion", true}}})}}},
                {"spec", std::move(spec)}};
  auto metadata = TemplateOf(stored).find("metadata");
  if (metadata != TemplateOf(stored).end() && metadata->contains("annotations")) {
    claim["metadata"]["annotations"] = metadata->at("annotations");
  }
  for (int attempt = 0; attempt < kNameAttempts; ++attempt) {
    std::string name = fmt::format("{}-{}", planned.pool, cloud_->RandomSuffix());
    claim["metadata"]["name"] = name;
    absl::Status created = client_->Create("/apis/karpenter.sh/v1/nodeclaims", claim).status();
    if (absl::IsAlreadyExists(created)) continue;
    // Any other refusal: the pods come again with their next retry.
    if (!created.ok()) return;
    for (const PackingPod* pod : planned.pods) ReportNomination(*pod, "nodeclaim/" + name, now);
    return;
  }
}

bool KarpenterProvisioner::ShouldReport(const std::string& key, absl::Duration quiet,
                                        absl::Time now) {
  auto [it, added] = reported_until_.emplace(key, now + quiet);
  if (added) return true;
  if (it->second > now) return false;
  it->second = now + quiet;
  return true;
}

void KarpenterProvisioner::ReportFailure(const std::string& pod_key, const std::string& uid,
                                         const std::string& reason, absl::Time now) {
  if (!ShouldReport("failed-" + uid, kQuietAfterFailure, now)) return;
  client_->RecordEvent(PodReference(pod_key, uid), /*warning=*/true, "FailedScheduling",
                       "Failed to schedule pod, " + reason);
}

void KarpenterProvisioner::ReportNomination(const PackingPod& pod, const std::string& target,
                                            absl::Time now) {
  if (!ShouldReport("nominated-" + pod.uid, kQuietAfterNomination, now)) return;
  double earned = tokens_counted_at_ == absl::InfinitePast()
                      ? kNominationBurst
                      : absl::ToDoubleSeconds(now - tokens_counted_at_) * kNominationsPerSecond;
  nomination_tokens_ = std::min(kNominationBurst, nomination_tokens_ + earned);
  tokens_counted_at_ = now;
  if (nomination_tokens_ < 1) return;
  nomination_tokens_ -= 1;
  client_->RecordEvent(PodReference(pod.key, pod.uid), /*warning=*/false, "Nominated",
                       "Pod should schedule on: " + target);
}

}  // namespace muster::kube::simulators
