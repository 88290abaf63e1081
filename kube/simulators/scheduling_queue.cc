#include "kube/simulators/scheduling_queue.h"

#include <algorithm>
#include <tuple>

namespace muster::kube::simulators {
namespace {

// backoffQOrderingWindowDuration
constexpr absl::Duration kWindow = absl::Seconds(1);

}  // namespace

void SchedulingQueue::Add(const std::string& pod, int32_t priority, absl::Time now,
                          std::optional<absl::Time> sort_time) {
  auto [it, added] = entries_.try_emplace(pod);
  if (!added) return;
  it->second.priority = priority;
  it->second.since = now;
  it->second.number = ++numbers_;
  it->second.sort_time = sort_time;
}

bool SchedulingQueue::Precedes(const Item& a, const Item& b) {
  if (a.second.priority != b.second.priority) return a.second.priority > b.second.priority;
  if (a.second.sort_time && b.second.sort_time) {
    return std::tie(*a.second.sort_time, a.first) < std::tie(*b.second.sort_time, b.first);
  }
  return std::tie(a.second.since, a.second.number) < std::tie(b.second.since, b.second.number);
}

absl::Time SchedulingQueue::BackoffEnd(const Entry& entry) const {
  int count = entry.errors_in_a_row > 0 ? entry.errors_in_a_row : entry.rejections;
  if (count == 0) return absl::InfinitePast();
  absl::Duration backoff = options_.initial_backoff;
  for (int i = 1; i < count && backoff < options_.max_backoff; ++i) backoff *= 2;
  absl::Time end = entry.since + std::min(backoff, options_.max_backoff);
  if (!options_.pop_from_backoff) return end;
  // Ends are aligned to windows of a second, which are over together.
  return absl::UnixEpoch() + absl::Floor(end - absl::UnixEpoch(), kWindow) + kWindow;
}

void SchedulingQueue::Flush(absl::Time now) {
  for (auto& [pod, entry] : entries_) {
    bool backing_off = entry.place == Place::kBackoff || entry.place == Place::kFullBackoff;
    if (backing_off && BackoffEnd(entry) <= now) entry.place = Place::kActive;
    if (entry.place != Place::kUnschedulable) continue;
    if (entry.since + options_.max_unschedulable <= now) entry.place = Place::kActive;
  }
}

std::optional<std::string> SchedulingQueue::Pop(absl::Time now) {
  Flush(now);
  Item* best = nullptr;
  for (Item& item : entries_) {
    if (item.second.place != Place::kActive || (best != nullptr && !Precedes(item, *best)))
      continue;
    best = &item;
  }
  if (best == nullptr && options_.pop_from_backoff) {
    for (Item& item : entries_) {
      if (item.second.place != Place::kBackoff) continue;
      if (best != nullptr) {
        absl::Time end = BackoffEnd(item.second), best_end = BackoffEnd(best->second);
        if (end > best_end || (end == best_end && !Precedes(item, *best))) continue;
      }
      best = &item;
    }
  }
  if (best == nullptr) return std::nullopt;
  best->second.place = Place::kInFlight;
  return best->first;
}

void SchedulingQueue::Reject(const std::string& pod, RejectedBy by, absl::Time now) {
  auto it = entries_.find(pod);
  if (it == entries_.end()) return;
  Entry& entry = it->second;
  ++entry.rejections;
  entry.errors_in_a_row = 0;
  entry.rejected_by = by;
  entry.since = now;
  entry.place = Place::kUnschedulable;
}

void SchedulingQueue::Fail(const std::string& pod, absl::Time now) {
  auto it = entries_.find(pod);
  if (it == entries_.end()) return;
  ++it->second.errors_in_a_row;
  it->second.since = now;
  it->second.place = Place::kFullBackoff;
}

void SchedulingQueue::Wake(Entry* entry, ClusterEvent event, absl::Time now) {
  const bool no_error = entry->errors_in_a_row == 0;
  if (entry->place == Place::kFullBackoff && no_error && event == ClusterEvent::kRoom) {
    entry->place = Place::kBackoff;
  }
  if (entry->place != Place::kUnschedulable) return;
  if (event == ClusterEvent::kOther && entry->rejected_by == RejectedBy::kPlugins) return;
  if (event == ClusterEvent::kGivenUp && entry->rejected_by == RejectedBy::kGang) return;
  if (BackoffEnd(*entry) <= now) {
    entry->place = Place::kActive;
  } else {
    entry->place = event == ClusterEvent::kGivenUp ? Place::kFullBackoff : Place::kBackoff;
  }
}

void SchedulingQueue::OnClusterEvent(ClusterEvent event, absl::Time now) {
  for (auto& [pod, entry] : entries_) Wake(&entry, event, now);
}

void SchedulingQueue::OnUpdate(const std::string& pod, ClusterEvent event, absl::Time now) {
  auto it = entries_.find(pod);
  if (it == entries_.end()) return;
  // The plugin of its gang is registered for other pods only.
  if (event == ClusterEvent::kOther && it->second.rejected_by == RejectedBy::kGang) return;
  Wake(&it->second, event, now);
}

void SchedulingQueue::Activate(const std::string& pod) {
  auto it = entries_.find(pod);
  if (it != entries_.end() && it->second.place != Place::kInFlight) {
    it->second.place = Place::kActive;
  }
}

absl::Time SchedulingQueue::NextWake(absl::Time now) const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [pod, entry] : entries_) {
    switch (entry.place) {
      case Place::kActive:
        return now;
      case Place::kBackoff:
        if (options_.pop_from_backoff) return now;
        [[fallthrough]];
      case Place::kFullBackoff:
        next = std::min(next, BackoffEnd(entry));
        break;
      case Place::kUnschedulable:
        next = std::min(next, entry.since + options_.max_unschedulable);
        break;
      case Place::kInFlight:
        break;
    }
  }
  return next;
}

}  // namespace muster::kube::simulators
