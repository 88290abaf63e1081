#include "coscheduling/report/queue_report.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "fmt/format.h"
#include "muster/v1/admission.pb.h"

namespace muster::coscheduling {
namespace {

// A queue's status is written at most this often.
constexpr absl::Duration kQueueStatusInterval = absl::Seconds(1);
// Gangs in line that are told of each queue.
constexpr size_t kShownPending = 100;

// Its namespace, "" of a ClusterQueue, and its name.
std::pair<std::string, std::string> NamesOf(const quota::QueueStatus& status) {
  const size_t slash = status.name.find('/');
  if (slash == std::string::npos) return {"", status.name};
  return {status.name.substr(0, slash), status.name.substr(slash + 1)};
}

void Fill(const quota::FlavorUsage& usage, v1::FlavorUsage* out) {
  out->set_flavor(usage.flavor);
  out->set_resource(usage.resource);
  out->set_nominal(usage.nominal);
  out->set_reserved(usage.reserved);
  out->set_borrowed(usage.borrowed);
}

void Fill(const quota::QueueStatus& status, v1::Queue* out) {
  auto [name_space, name] = NamesOf(status);
  out->set_namespace_(std::move(name_space));
  out->set_name(std::move(name));
  out->set_cluster_queue(status.cluster_queue);
  out->set_cohort(status.cohort);
  out->set_error(status.error);
  out->set_pending(status.pending);
  out->set_admitted(status.admitted);
  out->set_fair_share(status.fair_share.value_or(0));
  for (const quota::FlavorUsage& usage : status.usage) Fill(usage, out->add_usage());
}

}  // namespace

void QueueReport::Write(bool changed) {
  stale_ |= changed;
  const quota::QuotaScheduler& quotas = quota_.scheduler();
  if (options_.quota != QuotaMode::kInternal || !stale_ || quotas.IsClosed()) return;
  stale_ = false;
  std::vector<quota::QueueStatus> queues = quotas.ClusterQueues(0);
  for (quota::QueueStatus& queue : quotas.LocalQueues(0)) queues.push_back(std::move(queue));
  const std::vector<quota::QueueStatus> cohorts = quotas.Cohorts();
  // A queue that is made anew has no status yet, whatever one of its name had.
  std::erase_if(shown_, [&](const auto& shown) {
    const auto& [of_cohort, name] = shown.first;
    return std::ranges::count(of_cohort ? cohorts : queues, name, &quota::QueueStatus::name) == 0;
  });
  for (const quota::QueueStatus& queue : queues) stale_ |= !Write(queue, false);
  for (const quota::QueueStatus& cohort : cohorts) stale_ |= !Write(cohort, true);
  for (quota::FinalizerChange& change : quotas.FinalizerChanges()) {
    stale_ |=
        !outbox_->Act("finalizer/" + change.meta->uid,
                      SetFinalizers{std::string(change.plural), RefOf(*change.meta),
                                    std::move(change.finalizers)},
                      [this](const absl::Status& result, absl::Time) { stale_ |= !result.ok(); });
  }
}

bool QueueReport::Write(const quota::QueueStatus& status, bool of_cohort) {
  const absl::Time now = agenda_->now();
  Shown& shown = shown_[{of_cohort, status.name}];
  if (status == shown.status) return true;
  const absl::Time due = shown.written + kQueueStatusInterval;
  if (now < due) {
    agenda_->WakeAt(due);
    return false;
  }
  const bool active = status.error.empty() && status.stopped.empty();
  if (!shown.status || active != shown.active) shown.since = now;
  UpdateQueueStatus update;
  std::tie(update.name_space, update.name) = NamesOf(status);
  update.status = status;
  update.since = shown.since;
  update.of_cohort = of_cohort;
  const std::string target = (of_cohort ? "cohort-status/" : "queue-status/") + status.name;
  const auto refused = [this, key = std::pair(of_cohort, status.name)](const auto& result, auto) {
    if (result.ok()) return;
    shown_[key].status.reset();
    stale_ = true;
  };
  if (!outbox_->Act(target, std::move(update), refused)) return false;
  shown.status = status;
  shown.active = active;
  shown.written = now;
  return true;
}

void QueueReport::DescribeQueues(std::vector<v1::Queue>* queues) const {
  const quota::QuotaScheduler& quotas = quota_.scheduler();
  std::vector<quota::QueueStatus> all = quotas.ClusterQueues(kShownPending);
  std::map<std::string, int64_t> places;
  for (const quota::QueueStatus& line : all)
    for (const auto& id : line.pending_ids) places[id] = &id - line.pending_ids.data() + 1;
  for (auto& local : quotas.LocalQueues(kShownPending)) all.push_back(std::move(local));
  for (const quota::QueueStatus& status : all) {
    v1::Queue& queue = queues->emplace_back();
    Fill(status, &queue);
    for (const std::string& id : status.pending_ids) {
      const Gang* gang = quota_.GangOf(id);
      if (gang == nullptr) continue;
      v1::PendingGang* pending = queue.add_pending_gangs();
      pending->set_namespace_(gang->key.name_space);
      pending->set_name(gang->key.name);
      pending->set_priority(gang->priority);
      pending->set_place(places[id]);
      // Of what is known of one that is to be looked at again some may be gone.
      const bool looked = !agenda_->HasNoted(gang->id);
      Set(looked ? gangs_.QuotaReason(*gang) : gangs_.ReasonOf(*gang), pending->mutable_reason());
    }
  }
}

void QueueReport::DescribeFlavors(std::vector<v1::Flavor>* flavors) const {
  std::map<std::string, v1::Flavor> by_name;
  for (const kube::ResourceFlavor* flavor : quota_.scheduler().Flavors()) {
    v1::Flavor& out = by_name[flavor->meta.name];
    for (const auto& [key, value] : flavor->node_labels) (*out.mutable_node_labels())[key] = value;
    for (const kube::Taint& taint : flavor->node_taints) out.add_node_taints(taint.ToString());
  }
  for (const quota::FlavorUsage& sum : quota_.scheduler().FlavorTotals()) {
    Fill(sum, by_name[sum.flavor].add_usage());
  }
  for (auto& [name, flavor] : by_name) {
    flavor.set_name(name);
    flavors->push_back(std::move(flavor));
  }
}

}  // namespace muster::coscheduling
