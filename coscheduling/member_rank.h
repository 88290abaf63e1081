// The order of a gang's members: neighbours in rank are placed on neighbouring nodes.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kube/objects/pod.h"

namespace muster::coscheduling {

// Ordered by role (masters first), then index, then name with its numbers read as numbers, so that
// "worker-10" follows "worker-9".
// Index: batch.kubernetes.io/job-completion-index, training.kubeflow.org/replica-index or
// jobset.sigs.k8s.io/job-global-index, else none.
struct MemberRank {
  int role = 0;
  int64_t index = 0;
  // Alternating text and zero-padded digits.
  std::string name;
  auto operator<=>(const MemberRank&) const = default;
};

MemberRank RankOf(const kube::Pod& pod);

}  // namespace muster::coscheduling
