#include "cluster/topology_domains.h"

namespace muster::cluster {

const kube::Node* TopologyDomains::Judged(const NodeInfo& info) const {
  return include_virtual_ ? info.node.get() : info.object.get();
}

size_t TopologyDomains::AddKey(const std::string& key) {
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i].name == key) return i;
  }
  keys_.push_back({key, {}, {}});
  return keys_.size() - 1;
}

const std::vector<int>& TopologyDomains::Of(const NodeInfo& info) {
  auto [it, is_new] = nodes_.try_emplace(&info);
  if (!is_new) return it->second;
  std::vector<int> domains(keys_.size(), kNone);
  const kube::Node* node = Judged(info);
  // A virtual node may be asked about where it doesn't count.
  if (node == nullptr) node = info.node.get();
  for (size_t i = 0; i < keys_.size(); ++i) {
    Key& key = keys_[i];
    const std::string* value = node->meta.Label(key.name);
    if (value == nullptr) continue;
    auto [number, is_new_value] = key.numbers.try_emplace(*value, key.values.size());
    if (is_new_value) key.values.push_back(*value);
    domains[i] = number->second;
  }
  it->second = std::move(domains);
  return it->second;
}

void SpreadCounts::AddDomain(int domain) {
  if (domain >= static_cast<int>(counts_.size())) counts_.resize(domain + 1, kAbsent);
  if (counts_[domain] != kAbsent) return;
  counts_[domain] = 0;
  ++by_count_[0];
  ++domains_;
}

void SpreadCounts::Change(int domain, int64_t by) {
  if (domain >= static_cast<int>(counts_.size()) || counts_[domain] == kAbsent) return;
  auto it = by_count_.find(counts_[domain]);
  if (--it->second == 0) by_count_.erase(it);
  counts_[domain] += by;
  ++by_count_[counts_[domain]];
}

int64_t SpreadCounts::Get(int domain) const {
  if (domain >= static_cast<int>(counts_.size()) || counts_[domain] == kAbsent) return 0;
  return counts_[domain];
}

}  // namespace muster::cluster
