// kube-scheduler's extender protocol: the bodies of its four verbs.
//
// Wire types: k8s.io/kube-scheduler v0.34 extender/v1/types.go. They have no JSON tags, so their
// keys are PascalCase, while the embedded Pod and Node objects use the API's camelCase. Only what
// a decision needs is read; the document as a whole must be valid JSON. Errors are InvalidArgument
// naming the field. Thread-safe; each thread keeps its own parser, of bounded size.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coscheduling/engine.h"

namespace muster::extender {

struct FilterReply {
  enum class Outcome { kPlanned, kUnresolvable, kHeld, kUnknownPod, kRefused };
  std::string body;  // ExtenderFilterResult
  Outcome outcome = Outcome::kHeld;
  // kRefused: kube-scheduler left the planned node out; the engine is to be told.
  std::string pod_uid;
  std::string refused_node;
  // And which nodes it offered, if it named them (nodeCacheCapable).
  std::vector<std::string> offered;
};

// Looks up a pod's UID; null for an unknown pod.
using FindAnswer =
    std::function<std::shared_ptr<const coscheduling::FilterAnswer>(std::string_view pod_uid)>;

// Answers one filter call, whether nodes come as names (nodeCacheCapable) or as objects.
//
// A planned pod passes on its node only; the other nodes are in no map, which kube-scheduler counts
// as "unschedulable and unresolvable" (framework.NewDefaultNodeToStatus). A pod that fits nowhere
// gets its reason on the FIRST node only: the reason then shows in the pod's condition, no node
// becomes a preemption candidate, and the answer stays small (with 5,000 nodes the same reason on
// each would be a megabyte to write and to parse within the scheduling cycle).
// Everything else is an Error, which kube-scheduler turns into reason SchedulerError, invisible to
// provisioners.
absl::StatusOr<FilterReply> AnswerFilter(const std::string& body, const FindAnswer& find);

// Placement is decided in filter: no host gets a score. HostPriorityList "[]".
absl::StatusOr<std::string> AnswerPrioritize(const std::string& body);

// No node: a gang is never served by evicting pods for one of its members.
absl::StatusOr<std::string> AnswerPreemption(const std::string& body);

struct BindCall {
  std::string pod_name;
  std::string pod_namespace;
  std::string pod_uid;
  std::string node;
};
absl::StatusOr<BindCall> DecodeBind(const std::string& body);
// ExtenderBindingResult; an empty error means bound.
std::string EncodeBindResult(std::string_view error);

// {"error":"..."}, the body of a 400.
std::string EncodeError(std::string_view message);

}  // namespace muster::extender
