#include "cluster/domains.h"

#include <algorithm>
#include <iterator>

#include "fmt/format.h"
#include "kube/objects/topology_asked.h"
#include "kube/objects/well_known.h"

namespace muster::cluster {
std::vector<Domains::Level> Domains::DefaultLevels() {
  std::vector<Level> levels;
  for (const std::string& label : kube::UsualLevels()) levels.push_back({label, true});
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
  const std::vector<int> changed = snapshot.class_log().Since(position_);
  position_ = snapshot.class_log().end();
  const uint64_t before = shape_;
  nodes_.resize(snapshot.slot_count());
  of_family_.clear();
  if (!followed_) hosts_.reserve(nodes_.size());
  for (int slot : changed) Refresh(snapshot, slot);
  if (!followed_) PutInOrder();
  followed_ = true;
  if (shape_ == before) return;
  order_.clear();
  Arrange(kRoot);
}

void Domains::Refresh(const Snapshot& snapshot, int slot) {
  const NodeInfo* info = snapshot.NodeIn(slot);
  Node& node = nodes_[slot];
  const int before = node.domain;
  int domain = -1;
  std::string_view name;
  std::string_view host;
  if (info != nullptr) {
    domain = FindOrMake(*info);
    name = info->name();
    const std::string* label = info->node->meta.Label(kube::kHostnameLabel);
    if (label != nullptr) host = *label;
  }
  if (before == domain && node.name == name && node.host == host) return;
  ++shape_;
  if (before >= 0) {
    CountHost(slot, /*comes=*/false);
    std::erase(domains_[before].nodes, slot);
  }
  node = {domain, -1, std::string(name), std::string(host)};
  if (domain >= 0) {
    Hang(slot, domain);
    CountHost(slot, /*comes=*/true);
  }
  if (before >= 0) Prune(before);
}

int Domains::FindOrMake(const NodeInfo& info) {
  const auto family = static_cast<size_t>(std::max(0, info.family));
  if (info.family >= 0 && family < of_family_.size() && of_family_[family] >= 0) {
    return of_family_[family];
  }
  int domain = kRoot;
  for (size_t level = 0; level < levels_.size(); ++level) {
    const std::string* value = info.node->meta.Label(levels_[level].label);
    if (value != nullptr) domain = FindOrMake(domain, {static_cast<int>(level), *value});
  }
  if (info.family >= 0) {
    if (of_family_.size() <= family) of_family_.resize(family + 1, -1);
    of_family_[family] = domain;
  }
  return domain;
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
  domains_[parent].children.emplace(named, made);
  CountDomain(made, 1);
  return made;
}

void Domains::Hang(int slot, int domain) {
  std::vector<int>& beside = domains_[domain].nodes;
  const auto name_of = [this](int other) -> const std::string& { return nodes_[other].name; };
  // At first they are put in order at once.
  const auto at =
      followed_ ? std::ranges::lower_bound(beside, nodes_[slot].name, {}, name_of) : beside.end();
  beside.insert(at, slot);
}

void Domains::PutInOrder() {
  for (Domain& domain : domains_) {
    std::ranges::sort(domain.nodes, {},
                      [this](int slot) -> const std::string& { return nodes_[slot].name; });
  }
}

void Domains::Prune(int domain) {
  while (domain != kRoot) {
    Domain& left = domains_[domain];
    if (!left.nodes.empty() || !left.children.empty()) break;
    const int parent = left.parent;
    domains_[parent].children.erase({left.level, left.value});
    CountDomain(domain, -1);
    left = {};
    unused_.push_back(domain);
    domain = parent;
    of_family_.clear();
  }
}

void Domains::CountDomain(int domain, int step) {
  const Domain& here = domains_[domain];
  counts_[here.level] += step;
  if (!levels_[here.level].one_meaning) return;
  const Named named = NamedOf(domain);
  auto& in = parents_[named];
  contradictions_ -= in.size() > 1 ? 1 : 0;
  const Named above = NamedOf(here.parent);
  if ((in[above] += step) == 0) in.erase(above);
  contradictions_ += in.size() > 1 ? 1 : 0;
  if (in.empty()) parents_.erase(named);
}

void Domains::CountHost(int slot, bool comes) {
  const std::string& host = nodes_[slot].host;
  if (host.empty()) return;
  const auto it = hosts_.try_emplace(host).first;
  Slots& slots = it->second;
  contradictions_ -= DomainsOfHost(slots).size() > 1 ? 1 : 0;
  if (comes) {
    slots.push_back(slot);
  } else {
    slots.erase(std::ranges::find(slots, slot));
  }
  contradictions_ += DomainsOfHost(slots).size() > 1 ? 1 : 0;
  if (slots.empty()) hosts_.erase(it);
}

std::set<Domains::Named> Domains::DomainsOfHost(const Slots& slots) const {
  std::set<Named> domains;
  if (slots.size() < 2) return domains;
  for (int slot : slots) domains.insert(NamedOf(nodes_[slot].domain));
  return domains;
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
  std::map<Named, std::set<Named>> torn;
  if (contradictions_ == 0) return {};
  for (const auto& [named, in] : parents_) {
    for (const auto& [above, count] : in) {
      if (in.size() > 1) torn[named].insert(above);
    }
  }
  for (const auto& [host, slots] : hosts_) {
    std::set<Named> in = DomainsOfHost(slots);
    if (in.size() > 1) torn[{static_cast<int>(levels_.size()), host}] = std::move(in);
  }
  std::vector<std::string> sentences;
  for (const auto& [named, in] : torn) {
    sentences.push_back(fmt::format("{} lies in {} domains, {} and {} among them", NameOf(named),
                                    in.size(), NameOf(*in.begin()),
                                    NameOf(*std::next(in.begin()))));
  }
  return sentences;
}

}  // namespace muster::cluster
