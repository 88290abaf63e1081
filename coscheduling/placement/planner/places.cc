// Where the nodes are: zones, domains of the required topology key, neighbourhood in the network.

#include <algorithm>
#include <array>
#include <string_view>

#include "cluster/node_lookup.h"
#include "coscheduling/placement/planner/problem.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling::planner {
namespace {

using cluster::NodeInfo;

// Where an EC2 instance hangs in the network, from the spine down; absent elsewhere. A node has all
// of them or none (cloud-provider-aws, docs/topology.md).
constexpr std::array<std::string_view, 3> kNetworkLabels = {
    "topology.k8s.aws/network-node-layer-1",
    "topology.k8s.aws/network-node-layer-2",
    "topology.k8s.aws/network-node-layer-3",
};

// What one would regret to leave idle beside a gang: accelerators and the like. Network devices
// come with them and don't count.
bool IsScarceDevice(std::string_view resource) {
  return resource.find('/') != std::string_view::npos &&
         resource.find("kubernetes.io/") == std::string_view::npos && resource != kube::kEfa;
}

// More devices than a node can have; keeps sums over nodes within 64 bits.
constexpr int64_t kMostDevices = 1'000'000'000;

// Counts free devices of all kinds.
class DeviceCounter {
 public:
  int64_t Of(const NodeInfo& info) {
    const std::vector<size_t>& kinds =
        kinds_.Get(info.family, [&] { return KindsIn(info.node->allocatable); });
    int64_t devices = 0;
    for (size_t kind : kinds) devices += std::min(info.free[kind], kMostDevices);
    return std::min(devices, kMostDevices);
  }

 private:
  static std::vector<size_t> KindsIn(const kube::ResourceList& resources) {
    std::vector<size_t> kinds;
    for (size_t i = 0; i < resources.entries().size(); ++i) {
      if (IsScarceDevice(resources.entries()[i].first)) kinds.push_back(i);
    }
    return kinds;
  }

  cluster::PerFamily<std::vector<size_t>> kinds_;  // positions in NodeInfo::free
};

// The values of one label on the candidates, numbered in the order of the values.
class LabelColumn {
 public:
  LabelColumn(const Problem& problem, const std::vector<int>& nodes, std::string_view label)
      : number_(problem.nodes.size(), -1) {
    cluster::NodeLabel on_node(label);
    for (int node : nodes) number_[node] = on_node.NumberOf(*problem.nodes[node].info);
    values_ = on_node.values();
    std::sort(values_.begin(), values_.end());
    std::vector<int> in_order;
    for (std::string_view value : on_node.values()) in_order.push_back(OfValue(value));
    for (int node : nodes) {
      if (number_[node] >= 0) number_[node] = in_order[number_[node]];
    }
  }

  int size() const { return static_cast<int>(values_.size()); }
  // -1 if the node lacks the label.
  int Of(int node) const { return number_[node]; }
  // -1 if no candidate has this value.
  int OfValue(std::string_view value) const {
    auto it = std::lower_bound(values_.begin(), values_.end(), value);
    return it != values_.end() && *it == value ? static_cast<int>(it - values_.begin()) : -1;
  }

 private:
  std::vector<int> number_;  // by node
  std::vector<std::string_view> values_;
};

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

void FindPositions(const std::vector<int>& nodes, Problem* problem) {
  LabelColumn spine(*problem, nodes, kNetworkLabels[0]);
  if (spine.size() == 0) return;
  LabelColumn middle(*problem, nodes, kNetworkLabels[1]);
  LabelColumn leaf(*problem, nodes, kNetworkLabels[2]);
  std::vector<std::array<int, 4>> order;
  for (int node : nodes) {
    order.push_back({spine.Of(node), middle.Of(node), leaf.Of(node), node});
  }
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i) {
    problem->nodes[order[i].back()].position = static_cast<int>(i);
  }
}

// A sibling in a zone or domain that no candidate is in leaves none to be at home in.
void FindHome(const LabelColumn& zones, const LabelColumn* domains, Problem* problem) {
  const PlanRequest& request = *problem->request;
  for (const std::string& name : request.sibling_nodes) {
    const NodeInfo* info = problem->snapshot->FindNode(name);
    if (info == nullptr) continue;
    problem->home_zones.resize(problem->zones);
    const std::string* zone = info->node->meta.Label(kube::kZoneLabel);
    int number = zone == nullptr ? zones.size() : zones.OfValue(*zone);
    if (number >= 0) problem->home_zones[number] = 1;
    if (domains == nullptr) continue;
    problem->home_domains.resize(problem->domains);
    const std::string* domain = info->node->meta.Label(request.required_topology_key);
    number = domain == nullptr ? -1 : domains->OfValue(*domain);
    if (number >= 0) problem->home_domains[number] = 1;
  }
}

}  // namespace

void FindPlaces(Problem* problem) {
  std::vector<int> nodes = Candidates(*problem);
  LabelColumn zones(*problem, nodes, kube::kZoneLabel);
  problem->zones = zones.size() + 1;
  DeviceCounter devices;
  for (int node : nodes) {
    NodeSlot& slot = problem->nodes[node];
    slot.zone = zones.Of(node) < 0 ? zones.size() : zones.Of(node);
    slot.devices = devices.Of(*slot.info);
  }
  FindPositions(nodes, problem);
  const std::string& key = problem->request->required_topology_key;
  if (key.empty()) return FindHome(zones, nullptr, problem);
  LabelColumn domains(*problem, nodes, key);
  problem->domains = std::max(1, domains.size());
  for (int node : nodes) problem->nodes[node].domain = domains.Of(node);
  FindHome(zones, &domains, problem);
}

}  // namespace muster::coscheduling::planner
