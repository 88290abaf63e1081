// What keeps pods from being started, wherever they would go: what a scheduler can't honour that
// has this folder's predicates alone, without a kube-scheduler and its plugins beside it; and
// claims that one pod has alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/snapshot.h"

namespace muster::cluster {

struct Unstartable {
  std::string what;
  std::string fix;
  bool of_claim = false;  // another version of a PersistentVolumeClaim may change it
  bool in_use = false;    // a pod of others has the claim
};

// Of these pods, by UID, the first thing that is in the way. A ReadWriteOncePod claim that two of
// them name, or that a pod has which is bound; and if they are to be started `alone`, device claims
// (dynamic resource allocation), volumes without a claim that kube-scheduler's plugins judge, and
// claims that are to be bound to one of the volumes that somebody has made, where these can't be
// counted node by node: they are chosen by labels, reached by several nodes, or asked for in
// different ways.
std::optional<Unstartable> WhyUnstartable(const Snapshot& snapshot,
                                          const std::vector<std::string>& pods, bool alone);

}  // namespace muster::cluster
