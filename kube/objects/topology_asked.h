// Where pods that start together ask to be, as far as the cluster's topology goes: Kueue's
// annotations on their templates or their PodGroup (sigs.k8s.io/kueue v0.19.2
// apis/kueue/v1beta2/topology_types.go, pkg/controller/jobframework/tas_validation.go), and what
// EFA requires. Told in the same words by the scheduler and by lint.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kube/objects/pod.h"
#include "kube/objects/resource_list.h"

namespace muster::kube {

inline constexpr std::string_view kRequiredTopology = "kueue.x-k8s.io/podset-required-topology";
inline constexpr std::string_view kPreferredTopology = "kueue.x-k8s.io/podset-preferred-topology";
inline constexpr std::string_view kUnconstrainedTopology =
    "kueue.x-k8s.io/podset-unconstrained-topology";

struct TopologyAsked {
  // Label of the level of which one domain must hold all of them; empty: none.
  std::string required;
  std::string because;     // what requires it: an annotation, or a resource
  std::string annotation;  // that names either level; empty: none does
  // Label of the level of which one domain should; empty: none.
  std::string preferred;
  // They contradict each other, or themselves: a sentence that names the annotation. Nothing is
  // required or preferred then.
  std::string error;
};

// Which level an annotation names; empty: none does.
const std::string& LevelOf(const TopologyAsked& asked);

// The labels of the levels that nodes have unless a Topology names others, from the top down; of
// the network's layers as many as there may be. The host is below them all.
const std::vector<std::string>& UsualLevels();
// What is wrong with the level that an annotation names, if it is none of these nor the host; "" if
// nothing is.
std::string WhyNoLevelOf(const TopologyAsked& asked);

// A template, or a pod; or the PodGroup, which asks for nothing.
struct TopologyAsker {
  std::string_view name;
  const StringMap* annotations = nullptr;
  const ResourceList* requests = nullptr;
};

// What each says goes for all of them, and is to be the same where several say something. EFA
// doesn't reach beyond a zone: who asks for it requires one, unless a level is required, or
// podset-unconstrained-topology is "true".
TopologyAsked TopologyOf(const std::vector<TopologyAsker>& askers);

}  // namespace muster::kube
