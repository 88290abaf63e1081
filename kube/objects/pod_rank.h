// The order of the pods that one job makes, as its ranks will be.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kube/objects/pod.h"

namespace muster::kube {

// Ordered by role (masters, launchers and heads first), replica type, index, index within that,
// then name with its numbers read as numbers, so that "worker-10" follows "worker-9".
//
//   made by       index                                          within that
//   JobSet        jobset.sigs.k8s.io/job-global-index            its Job's completion index
//   PyTorchJob    training.kubeflow.org/replica-index
//   MPIJob        the same, of the workers
//   Job           batch.kubernetes.io/job-completion-index
//   StatefulSet   apps.kubernetes.io/pod-index, the ordinal
//   plain pods    kueue.x-k8s.io/pod-group-pod-index
//   RayCluster    none
//
// All are labels; the completion index is read from the annotation of that name too. Without an
// index that is a number, the name decides.
struct PodRank {
  int role = 0;
  // training.kubeflow.org/replica-type, of an MPIJob .../job-role, of a RayCluster
  // ray.io/node-type.
  std::string type;
  int64_t index = 0;
  int64_t index_within = 0;
  // Alternating text and zero-padded digits.
  std::string name;
  auto operator<=>(const PodRank&) const = default;
};

PodRank RankOf(const Pod& pod);

}  // namespace muster::kube
