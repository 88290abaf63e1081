#include "cluster/pool_forecast.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/node_affinity.h"
#include "cluster/pool_types.h"
#include "cluster/predicates.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kube/objects/quantity.h"
#include "kube/objects/time_text.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

using kube::Requirement;
using kube::SelectorOperator;

constexpr std::string_view kReserved = "reserved";

PoolObstacle ObstacleOf(std::string_view label) {
  if (label == kube::kNodePoolLabel) return PoolObstacle::kOtherPool;
  if (label == kube::kZoneLabel) return PoolObstacle::kZone;
  if (label == kube::kCapacityTypeLabel) return PoolObstacle::kCapacityType;
  return IsInstanceTypeLabel(label) ? PoolObstacle::kInstanceType : PoolObstacle::kLabel;
}

bool HasZones(const kube::NodePool& pool) {
  return pool.node_class != nullptr && !pool.node_class->zones.empty();
}

// What the pool says about a label.
std::string Offered(const kube::NodePool& pool, const std::string& label) {
  if (label == kube::kNodePoolLabel) return "";
  if (label == kube::kZoneLabel && HasZones(pool)) {
    return fmt::format("the subnets of its EC2NodeClass {} are in {}", pool.node_class_name,
                       fmt::join(pool.node_class->zones, ", "));
  }
  if (const auto fixed = pool.labels.find(label); fixed != pool.labels.end()) {
    return fmt::format("its nodes have {}", fixed->second);
  }
  for (const Requirement& requirement : pool.requirements) {
    if (requirement.key == label) return fmt::format("it offers {}", requirement.ToString());
  }
  return "its nodes have no such label";
}

std::optional<PoolRefusal> UnmetAsk(const kube::NodePool& pool, const NodeInfo& forecast,
                                    const Requirement& ask) {
  if (CouldHaveLabel(forecast, ask)) return std::nullopt;
  const PoolObstacle obstacle = ObstacleOf(ask.key);
  const std::string offered = Offered(pool, ask.key);
  return PoolRefusal{
      obstacle,
      fmt::format("the pods select {}{}{}", ask.ToString(), offered.empty() ? "" : ", ", offered),
      obstacle == PoolObstacle::kOtherPool
          ? "name a NodePool that exists"
          : "select what a NodePool offers, or let a NodePool offer it"};
}

// Of several alternatives in the node affinity the one that comes closest is told.
std::optional<PoolRefusal> UnmetSelector(const kube::NodePool& pool, const kube::PodSpec& spec) {
  const NodeInfo forecast = ForecastOf(pool);
  if (CouldMatchNodeAffinity(spec, forecast)) return std::nullopt;
  for (const auto& [key, value] : spec.node_selector) {
    if (auto refusal = UnmetAsk(pool, forecast, {key, SelectorOperator::kIn, {value}})) {
      return refusal;
    }
  }
  std::optional<PoolRefusal> closest;
  for (const kube::NodeSelectorTerm& term :
       spec.affinity.required_node_terms.value_or(std::vector<kube::NodeSelectorTerm>())) {
    for (const Requirement& ask : term.match_expressions) {
      auto refusal = UnmetAsk(pool, forecast, ask);
      if (!refusal) continue;
      if (!closest || refusal->obstacle > closest->obstacle) closest = std::move(refusal);
      break;
    }
  }
  if (closest) return closest;
  return PoolRefusal{PoolObstacle::kLabel, "no term of the pods' required node affinity can be met",
                     "select what a NodePool offers, or let a NodePool offer it"};
}

std::string Amount(std::string_view resource, int64_t amount) {
  return fmt::format("{} {}", kube::FormatQuantity(amount, kube::UnitOf(resource)), resource);
}

PoolObstacle ObstacleOf(std::string_view resource, int64_t most) {
  if (resource == kube::kEfa) return most == 0 ? PoolObstacle::kNoEfa : PoolObstacle::kEfaCount;
  const bool device = std::ranges::find(kDevices, resource) != kDevices.end();
  return device ? PoolObstacle::kGpuCount : PoolObstacle::kSize;
}

PoolRefusal TooSmall(std::string_view resource, int64_t asked,
                     const std::vector<const InstanceType*>& left) {
  const InstanceType* largest = nullptr;
  int64_t most = 0;
  for (const InstanceType* type : left) {
    const int64_t has = AmountOf(*type, resource);
    if (largest == nullptr || has > most) largest = type;
    most = std::max(most, has);
  }
  const std::string has =
      largest == nullptr || most == 0
          ? fmt::format("none of its instance types has any{}",
                        left.size() == 1 ? fmt::format(" ({})", largest->name) : "")
          : fmt::format("the largest instance type that is left, {}, has {}{}", largest->name,
                        kube::FormatQuantity(most, kube::UnitOf(resource)),
                        most == asked ? ", of which the system keeps some" : "");
  return {ObstacleOf(resource, most),
          fmt::format("one pod asks for {}, {}", Amount(resource, asked), has),
          most == 0 ? fmt::format("allow instance types with {}, or don't ask for it", resource)
                    : "ask for less per pod and make more pods, or allow larger instance types"};
}

std::optional<PoolRefusal> TooSmallTypes(const kube::NodePool& pool, const kube::PodSpec& spec,
                                         const InstanceTypes& types) {
  TypeSet set = TypesOf(pool, spec, types);
  if (set.empty()) {
    return PoolRefusal{PoolObstacle::kInstanceType,
                       "no instance type meets both its requirements and the pods' selectors",
                       "select what a NodePool offers, or let a NodePool offer it"};
  }
  if (set.unknown) return std::nullopt;
  if (set.others && !WantsDevices(spec)) return std::nullopt;
  for (const std::string_view resource : kInTable) {
    const int64_t asked = spec.requests.Get(resource);
    if (asked <= 0) continue;
    std::vector<const InstanceType*> left;
    std::ranges::copy_if(set.known, std::back_inserter(left), [&](const InstanceType* type) {
      return TimesOf(*type, resource, asked) > 0;
    });
    if (left.empty()) return TooSmall(resource, asked, set.known);
    set.known = std::move(left);
  }
  return std::nullopt;
}

std::optional<PoolRefusal> BarringTaint(const kube::NodePool& pool, const kube::PodSpec& spec) {
  const kube::Taint* taint = FirstUntoleratedTaint(spec, pool.taints);
  if (taint == nullptr) return std::nullopt;
  return PoolRefusal{PoolObstacle::kTaint,
                     fmt::format("its taint {} isn't tolerated", taint->ToString()),
                     fmt::format("add a toleration for {} to the pods", taint->key)};
}

bool TakesOnlyReserved(const kube::NodePool& pool, const kube::PodSpec& spec) {
  const auto asked = spec.node_selector.find(kube::kCapacityTypeLabel);
  if (asked != spec.node_selector.end()) return asked->second == kReserved;
  return std::ranges::any_of(pool.requirements, [](const Requirement& requirement) {
    return requirement.key == kube::kCapacityTypeLabel && requirement.op == SelectorOperator::kIn &&
           requirement.values.size() == 1 && requirement.values.front() == kReserved;
  });
}

// Karpenter takes the nodes of a capacity block back before it ends
// (github.com/aws/karpenter-provider-aws v1.15.1, pkg/controllers/capacityreservation).
std::string EndText(const kube::NodeClass::Reservation& reservation) {
  return fmt::format(
      "{} {} of {} in {} ends{}{}",
      reservation.is_block ? "capacity block" : "capacity reservation", reservation.id,
      reservation.instance_type, reservation.zone,
      reservation.end ? " at " + kube::TimeText(*reservation.end) : " soon",
      reservation.is_block ? ", and Karpenter takes its nodes back 40 min before" : "");
}

std::optional<PoolRefusal> NothingReserved(const kube::NodePool& pool, const kube::PodSpec& spec) {
  if (pool.node_class == nullptr || !TakesOnlyReserved(pool, spec)) return std::nullopt;
  const kube::NodeClass::Reservation* ends = nullptr;
  const NodeInfo forecast = ForecastOf(pool);
  for (const kube::NodeClass::Reservation& each : pool.node_class->reservations) {
    const Requirement type = {
        "node.kubernetes.io/instance-type", SelectorOperator::kIn, {each.instance_type}};
    const Requirement zone = {kube::kZoneLabel, SelectorOperator::kIn, {each.zone}};
    if (!CouldHaveLabel(forecast, type) || !CouldHaveLabel(forecast, zone)) continue;
    if (!each.expiring) return std::nullopt;
    ends = &each;
  }
  const std::string lacks =
      ends == nullptr ? fmt::format("its EC2NodeClass {} has no capacity reservation for it",
                                    pool.node_class_name)
                      : EndText(*ends);
  return PoolRefusal{PoolObstacle::kCapacityType, lacks,
                     "select another reservation in the EC2NodeClass, or allow another capacity "
                     "type"};
}

std::optional<PoolRefusal> TooLowLimit(const kube::NodePool& pool, const kube::PodSpec& spec) {
  if (!pool.limits) return std::nullopt;
  for (const auto& [resource, limit] : pool.limits->entries()) {
    const int64_t asked = resource == kNodes ? 1 : spec.requests.Get(resource);
    if (asked <= limit) continue;
    return PoolRefusal{PoolObstacle::kLimit,
                       fmt::format("its limit is {}, one pod asks for {}", Amount(resource, limit),
                                   Amount(resource, asked)),
                       "raise the NodePool's limit"};
  }
  return std::nullopt;
}

}  // namespace

NodeInfo ForecastOf(const kube::NodePool& pool) {
  auto claim = std::make_shared<kube::NodeClaim>();
  claim->meta.name = pool.meta.name;
  claim->node_pool = pool.meta.name;
  claim->requirements = pool.requirements;
  if (HasZones(pool)) {
    claim->requirements.push_back(
        {kube::kZoneLabel, SelectorOperator::kIn, pool.node_class->zones});
  }
  claim->taints = pool.taints;
  auto node = std::make_shared<kube::Node>();
  node->meta.name = pool.meta.name;
  node->meta.labels = pool.labels;
  node->meta.labels["karpenter.sh/nodepool"] = pool.meta.name;
  node->taints = pool.taints;
  NodeInfo info;
  info.node = std::move(node);
  info.claim = std::move(claim);
  info.is_virtual = true;
  return info;
}

kube::ResourceList RemainingLimits(const kube::NodePool& pool) {
  kube::ResourceList remaining;
  if (!pool.limits) return remaining;
  for (const auto& [resource, limit] : pool.limits->entries()) {
    remaining.Set(resource, std::max<int64_t>(0, limit - pool.usage.Get(resource)));
  }
  return remaining;
}

std::optional<PoolRefusal> WhyPoolCannotHold(const kube::NodePool& pool, const kube::PodSpec& spec,
                                             const InstanceTypes& types) {
  std::optional<PoolRefusal> refusal = UnmetSelector(pool, spec);
  if (!refusal) refusal = TooSmallTypes(pool, spec, types);
  if (!refusal) refusal = NothingReserved(pool, spec);
  if (!refusal) refusal = BarringTaint(pool, spec);
  if (!refusal) refusal = TooLowLimit(pool, spec);
  if (!pool.error.empty()) {
    refusal = {PoolObstacle::kUnusable, pool.error, "correct the NodePool"};
  } else if (!refusal && pool.meta.deletion_time) {
    refusal = {PoolObstacle::kUnusable, "is being deleted", ""};
  } else if (!refusal && pool.is_static) {
    refusal = {PoolObstacle::kUnusable, "is static (spec.replicas): no pod makes it buy a node",
               "raise its spec.replicas, or let a NodePool without replicas make such nodes"};
  } else if (!refusal && !pool.ready) {
    const bool told = pool.node_class != nullptr && !pool.node_class->not_ready.empty();
    refusal = {PoolObstacle::kUnusable,
               told ? fmt::format("isn't ready: its EC2NodeClass {} has {}", pool.node_class_name,
                                  pool.node_class->not_ready)
                    : "isn't ready",
               "see the NodePool's conditions"};
  }
  if (refusal) refusal->why = fmt::format("NodePool {}: {}", pool.meta.name, refusal->why);
  return refusal;
}

bool IsReserved(const kube::Node& node) {
  return node.meta.Label(kube::kReservationIdLabel) != nullptr;
}

std::string BlocksEndText(const NodePools& pools, const std::vector<const kube::Node*>& nodes) {
  std::map<std::string, int64_t, std::less<>> members;  // by block
  for (const kube::Node* node : nodes) {
    if (IsReserved(*node)) ++members[*node->meta.Label(kube::kReservationIdLabel)];
  }
  std::string text;
  for (const auto& [name, pool] : pools) {
    if (members.empty()) break;
    if (pool.node_class == nullptr) continue;
    for (const kube::NodeClass::Reservation& each : pool.node_class->reservations) {
      const auto on = members.find(each.id);
      if (on == members.end() || !each.is_block || !each.end) continue;
      text += fmt::format("; {}: {} members are on its nodes", EndText(each), on->second);
      members.erase(on);
    }
  }
  return text;
}

}  // namespace muster::cluster
