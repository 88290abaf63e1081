#include "quota/waiting_line.h"

#include <algorithm>
#include <utility>

namespace muster::quota {

bool ByRank::operator()(const Entry* a, const Entry* b) const {
  const Workload& left = a->workload;
  const Workload& right = b->workload;
  if (left.priority != right.priority) return left.priority > right.priority;
  if (left.queued_at != right.queued_at) return left.queued_at < right.queued_at;
  return left.id < right.id;
}

void WaitingLine::Unlist(EntryClass* kind) {
  if (!kind->parked && !kind->ready.empty()) awake_.erase(kind);
}

void WaitingLine::List(EntryClass* kind) {
  if (!kind->parked && !kind->ready.empty()) awake_.insert(kind);
}

void WaitingLine::Join(Entry* entry, EntryClass* kind) {
  Unlist(kind);
  kind->ready.insert(entry);
  // Since the others were refused, somebody may have been admitted whom this class may preempt.
  kind->parked = false;
  List(kind);
  entry->kind = kind;
  entry->parked_alone = false;
  ++size_;
  order_is_current_ = false;
}

void WaitingLine::Remove(Entry* entry) {
  EntryClass* kind = entry->kind;
  if (kind == nullptr) return;
  Unlist(kind);
  if (!kind->ready.empty() && *kind->ready.begin() == entry) {
    kind->ready.erase(kind->ready.begin());  // as most often; a search would read many entries
  } else {
    kind->ready.erase(entry);
    kind->alone.erase(entry);
  }
  List(kind);
  if (sticky_ == entry) sticky_ = nullptr;
  entry->kind = nullptr;
  --size_;
  order_is_current_ = false;
  if (!kind->ready.empty() || !kind->alone.empty()) return;
  asleep_.erase(kind);
  classes_.erase(classes_.find(kind->key));
}

Entry* WaitingLine::Head() const {
  if (sticky_ != nullptr && !sticky_->parked_alone && !sticky_->kind->parked) return sticky_;
  return awake_.empty() ? nullptr : *(*awake_.begin())->ready.begin();
}

void WaitingLine::Stick(Entry* entry) {
  if (sticky_ == entry) return;
  sticky_ = entry;
  order_is_current_ = false;
}

void WaitingLine::ParkClass(Entry* entry) {
  EntryClass* kind = entry->kind;
  Unlist(kind);
  kind->parked = true;
  kind->refused = entry->assignment;
  asleep_.insert(kind);
}

void WaitingLine::ParkAlone(Entry* entry) {
  EntryClass* kind = entry->kind;
  Unlist(kind);
  kind->ready.erase(entry);
  kind->alone.insert(entry);
  List(kind);
  entry->parked_alone = true;
  asleep_.insert(kind);
}

void WaitingLine::Wake(Entry* entry) {
  EntryClass* kind = entry->kind;
  Unlist(kind);
  kind->parked = false;
  if (std::exchange(entry->parked_alone, false)) kind->ready.insert(kind->alone.extract(entry));
  if (kind->alone.empty()) asleep_.erase(kind);
  List(kind);
}

bool WaitingLine::WakeAll() {
  ++wakes_;
  if (asleep_.empty()) return false;
  for (EntryClass* kind : asleep_) {
    Unlist(kind);
    kind->parked = false;
    for (Entry* entry : kind->alone) entry->parked_alone = false;
    kind->ready.merge(kind->alone);
    List(kind);
  }
  asleep_.clear();
  return true;
}

const std::vector<const Entry*>& WaitingLine::InOrder() const {
  if (order_is_current_) return in_order_;
  in_order_.clear();
  for (const auto& [key, kind] : classes_) {
    in_order_.insert(in_order_.end(), kind->ready.begin(), kind->ready.end());
    in_order_.insert(in_order_.end(), kind->alone.begin(), kind->alone.end());
  }
  std::sort(in_order_.begin(), in_order_.end(), [&](const Entry* a, const Entry* b) {
    if ((a == sticky_) != (b == sticky_)) return a == sticky_;
    return ByRank()(a, b);
  });
  order_is_current_ = true;
  return in_order_;
}

}  // namespace muster::quota
