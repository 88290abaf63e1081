// Planned nodes that kube-scheduler refused: left out for the gang for a time.
#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "absl/time/time.h"

namespace muster::cluster {

// kube-scheduler may only be a moment behind: it hears of a device that has just come, or a taint
// that has just gone, later than we do. So the first time is short, and each further one, if it
// comes soon, is twice as long.
class RefusedNodes {
 public:
  static constexpr absl::Duration kFirst = absl::Seconds(1);

  // Leaves the node out from `now` on, for `longest` at most.
  void Refuse(const std::string& node, absl::Time now, absl::Duration longest) {
    Memory& memory = memory_[node];
    memory.last = std::min(longest, std::max(kFirst, 2 * memory.last));
    left_out_[node] = now + memory.last;
    memory.until = left_out_[node] + longest;
  }
  // The node has changed since.
  void Forget(const std::string& node) {
    left_out_.erase(node);
    memory_.erase(node);
  }
  // Ends what is over, and forgets the nodes that weren't refused again for as long as `longest`.
  void Expire(absl::Time now) {
    std::erase_if(left_out_, [now](const auto& node) { return node.second <= now; });
    std::erase_if(memory_, [now](const auto& node) { return node.second.until <= now; });
  }

  bool empty() const { return memory_.empty(); }
  // Node -> until.
  const std::map<std::string, absl::Time>& left_out() const { return left_out_; }

 private:
  struct Memory {
    absl::Duration last;
    absl::Time until;
  };
  std::map<std::string, absl::Time> left_out_;
  std::map<std::string, Memory> memory_;
};

}  // namespace muster::cluster
