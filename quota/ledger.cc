#include "quota/ledger.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

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
  const auto drains = [](const auto& queue) {
    return queue.second.stop_policy == kube::StopPolicy::kHoldAndDrain;
  };
  drains_ = std::ranges::any_of(objects_.cluster_queues(), drains) ||
            std::ranges::any_of(objects_.local_queues(), drains);
  by_queue_.assign(layout_->queues.size(), {});
  versions_.assign(static_cast<size_t>(layout_->tree.size()), ++last_version_);
  for (auto& [name_space, unadmitted] : unadmitted_) Resolve(unadmitted);
  for (const std::unique_ptr<Reservation>& reservation : reservations_) {
    reservation->queue = layout_->FindQueue(reservation->admission->cluster_queue);
    if (!WhyDrained(*reservation).empty()) reservation->marked = Reservation::Part::kAll;
    Count(*reservation);
  }
  return true;
}

std::string_view Ledger::WhyDrained(const Reservation& reservation) const {
  const auto drains = [](const auto& queue) {
    return queue.stop_policy == kube::StopPolicy::kHoldAndDrain;
  };
  if (reservation.queue >= 0 && drains(*layout_->queue(reservation.queue).object)) {
    return "ClusterQueueStopped";
  }
  const Workload& workload = reservation.workload;
  const auto local =
      objects_.local_queues().find(absl::StrCat(workload.name_space, "/", workload.queue));
  const bool stopped = local != objects_.local_queues().end() && drains(local->second);
  return stopped ? "LocalQueueStopped" : "";
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

Reservation& Ledger::Set(Workload workload, std::shared_ptr<const Admission> admission) {
  Reservation* reservation = Find(workload.id);
  if (reservation == nullptr) {
    reservation = &Insert(std::move(workload));
  } else {
    Uncount(*reservation);
    reservation->workload = std::move(workload);
  }
  reservation->admission = std::move(admission);
  reservation->base = Pairs(reservation->admission->pod_sets);
  reservation->surplus = Pairs(reservation->admission->surplus);
  reservation->marked = Reservation::Part::kNothing;
  // A flavor or resource that no quota object has ever named.
  if (!stale_ && names_.pair_count() > tree().pair_count()) stale_ = true;
  if (stale_) return *reservation;
  reservation->queue = layout_->FindQueue(reservation->admission->cluster_queue);
  if (!WhyDrained(*reservation).empty()) reservation->marked = Reservation::Part::kAll;
  Count(*reservation);
  return *reservation;
}

Reservation& Ledger::Add(Workload workload, std::shared_ptr<const Admission> admission, int queue,
                         std::vector<PairAmount> base) {
  Reservation& reservation = Insert(std::move(workload));
  reservation.admission = std::move(admission);
  reservation.queue = queue;
  reservation.base = std::move(base);
  Count(reservation);
  return reservation;
}

bool Ledger::SetUnadmitted(const std::string& name_space, const std::string& who,
                           FlavorAmounts amounts) {
  const auto known = unadmitted_.find(name_space);
  if (known == unadmitted_.end() && amounts.empty()) return false;
  UnadmittedPods& all = unadmitted_[name_space];
  const auto of = all.of.find(who);
  if (of == all.of.end() ? amounts.empty() : of->second == amounts) return false;
  if (of != all.of.end()) {
    for (const auto& [what, amount] : of->second) {
      if ((all.sums[what] -= amount) == 0) all.sums.erase(what);
    }
  }
  for (const auto& [what, amount] : amounts) all.sums[what] += amount;
  if (amounts.empty()) {
    all.of.erase(of);
  } else {
    all.of[who] = std::move(amounts);
  }
  if (!stale_) Resolve(all);
  if (all.of.empty()) unadmitted_.erase(name_space);
  return true;
}

std::vector<std::string> Ledger::SetUnadmittedOn(const std::string& node,
                                                 std::map<std::string, FlavorAmounts> amounts) {
  std::set<std::string>& namespaces = unadmitted_on_[node];
  for (const std::string& before : namespaces) amounts.try_emplace(before);
  std::vector<std::string> changed;
  for (auto& [name_space, of_it] : amounts) {
    if (of_it.empty()) {
      namespaces.erase(name_space);
    } else {
      namespaces.insert(name_space);
    }
    // Names of gangs have no colon.
    if (SetUnadmitted(name_space, "node:" + node, std::move(of_it))) changed.push_back(name_space);
  }
  if (namespaces.empty()) unadmitted_on_.erase(node);
  return changed;
}

std::vector<std::pair<std::string, std::string>> Ledger::Unadmitted() const {
  std::vector<std::pair<std::string, std::string>> who;
  for (const auto& [name_space, all] : unadmitted_) {
    for (const auto& [name, amounts] : all.of) who.emplace_back(name_space, name);
  }
  return who;
}

void Ledger::Resolve(UnadmittedPods& unadmitted) const {
  unadmitted.pairs.clear();
  for (const auto& [what, sum] : unadmitted.sums) {
    const int pair = names_.FindPair(what.first, what.second);
    if (pair >= 0 && sum > 0) unadmitted.pairs.push_back({pair, Saturate(sum)});
  }
}

const std::vector<PairAmount>& Ledger::UnadmittedIn(std::string_view name_space) const {
  static const std::vector<PairAmount> kNothing;
  const auto it = unadmitted_.find(name_space);
  return it == unadmitted_.end() ? kNothing : it->second.pairs;
}

Reservation& Ledger::Insert(Workload workload) {
  auto reservation = std::make_unique<Reservation>();
  reservation->workload = std::move(workload);
  return **reservations_.insert(std::move(reservation)).first;
}

void Ledger::Remove(std::string_view id) {
  auto it = reservations_.find(id);
  if (it == reservations_.end()) return;
  Uncount(**it);
  reservations_.erase(it);
}

Reservation* Ledger::Find(std::string_view id) {
  auto it = reservations_.find(id);
  return it == reservations_.end() ? nullptr : it->get();
}

const Reservation* Ledger::Find(std::string_view id) const {
  auto it = reservations_.find(id);
  return it == reservations_.end() ? nullptr : it->get();
}

}  // namespace muster::quota
