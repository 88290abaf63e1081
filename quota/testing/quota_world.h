// Small worlds of queues and gangs for tests.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "quota/quota_scheduler.h"

namespace muster::quota::testing {

inline constexpr char kGpu[] = "nvidia.com/gpu";

inline absl::Time At(int64_t second) { return absl::FromUnixSeconds(1'000'000 + second); }

inline kube::ResourceFlavor Flavor(std::string name, kube::StringMap labels = {}) {
  kube::ResourceFlavor flavor;
  flavor.meta.name = std::move(name);
  flavor.node_labels = std::move(labels);
  return flavor;
}

// One group over one resource; the flavors in the order given.
struct FlavorQuota {
  std::string flavor;
  int64_t nominal = 0;
  std::optional<int64_t> borrowing_limit = std::nullopt;
  std::optional<int64_t> lending_limit = std::nullopt;
};
inline std::vector<kube::ResourceGroup> Quotas(const std::vector<FlavorQuota>& quotas,
                                               const std::string& resource = kGpu) {
  kube::ResourceGroup group;
  group.covered_resources = {resource};
  for (const FlavorQuota& each : quotas) {
    group.flavors.push_back(
        {each.flavor, {{resource, each.nominal, each.borrowing_limit, each.lending_limit}}});
  }
  return {group};
}

inline kube::ClusterQueue Queue(std::string name, const std::vector<FlavorQuota>& quotas,
                                std::string cohort = "") {
  kube::ClusterQueue queue;
  queue.meta.name = std::move(name);
  queue.resource_groups = Quotas(quotas);
  queue.cohort = std::move(cohort);
  queue.namespace_selector.emplace();
  return queue;
}

inline kube::Cohort MakeCohort(std::string name, std::string parent = "") {
  kube::Cohort cohort;
  cohort.meta.name = std::move(name);
  cohort.parent = std::move(parent);
  return cohort;
}

// In namespace "ns", for the ClusterQueue of the same name.
inline kube::LocalQueue Local(const std::string& name) {
  kube::LocalQueue queue;
  queue.meta.name = name;
  queue.meta.name_space = "ns";
  queue.cluster_queue = name;
  return queue;
}

inline kube::Namespace NamespaceNamed(std::string name, kube::StringMap labels = {}) {
  kube::Namespace name_space;
  name_space.meta.name = std::move(name);
  name_space.meta.labels = std::move(labels);
  return name_space;
}

inline PodSet Pods(std::string name, int64_t count, int64_t each, kube::PodSpec spec = {},
                   const std::string& resource = kGpu) {
  spec.requests.Set("pods", 1);
  if (each >= 0) spec.requests.Set(resource, each);
  return {std::move(name), count, std::make_shared<const kube::PodSpec>(std::move(spec))};
}

// Of one pod set with `count` pods of one GPU.
inline Workload Gang(std::string id, std::string queue, int64_t count, int64_t priority = 0,
                     int64_t queued_at = 0) {
  Workload workload;
  workload.id = id;
  workload.name = std::move(id);
  workload.name_space = "ns";
  workload.queue = std::move(queue);
  workload.priority = priority;
  workload.queued_at = At(queued_at);
  workload.pod_sets = {Pods("worker", count, 1)};
  return workload;
}

inline Workload WithSurplus(Workload workload, int64_t count) {
  workload.surplus = {Pods("worker", count, 1)};
  return workload;
}

// All that quota knows, with what Schedule decided applied as its user would apply it.
class QuotaWorld {
 public:
  explicit QuotaWorld(QuotaOptions options = {}) : scheduler(std::move(options)) {
    scheduler.Upsert(NamespaceNamed("ns"));
  }

  QuotaWorld& Add(kube::ResourceFlavor flavor) {
    scheduler.Upsert(std::move(flavor));
    return *this;
  }
  // With its LocalQueue, and its flavors where they are new.
  QuotaWorld& Add(kube::ClusterQueue queue) {
    for (const kube::ResourceGroup& group : queue.resource_groups) {
      for (const kube::FlavorQuotas& flavor : group.flavors) {
        if (scheduler.FindFlavor(flavor.flavor) == nullptr) Add(Flavor(flavor.flavor));
      }
    }
    scheduler.Upsert(Local(queue.meta.name));
    scheduler.Upsert(std::move(queue));
    return *this;
  }
  QuotaWorld& Add(kube::Cohort cohort) {
    scheduler.Upsert(std::move(cohort));
    return *this;
  }
  QuotaWorld& Enqueue(const Workload& workload) {
    scheduler.Enqueue(workload);
    return *this;
  }

  // Ids of who was admitted, with "+" before those that only got surplus; and "id<-victim,victim*"
  // (a star: surplus only) of who waits for victims. In the order of the decisions.
  std::vector<std::string> Schedule(const Feasibility& feasible = {}) {
    std::vector<std::string> words;
    for (Decision& decision : scheduler.Schedule(At(++clock), feasible)) {
      if (decision.admission) {
        words.push_back((decision.surplus_only ? "+" : "") + decision.id);
        admissions[decision.id] = *std::move(decision.admission);
        continue;
      }
      std::string word = decision.id + "<-";
      for (const Victim& victim : decision.victims) {
        if (word.back() != '-') word += ",";
        word += victim.id + (victim.surplus_only ? "*" : "");
      }
      words.push_back(word);
    }
    return words;
  }

  // Enqueues each and schedules, one after the other, so that all are admitted in this order.
  void Admit(const std::vector<Workload>& workloads) {
    for (const Workload& workload : workloads) {
      scheduler.Enqueue(workload);
      Schedule();
    }
  }

  WaitCode Code(const std::string& id) const { return scheduler.WhyWaiting(id).code; }
  std::string FlavorOf(const std::string& id, const std::string& resource = kGpu) const {
    return admissions.at(id).pod_sets.front().flavors.at(resource);
  }
  int64_t Reserved(const std::string& queue) const {
    for (const QueueStatus& status : scheduler.ClusterQueues(0)) {
      if (status.name == queue) return status.usage.front().reserved;
    }
    return -1;
  }

  QuotaScheduler scheduler;
  std::map<std::string, Admission> admissions;  // as last decided
  int64_t clock = 0;
};

}  // namespace muster::quota::testing
