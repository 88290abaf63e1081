// Small clusters and gangs for the planner's tests and bench, in a few words each.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/snapshot.h"
#include "coscheduling/placement/planner/planner.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling::testing {

inline kube::ResourceList Amounts(int64_t gpus, int64_t cpus, int64_t pods = 110) {
  kube::ResourceList amounts;
  amounts.Set("cpu", cpus * 1000);
  amounts.Set("pods", pods);
  if (gpus > 0) amounts.Set("nvidia.com/gpu", gpus);
  return amounts;
}

inline kube::Node NodeWith(const std::string& name, const std::string& zone, int64_t gpus,
                           int64_t cpus = 96) {
  kube::Node node;
  node.meta.name = name;
  node.meta.uid = "node-" + name;
  node.meta.labels[kube::kHostnameLabel] = name;
  if (!zone.empty()) node.meta.labels[kube::kZoneLabel] = zone;
  node.allocatable = node.capacity = Amounts(gpus, cpus);
  node.ready = true;
  return node;
}

// A node that has been launched and isn't there yet: "nodeclaim/NAME".
inline kube::NodeClaim ClaimWith(const std::string& name, const std::string& zone, int64_t gpus,
                                 int64_t cpus = 96) {
  kube::NodeClaim claim;
  claim.meta.name = name;
  claim.meta.uid = "claim-" + name;
  claim.meta.labels[kube::kNodePoolLabel] = "default";
  claim.meta.labels[kube::kHostnameLabel] = name;
  if (!zone.empty()) claim.meta.labels[kube::kZoneLabel] = zone;
  claim.node_pool = "default";
  claim.provider_id = "provider:///" + name;
  claim.requests = claim.capacity = claim.allocatable = Amounts(gpus, cpus);
  claim.conditions["Launched"] = {.status = "True", .reason = "", .message = ""};
  return claim;
}

inline kube::PodSpec SpecWith(int64_t gpus, int64_t cpus = 1) {
  kube::PodSpec spec;
  spec.requests = Amounts(gpus, cpus, 1);
  return spec;
}

inline kube::Pod PodWith(const std::string& name, kube::PodSpec spec, kube::StringMap labels = {}) {
  kube::Pod pod;
  pod.meta.name = name;
  pod.meta.name_space = "default";
  pod.meta.uid = "uid-" + name;
  pod.meta.labels = std::move(labels);
  pod.spec = std::make_shared<const kube::PodSpec>(std::move(spec));
  return pod;
}

inline kube::Pod Bound(kube::Pod pod, const std::string& node) {
  pod.node_name = node;
  pod.phase = kube::PodPhase::kRunning;
  return pod;
}

inline kube::LabelSelector Selecting(const std::string& key, const std::string& value) {
  kube::LabelSelector selector;
  selector.requirements = {{key, kube::SelectorOperator::kIn, {value}}};
  return selector;
}

inline kube::PodAffinityTerm Term(const std::string& key, const std::string& value,
                                  const std::string& topology_key) {
  kube::PodAffinityTerm term;
  term.selector = Selecting(key, value);
  term.topology_key = topology_key;
  return term;
}

inline kube::TopologySpreadConstraint Spread(const std::string& key, const std::string& value,
                                             const std::string& topology_key,
                                             int32_t max_skew = 1) {
  kube::TopologySpreadConstraint constraint;
  constraint.selector = Selecting(key, value);
  constraint.topology_key = topology_key;
  constraint.max_skew = max_skew;
  return constraint;
}

inline kube::PodSpec WithAffinity(kube::PodSpec spec, kube::PodAffinityTerm term) {
  spec.affinity.required_pod_affinity.push_back(std::move(term));
  return spec;
}

inline kube::PodSpec WithAntiAffinity(kube::PodSpec spec, kube::PodAffinityTerm term) {
  spec.affinity.required_pod_anti_affinity.push_back(std::move(term));
  return spec;
}

inline kube::PodSpec WithSpread(kube::PodSpec spec, kube::TopologySpreadConstraint constraint) {
  spec.topology_spread.push_back(std::move(constraint));
  return spec;
}

// A snapshot, a gang in it, and the request for its plan.
class GangWorld {
 public:
  void Add(kube::Node node) { snapshot_.Upsert(std::move(node)); }
  void Add(kube::NodeClaim claim) { snapshot_.Upsert(std::move(claim)); }
  void Add(kube::Pod pod) { snapshot_.Upsert(std::move(pod)); }
  void AddMember(kube::Pod pod) {
    std::string uid = pod.meta.uid;
    snapshot_.Upsert(std::move(pod));
    members_.push_back(snapshot_.SharePod(uid));
    request_.members.push_back(members_.back().get());
    request_.required = members_.size();
  }
  // Members NAME-0, NAME-1, ..., all required.
  void AddMembers(const std::string& name, int count, const kube::PodSpec& spec,
                  const kube::StringMap& labels = {}) {
    for (int i = 0; i < count; ++i) {
      AddMember(PodWith(name + "-" + std::to_string(i), spec, labels));
    }
  }

  cluster::Snapshot& snapshot() { return snapshot_; }
  const cluster::Snapshot& snapshot() const { return snapshot_; }
  PlanRequest& request() { return request_; }
  const PlanRequest& request() const { return request_; }
  void Follow() const { planner_.Follow(snapshot_); }
  // By one planner for all of the world's changes.
  Plan MakePlan() const { return planner_.MakePlan(snapshot_, request_); }
  // Leaves the world as it was.
  std::optional<std::pair<std::string, cluster::Rejection>> FirstBroken(
      const cluster::PlaceMap& placements) {
    auto broken = planner_.FirstBroken(&snapshot_, request_, placements);
    for (const auto& [uid, node] : placements) snapshot_.Forget(uid);
    return broken;
  }

 private:
  cluster::Snapshot snapshot_;
  std::vector<std::shared_ptr<const kube::Pod>> members_;
  PlanRequest request_;
  mutable Planner planner_;
};

inline void AddNodes(GangWorld& world, std::initializer_list<const char*> names,
                     const std::string& zone, int64_t gpus) {
  for (const char* name : names) world.Add(NodeWith(name, zone, gpus));
}

// A standing pod that takes GPUs.
inline void Occupy(GangWorld& world, const std::string& node, int64_t gpus) {
  world.Add(Bound(PodWith("on-" + node, SpecWith(gpus)), node));
}

}  // namespace muster::coscheduling::testing
