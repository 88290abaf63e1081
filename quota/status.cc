// What there is to see of queues, and why somebody waits.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "quota/fair_share.h"
#include "quota/scheduler_state.h"
#include "quota/wait_reason.h"

namespace muster::quota {
namespace {

std::string LocalQueueOf(const Workload& workload) {
  return absl::StrCat(workload.name_space, "/", workload.queue);
}

// What of the queue's spec is read and not done; empty normally.
std::string NotObeyed(const kube::ClusterQueue& queue) {
  if (!queue.usage_based_admission) return "";
  return absl::StrCat("; spec.admissionScope of ClusterQueue ", queue.meta.name,
                      " isn't obeyed: what its LocalQueues used before counts for nothing");
}

// Workloads that wait, surplus left out.
struct Line {
  std::vector<const Entry*> entries;
  // Names at most so many: first in line first, then those in no line.
  void Put(QueueStatus& status, size_t most) {
    status.pending = static_cast<int64_t>(entries.size());
    const auto end = entries.begin() + static_cast<ptrdiff_t>(std::min(most, entries.size()));
    std::partial_sort(entries.begin(), end, entries.end(), [](const Entry* a, const Entry* b) {
      if ((a->kind == nullptr) != (b->kind == nullptr)) return a->kind != nullptr;
      return ByRank()(a, b);
    });
    for (auto it = entries.begin(); it != end; ++it) {
      status.pending_ids.push_back((*it)->workload.id);
    }
  }
};

void AddUsage(const Ledger& ledger, const QueueConfig& queue, QueueStatus& status) {
  for (const Group& group : queue.groups) {
    for (const GroupFlavor& flavor : group.flavors) {
      for (size_t i = 0; i < group.resources.size(); ++i) {
        FlavorUsage& usage = status.usage.emplace_back();
        usage.flavor = ledger.names().FlavorName(flavor.flavor);
        usage.resource = ledger.names().ResourceName(group.resources[i]);
        usage.nominal = ledger.tree().Nominal(queue.node, flavor.pairs[i]);
        usage.reserved = Saturate(ledger.tree().Usage(queue.node, flavor.pairs[i]));
        usage.borrowed = std::max<int64_t>(0, usage.reserved - usage.nominal);
      }
    }
  }
}

void AddUsage(const Names& names, const std::vector<PairAmount>& amounts, QueueStatus& status) {
  for (const PairAmount& each : amounts) {
    const std::string& flavor = names.FlavorName(names.Of(each.pair).flavor);
    const std::string& resource = names.ResourceName(names.Of(each.pair).resource);
    auto it = std::find_if(status.usage.begin(), status.usage.end(), [&](const FlavorUsage& usage) {
      return usage.flavor == flavor && usage.resource == resource;
    });
    FlavorUsage& usage = it != status.usage.end() ? *it : status.usage.emplace_back();
    usage.flavor = flavor;
    usage.resource = resource;
    usage.reserved = Saturate(Amount(usage.reserved) + Amount(each.amount));
  }
}

}  // namespace

Wait QuotaScheduler::WhyWaiting(std::string_view id) const {
  if (IsClosed()) return state_->closed;
  state_->Refresh();
  const Entry* entry = state_->room.Find(id);
  if (entry == nullptr) return {};
  Wait wait = ReasonOf(state_->ledger, state_->room, *entry);
  if (entry->queue >= 0) {
    wait.message += NotObeyed(*state_->ledger.layout().queue(entry->queue).object);
  }
  return wait;
}

std::vector<QueueStatus> QuotaScheduler::ClusterQueues(size_t max_pending_ids) const {
  state_->Refresh();
  const Ledger& ledger = state_->ledger;
  const Layout& layout = ledger.layout();
  std::vector<Line> waiting(layout.queues.size());
  for (const auto& entry : state_->room.entries()) {
    if (entry->is_surplus || entry->queue < 0) continue;
    waiting[static_cast<size_t>(entry->queue)].entries.push_back(entry.get());
  }
  std::vector<QueueStatus> all;
  for (size_t i = 0; i < layout.queues.size(); ++i) {
    const QueueConfig& queue = layout.queues[i];
    QueueStatus& status = all.emplace_back();
    status.name = queue.object->meta.name;
    status.cohort = queue.object->cohort;
    status.admitted = static_cast<int64_t>(ledger.OnQueue(static_cast<int>(i)).size());
    if (queue.lacks_flavor) status.stopped = "FlavorNotFound";
    status.error = queue.error.empty() ? state_->closed.message : queue.error;
    if (queue.IsStopped()) status.stopped = queue.IsGoing() ? "Terminating" : "Stopped";
    waiting[i].Put(status, max_pending_ids);
    AddUsage(ledger, queue, status);
    if (!state_->options.fair_sharing) continue;
    status.fair_share = DominantShare(ledger.tree(), ledger.names(), queue.node).Rounded();
  }
  return all;
}

std::vector<FlavorUsage> QuotaScheduler::FlavorTotals() const {
  std::map<std::pair<std::string, std::string>, FlavorUsage> sums;
  for (const QueueStatus& status : ClusterQueues(0)) {
    for (const FlavorUsage& usage : status.usage) {
      FlavorUsage& sum = sums[{usage.flavor, usage.resource}];
      sum.nominal += usage.nominal;
      sum.reserved += usage.reserved;
      sum.borrowed += usage.borrowed;
    }
  }
  std::vector<FlavorUsage> totals;
  for (auto& [key, sum] : sums) {
    std::tie(sum.flavor, sum.resource) = key;
    totals.push_back(std::move(sum));
  }
  return totals;
}

std::vector<QueueStatus> QuotaScheduler::LocalQueues(size_t max_pending_ids) const {
  state_->Refresh();
  const Ledger& ledger = state_->ledger;
  struct Local {
    QueueStatus status;
    Line waiting;
  };
  std::map<std::string, Local, std::less<>> all;
  for (const auto& [name, object] : ledger.objects().local_queues()) {
    QueueStatus& status = all[name].status;
    status.name = name;
    status.cluster_queue = object.cluster_queue;
    const int queue = ledger.layout().FindQueue(object.cluster_queue);
    if (queue >= 0) status.cohort = ledger.layout().queue(queue).object->cohort;
    status.error = object.error;
    if (!status.error.empty()) continue;
    if (queue < 0) {
      status.error = absl::StrCat("ClusterQueue ", object.cluster_queue, " doesn't exist");
      status.stopped = "ClusterQueueDoesNotExist";
    } else if (!ledger.layout().queue(queue).error.empty()) {
      status.error = absl::StrCat("ClusterQueue ", object.cluster_queue,
                                  " admits nothing: ", ledger.layout().queue(queue).error);
      status.stopped = "ClusterQueueIsInactive";
    } else if (ledger.layout().queue(queue).IsStopped()) {
      status.stopped = "ClusterQueueIsInactive";
    }
    if (object.stop_policy != kube::StopPolicy::kNone) status.stopped = "Stopped";
    if (status.error.empty()) status.error = state_->closed.message;
  }
  for (const auto& entry : state_->room.entries()) {
    auto it = all.find(LocalQueueOf(entry->workload));
    if (it != all.end() && !entry->is_surplus) it->second.waiting.entries.push_back(entry.get());
  }
  for (const auto& reservation : ledger.reservations()) {
    auto it = all.find(LocalQueueOf(reservation->workload));
    if (it == all.end()) continue;
    ++it->second.status.admitted;
    AddUsage(ledger.names(), reservation->base, it->second.status);
    AddUsage(ledger.names(), reservation->surplus, it->second.status);
  }
  std::vector<QueueStatus> statuses;
  for (auto& [name, local] : all) {
    local.waiting.Put(local.status, max_pending_ids);
    std::sort(local.status.usage.begin(), local.status.usage.end(),
              [](const FlavorUsage& a, const FlavorUsage& b) {
                return std::tie(a.flavor, a.resource) < std::tie(b.flavor, b.resource);
              });
    statuses.push_back(std::move(local.status));
  }
  return statuses;
}

std::vector<QueueStatus> QuotaScheduler::Cohorts() const {
  std::vector<QueueStatus> all;
  if (!state_->options.fair_sharing) return all;
  state_->Refresh();
  const Ledger& ledger = state_->ledger;
  for (int node = 0; node < ledger.tree().size(); ++node) {
    const QuotaTree::Node& cohort = ledger.tree().node(node);
    if (cohort.is_queue || !ledger.objects().cohorts().contains(cohort.name)) continue;
    QueueStatus& status = all.emplace_back();
    status.name = cohort.name;
    status.fair_share = DominantShare(ledger.tree(), ledger.names(), node).Rounded();
  }
  return all;
}

std::vector<FinalizerChange> QuotaScheduler::FinalizerChanges() const {
  state_->Refresh();
  const Ledger& ledger = state_->ledger;
  const Layout& layout = ledger.layout();
  std::vector<FinalizerChange> changes;
  const auto keep = [&](std::string_view plural, const kube::ObjectMeta& meta, bool used) {
    const auto mine = std::ranges::find(meta.finalizers, kube::kInUseFinalizer);
    const bool has = mine != meta.finalizers.end();
    // Nothing can be put on what is being deleted.
    if (has ? !meta.deletion_time || used : meta.deletion_time.has_value()) return;
    FinalizerChange& change = changes.emplace_back(plural, &meta, meta.finalizers);
    if (has) {
      std::erase(change.finalizers, kube::kInUseFinalizer);
    } else {
      change.finalizers.emplace_back(kube::kInUseFinalizer);
    }
  };
  std::set<std::string_view> used;
  for (size_t i = 0; i < layout.queues.size(); ++i) {
    const kube::ClusterQueue& queue = *layout.queues[i].object;
    keep("clusterqueues", queue.meta, !ledger.OnQueue(static_cast<int>(i)).empty());
    for (const kube::ResourceGroup& group : queue.resource_groups) {
      for (const kube::FlavorQuotas& flavor : group.flavors) used.insert(flavor.flavor);
    }
  }
  for (const auto& [name, flavor] : ledger.objects().flavors()) {
    keep("resourceflavors", flavor.meta, used.contains(name));
  }
  return changes;
}

std::map<std::string, std::string_view> QuotaScheduler::ToDrain() const {
  state_->Refresh();
  const Ledger& ledger = state_->ledger;
  std::map<std::string, std::string_view> drained;
  if (!ledger.drains()) return drained;
  for (const auto& reservation : ledger.reservations()) {
    const std::string_view why = ledger.WhyDrained(*reservation);
    if (!why.empty()) drained.emplace(reservation->workload.id, why);
  }
  return drained;
}

}  // namespace muster::quota
