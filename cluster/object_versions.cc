#include "cluster/object_versions.h"

#include <algorithm>
#include <tuple>

namespace muster::cluster {
namespace {

// Every field by name, so that one that is added to a view is an error here.

auto ButVersion(const kube::ObjectMeta& meta) {
  const auto& [name, name_space, uid, version, generation, created, deleted, labels, annotations,
               owners, finalizers] = meta;
  return std::tie(name, name_space, uid, generation, created, deleted, labels, annotations, owners,
                  finalizers);
}

auto AllButMeta(const kube::Node& node) {
  const auto& [meta, provider_id, unschedulable, taints, capacity, allocatable, features, ready,
               ready_message, ready_changed, ill, error] = node;
  return std::tie(provider_id, unschedulable, taints, capacity, allocatable, features, ready,
                  ready_message, ready_changed, ill, error);
}

auto All(const kube::Condition& condition) {
  const auto& [status, reason, message, last_transition] = condition;
  return std::tie(status, reason, message, last_transition);
}

auto AllButMetaAndConditions(const kube::NodeClaim& claim) {
  const auto& [meta, node_pool, node_name, provider_id, requirements, taints, startup_taints,
               requests, capacity, allocatable, conditions, error] = claim;
  return std::tie(node_pool, node_name, provider_id, requirements, taints, startup_taints, requests,
                  capacity, allocatable, error);
}

}  // namespace

bool IsOutdated(const kube::ObjectMeta& candidate, const kube::ObjectMeta& known) {
  return candidate.uid == known.uid &&
         kube::IsOlderVersion(candidate.resource_version, known.resource_version);
}

bool SameButVersion(const kube::Node& a, const kube::Node& b) {
  return AllButMeta(a) == AllButMeta(b) && ButVersion(a.meta) == ButVersion(b.meta);
}

bool SameButVersion(const kube::NodeClaim& a, const kube::NodeClaim& b) {
  return AllButMetaAndConditions(a) == AllButMetaAndConditions(b) &&
         std::equal(a.conditions.begin(), a.conditions.end(), b.conditions.begin(),
                    b.conditions.end(),
                    [](const auto& x, const auto& y) {
                      return x.first == y.first && All(x.second) == All(y.second);
                    }) &&
         ButVersion(a.meta) == ButVersion(b.meta);
}

}  // namespace muster::cluster
