#include "coscheduling/placement/planner/oracle.h"

#include <algorithm>
#include <memory>
#include <set>

#include "cluster/predicates.h"
#include "cluster/relations.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kube/objects/well_known.h"

namespace muster::coscheduling::testing {

using cluster::NodeInfo;
using kube::Pod;

std::string OracleScore::ToString() const {
  return fmt::format("complete={} one_zone={} placed={} domains={} virtual={} devices={}", complete,
                     one_zone, placed, fmt::join(domains, ","), virtual_nodes, devices);
}

bool OracleBetter(const OracleScore& a, const OracleScore& b) {
  auto key = [](const OracleScore& s) {
    return std::tuple(!s.complete, s.complete && !s.one_zone, -s.placed, s.domains, s.virtual_nodes,
                      s.devices);
  };
  return key(a) < key(b);
}

namespace {

std::vector<const NodeInfo*> AllNodes(const cluster::Snapshot& snapshot) {
  std::vector<const NodeInfo*> nodes;
  for (const auto& [name, info] : snapshot.nodes()) nodes.push_back(&info);
  return nodes;
}

// The domain of a level that the node is in, by the values of all labels down to there.
std::string DomainOf(const NodeInfo& info, size_t level) {
  std::string path;
  for (size_t at = 0; at < kOracleLevels.size(); ++at) {
    const std::string* value = info.node->meta.Label(kOracleLevels[at]);
    path += value == nullptr ? "-/" : *value + "/";
    if (at >= level && value != nullptr) return fmt::format("{} {}", at, path);
  }
  return "node " + info.name();
}

}  // namespace

const std::vector<std::string> kOracleLevels = {
    kube::kZoneLabel,
    "topology.k8s.aws/network-node-layer-1",
    "topology.k8s.aws/network-node-layer-2",
};

// Walks all states depth first, with the placements of the current one counted.
struct Oracle::Explorer {
  explicit Explorer(Oracle& oracle)
      : oracle(oracle),
        relations(oracle.snapshot_, oracle.request_.members, AllNodes(oracle.snapshot_),
                  oracle.request_.include_virtual),
        state(oracle.kinds_.size() * oracle.nodes_.size()),
        placed(oracle.kinds_.size()),
        requested(oracle.nodes_.size()),
        on_node(oracle.nodes_.size()) {
    const std::vector<const NodeInfo*> all = AllNodes(oracle.snapshot_);
    for (const NodeInfo* info : oracle.nodes_) {
      node_number.push_back(
          static_cast<int>(std::find(all.begin(), all.end(), info) - all.begin()));
    }
    relation_kind.resize(oracle.kinds_.size());
    for (size_t m = 0; m < oracle.alike_.size(); ++m) {
      relation_kind[oracle.alike_[m]] = relations.KindOf(m);
    }
    for (const auto& kind : oracle.kinds_) {
      for (const NodeInfo* info : oracle.nodes_) {
        suitable.push_back(!cluster::CheckClass(oracle.snapshot_, *kind[0], *info) &&
                           kind[0]->spec_error.empty());
      }
    }
  }

  // Resources and host ports, beside what stands there and what has been placed.
  bool HasRoom(const Pod& pod, size_t n) const {
    const NodeInfo& info = *oracle.nodes_[n];
    kube::ResourceList wanted = requested[n];
    if (!wanted.Add(pod.spec->requests).ok() || !info.FreeResources().Covers(wanted)) return false;
    for (const cluster::PlacedPod& other : info.pods) {
      if (cluster::HostPortsConflict(*pod.spec, *other.pod->spec)) return false;
    }
    return std::none_of(on_node[n].begin(), on_node[n].end(), [&](const Pod* other) {
      return cluster::MembersClash(*pod.spec, *other->spec);
    });
  }

  bool InDomain(size_t n) const {
    const std::string& key = oracle.request_.required_topology_key;
    if (key.empty()) return true;
    const size_t level = std::ranges::find(kOracleLevels, key) - kOracleLevels.begin();
    if (oracle.nodes_[n]->node->meta.Label(key) == nullptr) return false;
    const std::string domain = DomainOf(*oracle.nodes_[n], level);
    for (size_t m = 0; m < on_node.size(); ++m) {
      if (!on_node[m].empty() && DomainOf(*oracle.nodes_[m], level) != domain) return false;
    }
    std::set<std::string> homes;
    for (const std::string& name : oracle.request_.sibling_nodes) {
      homes.insert(DomainOf(*oracle.snapshot_.FindNode(name), level));
    }
    return homes.empty() || homes.contains(domain);
  }

  void Visit(const State& from, int cell) {
    if (!oracle.seen_.try_emplace(state, from, cell).second) return;
    OracleScore score = oracle.ScoreOf(state);
    if (OracleBetter(score, oracle.best_)) {
      oracle.best_ = score;
      oracle.best_state_ = state;
    }
    for (size_t k = 0; k < oracle.kinds_.size(); ++k) {
      if (placed[k] == oracle.kinds_[k].size()) continue;
      const Pod& pod = *oracle.kinds_[k][placed[k]];
      for (size_t n = 0; n < oracle.nodes_.size(); ++n) {
        size_t at = k * oracle.nodes_.size() + n;
        if (!suitable[at] || !InDomain(n) || !HasRoom(pod, n)) continue;
        if (!relations.Allows(relation_kind[k], node_number[n])) continue;
        Step(pod, k, n, static_cast<int>(at));
      }
    }
  }

  void Step(const Pod& pod, size_t k, size_t n, int at) {
    State before = state;
    kube::ResourceList requested_before = requested[n];
    ++state[at];
    ++placed[k];
    (void)requested[n].Add(pod.spec->requests);  // HasRoom has tried it
    on_node[n].push_back(&pod);
    relations.Place(relation_kind[k], node_number[n]);
    Visit(before, at);
    relations.Remove(relation_kind[k], node_number[n]);
    on_node[n].pop_back();
    requested[n] = requested_before;
    --placed[k];
    state = before;
  }

  Oracle& oracle;
  cluster::Relations relations;
  std::vector<int> relation_kind;  // by kind
  std::vector<int> node_number;    // by node, in `relations`
  State state;
  std::vector<size_t> placed;                    // by kind
  std::vector<bool> suitable;                    // by kind, then node
  std::vector<kube::ResourceList> requested;     // by node
  std::vector<std::vector<const Pod*>> on_node;  // by node
};

Oracle::Oracle(const cluster::Snapshot& snapshot, const PlanRequest& request,
               std::vector<int> alike)
    : request_(request), alike_(std::move(alike)), snapshot_(snapshot) {
  for (const auto& [name, info] : snapshot.nodes()) {
    if (info.is_virtual && !request.include_virtual) continue;
    if (!request.excluded_nodes.contains(name)) nodes_.push_back(&info);
  }
  for (size_t m = 0; m < alike_.size(); ++m) {
    if (static_cast<size_t>(alike_[m]) >= kinds_.size()) kinds_.resize(alike_[m] + 1);
    kinds_[alike_[m]].push_back(request.members[m]);
  }
  best_state_.resize(kinds_.size() * nodes_.size());
  best_ = ScoreOf(best_state_);
  Explorer(*this).Visit({}, -1);
}

OracleScore Oracle::ScoreOf(const State& state) const {
  OracleScore score;
  std::vector<std::set<std::string>> used(kOracleLevels.size() + 1);
  for (size_t n = 0; n < nodes_.size(); ++n) {
    int members = 0;
    for (size_t k = 0; k < kinds_.size(); ++k) members += state[k * nodes_.size() + n];
    if (members == 0) continue;
    score.placed += members;
    score.virtual_nodes += nodes_[n]->is_virtual;
    score.devices += nodes_[n]->Free("nvidia.com/gpu");
    for (size_t level = 0; level < used.size(); ++level) {
      used[level].insert(DomainOf(*nodes_[n], level));
    }
  }
  for (const auto& names : used) score.domains.push_back(static_cast<int>(names.size()));
  const bool zones = std::ranges::any_of(snapshot_.nodes(), [](const auto& node) {
    return node.second.node->meta.Label(kube::kZoneLabel) != nullptr;
  });
  score.one_zone = !zones || score.domains[0] == 1;
  score.complete = score.placed >= static_cast<int>(request_.required);
  return score;
}

cluster::PlaceMap Oracle::BestPlacements() const {
  cluster::PlaceMap placements;
  for (size_t k = 0; k < kinds_.size(); ++k) {
    size_t next = 0;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      for (int i = 0; i < best_state_[k * nodes_.size() + n]; ++i) {
        placements[kinds_[k][next++]->meta.uid] = nodes_[n]->name();
      }
    }
  }
  return placements;
}

OracleScore Oracle::ScoreOf(const cluster::PlaceMap& placements) const {
  return ScoreOf(StateOf(placements));
}

Oracle::State Oracle::StateOf(const cluster::PlaceMap& placements) const {
  State state(kinds_.size() * nodes_.size());
  for (size_t m = 0; m < alike_.size(); ++m) {
    auto it = placements.find(request_.members[m]->meta.uid);
    if (it == placements.end()) continue;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (nodes_[n]->name() == it->second) ++state[alike_[m] * nodes_.size() + n];
    }
  }
  return state;
}

std::vector<std::pair<const Pod*, std::string>> Oracle::OrderOf(
    const cluster::PlaceMap& placements) const {
  std::vector<std::pair<const Pod*, std::string>> order;
  cluster::PlaceMap left = placements;
  for (auto it = seen_.find(StateOf(placements)); it != seen_.end() && it->second.second >= 0;) {
    const auto& [before, cell] = it->second;
    const std::string& name = nodes_[cell % nodes_.size()]->name();
    for (const Pod* pod : kinds_[cell / nodes_.size()]) {
      auto placement = left.find(pod->meta.uid);
      if (placement == left.end() || placement->second != name) continue;
      order.emplace_back(pod, name);
      left.erase(placement);
      break;
    }
    it = seen_.find(before);
  }
  if (!left.empty()) return {};
  std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace muster::coscheduling::testing
