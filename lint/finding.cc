#include "lint/finding.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "kube/objects/excerpt.h"

namespace muster::lint {

const std::vector<RuleInfo>& Rules() {
  constexpr Severity kError = Severity::kError;
  constexpr Severity kWarning = Severity::kWarning;
  static const auto* rules = new std::vector<RuleInfo>{
      {"api-refused", kError, "The API server refuses, or drops, what is written."},
      {"capacity-short", kError,
       "Affinities, spreading or volumes leave no place for all of the pods."},
      {"capacity-type-not-offered", kError,
       "The pods select a capacity type that no NodePool offers."},
      {"consolidate-after-short", kWarning,
       "A NodePool removes empty nodes before the gang's last node can have come."},
      {"consolidation-underutilized", kWarning,
       "A NodePool for GPUs may replace nodes on which a job runs."},
      {"device-not-asked", kWarning,
       "A container sets itself up for devices that its pod doesn't ask for."},
      {"device-unknown", kError, "A pod asks for a device by a name that no node has."},
      {"efa-count-too-large", kError, "A pod asks for more EFA devices than any allowed type has."},
      {"efa-not-supported", kError, "A pod asks for EFA devices on types that have none."},
      {"efa-without-shm", kWarning,
       "A container with EFA devices has no memory volume at /dev/shm."},
      {"flavor-labels-not-offered", kError,
       "A ResourceFlavor's nodeLabels are those of no NodePool."},
      {"flavor-mismatch", kError, "No flavor's labels and taints agree with the pods."},
      {"flavor-node-selector", kError,
       "A ResourceFlavor has spec.nodeSelector, which should be spec.nodeLabels."},
      {"gpu-count-too-large", kError, "A pod asks for more GPUs than any allowed type has."},
      {"instance-type-not-allowed", kError,
       "The pods select an instance type that no NodePool allows."},
      {"instance-type-unknown", kError,
       "A NodePool names an instance type that its family doesn't have."},
      {"kueue-not-honoured", kError,
       "A job or a queue asks for what Kueue does and Muster doesn't, with quota: internal."},
      {"member-invalid", kError,
       "A pod, or a label or an annotation of it, is one that the gang can't be started with."},
      {"member-not-supported", kError, "A gang asks for what only Kueue does, and must have it."},
      {"members-disagree", kError,
       "The members of a gang name different schedulers, priorities or sizes."},
      {"min-member-below-job", kWarning, "minMember is less than the job makes at once."},
      {"min-member-unreachable", kError, "minMember is more than the job ever makes at once."},
      {"name-not-read", kError, "A label or an annotation stands where nobody reads it."},
      {"namespace-not-selected", kError,
       "The job's ClusterQueue takes no workloads of its namespace."},
      {"native-pod-group", kError, "The pods name a PodGroup of Kubernetes' own."},
      {"nnodes-mismatch", kError, "torchrun's --nnodes is not the number of pods."},
      {"node-class-mismatch", kError,
       "A node class asks for what its image, EC2 or its NodePool doesn't take."},
      {"node-expires", kWarning, "A NodePool takes its nodes away while the job may still run."},
      {"node-label-not-offered", kError, "The pods select a node label that no NodePool gives."},
      {"node-pool-not-found", kError, "The pods select a NodePool that isn't there."},
      {"node-pool-unusable", kError, "The NodePool that the pods could use makes no nodes."},
      {"nproc-per-node-mismatch", kError,
       "The number of processes per pod is not the number of its GPUs."},
      {"operator-refused", kError, "The job's operator refuses it."},
      {"pod-affinity-one-node", kError,
       "A required podAffinity asks for the whole gang on one node, which can't hold it."},
      {"pod-group-invalid", kError, "A field of the PodGroup can't be used."},
      {"pod-group-not-found", kError, "The pods name a PodGroup that isn't there."},
      {"pool-limit-below-gang", kError, "A NodePool's limit is less than the gang needs."},
      {"pool-taint-not-tolerated", kError,
       "The pods don't tolerate the taint of the NodePools that they could use."},
      {"preemptible-without-effect", kWarning,
       "An annotation that is to keep a gang from being preempted does nothing."},
      {"priority-class-not-found", kError, "A job names a priority class that isn't there."},
      {"queue-invalid", kError,
       "A queue admits nobody: a field of it, or a flavor or cohort of it, can't be used."},
      {"queue-not-found", kError,
       "A job names a LocalQueue, or that a ClusterQueue, that isn't there."},
      {"queue-stopped", kError, "The job's queue is stopped."},
      {"quota-too-small", kError, "A job asks for more than its ClusterQueue could ever give."},
      {"reference-not-found", kError,
       "An object names another one, of a kind that is given, and there is none of that name."},
      {"resource-not-covered", kError,
       "A job asks for a resource that its ClusterQueue doesn't cover."},
      {"resources-too-large", kError,
       "A pod asks for more cpu or memory than any allowed type with its devices has."},
      {"schedule-timeout-long", kWarning,
       "scheduleTimeoutSeconds is above the rendezvous timeout of what would be waiting."},
      {"schedule-timeout-short", kWarning,
       "scheduleTimeoutSeconds is less than a node takes to start."},
      {"scheduler-name-missing", kError, "Pods that belong to a gang don't name its scheduler."},
      {"spot-for-gang", kWarning, "A gang would run on spot instances."},
      {"value-unlikely", kError, "An amount, or a label's value, that nobody can mean."},
      {"volume-bound-at-once", kWarning,
       "A volume is made in some zone before its pod has a node."},
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

namespace {

// Says that something can't be used, and leaves it to the other rules what should be there.
bool IsVague(const Finding& finding) {
  const bool shape = finding.message.find("want an object") != std::string::npos;
  return finding.rule == "member-invalid" || finding.rule == "pod-group-invalid" ||
         (finding.rule == "queue-invalid" && !shape);
}

}  // namespace

bool Findings::HasErrorAt(const std::string& file, int line) const {
  if (file.empty()) return false;
  return std::ranges::any_of(findings_, [&](const Finding& each) {
    return each.file == file && each.line == line && each.severity == Severity::kError &&
           !IsVague(each);
  });
}

std::vector<Finding> Findings::Take() {
  std::set<std::pair<std::string, int>> told;
  for (const Finding& finding : findings_) {
    if (!IsVague(finding) && !finding.file.empty()) told.emplace(finding.file, finding.line);
  }
  std::erase_if(findings_, [&](const Finding& finding) {
    return IsVague(finding) && told.contains({finding.file, finding.line});
  });
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
