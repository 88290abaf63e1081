// Numbers for nodes that look alike: a cluster of thousands of nodes has a few dozen sorts of them.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kube/objects/node.h"

namespace muster::cluster {

// Nodes are of one family if labels, taints, being cordoned and the names of their allocatable
// resources don't tell them apart; their names and kubernetes.io/hostname may. Numbers are small:
// that of a family that has died out is given out again.
class NodeFamilies {
 public:
  // The number of the node's family, which it is counted in until Leave.
  int Join(const kube::Node& node);
  void Leave(int number);
  // True if both are of one family.
  static bool Alike(const kube::Node& a, const kube::Node& b);

 private:
  using Numbers = std::map<std::string, int>;
  struct Family {
    Numbers::iterator number;
    size_t nodes = 0;
  };

  Numbers by_identity_;
  std::vector<Family> families_;  // by number
  std::vector<int> unused_;       // numbers
};

// Answers that depend on a node's family only, each sought once.
template <typename Answer>
class PerFamily {
 public:
  // The answer for a family, which is find()'s for the first of its nodes. A node without a family
  // (negative) is asked about each time. The reference lives until the next call.
  template <typename Find>
  const Answer& Get(int family, Find find) {
    if (family < 0) return without_.emplace(find());
    if (answers_.size() <= static_cast<size_t>(family)) answers_.resize(family + 1);
    std::optional<Answer>& answer = answers_[family];
    if (!answer) answer.emplace(find());
    return *answer;
  }

 private:
  std::vector<std::optional<Answer>> answers_;
  std::optional<Answer> without_;  // of the last node without a family
};

}  // namespace muster::cluster
