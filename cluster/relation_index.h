// Where pods stand in relation to each other: inter-pod affinity and topology spread, counted once
// for the pods that are to be placed and kept up to date while they are.
//
// kube-scheduler counts, for one pod, how many others match each of its terms in each domain, and
// then judges every node by those counts (pkg/scheduler/framework/plugins/{interpodaffinity,
// podtopologyspread} v1.34). This does the same for all pods of a gang at once: pods with equal
// terms share their counts, and a placement that isn't in the snapshot yet is counted by Add.
//
//   RelationIndex relations(snapshot, members, include_virtual);
//   if (!relations.Check(*member, info)) { relations.Add(*member, info); ... }
//
// Building costs one walk over the pods of the snapshot if any member has relations, else one over
// anti_affinity_pods(). Check costs a few hash look-ups per term; Add and Remove one per term of
// the distinct sets of terms among the members.
//
// Not thread-safe. The snapshot and the members must live, and the snapshot must not change, as
// long as the index.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cluster/predicates.h"
#include "cluster/snapshot.h"

namespace muster::cluster {

class RelationIndex {
 public:
  // `subjects`: all pods that Check, Score, Add or Remove will be called with. Those that stand in
  // the snapshot already are left out of the counts.
  //
  // With include_virtual, virtual nodes are domains, judged by their forecast. Without, only what
  // kube-scheduler sees: every Node object, usable or not, as the API server has it.
  RelationIndex(const Snapshot& snapshot, const std::vector<const kube::Pod*>& subjects,
                bool include_virtual);
  ~RelationIndex();
  RelationIndex(const RelationIndex&) = delete;
  RelationIndex& operator=(const RelationIndex&) = delete;

  // True if Check passes for every subject on every node, however they are placed: no subject has
  // required terms or hard spread, and nobody's anti-affinity selects one.
  bool AlwaysPasses() const;

  // Inter-pod affinity and anti-affinity, in both directions, and hard topology spread, as if
  // `pod` came to `info` now.
  std::optional<Rejection> Check(const kube::Pod& pod, const NodeInfo& info) const;

  // Weight of the preferred terms and soft spread that `info` would meet for `pod`; see
  // PreferenceScore.
  int64_t Score(const kube::Pod& pod, const NodeInfo& info) const;

  // Counts `pod` on `info`. Remove takes back an Add of the same pair.
  void Add(const kube::Pod& pod, const NodeInfo& info);
  void Remove(const kube::Pod& pod, const NodeInfo& info);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster::cluster
