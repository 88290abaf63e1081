// Where pods stand in relation to each other: inter-pod affinity, anti-affinity and topology spread
// of pods that are to be placed, towards each other and towards those that stand already.
//
// kube-scheduler counts, for one pod, how many others match each of its terms in each domain, and
// then judges every node by those counts (pkg/scheduler/framework/plugins/{interpodaffinity,
// podtopologyspread} v1.34). This does the same for all members of a gang at once: members that no
// relation tells apart share their counts, and placing one or taking it back costs a few additions,
// so that a plan can be sought. kube_scheduler_verdicts_test.cc holds it to kube-scheduler's own
// verdicts, relations_test.cc to this: what is placed counts as what stands.
//
// Building costs one walk over the pods of the snapshot if any member has relations, else one over
// anti_affinity_pods(). Plain values: copies are independent, and need neither snapshot nor members
// once they are built.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cluster/predicates.h"
#include "cluster/snapshot.h"

namespace muster::cluster {

class Relations {
 public:
  // Members that no relation tells apart form a kind. `nodes` are all nodes of the snapshot; they
  // are named by their index from here on. With include_virtual, virtual nodes are domains, judged
  // by their forecast; without, only what kube-scheduler sees: every Node object, usable or not.
  // Members that stand in the snapshot are not counted. A node on which pods are nominated must
  // take a member both with and without them standing there, as in kube-scheduler.
  Relations(const Snapshot& snapshot, const std::vector<const kube::Pod*>& members,
            const std::vector<const NodeInfo*>& nodes, bool include_virtual);

  // False if none of them has any, and, for all that labels say, none that stands keeps one away.
  static bool MayConcern(const Snapshot& snapshot, const std::vector<const kube::Pod*>& members);

  int KindOf(size_t member) const { return kind_of_member_[member]; }

  // It asks for others' company, or is asked for: where they are is open as yet.
  bool IsDrawn(int kind) const;
  // True if where one member goes can decide where another may go.
  bool between_members() const { return between_members_; }

  // Why no member of this kind can ever go on this node, wherever the others go. To be asked before
  // anything is placed.
  std::optional<Rejection> Barred(int kind, int node, Detail detail) const;

  // May the next one go there, beside those placed so far?
  bool Allows(int kind, int node) const;
  std::optional<Rejection> WhyNot(int kind, int node, Detail detail = Detail::kWritten) const;
  void Place(int kind, int node) { Count(kind, node, 1); }
  void Remove(int kind, int node) { Count(kind, node, -1); }

  // Weight of what this node would meet of the member's preferred terms and soft spread, before
  // anything is placed. A preferred term counts its weight (1 to 100) if a pod that it selects is
  // in the domain, one of anti-affinity against; a soft spread constraint counts the skew above
  // maxSkew against, 100 at most, and 100 where the node lacks its label.
  int64_t PreferenceScore(size_t member, int node) const;

  // How full the domains of this node are by the kind's own spread constraints: the lower, the
  // better for balance.
  int64_t SpreadLevel(int kind, int node) const;

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

  // Preferred terms and soft spread constraints of members that have equal ones. Where they are met
  // doesn't follow the placements.
  struct Preferences {
    struct Term {
      int key = 0;
      int64_t weight = 0;         // below zero: anti-affinity
      std::vector<int> matching;  // by domain
    };
    std::vector<Term> terms;
    std::vector<Spread> spreads;
  };
  struct MembersPreferences {
    int index = -1;             // into preferences_; -1: none
    std::vector<char> selects;  // by spread: counts the member itself
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

  bool AllowsPods(int kind, int node) const;
  bool AllowsSpreads(int kind, int node) const;
  std::optional<Rejection> WhyNotPods(int kind, int node, Detail detail) const;
  // As it is with the pods that are nominated for the node; null if none of them is.
  const Relations* WithNominated(int node) const;
  bool LooksAtPods(int kind) const;
  bool AllowsAffinity(int kind, int node) const;
  bool AllowsAntiAffinity(int kind, int node) const;
  bool AllowsSpread(int kind, int node, int spread) const;
  void Count(int kind, int node, int step);
  static void CountSpread(Spread& spread, int domain, int step);
  bool Satisfied(const Affinity& affinity, int node) const;
  bool Open(const Affinity& affinity, int kind, int node) const;
  std::string DomainName(int key, int node) const;  // "zone=a"
  std::optional<Rejection> WhyNotAntiAffinity(int kind, int node, Detail detail) const;
  std::optional<Rejection> WhyNotSpread(int kind, int node, bool settled_only, Detail detail) const;

  std::vector<Key> keys_;
  std::vector<Affinity> affinities_;
  std::vector<AntiAffinity> anti_affinities_;
  std::vector<Spread> spreads_;
  std::vector<Preferences> preferences_;
  std::vector<MembersPreferences> preferences_of_member_;  // empty: no member has any
  std::vector<Kind> kind_parts_;
  std::vector<std::pair<int, Relations>> with_nominated_;  // by node
  std::vector<int> kind_of_member_;
  int kinds_ = 1;
  bool between_members_ = false;
};

}  // namespace muster::cluster
