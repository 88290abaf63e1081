#include "quota/ledger.h"

#include <algorithm>
#include <utility>

namespace muster::quota {

std::vector<PairAmount> Ledger::Pairs(const std::vector<PodSetAssignment>& pod_sets) {
  std::vector<PairAmount> pairs;
  for (const PodSetAssignment& pod_set : pod_sets) {
    for (const auto& [resource, flavor] : pod_set.flavors) {
      const int pair = names_.Pair(names_.Flavor(flavor), names_.Resource(resource));
      const int64_t amount = std::max<int64_t>(0, pod_set.usage.Get(resource));
      auto it = std::find_if(pairs.begin(), pairs.end(),
                             [&](const PairAmount& each) { return each.pair == pair; });
      if (it == pairs.end()) {
        pairs.push_back({pair, amount});
      } else {
        it->amount = Saturate(Amount(it->amount) + Amount(amount));
      }
    }
  }
  return pairs;
}

bool Ledger::Refresh() {
  if (!stale_) return false;
  stale_ = false;
  layout_ = std::make_unique<Layout>(objects_, names_);
  by_queue_.assign(layout_->queues.size(), {});
  versions_.assign(static_cast<size_t>(layout_->tree.size()), ++last_version_);
  for (auto& [id, reservation] : reservations_) {
    reservation->queue = layout_->FindQueue(reservation->admission.cluster_queue);
    Count(*reservation);
  }
  return true;
}

void Ledger::Count(Reservation& reservation) {
  if (reservation.queue < 0) return;
  by_queue_[static_cast<size_t>(reservation.queue)].push_back(&reservation);
  const QueueConfig& queue = layout_->queue(reservation.queue);
  tree().AddUsage(queue.node, reservation.base);
  tree().AddUsage(queue.node, reservation.surplus);
  Touch(queue.root);
}

void Ledger::Uncount(Reservation& reservation) {
  if (stale_ || reservation.queue < 0) return;
  std::vector<Reservation*>& all = by_queue_[static_cast<size_t>(reservation.queue)];
  *std::find(all.begin(), all.end(), &reservation) = all.back();
  all.pop_back();
  const QueueConfig& queue = layout_->queue(reservation.queue);
  tree().RemoveUsage(queue.node, reservation.surplus);
  tree().RemoveUsage(queue.node, reservation.base);
  Touch(queue.root);
}

Reservation& Ledger::Set(Workload workload, Admission admission) {
  std::unique_ptr<Reservation>& slot = reservations_[workload.id];
  if (slot == nullptr) {
    slot = std::make_unique<Reservation>();
  } else {
    Uncount(*slot);
  }
  slot->workload = std::move(workload);
  slot->admission = std::move(admission);
  slot->base = Pairs(slot->admission.pod_sets);
  slot->surplus = Pairs(slot->admission.surplus);
  slot->marked = Reservation::Part::kNothing;
  // A flavor or resource that no quota object has ever named.
  if (!stale_ && names_.pair_count() > tree().pair_count()) stale_ = true;
  if (stale_) return *slot;
  slot->queue = layout_->FindQueue(slot->admission.cluster_queue);
  Count(*slot);
  return *slot;
}

Reservation& Ledger::Add(Workload workload, Admission admission, int queue,
                         std::vector<PairAmount> base) {
  std::unique_ptr<Reservation>& slot = reservations_[workload.id];
  slot = std::make_unique<Reservation>();
  slot->workload = std::move(workload);
  slot->admission = std::move(admission);
  slot->queue = queue;
  slot->base = std::move(base);
  Count(*slot);
  return *slot;
}

void Ledger::Remove(std::string_view id) {
  auto it = reservations_.find(id);
  if (it == reservations_.end()) return;
  Uncount(*it->second);
  reservations_.erase(it);
}

Reservation* Ledger::Find(std::string_view id) {
  auto it = reservations_.find(id);
  return it == reservations_.end() ? nullptr : it->second.get();
}

const Reservation* Ledger::Find(std::string_view id) const {
  auto it = reservations_.find(id);
  return it == reservations_.end() ? nullptr : it->second.get();
}

}  // namespace muster::quota
