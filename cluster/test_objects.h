// Objects for the tests of this folder and of those above it: short to write, complete enough for
// the snapshot. Amounts are in base units, cpu in milli.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "kube/objects/well_known.h"
#include "kube/objects/workload.h"

namespace muster::cluster::test {

inline kube::ResourceList Resources(std::initializer_list<kube::ResourceList::Entry> entries) {
  kube::ResourceList list;
  for (const auto& [name, amount] : entries) list.Set(name, amount);
  return list;
}

// Ready, 96 cpu, 8 GPUs, room for 110 pods, with its hostname label.
inline kube::Node MakeNode(const std::string& name, const std::string& zone = "") {
  kube::Node node;
  node.meta.name = name;
  node.meta.uid = "node-" + name;
  node.meta.labels[kube::kHostnameLabel] = name;
  if (!zone.empty()) node.meta.labels[kube::kZoneLabel] = zone;
  node.allocatable = Resources({{"cpu", 96'000}, {"nvidia.com/gpu", 8}, {"pods", 110}});
  node.capacity = node.allocatable;
  node.ready = true;
  return node;
}

// In namespace "default", with UID "pod-NAME", asking for `requests` and one place.
inline kube::Pod MakePod(const std::string& name,
                         std::initializer_list<kube::ResourceList::Entry> requests = {}) {
  kube::Pod pod;
  pod.meta.name = name;
  pod.meta.name_space = "default";
  pod.meta.uid = "pod-" + name;
  kube::PodSpec spec;
  spec.requests = Resources(requests);
  spec.requests.Set("pods", 1);
  pod.spec = std::make_shared<const kube::PodSpec>(std::move(spec));
  return pod;
}

// The pod with its spec changed by `change(kube::PodSpec&)`.
template <typename Change>
kube::Pod With(kube::Pod pod, Change change) {
  kube::PodSpec spec = *pod.spec;
  change(spec);
  pod.spec = std::make_shared<const kube::PodSpec>(std::move(spec));
  return pod;
}

inline kube::Pod BoundTo(kube::Pod pod, const std::string& node) {
  pod.node_name = node;
  pod.phase = kube::PodPhase::kRunning;
  return pod;
}

inline kube::Pod Labelled(kube::Pod pod, const std::string& key, const std::string& value) {
  pod.meta.labels[key] = value;
  return pod;
}

// Requested, for 8 GPUs, not launched.
inline kube::NodeClaim MakeClaim(const std::string& name) {
  kube::NodeClaim claim;
  claim.meta.name = name;
  claim.meta.uid = "claim-" + name;
  claim.node_pool = "gpu";
  claim.meta.labels["karpenter.sh/nodepool"] = "gpu";
  claim.requests = Resources({{"cpu", 64'000}, {"nvidia.com/gpu", 8}, {"pods", 5}});
  return claim;
}

inline void SetTrue(kube::NodeClaim& claim, const std::string& condition) {
  claim.conditions[condition].status = "True";
}

inline kube::NodeClaim Launched(kube::NodeClaim claim, const std::string& provider_id) {
  claim.provider_id = provider_id;
  claim.capacity = Resources({{"cpu", 96'000}, {"nvidia.com/gpu", 8}, {"pods", 110}});
  claim.allocatable = Resources({{"cpu", 95'000}, {"nvidia.com/gpu", 8}, {"pods", 110}});
  SetTrue(claim, "Launched");
  return claim;
}

// The Node of a claim as the kubelet first posts it: no devices, not ready, not registered.
inline kube::Node MakeEarlyNode(const std::string& name, const std::string& provider_id) {
  kube::Node node = MakeNode(name);
  node.provider_id = provider_id;
  node.meta.labels["karpenter.sh/nodepool"] = "gpu";
  node.allocatable = Resources({{"cpu", 94'000}, {"pods", 110}});
  node.capacity = Resources({{"cpu", 96'000}, {"pods", 110}});
  node.ready = false;
  node.ready_message = "container runtime network not ready";
  node.taints = {{"karpenter.sh/unregistered", "", kube::TaintEffect::kNoExecute},
                 {"node.kubernetes.io/not-ready", "", kube::TaintEffect::kNoSchedule}};
  return node;
}

inline kube::Node Registered(kube::Node node) {
  node.meta.labels["karpenter.sh/registered"] = "true";
  std::erase_if(node.taints,
                [](const kube::Taint& taint) { return taint.key == "karpenter.sh/unregistered"; });
  return node;
}

// Registered, initialized, Ready and without taints; devices as they were.
inline kube::Node Initialized(kube::Node node) {
  node = Registered(std::move(node));
  node.meta.labels["karpenter.sh/initialized"] = "true";
  node.taints.clear();
  node.ready = true;
  node.ready_message.clear();
  return node;
}

inline kube::Node WithGpus(kube::Node node, int64_t allocatable, int64_t capacity) {
  node.allocatable.Set("nvidia.com/gpu", allocatable);
  node.capacity.Set("nvidia.com/gpu", capacity);
  return node;
}

inline kube::DaemonSet MakeDaemonSet(const std::string& name,
                                     std::initializer_list<kube::ResourceList::Entry> requests) {
  kube::DaemonSet daemon_set;
  daemon_set.meta.name = name;
  daemon_set.meta.name_space = "kube-system";
  daemon_set.meta.uid = "ds-" + name;
  daemon_set.pod_spec = MakePod(name, requests).spec;
  return daemon_set;
}

inline kube::Pod PodOf(const kube::DaemonSet& daemon_set, const std::string& node) {
  kube::Pod pod = MakePod(daemon_set.meta.name + "-" + node);
  pod.meta.name_space = daemon_set.meta.name_space;
  pod.spec = daemon_set.pod_spec;
  pod.meta.owners = {{"apps/v1", "DaemonSet", daemon_set.meta.name, daemon_set.meta.uid, true}};
  return BoundTo(std::move(pod), node);
}

inline kube::Requirement In(const std::string& key, std::vector<std::string> values) {
  return {key, kube::SelectorOperator::kIn, std::move(values)};
}

// A required (anti-)affinity term: pods with this label, in domains of `topology_key`.
inline kube::PodAffinityTerm TermFor(const std::string& label, const std::string& value,
                                     const std::string& topology_key) {
  kube::PodAffinityTerm term;
  term.selector = kube::LabelSelector{{In(label, {value})}};
  term.topology_key = topology_key;
  return term;
}

}  // namespace muster::cluster::test
