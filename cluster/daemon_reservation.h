// What the pods of DaemonSets will take on a node before they stand there.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "cluster/snapshot.h"
#include "kube/objects/resource_list.h"
#include "kube/objects/workload.h"

namespace muster::cluster {

// By UID.
using DaemonSets = std::map<std::string, std::shared_ptr<const kube::DaemonSet>, std::less<>>;

// True if the DaemonSet controller will put a pod on this node, now or once the taints that leave
// by themselves have left (pkg/controller/daemon NodeShouldRunDaemonPod v1.34).
bool WillComeTo(const kube::DaemonSet& daemon_set, const NodeInfo& info);

// True if one of the pods on the node belongs to the DaemonSet of this UID.
bool HasPodOf(const NodeInfo& info, const std::string& daemon_set_uid);

// Sums up what is still to come into `reserved`, which is complete unless the status is OutOfRange.
absl::Status SumAwaitedDaemons(const DaemonSets& daemon_sets, const NodeInfo& info,
                               kube::ResourceList* reserved);

}  // namespace muster::cluster
