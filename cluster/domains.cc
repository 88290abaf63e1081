#include "cluster/domains.h"

#include <algorithm>
#include <iterator>

#include "fmt/format.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
namespace {

// Where an EC2 instance hangs in the network, from 1, the top, down to 3 or 4, depending on its
// type.
constexpr char kNetworkLayerPrefix[] = "topology.k8s.aws/network-node-layer-";
constexpr int kMostNetworkLayers = 8;
// Nodes whose GPUs one NVLink fabric joins.
constexpr char kGpuCliqueLabel[] = "nvidia.com/gpu.clique";

}  // namespace

std::vector<Domains::Level> Domains::DefaultLevels() {
  std::vector<Level> levels = {{kube::kRegionLabel, true}, {kube::kZoneLabel, true}};
  for (int layer = 1; layer <= kMostNetworkLayers; ++layer) {
    levels.push_back({fmt::format("{}{}", kNetworkLayerPrefix, layer), true});
  }
  levels.push_back({kGpuCliqueLabel, true});
  return levels;
}

std::vector<Domains::Level> Domains::LevelsOf(const std::vector<std::string>& labels) {
  std::vector<Level> levels;
  for (const std::string& label : labels) {
    if (label != kube::kHostnameLabel) levels.push_back({label, false});
  }
  return levels;
}

Domains::Domains(std::vector<Level> levels)
    : levels_(std::move(levels)), counts_(levels_.size()), domains_(1) {}

int Domains::LevelOf(std::string_view label) const {
  if (label == kube::kHostnameLabel) return static_cast<int>(levels_.size());
  const auto it = std::ranges::find(levels_, label, &Level::label);
  return it == levels_.end() ? -1 : static_cast<int>(it - levels_.begin());
}

int Domains::Above(int domain, int level) const {
  while (domain >= 0 && domains_[domain].level > level) domain = domains_[domain].parent;
  return domain >= 0 && domains_[domain].level == level ? domain : -1;
}

bool Domains::Share(int slot, int other, int level) const {
  if (slot == other) return true;
  const int above = Above(DomainOf(slot), level);
  return above >= 0 && above == Above(DomainOf(other), level);
}

void Domains::Follow(const Snapshot& snapshot) {
  const auto changed = snapshot.log().Since(position_);
  position_ = snapshot.log().end();
  const uint64_t before = shape_;
  nodes_.resize(snapshot.slot_count());
  if (changed && followed_) {
    for (int slot : *changed) Refresh(snapshot, slot);
  } else {
    for (size_t slot = 0; slot < nodes_.size(); ++slot) Refresh(snapshot, static_cast<int>(slot));
  }
  followed_ = true;
  if (shape_ == before) return;
  order_.clear();
  Arrange(kRoot);
}

void Domains::Refresh(const Snapshot& snapshot, int slot) {
  const NodeInfo* info = snapshot.NodeIn(slot);
  Node& node = nodes_[slot];
  if (info == nullptr) {
    if (node.there) TakeDown(slot);
    return;
  }
  std::vector<Named> path = PathOf(*info->node);
  if (node.there && node.name == info->name() && node.path == path) return;
  if (node.there) TakeDown(slot);
  node.there = true;
  node.name = info->name();
  node.path = std::move(path);
  Hang(slot);
}

std::vector<Domains::Named> Domains::PathOf(const kube::Node& node) const {
  std::vector<Named> path;
  for (size_t level = 0; level < levels_.size(); ++level) {
    const std::string* value = node.meta.Label(levels_[level].label);
    if (value != nullptr) path.emplace_back(static_cast<int>(level), *value);
  }
  const std::string* host = node.meta.Label(kube::kHostnameLabel);
  if (host != nullptr) path.emplace_back(static_cast<int>(levels_.size()), *host);
  return path;
}

void Domains::Hang(int slot) {
  ++shape_;
  Node& node = nodes_[slot];
  CountParents(node, 1);
  node.domain = kRoot;
  for (const Named& named : node.path) {
    if (named.first < static_cast<int>(levels_.size())) {
      node.domain = FindOrMake(node.domain, named);
    }
  }
  std::vector<int>& beside = domains_[node.domain].nodes;
  beside.insert(std::ranges::lower_bound(
                    beside, node.name, {},
                    [this](int other) -> const std::string& { return nodes_[other].name; }),
                slot);
}

void Domains::TakeDown(int slot) {
  ++shape_;
  Node& node = nodes_[slot];
  CountParents(node, -1);
  std::erase(domains_[node.domain].nodes, slot);
  for (int domain = node.domain; domain != kRoot;) {
    Domain& left = domains_[domain];
    if (!left.nodes.empty() || !left.children.empty()) break;
    const int parent = left.parent;
    domains_[parent].children.erase({left.level, left.value});
    --counts_[left.level];
    left = {};
    unused_.push_back(domain);
    domain = parent;
  }
  node = {};
}

int Domains::FindOrMake(int parent, const Named& named) {
  const auto found = domains_[parent].children.find(named);
  if (found != domains_[parent].children.end()) return found->second;
  if (unused_.empty()) {
    unused_.push_back(static_cast<int>(domains_.size()));
    domains_.emplace_back();
  }
  const int made = unused_.back();
  unused_.pop_back();
  domains_[made].parent = parent;
  domains_[made].level = named.first;
  domains_[made].value = named.second;
  ++counts_[named.first];
  domains_[parent].children.emplace(named, made);
  return made;
}

void Domains::CountParents(const Node& node, int step) {
  Named above = {-1, ""};
  for (const Named& named : node.path) {
    const auto level = static_cast<size_t>(named.first);
    if (level == levels_.size() || levels_[level].one_meaning) {
      auto& in = parents_[named];
      contradictions_ -= in.size() > 1 ? 1 : 0;
      if ((in[above] += step) == 0) in.erase(above);
      contradictions_ += in.size() > 1 ? 1 : 0;
      if (in.empty()) parents_.erase(named);
    }
    above = named;
  }
}

void Domains::Arrange(int domain) {
  Domain& here = domains_[domain];
  here.first = static_cast<int>(order_.size());
  for (int slot : here.nodes) {
    nodes_[slot].position = static_cast<int>(order_.size());
    order_.push_back(slot);
  }
  for (const auto& [named, child] : here.children) Arrange(child);
  here.last = static_cast<int>(order_.size());
}

std::string Domains::NameOf(const Named& named) const {
  if (named.first < 0) return "none";
  const bool host = named.first == static_cast<int>(levels_.size());
  return fmt::format("{}={}", host ? kube::kHostnameLabel : levels_[named.first].label,
                     named.second);
}

std::vector<std::string> Domains::Contradictions() const {
  std::vector<std::string> sentences;
  if (contradictions_ == 0) return sentences;
  for (const auto& [named, in] : parents_) {
    if (in.size() < 2) continue;
    sentences.push_back(fmt::format("{} lies in {} domains, {} and {} among them", NameOf(named),
                                    in.size(), NameOf(in.begin()->first),
                                    NameOf(std::next(in.begin())->first)));
  }
  return sentences;
}

std::string WhyNoLevelOf(const kube::TopologyAsked& asked) {
  const std::string& label =
      asked.annotation == kube::kPreferredTopology ? asked.preferred : asked.required;
  const std::vector<Domains::Level> levels = Domains::DefaultLevels();
  if (asked.annotation.empty() || label.empty() || label == kube::kHostnameLabel ||
      std::ranges::find(levels, label, &Domains::Level::label) != levels.end()) {
    return "";
  }
  return fmt::format(
      "annotation {} names {}, which is no level that is known: those are {}, {}, "
      "{}1 to {}, {} and {}",
      asked.annotation, label, kube::kRegionLabel, kube::kZoneLabel, kNetworkLayerPrefix,
      kMostNetworkLayers, kGpuCliqueLabel, kube::kHostnameLabel);
}

}  // namespace muster::cluster
