// What users see of quota: why a gang waits, and the status of queues.

#include <algorithm>

#include "coscheduling/engine_state.h"
#include "fmt/format.h"
#include "muster/v1/admission.pb.h"

namespace muster::coscheduling {
namespace {

// A queue's status is written at most this often.
constexpr absl::Duration kQueueStatusInterval = absl::Seconds(1);
// Gangs in line that are told of each ClusterQueue.
constexpr size_t kShownPending = 100;

v1::ReasonCode CodeOf(quota::WaitCode code) {
  switch (code) {
    case quota::WaitCode::kQueueNotFound:
    case quota::WaitCode::kClusterQueueNotFound:
      return v1::QUEUE_NOT_FOUND;
    case quota::WaitCode::kQueueInvalid:
      return v1::QUEUE_INVALID;
    case quota::WaitCode::kQueueStopped:
      return v1::QUEUE_STOPPED;
    case quota::WaitCode::kNamespaceNotSelected:
      return v1::NAMESPACE_NOT_SELECTED;
    case quota::WaitCode::kResourceNotCovered:
      return v1::RESOURCE_NOT_COVERED;
    case quota::WaitCode::kFlavorMismatch:
      return v1::FLAVOR_MISMATCH;
    case quota::WaitCode::kQuotaTooSmall:
      return v1::QUOTA_TOO_SMALL;
    case quota::WaitCode::kNone:
    case quota::WaitCode::kQuotaInUse:
      return v1::QUOTA_IN_USE;
    case quota::WaitCode::kPreempting:
      return v1::PREEMPTING;
    case quota::WaitCode::kNotPlaceable:
      return v1::NOT_PLACEABLE;
    case quota::WaitCode::kBehindOthers:
      return v1::BEHIND_OTHERS;
  }
  return v1::QUOTA_IN_USE;
}

std::string DigestOf(const quota::QueueStatus& status) {
  std::string text = fmt::format("{}|{}|{}", status.pending, status.admitted, status.error);
  for (const quota::FlavorUsage& usage : status.usage) {
    text +=
        fmt::format("|{}/{}={},{}", usage.flavor, usage.resource, usage.reserved, usage.borrowed);
  }
  return text;
}

void Fill(const quota::FlavorUsage& usage, v1::FlavorUsage* out) {
  out->set_flavor(usage.flavor);
  out->set_resource(usage.resource);
  out->set_nominal(usage.nominal);
  out->set_reserved(usage.reserved);
  out->set_borrowed(usage.borrowed);
}

void Fill(const quota::QueueStatus& status, v1::Queue* out) {
  const size_t slash = status.name.find('/');
  if (slash != std::string::npos) out->set_namespace_(status.name.substr(0, slash));
  out->set_name(slash == std::string::npos ? status.name : status.name.substr(slash + 1));
  out->set_cluster_queue(status.cluster_queue);
  out->set_cohort(status.cohort);
  out->set_error(status.error);
  out->set_pending(status.pending);
  out->set_admitted(status.admitted);
  out->set_fair_share(status.fair_share);
  for (const quota::FlavorUsage& usage : status.usage) Fill(usage, out->add_usage());
}

}  // namespace

Reason Engine::State::QuotaReason(const Gang& gang) const {
  if (gang.facts.evicting) {
    return {v1::PREEMPTED,
            fmt::format("{} of {} members are to go: {}",
                        gang.facts.bound + (gang.facts.terminating ? 1 : 0), gang.facts.min_member,
                        gang.record->eviction->why),
            ""};
  }
  if (gang.quota.granted) {
    if (!gang.record_error.empty()) {
      return {v1::RECORD_FAILED, "the admission record is refused: " + gang.record_error,
              "check muster's permission to patch podgroups"};
    }
    return {v1::RECORD_PENDING, "quota is reserved; the admission record is being written", ""};
  }
  const quota::Wait wait = quotas.WhyWaiting(gang.uid());
  return {CodeOf(wait.code), wait.message, wait.fix};
}

void Engine::State::WriteQueueStatus(absl::Time now) {
  if (options.quota != QuotaMode::kInternal || !queue_status_stale) return;
  queue_status_stale = false;
  std::vector<quota::QueueStatus> queues = quotas.ClusterQueues(0);
  for (quota::QueueStatus& queue : quotas.LocalQueues(0)) queues.push_back(std::move(queue));
  // A queue that is made anew has no status yet, whatever one of its name had.
  std::erase_if(queues_shown, [&queues](const auto& shown) {
    return std::ranges::find(queues, shown.first, &quota::QueueStatus::name) == queues.end();
  });
  for (const quota::QueueStatus& queue : queues) {
    if (!WriteQueueStatus(queue, now)) queue_status_stale = true;
  }
}

bool Engine::State::WriteQueueStatus(const quota::QueueStatus& status, absl::Time now) {
  QueueShown& shown = queues_shown[status.name];
  std::string digest = DigestOf(status);
  if (digest == shown.digest) return true;
  const absl::Time due = shown.written + kQueueStatusInterval;
  if (now < due) {
    WakeAt(due);
    return false;
  }
  const bool active = status.error.empty();
  if (shown.digest.empty() || active != shown.active) shown.since = now;
  const size_t slash = status.name.find('/');
  UpdateQueueStatus update;
  if (slash != std::string::npos) update.name_space = status.name.substr(0, slash);
  update.name = slash == std::string::npos ? status.name : status.name.substr(slash + 1);
  update.status = status;
  update.since = shown.since;
  const std::string name = status.name;
  const bool started = Act("queue-status/" + name, now, std::move(update),
                           [this, name](const absl::Status& result, absl::Time) {
                             if (result.ok()) return;
                             queues_shown[name].digest.clear();
                             queue_status_stale = true;
                           });
  if (!started) return false;
  shown.digest = std::move(digest);
  shown.active = active;
  shown.written = now;
  return true;
}

void Engine::DescribeQueues(std::vector<v1::Queue>* queues) const {
  const State& s = *state_;
  for (const quota::QueueStatus& status : s.quotas.ClusterQueues(kShownPending)) {
    v1::Queue& queue = queues->emplace_back();
    Fill(status, &queue);
    for (const std::string& id : status.pending_ids) {
      auto it = s.gang_of_quota.find(id);
      if (it == s.gang_of_quota.end()) continue;
      const Gang& gang = *it->second;
      v1::PendingGang* pending = queue.add_pending_gangs();
      pending->set_namespace_(gang.key.name_space);
      pending->set_name(gang.key.name);
      pending->set_priority(gang.priority);
      const Reason reason = s.QuotaReason(gang);
      pending->mutable_reason()->set_code(reason.code);
      pending->mutable_reason()->set_message(reason.message);
      pending->mutable_reason()->set_fix(reason.fix);
    }
  }
  for (const quota::QueueStatus& status : s.quotas.LocalQueues(0)) {
    Fill(status, &queues->emplace_back());
  }
}

void Engine::DescribeFlavors(std::vector<v1::Flavor>* flavors) const {
  const State& s = *state_;
  std::map<std::string, v1::Flavor> by_name;
  for (const kube::ResourceFlavor* flavor : s.quotas.Flavors()) {
    v1::Flavor& out = by_name[flavor->meta.name];
    for (const auto& [key, value] : flavor->node_labels) (*out.mutable_node_labels())[key] = value;
    for (const kube::Taint& taint : flavor->node_taints) out.add_node_taints(taint.ToString());
  }
  std::map<std::pair<std::string, std::string>, quota::FlavorUsage> sums;
  for (const quota::QueueStatus& status : s.quotas.ClusterQueues(0)) {
    for (const quota::FlavorUsage& usage : status.usage) {
      quota::FlavorUsage& sum = sums[{usage.flavor, usage.resource}];
      sum.nominal += usage.nominal;
      sum.reserved += usage.reserved;
      sum.borrowed += usage.borrowed;
    }
  }
  for (auto& [key, sum] : sums) {
    std::tie(sum.flavor, sum.resource) = key;
    Fill(sum, by_name[sum.flavor].add_usage());
  }
  for (auto& [name, flavor] : by_name) {
    flavor.set_name(name);
    flavors->push_back(std::move(flavor));
  }
}

}  // namespace muster::coscheduling
