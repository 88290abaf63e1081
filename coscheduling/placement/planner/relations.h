// Relations between pods, counted per topology domain: inter-pod affinity, anti-affinity and hard
// topology spread of a gang's members, towards each other and towards the pods that stand already.
//
// The rules are those of cluster::CheckRelations (kube-scheduler v1.34, plugins interpodaffinity
// and podtopologyspread), restated over counters so that a member can be placed and taken back in
// O(relations of its kind) while a plan is being sought. planner_oracle_test.cc holds the two
// together. Preferred terms are not looked at.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cluster/predicates.h"
#include "cluster/snapshot.h"

namespace muster::coscheduling::planner {

class Relations {
 public:
  // Members that no relation tells apart form a kind. `nodes` are all nodes of the snapshot; they
  // are named by their index from here on. With include_virtual, virtual nodes are domains, judged
  // by their forecast; without, only what kube-scheduler sees: every Node object, usable or not.
  // Members that stand in the snapshot are not counted.
  Relations(const cluster::Snapshot& snapshot, const std::vector<const kube::Pod*>& members,
            const std::vector<const cluster::NodeInfo*>& nodes, bool include_virtual);

  int KindOf(size_t member) const { return kind_of_member_[member]; }

  // True if where one member goes can decide where another may go.
  bool between_members() const { return between_members_; }

  // Why no member of this kind can ever go on this node, wherever the others go. To be asked before
  // anything is placed.
  std::optional<cluster::Rejection> Barred(int kind, int node, cluster::Detail detail) const;

  // May the next one go there, beside those placed so far? The three parts of it by themselves,
  // and all of them.
  bool AllowsAffinity(int kind, int node) const;
  bool AllowsAntiAffinity(int kind, int node) const;
  bool AllowsSpread(int kind, int node, int spread) const;
  bool Allows(int kind, int node) const;
  std::optional<cluster::Rejection> WhyNot(
      int kind, int node, cluster::Detail detail = cluster::Detail::kWritten) const;
  void Place(int kind, int node) { Count(kind, node, 1); }
  void Remove(int kind, int node) { Count(kind, node, -1); }

  // How full the domains of this node are by the kind's own spread constraints: the lower, the
  // better for balance.
  int64_t SpreadLevel(int kind, int node) const;

  // Two nodes with equal fingerprints are interchangeable for every kind, as long as nothing has
  // been placed on them.
  void AppendFingerprint(int node, std::vector<int64_t>* fingerprint) const;

  // --- structure, for solvers ---

  struct Key {
    std::string label;
    std::vector<int> domain;  // by node; -1: the node lacks the label
    std::vector<std::string_view> values;
    std::vector<int> nodes_in;  // by domain
  };
  // All terms of one pod's required affinity: a pod matches if all terms select it.
  struct Affinity {
    std::vector<int> keys;
    std::vector<char> owns, selects;         // by kind
    std::vector<std::vector<int>> matching;  // by position in keys, by domain
    int matching_anywhere = 0;
    bool settled = false;  // the members can't change where it is satisfied
  };
  // One required anti-affinity term.
  struct AntiAffinity {
    int key = 0;
    std::vector<char> owns, selects;    // by kind
    std::vector<int> owners, matching;  // pods by domain
    bool between_members = false;
  };
  // One hard topology spread constraint of pods with one node selection.
  struct Spread {
    int key = 0;
    int64_t max_skew = 1;
    int64_t min_domains = 1;
    bool counts_nothing = false;      // an empty selector: only the label is required
    std::vector<char> owns, selects;  // by kind
    std::vector<char> counted;        // by node
    std::vector<char> taking_part;    // by domain: has a counted node
    std::vector<int> matching;        // by domain
    std::vector<int> domains_with;    // how many domains taking part have this many
    int lowest = 0;                   // among domains taking part
    int domains = 0;                  // that take part
    bool between_members = false;
    int64_t Floor() const { return domains < min_domains ? 0 : lowest; }
  };

  // What concerns one kind, by index into the lists below.
  struct Kind {
    std::vector<int> own_affinities, selected_by_affinities;
    std::vector<int> own_anti_affinities, selected_by_anti_affinities;
    std::vector<int> own_spreads, selected_by_spreads;
  };

  const Kind& PartsOf(int kind) const { return kind_parts_[kind]; }
  const std::vector<Key>& keys() const { return keys_; }
  const std::vector<Affinity>& affinities() const { return affinities_; }
  const std::vector<AntiAffinity>& anti_affinities() const { return anti_affinities_; }
  const std::vector<Spread>& spreads() const { return spreads_; }

 private:
  friend class RelationsBuilder;

  void Count(int kind, int node, int step);
  static void CountSpread(Spread& spread, int domain, int step);
  bool Satisfied(const Affinity& affinity, int node) const;
  bool Open(const Affinity& affinity, int kind, int node) const;
  std::string DomainName(int key, int node) const;  // "zone=a"
  std::optional<cluster::Rejection> WhyNotAntiAffinity(int kind, int node,
                                                       cluster::Detail detail) const;
  std::optional<cluster::Rejection> WhyNotSpread(int kind, int node, bool settled_only,
                                                 cluster::Detail detail) const;

  std::vector<Key> keys_;
  std::vector<Affinity> affinities_;
  std::vector<AntiAffinity> anti_affinities_;
  std::vector<Spread> spreads_;
  std::vector<Kind> kind_parts_;
  std::vector<int> kind_of_member_;
  int kinds_ = 1;
  bool between_members_ = false;
};

}  // namespace muster::coscheduling::planner
