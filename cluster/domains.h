// The tree of domains that the nodes' labels tell: region, zone, network layers, NVLink clique,
// host; or the levels of a Kueue Topology.
//
// A node hangs in the lowest domain that its labels name. What a node lacks a label for it skips,
// so that levels may be missing anywhere: of all nodes (then the level doesn't count), of some
// (those hang higher up, each a domain of its own at the levels that it lacks), or in between.
//
// Two domains of one name in different domains above are two, whatever their level. Where a name
// stands for one thing everywhere (a zone, an EC2 network node, a host) that can't be, and is told
// (Contradictions); plans still are made of what the labels say.
//
// Kept by what changed: Follow costs that, and a walk over the nodes only after one came, went, or
// was labelled otherwise.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "cluster/snapshot.h"

namespace muster::cluster {

class Domains {
 public:
  struct Level {
    std::string label;
    bool one_meaning = false;  // a value names the same domain wherever it appears
  };
  // From the top down. The host isn't among them: each node is one.
  static std::vector<Level> DefaultLevels();
  // Those of a Kueue Topology, whose values need to be different within one domain only.
  static std::vector<Level> LevelsOf(const std::vector<std::string>& labels);

  struct Domain {
    int parent = -1;
    int level = -1;     // into levels(); of the root -1
    std::string value;  // of that level's label
    // By level and value, so in the order in which ranks go through them.
    std::map<std::pair<int, std::string>, int> children;
    std::vector<int> nodes;  // slots of those that hang right here, by name
    // All nodes here and below are order()[first..last).
    int first = 0;
    int last = 0;
  };
  static constexpr int kRoot = 0;

  explicit Domains(std::vector<Level> levels = DefaultLevels());

  // Brings it up to the snapshot, which is the same in every call.
  void Follow(const Snapshot& snapshot);

  const std::vector<Level>& levels() const { return levels_; }
  // -1 if it is none of them. The hostname's is levels().size().
  int LevelOf(std::string_view label) const;
  // How many domains of the level there are; of hosts, nodes.
  int CountAt(int level) const {
    return level == static_cast<int>(levels_.size()) ? static_cast<int>(order_.size())
                                                     : counts_[level];
  }
  // By number; numbers of domains that are gone name empty ones until they are used again.
  const std::vector<Domain>& domains() const { return domains_; }
  // Where the node in this slot hangs.
  int DomainOf(int slot) const { return nodes_[slot].domain; }
  // The domain of this level that `domain` is or lies in; -1 if there is none.
  int Above(int domain, int level) const;
  // Whether one domain of this level, or one host, holds the nodes in both slots.
  bool Share(int slot, int other, int level) const;
  // Slots of all nodes, neighbours side by side: by the values of their labels from the top down,
  // then by name.
  const std::vector<int>& order() const { return order_; }
  int PositionOf(int slot) const { return nodes_[slot].position; }
  // Grows whenever a domain or a node's place in the tree changes.
  uint64_t shape() const { return shape_; }

  // Labels that form no tree, a sentence each, from the top level down. Costs nothing where they
  // do.
  std::vector<std::string> Contradictions() const;

 private:
  using Named = std::pair<int, std::string>;  // level and value
  using Slots = absl::InlinedVector<int, 1>;
  struct Node {
    int domain = -1;  // none: it isn't there
    int position = -1;
    std::string name;
    std::string host;
  };

  void Refresh(const Snapshot& snapshot, int slot);
  int FindOrMake(const NodeInfo& info);
  int FindOrMake(int parent, const Named& named);
  void Hang(int slot, int domain);
  void PutInOrder();
  // It and those above, as far as nothing hangs there any more.
  void Prune(int domain);
  // One domain more, or fewer, says that what it names lies in the one above.
  void CountDomain(int domain, int step);
  void CountHost(int slot, bool comes);
  Named NamedOf(int domain) const { return {domains_[domain].level, domains_[domain].value}; }
  std::set<Named> DomainsOfHost(const Slots& slots) const;
  void Arrange(int domain);
  std::string NameOf(const Named& named) const;

  std::vector<Level> levels_;
  std::vector<int> counts_;  // of domains, by level
  std::vector<Domain> domains_;
  std::vector<int> unused_;
  std::vector<Node> nodes_;  // by slot
  std::vector<int> order_;
  // Where nodes of a family (node_families.h) hang, as found in this call; -1: not yet.
  std::vector<int> of_family_;
  uint64_t position_ = 0;  // in the snapshot's class_log
  uint64_t shape_ = 0;
  bool followed_ = false;
  // Of levels of one meaning: in which domains it lies, and how many of its own say so.
  std::map<Named, std::map<Named, int>> parents_;
  absl::flat_hash_map<std::string, Slots> hosts_;
  int contradictions_ = 0;  // of both that lie in several
};

}  // namespace muster::cluster
