// Pods that aren't Muster's to place: they take room, keep others away, and are looked at by the
// relations of others. Of 150,000 pods in a cluster nearly all are such, so they are kept small.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "kube/objects/pod.h"

namespace muster::kube {

// Another scheduler places it, and it names no PodGroup.
bool IsOccupant(const Pod& pod, std::string_view scheduler_name);

// Drops what is asked of a pod only before it has a node, or only of a member: annotations,
// finalizers, owners but for the DaemonSet that made it, texts of the status, tolerations, node
// affinity and topology spread (a pod of a DaemonSet names its node there, so without them equal
// ones are equal). Labels, requests, host ports, claims, pod affinity in both directions, priority
// and phase stay.
void ReduceToOccupant(Pod* pod);

// One copy of equal labels and of equal specs. Forgets what no pod uses any more, at the latest
// when it would double. Not thread-safe; what it has shared may be used and let go by any thread.
class OccupantPool {
 public:
  // ReduceToOccupant, and the pod shares what is equal to an earlier one's.
  void Reduce(Pod* pod);
  size_t labels() const { return labels_.size(); }
  size_t specs() const { return specs_.size(); }

 private:
  // By hash; of two that differ with one hash the later replaces the earlier.
  absl::flat_hash_map<size_t, StringMap> labels_;
  absl::flat_hash_map<size_t, std::shared_ptr<const PodSpec>> specs_;
  size_t sweep_labels_at_ = 1024;
  size_t sweep_specs_at_ = 1024;
};

}  // namespace muster::kube
