#include "lint/finding.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

#include "kube/objects/excerpt.h"

namespace muster::lint {

const std::vector<RuleInfo>& Rules() {
  constexpr Severity kError = Severity::kError;
  constexpr Severity kWarning = Severity::kWarning;
  static const auto* rules = new std::vector<RuleInfo>{
      {"capacity-type-not-offered", kError,
       "The pods select a capacity type that no NodePool offers."},
      {"cluster-queue-not-found", kError, "A LocalQueue names a ClusterQueue that isn't there."},
      {"consolidate-after-short", kWarning,
       "A NodePool removes empty nodes before the gang's last node can have come."},
      {"consolidation-underutilized", kWarning,
       "A NodePool for GPUs may replace nodes on which a job runs."},
      {"do-not-disrupt-missing", kWarning,
       "The pods of a gang don't keep Karpenter from taking their nodes away."},
      {"efa-count-too-large", kError, "A pod asks for more EFA devices than any allowed type has."},
      {"efa-not-supported", kError, "A pod asks for EFA devices on types that have none."},
      {"efa-without-hugepages", kWarning, "A container with EFA devices has no huge pages."},
      {"efa-without-shm", kWarning,
       "A container with EFA devices has no memory volume at /dev/shm."},
      {"flavor-labels-not-offered", kError,
       "A ResourceFlavor's nodeLabels are those of no NodePool."},
      {"flavor-node-selector", kError,
       "A ResourceFlavor has spec.nodeSelector, which should be spec.nodeLabels."},
      {"flavor-not-found", kError, "A ClusterQueue names a ResourceFlavor that isn't there."},
      {"flavors-as-strings", kError,
       "A ClusterQueue gives flavors as strings with resources beside them."},
      {"gpu-count-too-large", kError, "A pod asks for more GPUs than any allowed type has."},
      {"instance-type-not-allowed", kError,
       "The pods select an instance type that no NodePool allows."},
      {"instance-type-unknown", kError,
       "A NodePool names an instance type that its family doesn't have."},
      {"kueue-not-honoured", kError,
       "A job or a queue asks for what Kueue does and Muster doesn't, with quota: internal."},
      {"local-queue-not-found", kError,
       "A job names a LocalQueue that its namespace doesn't have."},
      {"local-queue-other-namespace", kError,
       "A job names a LocalQueue that is in another namespace."},
      {"max-exec-time-invalid", kError,
       "Label kueue.x-k8s.io/max-exec-time-seconds is no number of seconds."},
      {"min-member-above-job", kError, "minMember is more than the job ever makes at once."},
      {"min-member-below-job", kWarning, "minMember is less than the job makes at once."},
      {"nnodes-mismatch", kError, "torchrun's --nnodes is not the number of pods."},
      {"node-label-not-offered", kError, "The pods select a node label that no NodePool gives."},
      {"nodepool-not-found", kError, "The pods select a NodePool that isn't there."},
      {"nproc-per-node-mismatch", kError,
       "The number of processes per pod is not the number of its GPUs."},
      {"pod-affinity-one-node", kError,
       "A required podAffinity asks for the whole gang on one node, which can't hold it."},
      {"pool-limit-below-gang", kError, "A NodePool's limit is less than the gang needs."},
      {"pool-taint-not-tolerated", kError,
       "The pods don't tolerate the taint of the NodePools that they could use."},
      {"preemptible-without-effect", kWarning,
       "An annotation that is to keep a gang from being preempted does nothing."},
      {"quota-below-job", kError, "A job asks for more than its ClusterQueue's quota ever holds."},
      {"resource-not-covered", kError,
       "A job asks for a resource that its ClusterQueue doesn't cover."},
      {"resources-too-large", kError,
       "A pod asks for more cpu or memory than any allowed type with its devices has."},
      {"schedule-timeout-long", kWarning,
       "scheduleTimeoutSeconds is above the rendezvous timeout of what would be waiting."},
      {"schedule-timeout-short", kWarning,
       "scheduleTimeoutSeconds is less than a node takes to start."},
      {"scheduler-name-differs", kError, "The pods of one gang name different schedulers."},
      {"scheduler-name-missing", kError, "Pods that belong to a gang don't name its scheduler."},
      {"spot-for-gang", kWarning, "A gang would run on spot instances."},
      {"stateful-set-one-by-one", kError,
       "A StatefulSet that wants to be a gang makes its pods one after the other."},
      {"topology-invalid", kError,
       "Annotations for a place in the topology contradict each other, or name no level."},
      {"zone-not-offered", kError, "The pods select a zone that no NodePool offers."},
  };
  return *rules;
}

void Findings::Add(std::string_view rule, const std::string& file, int line,
                   std::string_view message, std::string_view fix, std::string yaml) {
  const auto known = std::ranges::find(Rules(), rule, &RuleInfo::id);
  if (known == Rules().end()) std::abort();
  findings_.push_back({file, line, known->id, known->severity, kube::Excerpt(message),
                       kube::Excerpt(fix), std::move(yaml)});
}

void Findings::AddWarning(std::string_view rule, const std::string& file, int line,
                          std::string_view message, std::string_view fix, std::string yaml) {
  Add(rule, file, line, message, fix, std::move(yaml));
  findings_.back().severity = Severity::kWarning;
}

std::vector<Finding> Findings::Take() {
  std::map<std::string, size_t> order;
  for (const Finding& finding : findings_) order.emplace(finding.file, order.size());
  const auto key = [&](const Finding& finding) {
    return std::tuple(order.at(finding.file), finding.line, finding.rule, finding.message);
  };
  std::ranges::stable_sort(findings_, {}, key);
  const auto repeated = std::ranges::unique(findings_, {}, key);
  findings_.erase(repeated.begin(), repeated.end());
  return std::move(findings_);
}

std::string_view SeverityName(Severity severity) {
  return severity == Severity::kError ? "error" : "warning";
}

}  // namespace muster::lint
