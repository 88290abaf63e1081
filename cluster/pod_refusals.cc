#include "cluster/pod_refusals.h"

#include <optional>
#include <utility>

namespace muster::cluster {

std::vector<kube::NamespacedUid> PodRefusals::Note(const kube::Event& event) {
  std::optional<kube::PodRefusal> told = kube::PodRefusalIn(event);
  if (!told) return {};
  const kube::NamespacedUid owner = {event.about.name_space, event.about.uid};
  auto [it, added] = refusals_.try_emplace(owner);
  kube::PodRefusal& refusal = it->second;
  if (!added) {
    if (told->last < refusal.last) return {};
    by_last_told_.erase({refusal.last, owner});
  }
  std::vector<kube::NamespacedUid> changed;
  if (added || refusal.why != told->why || refusal.last != told->last) changed.push_back(owner);
  refusal = *std::move(told);
  by_last_told_.emplace(event.last, owner);
  while (refusals_.size() > capacity_) {
    kube::NamespacedUid dropped = by_last_told_.begin()->second;
    by_last_told_.erase(by_last_told_.begin());
    refusals_.erase(dropped);
    ++dropped_;
    changed.push_back(std::move(dropped));
  }
  return changed;
}

void PodRefusals::Forget(const kube::NamespacedUid& owner) {
  const auto it = refusals_.find(owner);
  if (it == refusals_.end()) return;
  by_last_told_.erase({it->second.last, owner});
  refusals_.erase(it);
}

std::vector<kube::NamespacedUid> PodRefusals::Expire(absl::Time now) {
  while (!by_last_told_.empty() && by_last_told_.rbegin()->first > now) {
    auto ahead = by_last_told_.extract(std::prev(by_last_told_.end()));
    refusals_.at(ahead.value().second).last = ahead.value().first = now;
    by_last_told_.insert(std::move(ahead));
  }
  std::vector<kube::NamespacedUid> over;
  while (!by_last_told_.empty() && by_last_told_.begin()->first + time_ <= now) {
    auto oldest = by_last_told_.extract(by_last_told_.begin());
    refusals_.erase(oldest.value().second);
    over.push_back(std::move(oldest.value().second));
  }
  return over;
}

absl::Time PodRefusals::NextExpiry() const {
  return by_last_told_.empty() ? absl::InfiniteFuture() : by_last_told_.begin()->first + time_;
}

const kube::PodRefusal* PodRefusals::Find(const kube::NamespacedUid& owner) const {
  const auto it = refusals_.find(owner);
  return it == refusals_.end() ? nullptr : &it->second;
}

}  // namespace muster::cluster
