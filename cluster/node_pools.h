// The NodePools of a cluster, each with the EC2NodeClass that it refers to, if that is known.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "kube/objects/node.h"

namespace muster::cluster {

using NodePools = std::map<std::string, kube::NodePool, std::less<>>;

// The nodes that could be made of them are the same; how many there are already may differ.
bool MakeTheSame(const kube::NodePool& a, const kube::NodePool& b);

class KnownNodePools {
 public:
  // Each returns whether other nodes could be made now.
  bool Upsert(kube::NodePool pool);
  bool Upsert(kube::NodeClass node_class);
  bool Remove(const kube::NodePool& pool);
  bool Remove(const kube::NodeClass& node_class);

  const NodePools& all() const { return pools_; }

 private:
  bool Refer(const std::string& name, std::shared_ptr<const kube::NodeClass> node_class);

  NodePools pools_;                                                                     // by name
  std::map<std::string, std::shared_ptr<const kube::NodeClass>, std::less<>> classes_;  // by name
};

}  // namespace muster::cluster
