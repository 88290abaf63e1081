// What of a pod a scheduler can't honour that has this folder's predicates alone, without a
// kube-scheduler and its plugins beside it.
#pragma once

#include <optional>
#include <string>

#include "cluster/snapshot.h"

namespace muster::cluster {

struct NotAlone {
  std::string what;
  std::string fix;
  bool of_claim = false;  // another version of a PersistentVolumeClaim may change it
};

// Device claims (dynamic resource allocation), and claims that are to be bound to one of the
// volumes that somebody has made.
std::optional<NotAlone> WhyNotAlone(const Snapshot& snapshot, const kube::Pod& pod);

}  // namespace muster::cluster
