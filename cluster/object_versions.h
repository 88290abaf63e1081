// Which new versions of an object bring nothing new.
#pragma once

#include "kube/objects/node.h"

namespace muster::cluster {

// True if `candidate` is older than what is known of the same object, so that it says nothing.
bool IsOutdated(const kube::ObjectMeta& candidate, const kube::ObjectMeta& known);

// True if nothing that a typed view holds tells the two apart but their resource versions: what a
// heartbeat brings, as the views leave out when a condition was last confirmed.
bool SameButVersion(const kube::Node& a, const kube::Node& b);
bool SameButVersion(const kube::NodeClaim& a, const kube::NodeClaim& b);

}  // namespace muster::cluster
