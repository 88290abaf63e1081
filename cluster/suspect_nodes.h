// Nodes that failed a member, and who leaves them out.
//
// A gang minds all that it saw itself. Others mind only what no user can write: that the kubelet
// turned away members which Muster had bound there, of two gangs of their own namespace, or of
// gangs of two namespaces. That stands on the Node, in annotation muster.dev/suspect, from which
// another process reads it; who removes the annotation ends the suspicion.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "kube/objects/node.h"
#include "kube/objects/pod.h"

namespace muster::cluster {

inline constexpr std::string_view kSuspectAnnotation = "muster.dev/suspect";
// Effect NoSchedule, its value the end of the suspicion; only where the configuration asks for it,
// and of what the kubelet did.
inline constexpr std::string_view kSuspectTaint = "muster.dev/suspect";

class SuspectNodes {
 public:
  struct Sighting {
    std::string fault;
    absl::Time until = absl::InfinitePast();
    bool operator==(const Sighting&) const = default;
  };
  struct Entry {
    // Gangs, "namespace/name", of which the kubelet turned members away, and the latest of it.
    std::set<std::string> turned_away;
    Sighting rejection;
    // What only the gang itself minds, by its name: the latest.
    std::map<std::string, Sighting> own;
    bool operator==(const Entry&) const = default;
  };

  // Forgotten after `time`.
  explicit SuspectNodes(absl::Duration time) : time_(time) {}

  // A member's end that speaks against its node; `turned_away`: others mind it too. It doesn't
  // count any more `time` after it, if the pod says when that was. Of two of one gang whose time
  // isn't known the first one counts: it may be the same one, seen by another process. True if
  // anything changed.
  bool Report(const kube::Pod& pod, const std::string& whose, const std::string& fault,
              bool turned_away, absl::Time now);
  // What the node's annotation says, as far as it isn't known; what can't be read says nothing.
  void Restore(std::string_view node, std::string_view annotation);
  void Forget(std::string_view node);
  // Drops what is over; returns the nodes of which anything is.
  std::vector<std::string> Expire(absl::Time now);
  absl::Time NextExpiry() const;

  // Why the gang leaves the node out; nullptr if it doesn't. Valid until the next change.
  const Sighting* WhyLeftOut(std::string_view node, const std::string& whose) const;
  const Entry* Find(std::string_view node) const;
  const std::map<std::string, Entry, std::less<>>& nodes() const { return nodes_; }

 private:
  absl::Duration time_;
  std::map<std::string, Entry, std::less<>> nodes_;
};

// The annotation's text: a JSON object of until, fault and gangs, of what the kubelet did.
std::string SuspectAnnotationOf(const SuspectNodes::Entry& entry);
// The taint's value: "20260101T001000Z" (a label's value can't hold colons).
std::string SuspectTaintValueOf(const SuspectNodes::Entry& entry);
// Where the node has the taint; nullopt if it has none.
std::optional<size_t> FindSuspectTaint(const kube::Node& node);

}  // namespace muster::cluster
