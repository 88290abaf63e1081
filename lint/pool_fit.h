// Which NodePools could make a node for a pod, and of which instance types: as far as manifests and
// the table of types say. What isn't known counts as possible.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "cluster/instance_types.h"
#include "cluster/pool_types.h"
#include "lint/manifests.h"

namespace muster::lint {

using cluster::TypeSet;

using Requirements = std::vector<Requirement>;

// Any one of these must hold: the node selector, and with it one term of the node affinity.
std::vector<Requirements> AlternativesOf(const PodTemplate& pods);

// The types that the pool allows (nullptr: any pool) and that meet `needs`.
TypeSet TypesOf(const NodePool* pool, const Requirements& needs,
                const cluster::InstanceTypes& types);

// The pool could make a node that meets the requirement.
bool Offers(const NodePool& pool, const Requirement& need, const cluster::InstanceTypes& types);
bool OffersAll(const NodePool& pool, const Requirements& needs,
               const cluster::InstanceTypes& types);

// The pods run on nodes that no NodePool makes: of a managed node group.
bool SelectsNodeGroup(const PodTemplate& pods);

// The NodePools that could make a node for a pod, taints aside; found out once per pod template.
class PoolIndex {
 public:
  // Both outlive it.
  PoolIndex(const std::vector<NodePool>& pools, const cluster::InstanceTypes& types)
      : pools_(pools), types_(types) {}

  // Empty: none of them, or none is given. `pods` stays where it is.
  const std::vector<const NodePool*>& For(const PodTemplate& pods) const;

 private:
  const std::vector<NodePool>& pools_;
  const cluster::InstanceTypes& types_;
  mutable std::unordered_map<const PodTemplate*, std::vector<const NodePool*>> found_;
};

// "NodePool gpu", "NodePools gpu and gpu-efa"
std::string PoolNames(const std::vector<const NodePool*>& pools);

// What the pools say about a label, for messages: "NodePool gpu has [a, b], NodePool cpu has none".
std::string WhatIsOffered(const std::vector<const NodePool*>& pools, const std::string& key);

}  // namespace muster::lint
