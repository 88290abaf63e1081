// Which flavors Kueue may give the pods of a Workload, said in the only words for it that Kueue
// has: required node affinity of the pod set's template, which a flavor's nodeLabels must match.
//
// Kueue (v0.19.2, pkg/scheduler/flavorassigner) has no other for one Workload: that a flavor was
// tried is remembered only while the Workload waits for quota, so whatever evicts one (a check that
// says Retry, spec.active, preemption) has it try the same flavor first again. It compares a
// Workload with its job by containers and tolerations alone (pkg/util/equality/podset.go) and never
// copies the affinity to the job's pods, so what is said here stays, and is said to Kueue only.
//
// Of a term's expressions Kueue looks at those whose keys are among the flavor's own nodeLabels, so
// that a flavor can only be ruled out by a label that it has. Ours stand behind a marker that no
// node and no flavor contradicts, so they can be taken away again.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kube/objects/pod.h"
#include "kube/objects/quota.h"
#include "kube/objects/workload.h"
#include "quota/quota_scheduler.h"
#include "quota/workload.h"

namespace muster::quota {

// The marker's key, with operator DoesNotExist.
inline constexpr std::string_view kFlavorTermMarker = "muster.dev/other-flavors";

// Terms are ORed; nullopt: no required node affinity.
using NodeTerms = std::optional<std::vector<kube::NodeSelectorTerm>>;

// All of them must be met.
using Expressions = std::vector<kube::Requirement>;

// What the nodeLabels of this flavor meet and those of none of the others; nullopt where they don't
// tell them apart.
std::optional<Expressions> Only(const kube::ResourceFlavor& flavor,
                                const std::vector<const kube::ResourceFlavor*>& others);

// What meets one of each.
std::vector<Expressions> Combined(const std::vector<Expressions>& a,
                                  const std::vector<Expressions>& b);

// The terms with each of these lists of expressions, one per flavor, ORed, added to what its user
// asks for. Restrictions that were there before go.
NodeTerms Restricted(const NodeTerms& terms, const std::vector<Expressions>& flavors);

// What its user asks for.
NodeTerms Unrestricted(const NodeTerms& terms);

bool IsRestricted(const NodeTerms& terms);

// Kueue's Workload with its pod sets as their user wrote them. Unlike a gang's, a pod set's name
// says nothing of what it asks for, so here it has the Workload's version in front.
Workload AsAsked(const kube::Workload& workload);

// A Workload as Kueue may assign it once some flavors are left out.
struct OtherChoice {
  // Required node affinity of a pod set's template, as a whole.
  struct Terms {
    size_t pod_set = 0;  // its place in the list
    bool has_affinity = false;
    bool has_node_affinity = false;
    NodeTerms terms;
  };
  std::string flavor;           // the first other one; empty if there is none
  std::vector<Terms> pod_sets;  // those that change
};

// May the pod set get this flavor?
using Usable = std::function<bool(const PodSet& set, const kube::ResourceFlavor& flavor)>;
OtherChoice ChoiceWithout(const kube::Workload& workload, const std::set<std::string>& left_out,
                          QuotaScheduler& scheduler, const Usable& usable);

// A pod's spec with the labels and tolerations of a flavor.
kube::PodSpec WithFlavor(const kube::PodSpec& spec, const kube::ResourceFlavor& flavor);

}  // namespace muster::quota
