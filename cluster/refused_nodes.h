// Planned nodes that kube-scheduler refused: left out for the gang for a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "cluster/predicates.h"
#include "cluster/snapshot.h"

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

// The same of what is told of all pods of a shape, by its ClassKey. Of more than so many shapes
// nothing is kept.
class NodesNotOffered {
 public:
  static constexpr size_t kMostShapes = 64;

  // Null if there are too many.
  RefusedNodes* To(std::string shape, absl::Time now) {
    for (auto& [of_shape, nodes] : by_shape_) nodes.Expire(now);
    std::erase_if(by_shape_, [](const auto& one) { return one.second.empty(); });
    if (by_shape_.size() >= kMostShapes && !by_shape_.contains(shape)) return nullptr;
    return &by_shape_[std::move(shape)];
  }
  void Forget(const std::string& node) {
    for (auto& [shape, nodes] : by_shape_) nodes.Forget(node);
    std::erase_if(by_shape_, [](const auto& one) { return one.second.empty(); });
  }
  // Of the usable nodes this one, and those that have room for a pod of the shape and aren't among
  // those offered: where others have their places already kube-scheduler may have found that, too.
  // False if there are too many shapes.
  bool Refuse(const Snapshot& snapshot, const kube::Pod& pod, const std::string& node,
              const std::vector<std::string>& offered, absl::Time now, absl::Duration longest) {
    RefusedNodes* left_out = To(ClassKey(pod), now);
    if (left_out == nullptr) return false;
    const std::set<std::string_view> names(offered.begin(), offered.end());
    for (const auto& [name, info] : snapshot.nodes()) {
      if (info.UsableNow() && !names.contains(name) &&
          (name == node || !CheckRoom(snapshot, pod, info))) {
        left_out->Refuse(name, now, longest);
      }
    }
    return true;
  }
  // Those that are left out still are added to `left_out`.
  void AddTo(const std::string& shape, absl::Time now,
             std::map<std::string, absl::Time>* left_out) const {
    const auto it = by_shape_.find(shape);
    if (it == by_shape_.end()) return;
    for (const auto& [node, until] : it->second.left_out()) {
      if (now < until) left_out->emplace(node, until);
    }
  }

 private:
  std::map<std::string, RefusedNodes> by_shape_;
};

}  // namespace muster::cluster
