// Pods as quota counts them: those whose specs ask alike form a pod set; what a pod set was given
// is put on its pods, and read off them again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kube/objects/any_job.h"
#include "kube/objects/pod.h"
#include "kube/objects/quota.h"
#include "quota/workload.h"

namespace muster::quota {

// Written on a member in the same patch as its flavor's nodeSelector and tolerations: the pod set
// and flavors it was counted with, so that it is recognised although its spec has changed.
inline constexpr std::string_view kPodSetAnnotation = "muster.dev/pod-set";
inline constexpr std::string_view kFlavorsAnnotation = "muster.dev/flavors";
inline constexpr std::string_view kQueueAnnotation = "muster.dev/queue";

// The member's role in its job, a digest of its requests, and one of what else flavors look at:
// nodeSelector, required node affinity, tolerations. The annotation is believed about the last
// alone, which flavors add to: whoever writes it says nothing of what the pod asks for. The same in
// every process and version.
std::string PodSetOf(const kube::Pod& pod);

// Members in rank order; the first `required` of them are what the gang needs to start.
struct PodSets {
  std::vector<PodSet> required;
  std::vector<PodSet> surplus;
};
PodSets GroupByPodSet(const std::vector<const kube::Pod*>& members, int64_t required);

// Such a name says this role: that of a job's pod set, by Kueue's name of it, which is "main" where
// there is one template.
bool IsOfRole(const std::string& pod_set, std::string_view role);
// The same pod sets as the Workload of the job that makes them has them: in its order, by Kueue's
// names. nullopt where they aren't exactly what the job makes.
std::optional<std::vector<PodSet>> AsOfJob(const std::vector<PodSet>& asked,
                                           const std::vector<kube::AnyJob::PodSet>& job);
// What was reserved by Kueue's names, by those of pod sets that the job's pods are in; first of the
// pods that stand on nodes.
void NameByPods(std::vector<const kube::Pod*> pods, Admission* admission);

// Who of these pods of a gang isn't counted by what it holds, those on nodes first: by UID. `own`
// have Workloads of their own. Of them, `joining` use places that the gang's own has left; who is
// to do so is added, unless that is being taken back.
std::set<std::string> FindUncounted(std::vector<const kube::Pod*> pods, const Admission& held,
                                    const std::set<std::string>& own, bool taken_back,
                                    std::set<std::string>* joining);
// For whom of these pods, in this order, there is in what was granted beyond what is held: what
// each is given.
std::vector<std::pair<const kube::Pod*, PodSetAssignment>> MissingSurplus(
    const std::vector<const kube::Pod*>& pods, const Admission& granted, const Admission& held,
    const std::set<std::string>& own);

// "nvidia.com/gpu=on-demand": as kFlavorsAnnotation has it.
std::string FlavorsText(const PodSetAssignment& given);

// Each flavor once; of an admission, without surplus.
std::set<std::string> FlavorNames(const PodSetAssignment& given);
std::set<std::string> FlavorNames(const Admission& admission);
// Of what these pods were given; of all if that tells of none of them.
std::set<std::string> FlavorNames(const Admission& admission,
                                  const std::vector<const kube::Pod*>& pods);

// Whether the member carries anything that it was given, maybe not what it should carry now.
bool IsGivenFlavors(const kube::Pod& pod);
// True if the member carries what it was given.
bool HasFlavors(const kube::Pod& pod, const PodSetAssignment& given);

// What the annotation names; empty if the member was given none.
std::set<std::string> CarriedFlavors(const kube::Pod& pod);

// The spec of a pod set as its user wrote it, whatever its pods were given since; null if the
// Workload doesn't tell.
std::shared_ptr<const kube::PodSpec> SpecBeforeFlavors(const kube::Workload& workload,
                                                       const std::string& pod_set);

// Makes of these pod sets, which such members are in, what their user wrote: what each carries, by
// pod set. Empty if the Workload doesn't tell.
std::map<std::string, std::set<std::string>> TakeOffFlavors(
    const std::vector<const kube::Pod*>& members, const kube::Workload& workload,
    std::vector<PodSet>* pod_sets);

// Adds what a pod on this node counts as, of each flavor that the node may be of.
void AddUnadmitted(const kube::ResourceList& counted, const kube::ObjectMeta& node,
                   const std::vector<const kube::ResourceFlavor*>& flavors, FlavorAmounts* amounts);

// What of these pods, a gang's, stands on nodes and wasn't counted in `held` (null: nothing was).
FlavorAmounts UnadmittedOf(
    const std::vector<const kube::Pod*>& pods, const Admission* held, const ResourceRules& rules,
    const std::vector<const kube::ResourceFlavor*>& flavors,
    const std::function<const kube::Node*(const std::string& name)>& node_of);

// What is added to a pod, or to a template, for its flavors. What is there already stays.
struct FlavorAdditions {
  std::map<std::string, std::string> node_selector;
  struct Tolerate {
    kube::Toleration toleration;
    std::optional<int64_t> seconds;  // tolerationSeconds
  };
  std::vector<Tolerate> tolerations;
  std::map<std::string, std::string> annotations;  // those above
  std::map<std::string, std::string> labels = {};  // of a template
};

// What a member lacks of its flavors. `flavors` are those that exist still; a label that the member
// sets itself stays.
FlavorAdditions FlavorsFor(const kube::Pod& pod, const PodSetAssignment& given,
                           const std::string& queue,
                           const std::vector<const kube::ResourceFlavor*>& flavors);

}  // namespace muster::quota
