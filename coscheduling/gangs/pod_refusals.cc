#include "coscheduling/gangs/pod_refusals.h"

#include <optional>
#include <utility>

namespace muster::coscheduling {

std::vector<std::string> PodRefusals::Note(const kube::Event& event) {
  std::optional<kube::PodRefusal> told = kube::PodRefusalIn(event);
  if (!told) return {};
  const std::string& uid = event.about.uid;
  auto [it, added] = refusals_.try_emplace(uid);
  kube::PodRefusal& refusal = it->second;
  if (!added) {
    if (told->last < refusal.last) return {};
    by_last_told_.erase({refusal.last, uid});
  }
  std::vector<std::string> changed;
  if (added || refusal.why != told->why || refusal.last != told->last) changed.push_back(uid);
  refusal = *std::move(told);
  by_last_told_.emplace(event.last, uid);
  while (refusals_.size() > capacity_) {
    std::string dropped = by_last_told_.begin()->second;
    by_last_told_.erase(by_last_told_.begin());
    refusals_.erase(dropped);
    ++dropped_;
    changed.push_back(std::move(dropped));
  }
  return changed;
}

void PodRefusals::Forget(const std::string& owner_uid) {
  const auto it = refusals_.find(owner_uid);
  if (it == refusals_.end()) return;
  by_last_told_.erase({it->second.last, owner_uid});
  refusals_.erase(it);
}

std::vector<std::string> PodRefusals::Expire(absl::Time now) {
  while (!by_last_told_.empty() && by_last_told_.rbegin()->first > now) {
    auto ahead = by_last_told_.extract(std::prev(by_last_told_.end()));
    refusals_.at(ahead.value().second).last = ahead.value().first = now;
    by_last_told_.insert(std::move(ahead));
  }
  std::vector<std::string> over;
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

const kube::PodRefusal* PodRefusals::Find(const std::string& owner_uid) const {
  const auto it = refusals_.find(owner_uid);
  return it == refusals_.end() ? nullptr : &it->second;
}

}  // namespace muster::coscheduling
