// Nodes that failed a member: left out for the gang that saw it, and for all once two gangs have.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "kube/objects/pod.h"

namespace muster::coscheduling {

// Why the pod's end speaks against its node, or nullopt: the kubelet turned it away
// (UnexpectedAdmissionError, OutOf..., k8s.io/kubernetes pkg/kubelet/lifecycle/predicate.go v1.34),
// or its termination message names a GPU or EFA fault.
std::optional<std::string> NodeFault(const kube::Pod& pod);

class SuspectNodes {
 public:
  // Forgotten after `time`.
  explicit SuspectNodes(absl::Duration time) : time_(time) {}

  // Counts each pod once.
  void Report(const kube::Pod& pod, const std::string& gang_uid, const std::string& fault,
              absl::Time now);
  void Forget(std::string_view node) { nodes_.erase(std::string(node)); }
  // Drops what is over; returns true if anything was.
  bool Expire(absl::Time now);
  absl::Time NextExpiry() const;

  bool IsSuspectFor(std::string_view node, const std::string& gang_uid) const;

  struct Entry {
    std::set<std::string> gangs;
    std::set<std::string> pods;
    std::string fault;
    absl::Time until;
  };
  const std::map<std::string, Entry, std::less<>>& nodes() const { return nodes_; }

 private:
  absl::Duration time_;
  std::map<std::string, Entry, std::less<>> nodes_;
};

}  // namespace muster::coscheduling
