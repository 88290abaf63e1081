#include "kube/objects/node.h"

namespace muster::kube {

bool NodeClaim::IsTrue(std::string_view condition) const {
  auto it = conditions.find(condition);
  return it != conditions.end() && it->second.status == "True";
}

}  // namespace muster::kube
