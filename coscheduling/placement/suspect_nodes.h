// Nodes that failed a member: left out for the gang that saw it, and for all once two gangs have.
//
// What is known of a suspect stands on its Node, in annotation muster.dev/suspect, from which
// another process reads it; who removes the annotation ends the suspicion.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "kube/objects/pod.h"

namespace muster::coscheduling {

inline constexpr std::string_view kSuspectAnnotation = "muster.dev/suspect";
// Effect NoSchedule, its value the end of the suspicion; only where the configuration asks for it.
inline constexpr std::string_view kSuspectTaint = "muster.dev/suspect";

class SuspectNodes {
 public:
  struct Entry {
    std::set<std::string> gangs;  // "namespace/name"
    std::set<std::string> pods;   // UIDs of those that were counted by this process
    std::string fault;            // the latest
    absl::Time until;
    bool operator==(const Entry&) const = default;
  };

  // Forgotten after `time`.
  explicit SuspectNodes(absl::Duration time) : time_(time) {}

  // Counts each pod once; `time` after its end, if that is known, it doesn't count any more. Of
  // two failures of one gang whose time isn't known the first one counts: it may be the same one,
  // seen by another process. True if anything changed.
  bool Report(const kube::Pod& pod, const std::string& gang, const std::string& fault,
              absl::Time now);
  // What the node's annotation says, as far as it isn't known; what can't be read says nothing.
  void Restore(std::string_view node, std::string_view annotation);
  void Forget(std::string_view node);
  // Drops what is over; returns the nodes that aren't suspect any more.
  std::vector<std::string> Expire(absl::Time now);
  absl::Time NextExpiry() const;

  bool IsSuspectFor(std::string_view node, const std::string& gang) const;
  const Entry* Find(std::string_view node) const;
  const std::map<std::string, Entry, std::less<>>& nodes() const { return nodes_; }

 private:
  absl::Duration time_;
  std::map<std::string, Entry, std::less<>> nodes_;
};

// The annotation's text: a JSON object of until, fault and gangs.
std::string SuspectAnnotationOf(const SuspectNodes::Entry& entry);
// The taint's value: "20260101T001000Z" (a label's value can't hold colons).
std::string SuspectTaintValueOf(const SuspectNodes::Entry& entry);

}  // namespace muster::coscheduling
