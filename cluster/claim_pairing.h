// Which Node belongs to which NodeClaim.
//
// A Node belongs to the claim whose status.nodeName is its name, else to the one whose
// status.providerID is its providerID; of several, the first by name. Names of either kind may come
// before the other kind is known.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace muster::cluster {

class ClaimPairing {
 public:
  void SetNode(const std::string& name, const std::string& provider_id);
  void RemoveNode(const std::string& name);
  void SetClaim(const std::string& name, const std::string& node_name,
                const std::string& provider_id);
  void RemoveClaim(const std::string& name);

  // The claim's name, or "".
  std::string ClaimOf(std::string_view node) const;
  // Known nodes that belong to the claim, in name order; more than one only if a provider reports
  // the same ID twice.
  std::vector<std::string> NodesOf(std::string_view claim) const;
  // Known nodes that the claim names in either way, whether or not they belong to it.
  std::set<std::string> NodesNamedBy(std::string_view claim) const;

 private:
  using NameSets = std::map<std::string, std::set<std::string>, std::less<>>;
  struct ClaimNames {
    std::string node_name;
    std::string provider_id;
  };

  std::map<std::string, std::string, std::less<>> nodes_;  // name -> provider ID
  std::map<std::string, ClaimNames, std::less<>> claims_;
  NameSets nodes_by_provider_id_;
  NameSets claims_by_node_name_;
  NameSets claims_by_provider_id_;
};

}  // namespace muster::cluster
