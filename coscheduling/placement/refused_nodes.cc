#include "coscheduling/placement/refused_nodes.h"

#include <algorithm>
#include <map>
#include <string>

namespace muster::coscheduling {

void RefusedNodes::Refuse(const std::string& node, absl::Time now, absl::Duration longest) {
  Memory& memory = memory_[node];
  memory.last = std::min(longest, std::max(kFirst, 2 * memory.last));
  left_out_[node] = now + memory.last;
  memory.until = left_out_[node] + longest;
}

void RefusedNodes::Expire(absl::Time now) {
  std::erase_if(left_out_, [now](const auto& node) { return node.second <= now; });
  std::erase_if(memory_, [now](const auto& node) { return node.second.until <= now; });
}

}  // namespace muster::coscheduling
