// FirstBroken: a plan that was made earlier, looked at again.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "cluster/placing_order.h"
#include "cluster/relations.h"
#include "coscheduling/placement/planner/planner.h"
#include "coscheduling/placement/planner/problem.h"
#include "fmt/format.h"

namespace muster::coscheduling {
namespace {

using cluster::NodeInfo;
using cluster::Rejection;
using cluster::RejectionCode;
using kube::Pod;

class Recheck {
 public:
  Recheck(const cluster::Snapshot& snapshot, const PlanRequest& request)
      : snapshot_(snapshot), request_(request) {
    for (const Pod* member : request.members) {
      const NodeInfo* info = snapshot.FindNodeOfPod(member->meta.uid);
      if (info != nullptr) holds_members_.push_back(info);
    }
  }

  // Nothing if the member may go on the node beside those that were asked for before it.
  std::optional<Rejection> Add(const Pod& pod, const std::string& node_name) {
    const NodeInfo* info = snapshot_.FindNode(node_name);
    if (info == nullptr) return Rejection{RejectionCode::kNotUsable, "the node is gone"};
    if (!pod.spec_error.empty()) return Rejection{RejectionCode::kResources, pod.spec_error};
    if (auto rejection = planner::WhyNotAllowed(request_, *info)) return rejection;
    if (auto rejection = cluster::CheckClass(snapshot_, pod, *info)) return rejection;
    if (auto rejection = WhyNotDomain(*info)) return rejection;
    if (auto rejection = WhyNoRoom(pod, *info)) return rejection;
    members_on_[info].push_back(&pod);
    return std::nullopt;
  }

 private:
  std::optional<Rejection> WhyNotDomain(const NodeInfo& info) {
    if (request_.required_topology_key.empty()) return std::nullopt;
    if (domain_.empty()) FindDomain(info);
    const std::string& value = *info.node->meta.Label(request_.required_topology_key);
    if (value == domain_) return std::nullopt;
    return Rejection{
        RejectionCode::kNodeSelector,
        fmt::format("{}={}, the gang is in {}", request_.required_topology_key, value, domain_)};
  }

  // Where siblings stand, else where the first member goes.
  void FindDomain(const NodeInfo& first) {
    domain_ = *first.node->meta.Label(request_.required_topology_key);
    for (const std::string& name : request_.sibling_nodes) {
      const NodeInfo* info = snapshot_.FindNode(name);
      const std::string* value =
          info == nullptr ? nullptr : info->node->meta.Label(request_.required_topology_key);
      if (value == nullptr) continue;
      domain_ = *value;
      return;
    }
  }

  std::optional<Rejection> WhyNoRoom(const Pod& pod, const NodeInfo& info) {
    const std::vector<const Pod*>& members = members_on_[&info];
    bool held =
        std::find(holds_members_.begin(), holds_members_.end(), &info) != holds_members_.end();
    for (const auto& [resource, wanted] : pod.spec->requests.entries()) {
      if (wanted <= 0) continue;
      int64_t free =
          held ? planner::FreeWithoutMembers(request_, info, resource) : info.Free(resource);
      // Each was found to fit beside those before it, so this stays within 64 bits.
      for (const Pod* member : members) free -= member->spec->requests.Get(resource);
      if (wanted > free) return planner::ShortOf(info, resource, wanted, free);
    }
    for (const Pod* member : members) {
      if (cluster::HostPortsConflict(*pod.spec, *member->spec)) {
        return Rejection{RejectionCode::kHostPorts,
                         fmt::format("a host port is taken by {}", member->meta.FullName())};
      }
    }
    return planner::WhyNotPorts(request_, pod, info);
  }

  const cluster::Snapshot& snapshot_;
  const PlanRequest& request_;
  std::vector<const NodeInfo*> holds_members_;
  std::map<const NodeInfo*, std::vector<const Pod*>> members_on_;
  std::string domain_;
};

std::optional<std::pair<std::string, Rejection>> FirstUnrelated(
    const cluster::Snapshot& snapshot, const PlanRequest& request,
    const std::map<std::string, std::string>& placements) {
  std::vector<const NodeInfo*> infos;
  std::map<std::string_view, int> index;
  for (const auto& [name, info] : snapshot.nodes()) {
    index[name] = static_cast<int>(infos.size());
    infos.push_back(&info);
  }
  cluster::Relations relations(snapshot, request.members, infos, request.include_virtual);
  std::vector<cluster::Placing> wanted;
  std::vector<size_t> member_of;
  for (size_t m = 0; m < request.members.size(); ++m) {
    auto placement = placements.find(request.members[m]->meta.uid);
    if (placement == placements.end()) continue;
    const std::string& name = snapshot.FindNode(placement->second)->name();
    wanted.push_back({relations.KindOf(m), index.at(name)});
    member_of.push_back(m);
  }
  std::vector<size_t> refused = cluster::PlaceInOrder(wanted, &relations).refused;
  if (refused.empty()) return std::nullopt;
  const cluster::Placing& first = wanted[refused[0]];
  return std::pair(request.members[member_of[refused[0]]]->meta.uid,
                   *relations.WhyNot(first.kind, first.node));
}

}  // namespace

std::optional<std::pair<std::string, Rejection>> FirstBroken(
    const cluster::Snapshot& snapshot, const PlanRequest& request,
    const std::map<std::string, std::string>& placements) {
  Recheck recheck(snapshot, request);
  for (const Pod* member : request.members) {
    auto placement = placements.find(member->meta.uid);
    if (placement == placements.end()) continue;
    if (auto rejection = recheck.Add(*member, placement->second)) {
      return std::pair(member->meta.uid, std::move(*rejection));
    }
  }
  const bool related = std::ranges::any_of(
      request.members, [](const Pod* member) { return cluster::HasRelations(*member->spec); });
  if (!related && snapshot.anti_affinity_pods().empty()) return std::nullopt;
  return FirstUnrelated(snapshot, request, placements);
}

}  // namespace muster::coscheduling
