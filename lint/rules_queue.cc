// Kueue's queues and flavors: what the API server prunes or refuses, and names that lead nowhere.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "kube/objects/max_seconds.h"
#include "kube/objects/not_honoured.h"
#include "kube/objects/well_known.h"
#include "lint/pool_fit.h"
#include "lint/rules.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

constexpr std::string_view kNotHonoured = "kueue-not-honoured";

}  // namespace

void CheckMaxSeconds(const std::string& what, const std::string& file, const LocatedText& label,
                     Findings* findings) {
  if (!label.present() || kube::MaxSecondsOf(label.value)) return;
  findings->Add("member-invalid", file, label.line,
                fmt::format("{}: {}", what, kube::BadMaxSeconds(label.value)),
                "correct it, or remove it");
}

// What is asked for and isn't done, where the job starts all the same; the rest is said by the
// scheduler (judge.h).
void CheckHonoured(const LintGang& gang, Findings* findings) {
  const auto tell = [&](const kube::NotHonoured& each, const std::string& file,
                        const LocatedTexts& annotations) {
    const auto asked = annotations.find(each.annotation);
    if (each.must_hold || asked == annotations.end() || !each.IsAskedBy(asked->second.value)) {
      return;
    }
    findings->AddWarning(kNotHonoured, file, asked->second.line,
                         fmt::format("{}: {}", gang.Name(), each.ToString()), each.fix);
  };
  for (const kube::NotHonoured& each : kube::AllNotHonoured()) {
    if (each.of_job) tell(each, gang.workload->file, gang.workload->not_honoured);
    for (const PodTemplate* pods : gang.templates) {
      if (!each.of_job) tell(each, pods->file, pods->annotations);
    }
  }
}

void CheckFlavor(const ResourceFlavor& flavor, const Surroundings& around, Findings* findings) {
  if (flavor.node_selector.present()) {
    std::string yaml = "spec:\n  nodeLabels:\n" + yaml::EmitYaml(flavor.node_selector, 4);
    findings->Add("flavor-node-selector", flavor.file, flavor.node_selector.line(),
                  fmt::format("ResourceFlavor {} has spec.nodeSelector, which doesn't exist: the "
                              "API server drops it, and the flavor then stands for every node",
                              flavor.name),
                  "call it nodeLabels", yaml);
  }
  if (around.manifests.pools.empty() || flavor.node_labels.empty()) return;
  if (std::ranges::any_of(around.manifests.pools, [&](const NodePool& pool) {
        return OffersAll(pool, flavor.node_labels, around.types);
      })) {
    return;
  }
  std::string labels;
  std::vector<const NodePool*> pools;
  for (const NodePool& pool : around.manifests.pools) pools.push_back(&pool);
  const Requirement* first = &flavor.node_labels.front();
  for (const Requirement& label : flavor.node_labels) {
    Append(&labels, labels.empty() ? "" : ", ", label.ToString());
    if (std::ranges::none_of(
            pools, [&](const NodePool* pool) { return Offers(*pool, label, around.types); })) {
      first = &label;
    }
  }
  findings->Add(
      "flavor-labels-not-offered", flavor.file, first->line,
      fmt::format("ResourceFlavor {} stands for nodes with {}, but {}", flavor.name, labels,
                  first->key == kube::kNodePoolLabel ? Concat("there is ", PoolNames(pools))
                                                     : WhatIsOffered(pools, first->key)),
      "give the NodePool's nodes these labels (spec.template.metadata.labels), or name "
      "those that they have",
      Concat("spec:\n  nodeLabels:\n    ", kube::kNodePoolLabel, ": ", pools.front()->name, "\n"));
}

void CheckClusterQueue(const ClusterQueue& queue, Findings* findings) {
  if (queue.admission_mode.value == "UsageBasedAdmissionFairSharing") {
    findings->AddWarning(
        kNotHonoured, queue.file, queue.admission_mode.line,
        fmt::format("spec.admissionScope of ClusterQueue {} isn't obeyed: what its "
                    "LocalQueues used before counts for nothing",
                    queue.name),
        "remove it, or let Kueue admit (quota: kueue)");
  }
}

}  // namespace muster::lint
