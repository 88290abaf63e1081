// FirstBroken: a plan that was made earlier, looked at again.
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "cluster/placing_order.h"
#include "coscheduling/placement/planner/problem.h"
#include "fmt/format.h"

namespace muster::coscheduling {
namespace {

using cluster::NodeInfo;
using cluster::Rejection;
using cluster::RejectionCode;
using Broken = std::optional<std::pair<std::string, Rejection>>;

}  // namespace

Broken Planner::FirstBroken(cluster::Snapshot* snapshot, const PlanRequest& request,
                            const cluster::PlaceMap& placements) {
  const cluster::Domains& tree = Follow(*snapshot, request.levels);
  const std::string& key = request.required_topology_key;
  int beside = -1;  // all are in the required domain of this node
  for (const std::string& name : request.sibling_nodes) {
    const NodeInfo* info = snapshot->FindNode(name);
    if (info != nullptr) beside = info->slot;
  }
  const auto why_not = [&](const kube::Pod& pod, const NodeInfo* info) -> std::optional<Rejection> {
    if (info == nullptr) return Rejection{RejectionCode::kNotUsable, "the node is gone"};
    if (!pod.spec_error.empty()) return Rejection{RejectionCode::kResources, pod.spec_error};
    if (auto rejection = planner::WhyNotAllowed(request, *info)) return rejection;
    if (auto rejection = cluster::CheckClass(*snapshot, pod, *info)) return rejection;
    if (beside < 0) beside = info->slot;
    if (!key.empty() && !tree.Share(info->slot, beside, tree.LevelOf(key))) {
      return Rejection{RejectionCode::kNodeSelector,
                       fmt::format("{}={}, the gang is beside {}", key,
                                   *info->node->meta.Label(key), snapshot->NodeIn(beside)->name())};
    }
    return cluster::CheckRoom(*snapshot, pod, *info);
  };
  std::vector<std::string_view> assumed;
  absl::Cleanup forget = [&] {
    for (std::string_view uid : assumed) snapshot->Forget(uid);
  };
  for (const kube::Pod* member : request.members) {
    const std::string& uid = member->meta.uid;
    const auto placement = placements.find(uid);
    if (placement == placements.end()) continue;
    if (auto rejection = why_not(*member, snapshot->FindNode(placement->second))) {
      return std::pair(uid, *std::move(rejection));
    }
    if (!snapshot->Assume(uid, placement->second).ok()) return std::pair(uid, Rejection());
    assumed.push_back(uid);
  }
  Broken broken =
      cluster::Relations::MayConcern(*snapshot, request.members)
          ? cluster::FirstForbidden(*snapshot, request.members, request.include_virtual, placements)
          : std::nullopt;
  if (!broken) std::move(forget).Cancel();
  return broken;
}

}  // namespace muster::coscheduling
