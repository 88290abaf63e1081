// Do a flavor's labels and taints agree with what the pods ask for?
#pragma once

#include <string>

#include "kube/objects/pod.h"
#include "kube/objects/quota.h"

namespace muster::quota {

// "" if they do; else what is in the way, a part of a sentence.
//
// Taints with NoSchedule or NoExecute must be tolerated by the pods or by the flavor itself. Of
// nodeSelector and required node affinity only keys of the flavor's own nodeLabels count. Affinity
// terms are alternatives: one that says nothing about these keys lets the flavor through, and
// fields are not looked at (Kueue v0.19.2, pkg/scheduler/flavorassigner/flavorassigner.go).
std::string FlavorMismatch(const kube::PodSpec& spec, const kube::ResourceFlavor& flavor);

}  // namespace muster::quota
