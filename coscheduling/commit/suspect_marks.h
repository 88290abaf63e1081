// Suspect nodes (suspect_nodes.h) as they become known, and the marks that are put on their Node
// objects: from these another process reads them, and who removes one ends the suspicion.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cluster/journal.h"
#include "cluster/suspect_nodes.h"
#include "coscheduling/admission/owner.h"

namespace muster::coscheduling {

class SuspectMarks : Owner {
 public:
  // `suspects` outlives it.
  SuspectMarks(const Owner& owner, cluster::SuspectNodes* suspects)
      : Owner(owner), suspects_(suspects) {}

  // Before the snapshot takes this version of a member of the gang.
  void Observe(const kube::Pod& pod, const GangKey& gang);
  // Before the snapshot forgets a pod, whoever placed it.
  void NoteRemoved(const kube::Pod& pod);
  void Observe(const cluster::Journal& journal);
  // Counts what was seen, drops what is over, and says for which nodes the answer may differ now.
  std::vector<std::string> Update();
  // Writes the marks that differ.
  void Reconcile();

 private:
  void Report(const kube::Pod& pod, const GangKey& gang);
  bool SpeaksForAll(const kube::Pod& pod) const;
  bool Mark(const kube::Node& node);

  cluster::SuspectNodes* suspects_;
  std::set<std::string> annotated_;                         // nodes that carry the annotation
  std::set<std::string> candidates_;                        // nodes whose marks may have to change
  std::set<std::string> changed_;                           // nodes whose suspicion changed
  std::vector<std::pair<kube::Pod, GangKey>> failed_pods_;  // not reported yet
  // UIDs of members that were seen without a node before: with it, they were bound. A pod can also
  // be created with one, by anybody.
  std::set<std::string> bound_;
  // When a pod last went from a node without having ended: by force, so that it may run on there.
  absl::flat_hash_map<std::string, absl::Time> vanished_;
  bool all_read_ = false;  // those of pods that had failed before this process began
};

}  // namespace muster::coscheduling
