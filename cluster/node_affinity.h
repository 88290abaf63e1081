// nodeSelector and required node affinity against a node, known or coming
// (k8s.io/component-helpers/scheduling/corev1/nodeaffinity v0.34).
#pragma once

#include <vector>

#include "kube/objects/node.h"
#include "kube/objects/pod.h"

namespace muster::cluster {

struct NodeInfo;

// True if nodeSelector or required node affinity may tell nodes of one family (node_families.h)
// apart.
bool LooksAtNames(const kube::PodSpec& spec);

// nodeSelector and required node affinity, against the node's labels and name.
bool MatchesNodeAffinity(const kube::PodSpec& spec, const kube::Node& node);

// The same against what `info` may turn out to be: a virtual node whose Node isn't registered is
// judged by its claim's requirements where its labels leave a key open (predicates.h, CheckClass).
bool CouldMatchNodeAffinity(const kube::PodSpec& spec, const NodeInfo& info);

// A PersistentVolume's required terms, which look at labels only. No terms: matches nothing.
bool CouldMatchVolumeTerms(const std::vector<kube::NodeSelectorTerm>& terms, const NodeInfo& info);

// Whether a label of this value could be on the node.
bool CouldHaveLabel(const NodeInfo& info, const kube::Requirement& wanted);

// Sum of the weights of the preferred terms that the node's labels meet.
int64_t PreferredNodeWeight(const kube::PodSpec& spec, const kube::Node& node);

}  // namespace muster::cluster
