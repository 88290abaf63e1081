// Where the nodes are: in the tree of domains, and by the required topology key.

#include <algorithm>
#include <string>

#include "cluster/free_devices.h"
#include "cluster/node_lookup.h"
#include "coscheduling/placement/planner/problem.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling::planner {
namespace {

using cluster::NodeInfo;

std::vector<int> Candidates(const Problem& problem) {
  std::vector<char> wanted(problem.nodes.size());
  for (const MemberClass& member_class : problem.classes) {
    for (int node : member_class.candidates) wanted[node] = 1;
  }
  std::vector<int> nodes;
  for (size_t n = 0; n < wanted.size(); ++n) {
    if (wanted[n]) nodes.push_back(static_cast<int>(n));
  }
  return nodes;
}

}  // namespace

void FindPlaces(Problem* problem) {
  const PlanRequest& request = *problem->request;
  const cluster::Domains& tree = *problem->tree;
  const int zone = tree.LevelOf(kube::kZoneLabel);
  const bool zones = std::ranges::any_of(
      tree.domains(), [&](const auto& domain) { return zone >= 0 && domain.level == zone; });
  problem->zone_level = zones ? zone : -1;
  std::vector<int> nodes = Candidates(*problem);
  cluster::FreeDevices devices;
  for (int node : nodes) {
    NodeSlot& slot = problem->nodes[node];
    slot.domain = tree.DomainOf(slot.info->slot);
    slot.position = tree.PositionOf(slot.info->slot);
    slot.devices = devices.On(*slot.info);
  }
  const std::string& key = request.required_topology_key;
  cluster::NodeLabel parts(key);
  const auto part_of = [&](const NodeInfo& info) { return key.empty() ? 0 : parts.NumberOf(info); };
  for (int node : nodes) problem->nodes[node].part = part_of(*problem->nodes[node].info);
  // A sibling in a part that no candidate is in leaves none to be at home in.
  for (const std::string& name : request.sibling_nodes) {
    const NodeInfo* info = problem->snapshot->FindNode(name);
    if (info == nullptr) continue;
    problem->homes.push_back({info->slot, tree.DomainOf(info->slot), part_of(*info)});
  }
}

}  // namespace muster::coscheduling::planner
