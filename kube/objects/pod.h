// The scheduler's view of a v1.Pod (k8s.io/api/core/v1 v0.34).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kube/objects/meta.h"
#include "kube/objects/resource_list.h"

namespace muster::kube {

enum class TaintEffect { kNoSchedule, kPreferNoSchedule, kNoExecute };

struct Taint {
  std::string key;
  std::string value;
  TaintEffect effect = TaintEffect::kNoSchedule;
  std::string ToString() const;  // "key=value:NoSchedule"
  bool operator==(const Taint&) const = default;
};

struct Toleration {
  std::string key;      // empty with kExists tolerates every key
  bool exists = false;  // operator Exists; otherwise Equal
  std::string value;
  std::optional<TaintEffect> effect;  // absent: every effect
  bool Tolerates(const Taint& taint) const;
  bool operator==(const Toleration&) const = default;
};

// match_expressions look at labels, match_fields at metadata.name only.
struct NodeSelectorTerm {
  std::vector<Requirement> match_expressions;
  std::vector<Requirement> match_fields;
  bool operator==(const NodeSelectorTerm&) const = default;
};

struct PreferredNodeTerm {
  int32_t weight = 0;
  NodeSelectorTerm term;
  bool operator==(const PreferredNodeTerm&) const = default;
};

struct PodAffinityTerm {
  std::optional<LabelSelector> selector;  // absent: matches no pod
  std::vector<std::string> namespaces;
  std::optional<LabelSelector> namespace_selector;  // both absent: the pod's own namespace
  std::string topology_key;
  bool operator==(const PodAffinityTerm&) const = default;
};

struct WeightedPodAffinityTerm {
  int32_t weight = 0;
  PodAffinityTerm term;
  bool operator==(const WeightedPodAffinityTerm&) const = default;
};

struct Affinity {
  // Terms are ORed. Absent: no constraint. Present but without terms: matches no node.
  std::optional<std::vector<NodeSelectorTerm>> required_node_terms;
  // Where a scheduler adds terms of its own to the pod's: what the pod itself says.
  bool adds_terms = false;
  std::optional<std::vector<NodeSelectorTerm>> own_node_terms;
  std::vector<PreferredNodeTerm> preferred_node_terms;
  std::vector<PodAffinityTerm> required_pod_affinity;
  std::vector<PodAffinityTerm> required_pod_anti_affinity;
  std::vector<WeightedPodAffinityTerm> preferred_pod_affinity;
  std::vector<WeightedPodAffinityTerm> preferred_pod_anti_affinity;
  bool operator==(const Affinity&) const = default;
};

struct TopologySpreadConstraint {
  int32_t max_skew = 1;
  std::string topology_key;
  bool do_not_schedule = true;            // whenUnsatisfiable
  std::optional<LabelSelector> selector;  // matchLabelKeys are folded in
  std::optional<int32_t> min_domains;
  bool honor_node_affinity = true;
  bool honor_node_taints = false;
  bool operator==(const TopologySpreadConstraint&) const = default;
};

struct HostPort {
  std::string ip;  // empty means 0.0.0.0
  std::string protocol = "TCP";
  int32_t port = 0;
  bool operator==(const HostPort&) const = default;
};

// Everything of the spec that decides where a pod may go. Immutable once decoded and shared
// between copies of a Pod. `requests` is the effective request of the whole pod: the larger of
// the running containers' sum (restartable init containers included) and each init step's peak,
// plus overhead; limits stand in for absent requests; always has pods=1
// (k8s.io/component-helpers/resource v0.34 helpers.go).
struct PodSpec {
  StringMap node_selector;
  Affinity affinity;
  std::vector<Toleration> tolerations;
  std::vector<TopologySpreadConstraint> topology_spread;
  std::vector<HostPort> host_ports;
  ResourceList requests;
  std::vector<std::string> persistent_volume_claims;  // claim names, generic ephemeral ones too
  std::vector<std::string> ephemeral_claims;          // of those: the pod's own, made for it alone
  bool uses_resource_claims = false;                  // DRA
  // The first volume that is written in the pod without a claim, and that schedulers judge: its
  // kind ("awsElasticBlockStore"); empty: there is none.
  std::string inline_volume;
  // What kubelets have to declare of themselves (status.declaredFeatures), sorted.
  std::vector<std::string> node_features;
  std::string runtime_class_name;
  bool operator==(const PodSpec&) const = default;
};

enum class PodPhase { kPending, kRunning, kSucceeded, kFailed, kUnknown };

// What the API server says of a gated pod's scheduling, until kube-scheduler has tried it and says
// otherwise.
inline constexpr std::string_view kSchedulingGated = "SchedulingGated";

struct Pod {
  ObjectMeta meta;
  std::shared_ptr<const PodSpec> spec;  // never null
  // What made `spec` unusable (a malformed or overflowing quantity), naming the field; empty
  // normally. Such a pod is kept, never planned.
  std::string spec_error;
  std::string scheduler_name;
  int32_t priority = 0;
  std::string priority_class_name;
  bool preempts = true;             // spec.preemptionPolicy isn't Never
  std::string node_name;            // spec.nodeName: bound
  std::string nominated_node_name;  // status
  // Of Muster's own pods instead of that: what kube-scheduler is told of the plan, which takes no
  // room beside it.
  std::string told_node_name;
  std::vector<std::string> scheduling_gates;
  // spec.schedulingGroup.podGroupName, a PodGroup of Kubernetes' own (scheduling.k8s.io, 1.35).
  std::string native_group;
  // From its start (status.startTime) until spec.activeDeadlineSeconds and the grace period after
  // it are over and it is gone for certain. 0: it may run for as long as it likes.
  int64_t longest_seconds = 0;
  absl::Time start_time = absl::InfiniteFuture();

  PodPhase phase = PodPhase::kPending;
  std::string status_reason;  // status.reason, e.g. "UnexpectedAdmissionError"
  std::string status_message;
  // Condition PodScheduled; empty strings when absent.
  std::string scheduled_status;  // "True", "False", ""
  std::string scheduled_reason;  // "Unschedulable", kSchedulingGated, ...
  std::string scheduled_message;
  // The first terminated container's message (its /dev/termination-log), and whether any
  // container has ever started.
  std::string termination_message;
  bool started = false;
  bool ready = false;
  // When the last of its containers that ended did so. Absent if the status doesn't say: of a pod
  // that the kubelet turned away there is no such time.
  std::optional<absl::Time> ended_at;

  bool IsTerminal() const { return phase == PodPhase::kSucceeded || phase == PodPhase::kFailed; }
  bool IsDeleting() const { return meta.deletion_time.has_value(); }
  bool IsBound() const { return !node_name.empty(); }
  bool HasGate(std::string_view gate) const;
  // When it is gone at the latest, if it starts now unless it has; InfiniteFuture if nothing ends
  // it.
  absl::Time GoneBy(absl::Time now) const;
};

}  // namespace muster::kube
