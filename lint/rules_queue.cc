// Kueue's queues and flavors: what the API server prunes or refuses, and names that lead nowhere.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "kube/objects/max_seconds.h"
#include "kube/objects/not_honoured.h"
#include "kube/objects/topology_asked.h"
#include "kube/objects/well_known.h"
#include "lint/pool_fit.h"
#include "lint/rules.h"
#include "lint/text.h"

namespace muster::lint {
namespace {

constexpr std::string_view kNotHonoured = "kueue-not-honoured";

template <typename Object>
std::string Names(const std::vector<Object>& objects) {
  std::string names;
  for (const Object& object : objects) Append(&names, names.empty() ? "" : ", ", object.name);
  return names;
}

const ClusterQueue* FindClusterQueue(const Manifests& manifests, std::string_view name) {
  const auto queue = std::ranges::find(manifests.cluster_queues, name, &ClusterQueue::name);
  return queue == manifests.cluster_queues.end() ? nullptr : &*queue;
}

// The group as Kueue wants it: each flavor with its quota of each resource.
std::string CorrectedGroup(const ResourceGroup& group) {
  std::vector<yaml::YamlValue> resources = group.yaml.Get("resources").Items();
  std::string covered;
  for (const yaml::YamlValue& resource : resources) {
    Append(&covered, covered.empty() ? "" : ", ", resource.Get("name").Text());
  }
  if (covered.empty()) covered = kGpu;
  std::string yaml = Concat("- coveredResources: [", covered, "]\n  flavors:\n");
  for (const LocatedText& flavor : group.flavors) {
    Append(&yaml, "    - name: ", flavor.value, "\n      resources:\n");
    for (const yaml::YamlValue& resource : resources) {
      const std::string& quota = resource.Get("nominalQuota").Text();
      Append(&yaml, "        - name: ", resource.Get("name").Text(),
             "\n          nominalQuota: ", quota.empty() ? "0" : quota, "\n");
    }
    if (resources.empty()) {
      Append(&yaml, "        - name: ", kGpu, "\n          nominalQuota: 0\n");
    }
  }
  return yaml;
}

// Of its LocalQueue, or of that which serves who names none; null if they aren't among them.
const ClusterQueue* ClusterQueueOf(const Workload& workload, const Manifests& manifests) {
  const std::string queue = workload.queue.present() ? workload.queue.value : "default";
  const auto local = std::ranges::find_if(manifests.local_queues, [&](const LocalQueue& each) {
    return each.name == queue && each.name_space == workload.name_space;
  });
  if (local == manifests.local_queues.end()) return nullptr;
  return FindClusterQueue(manifests, local->cluster_queue.value);
}

// What one of these pods counts as in quota.
kube::ResourceList CountedOf(const PodTemplate& pods, const Manifests& manifests) {
  kube::ResourceList asked;
  for (const Container& container : pods.containers) {
    for (const LocatedAmounts* amounts : {&container.requests, &container.limits}) {
      for (const auto& [resource, amount] : *amounts) {
        const int64_t asks = pods.Asks(resource).value;
        if (asks > 0) asked.Set(resource, asks);
      }
    }
  }
  return manifests.resources.Count(asked);
}

const ResourceGroup* GroupOf(const ClusterQueue& queue, const std::string& resource) {
  const auto group = std::ranges::find_if(queue.groups, [&](const ResourceGroup& each) {
    return std::ranges::count(each.covered, resource) > 0;
  });
  return group == queue.groups.end() ? nullptr : &*group;
}

// Of `all`, what the gang asks for in all, if each pod set has one flavor.
void CheckQuota(const LintGang& gang, const ClusterQueue& queue, const kube::ResourceList& all,
                const std::vector<kube::ResourceList>& of_templates, Findings* findings) {
  const LocatedCount min_member = gang.MinMember();
  const bool whole =
      gang.least == gang.pods && (!min_member.present() || min_member.value >= gang.pods);
  if (queue.borrows || !whole) return;
  for (const auto& [resource, amount] : all.entries()) {
    const ResourceGroup* group = GroupOf(queue, resource);
    if (group == nullptr || group->string_flavors_line > 0) continue;
    int64_t largest = 0;
    int64_t sum = 0;
    for (const LocatedAmounts& quotas : group->quotas) {
      const auto quota = quotas.find(resource);
      if (quota == quotas.end()) continue;
      largest = std::max(largest, quota->second.value);
      if (__builtin_add_overflow(sum, quota->second.value, &sum)) sum = INT64_MAX;
    }
    const PodTemplate* at = amount > sum ? gang.templates.front() : nullptr;
    for (size_t i = 0; i < gang.templates.size() && at == nullptr; ++i) {
      if (of_templates[i].Get(resource) > largest) at = gang.templates[i];
    }
    if (at == nullptr) continue;
    kube::ResourceList asks, has;
    const bool in_all = amount > sum;
    asks.Set(resource, in_all ? amount : 0);
    for (size_t i = 0; i < gang.templates.size() && !in_all; ++i) {
      if (gang.templates[i] == at) asks.Set(resource, of_templates[i].Get(resource));
    }
    has.Set(resource, in_all ? sum : largest);
    const LocatedCount asked = at->Asks(resource);
    findings->Add("quota-below-job", at->file, asked.present() ? asked.line : at->line,
                  fmt::format("{} asks for {}{}, but ClusterQueue {} has {}{}", gang.Name(),
                              asks.ToString(), in_all ? "" : " with equal pods", queue.name,
                              has.ToString(), in_all ? "" : " in its largest flavor"),
                  "raise nominalQuota, or ask for less");
  }
}

}  // namespace

std::vector<const ResourceFlavor*> FlavorsOf(const Workload& workload, const Manifests& manifests) {
  std::vector<const ResourceFlavor*> flavors;
  const ClusterQueue* cluster_queue = ClusterQueueOf(workload, manifests);
  if (cluster_queue == nullptr) return flavors;
  for (const ResourceGroup& group : cluster_queue->groups) {
    for (const LocatedText& name : group.flavors) {
      const auto flavor = std::ranges::find(manifests.flavors, name.value, &ResourceFlavor::name);
      if (flavor != manifests.flavors.end()) flavors.push_back(&*flavor);
    }
  }
  return flavors;
}

void CheckQueueOf(const LintGang& gang, const Surroundings& around, Findings* findings) {
  const Workload& workload = *gang.workload;
  CheckMaxSeconds(gang.Name(), workload.file, workload.max_seconds, findings);
  if (gang.group != nullptr) {
    CheckMaxSeconds(fmt::format("PodGroup {}/{}", gang.group->name_space, gang.group->name),
                    gang.group->file, gang.group->max_seconds, findings);
  }
  if (!workload.queue.present()) return;
  std::string elsewhere;
  std::string here;
  for (const LocalQueue& queue : around.manifests.local_queues) {
    const bool same_namespace = queue.name_space == workload.name_space;
    if (same_namespace && queue.name == workload.queue.value) return;
    if (same_namespace) Append(&here, here.empty() ? "" : ", ", queue.name);
    if (queue.name == workload.queue.value) {
      Append(&elsewhere, elsewhere.empty() ? "" : ", ", queue.name_space);
    }
  }
  if (!elsewhere.empty()) {
    findings->Add(
        "local-queue-other-namespace", workload.file, workload.queue.line,
        fmt::format("{} is in namespace {}, but LocalQueue {} is in {}; a job can use "
                    "only its own namespace's",
                    workload.ToString(), workload.name_space, workload.queue.value, elsewhere),
        "make a LocalQueue of that name beside the job",
        fmt::format("apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata:\n"
                    "  name: {}\n  namespace: {}\nspec:\n  clusterQueue: {}\n",
                    workload.queue.value, workload.name_space, [&] {
                      for (const LocalQueue& queue : around.manifests.local_queues) {
                        if (queue.name == workload.queue.value) {
                          return queue.cluster_queue.value;
                        }
                      }
                      return std::string();
                    }()));
  } else if (!here.empty()) {
    findings->Add("local-queue-not-found", workload.file, workload.queue.line,
                  fmt::format("{} names LocalQueue {}, but namespace {} has {}",
                              workload.ToString(), workload.queue.value, workload.name_space, here),
                  "name a LocalQueue that exists");
  }
}

void CheckAdmission(const LintGang& gang, const Surroundings& around, Findings* findings) {
  const ClusterQueue* queue = ClusterQueueOf(*gang.workload, around.manifests);
  if (queue == nullptr || around.manifests.quota_mode != coscheduling::QuotaMode::kInternal) return;
  kube::ResourceList all;
  std::vector<kube::ResourceList> of_templates;
  for (const PodTemplate* pods : gang.templates) {
    kube::ResourceList& asked = of_templates.emplace_back();
    const kube::ResourceList counted = CountedOf(*pods, around.manifests);
    for (const auto& [resource, amount] : counted.entries()) {
      if (amount == 0 || pods->pods == 0) continue;
      if (GroupOf(*queue, resource) == nullptr) {
        const LocatedCount asks = pods->Asks(resource);
        findings->Add("resource-not-covered", pods->file, asks.present() ? asks.line : pods->line,
                      fmt::format("{} asks for {}, which ClusterQueue {} doesn't cover: it isn't "
                                  "admitted",
                                  gang.Name(), resource, queue->name),
                      "add it to a resource group of the queue, or leave it out of quota "
                      "(resources.excludeResourcePrefixes of Muster's configuration)");
      }
      int64_t product = 0;
      if (__builtin_mul_overflow(amount, pods->pods, &product)) product = INT64_MAX;
      asked.Set(resource, product);
    }
    if (!all.Add(asked).ok()) return;
  }
  CheckQuota(gang, *queue, all, of_templates, findings);
}

void CheckMaxSeconds(const std::string& what, const std::string& file, const LocatedText& label,
                     Findings* findings) {
  if (!label.present() || kube::MaxSecondsOf(label.value)) return;
  findings->Add("max-exec-time-invalid", file, label.line,
                fmt::format("{}: {}; it isn't admitted", what, kube::BadMaxSeconds(label.value)),
                "write the seconds as text, or remove the label");
}

// By the scheduler's own judge.
void CheckTopology(const LintGang& gang, const Manifests& manifests, Findings* findings) {
  std::vector<kube::StringMap> annotations;
  std::vector<std::string> names;
  const PodTemplate* first = nullptr;
  int line = 0;
  for (const PodTemplate* pods : gang.templates) {
    kube::StringMap& of_template = annotations.emplace_back();
    names.push_back(pods->role.empty() ? "the pod template" : Concat("template ", pods->role));
    for (std::string_view each :
         {kube::kRequiredTopology, kube::kPreferredTopology, kube::kUnconstrainedTopology}) {
      const auto asked = pods->annotations.find(each);
      if (asked == pods->annotations.end()) continue;
      of_template[std::string(each)] = asked->second.value;
      first = pods;
      line = asked->second.line;
    }
  }
  if (first == nullptr) return;
  std::vector<kube::TopologyAsker> askers;
  for (size_t i = 0; i < names.size(); ++i) askers.push_back({names[i], &annotations[i], nullptr});
  const kube::TopologyAsked asked = kube::TopologyOf(askers);
  const std::set<std::string, std::less<>>& levels = manifests.topology_levels;
  const std::string unknown =
      levels.contains(kube::LevelOf(asked)) ? "" : kube::WhyNoLevelOf(asked);
  const std::string wrong = asked.error.empty() ? unknown : asked.error;
  if (wrong.empty()) return;
  // The cluster may have Topologies that aren't given here.
  const bool may_be = asked.error.empty() && levels.empty();
  const auto add = may_be ? &Findings::AddWarning : &Findings::Add;
  (findings->*add)("topology-invalid", first->file, line,
                   fmt::format("{}: {}; it isn't started, unless {}Kueue admits", gang.Name(),
                               wrong, may_be ? "a Topology of the cluster names it, or " : ""),
                   "correct the annotation", "");
}

// What is asked for and isn't done is said as a warning where the job starts all the same.
void CheckHonoured(const LintGang& gang, const Manifests& manifests, Findings* findings) {
  const auto tell = [&](const kube::NotHonoured& each, const std::string& file,
                        const LocatedTexts& annotations) {
    const auto asked = annotations.find(each.annotation);
    if (asked == annotations.end() || !each.IsAskedBy(asked->second.value)) return;
    const std::string message =
        fmt::format("{}: {}{}", gang.Name(), each.ToString(),
                    each.must_hold ? "; it isn't started, unless Kueue admits" : "");
    if (each.must_hold) {
      findings->Add(kNotHonoured, file, asked->second.line, message, each.fix);
    } else {
      findings->AddWarning(kNotHonoured, file, asked->second.line, message, each.fix);
    }
  };
  for (const kube::NotHonoured& each : kube::AllNotHonoured()) {
    if (each.of_job) tell(each, gang.workload->file, gang.workload->not_honoured);
    for (const PodTemplate* pods : gang.templates) {
      if (!each.of_job) tell(each, pods->file, pods->annotations);
    }
  }
  CheckTopology(gang, manifests, findings);
  if (!gang.workload->queue.present()) return;
  for (const PodTemplate* pods : gang.templates) {
    if (pods->claims_line == 0) continue;
    findings->Add(kNotHonoured, pods->file, pods->claims_line,
                  fmt::format("{} asks for devices by spec.resourceClaims, which no quota counts: "
                              "it isn't admitted by LocalQueue {}",
                              gang.Name(), gang.workload->queue.value),
                  "ask for the devices as resources, or leave the queue");
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

void CheckClusterQueue(const ClusterQueue& queue, const Surroundings& around, Findings* findings) {
  if (queue.admission_checks_line > 0) {
    findings->Add(kNotHonoured, queue.file, queue.admission_checks_line,
                  fmt::format("ClusterQueue {} has admission checks, which only Kueue itself runs: "
                              "Muster admits nobody there",
                              queue.name),
                  "remove them, or let Kueue admit (quota: kueue)");
  }
  if (queue.admission_mode.value == "UsageBasedAdmissionFairSharing") {
    findings->AddWarning(
        kNotHonoured, queue.file, queue.admission_mode.line,
        fmt::format("spec.admissionScope of ClusterQueue {} isn't obeyed: what its "
                    "LocalQueues used before counts for nothing",
                    queue.name),
        "remove it, or let Kueue admit (quota: kueue)");
  }
  for (const ResourceGroup& group : queue.groups) {
    if (group.string_flavors_line > 0) {
      findings->Add(
          "flavors-as-strings", queue.file, group.string_flavors_line,
          fmt::format("ClusterQueue {} gives {} by name only, with the quota beside "
                      "them: the API server refuses it, since each flavor has its own",
                      queue.name, Counted(static_cast<int64_t>(group.flavors.size()), "flavor")),
          "give each flavor its own quota; there is no way to give one number to several",
          CorrectedGroup(group));
    }
    if (around.manifests.flavors.empty()) continue;
    for (const LocatedText& flavor : group.flavors) {
      if (!flavor.present() ||
          std::ranges::find(around.manifests.flavors, flavor.value, &ResourceFlavor::name) !=
              around.manifests.flavors.end()) {
        continue;
      }
      findings->Add("flavor-not-found", queue.file, flavor.line,
                    fmt::format("ClusterQueue {} names ResourceFlavor {}, but there is {}; the "
                                "queue stays inactive",
                                queue.name, flavor.value, Names(around.manifests.flavors)),
                    "name a ResourceFlavor that exists");
    }
  }
}

void CheckLocalQueue(const LocalQueue& queue, const Surroundings& around, Findings* findings) {
  if (around.manifests.cluster_queues.empty() || !queue.cluster_queue.present() ||
      FindClusterQueue(around.manifests, queue.cluster_queue.value) != nullptr) {
    return;
  }
  findings->Add(
      "cluster-queue-not-found", queue.file, queue.cluster_queue.line,
      fmt::format("LocalQueue {}/{} names ClusterQueue {}, but there is {}; its jobs "
                  "wait for ever",
                  queue.name_space, queue.name, queue.cluster_queue.value,
                  Names(around.manifests.cluster_queues)),
      "name a ClusterQueue that exists",
      Concat("spec:\n  clusterQueue: ", around.manifests.cluster_queues.front().name, "\n"));
}

}  // namespace muster::lint
