#include "cluster/claim_pairing.h"

#include <algorithm>

namespace muster::cluster {
namespace {

using NameSets = std::map<std::string, std::set<std::string>, std::less<>>;

void Insert(NameSets& sets, const std::string& key, const std::string& name) {
  if (!key.empty()) sets[key].insert(name);
}

void Erase(NameSets& sets, const std::string& key, const std::string& name) {
  auto it = sets.find(key);
  if (it == sets.end()) return;
  it->second.erase(name);
  if (it->second.empty()) sets.erase(it);
}

}  // namespace

void ClaimPairing::SetNode(const std::string& name, const std::string& provider_id) {
  auto it = nodes_.find(name);
  if (it != nodes_.end() && it->second == provider_id) return;
  RemoveNode(name);
  nodes_.emplace(name, provider_id);
  Insert(nodes_by_provider_id_, provider_id, name);
}

void ClaimPairing::RemoveNode(const std::string& name) {
  auto it = nodes_.find(name);
  if (it == nodes_.end()) return;
  Erase(nodes_by_provider_id_, it->second, name);
  nodes_.erase(it);
}

void ClaimPairing::SetClaim(const std::string& name, const std::string& node_name,
                            const std::string& provider_id) {
  RemoveClaim(name);
  claims_.emplace(name, ClaimNames{node_name, provider_id});
  Insert(claims_by_node_name_, node_name, name);
  Insert(claims_by_provider_id_, provider_id, name);
}

void ClaimPairing::RemoveClaim(const std::string& name) {
  auto it = claims_.find(name);
  if (it == claims_.end()) return;
  Erase(claims_by_node_name_, it->second.node_name, name);
  Erase(claims_by_provider_id_, it->second.provider_id, name);
  claims_.erase(it);
}

std::string ClaimPairing::ClaimOf(std::string_view node) const {
  auto it = nodes_.find(node);
  if (it == nodes_.end()) return "";
  auto by_name = claims_by_node_name_.find(node);
  if (by_name != claims_by_node_name_.end()) return *by_name->second.begin();
  auto by_id = claims_by_provider_id_.find(it->second);
  return by_id == claims_by_provider_id_.end() ? "" : *by_id->second.begin();
}

std::vector<std::string> ClaimPairing::NodesOf(std::string_view claim) const {
  std::vector<std::string> nodes;
  for (const std::string& node : NodesNamedBy(claim)) {
    if (ClaimOf(node) == claim) nodes.push_back(node);
  }
  return nodes;
}

std::set<std::string> ClaimPairing::NodesNamedBy(std::string_view claim) const {
  std::set<std::string> nodes;
  auto it = claims_.find(claim);
  if (it == claims_.end()) return nodes;
  auto by_id = nodes_by_provider_id_.find(it->second.provider_id);
  if (by_id != nodes_by_provider_id_.end()) nodes = by_id->second;
  if (nodes_.contains(it->second.node_name)) nodes.insert(it->second.node_name);
  return nodes;
}

}  // namespace muster::cluster
