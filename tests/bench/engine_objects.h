// The objects of a GPU cluster on EKS, as large as they are there: what an engine keeps, and what a
// change of one of them costs, depends on all that they carry.
//
// They are decoded from the API's JSON once and copied with other names, so that they hold what the
// decoder keeps. Every copy has a spec of its own, as objects do that come from a watch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"
#include "kube/objects/workload.h"

namespace muster::bench {

inline constexpr int kGpusPerNode = 8;
// How many sorts of gangs there are. Each has a master and workers that ask for less cpu than it,
// so two classes of members; a quarter of them fits on one node, the others take 2, 4 and 8.
inline constexpr int kShapes = 200;
// The shape of a gang of so many workers without a master, each of which takes a whole node.
constexpr int AlikeShape(int members) { return kShapes + members; }
// The pods of DaemonSets on each node.
inline constexpr int kDaemons = 6;

// "ip-10-0-1-7.us-west-2.compute.internal"
std::string NodeName(int number);
// A p5.48xlarge of a managed node group, Ready, in one of three zones.
kube::Node NodeObject(int number, uint64_t version);

// The pod of another scheduler's job that has a node for itself: all GPUs and EFA devices.
kube::Pod TenantPod(const std::string& uid, const std::string& node, uint64_t version);
// One of the node's daemons, with the node affinity that the DaemonSet controller gives it.
kube::Pod DaemonPod(int daemon, const std::string& node, uint64_t version);
kube::DaemonSet DaemonSetObject(int daemon);
// A small pod of a Deployment, bound unless `node` is empty; it runs once `running`.
kube::Pod ServicePod(const std::string& uid, const std::string& node, bool running,
                     uint64_t version);

// What may change about a member.
struct MemberState {
  bool gated = true;
  std::string node;  // bound there
  std::string nominated;
  std::string scheduled_reason;  // of condition PodScheduled
  std::string scheduled_message;
  std::vector<std::pair<std::string, std::string>> annotations;  // beside those it came with
};

// How many members a gang of the shape has, and on how many nodes they fit.
int MembersOf(int shape);
int NodesOf(int shape);
// `member` 0 is the master, if the shape has one. UID "GANG-MEMBER", in namespace "team-N".
kube::Pod MemberPod(int shape, const std::string& gang, int member, const MemberState& state,
                    absl::Time created, uint64_t version);
std::string NamespaceOf(const std::string& gang);
kube::PodGroup GroupObject(int shape, const std::string& gang, absl::Time created,
                           uint64_t version);

}  // namespace muster::bench
