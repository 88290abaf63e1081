#include "extender/warning_budget.h"

#include <algorithm>

namespace muster::extender {

// One that was never asked of has all of it.
absl::Duration WarningBudget::Left(const Balance& balance, const Part& part, absl::Time now) {
  if (balance.at == absl::InfinitePast()) return part.at_once;
  const absl::Duration since = std::max(absl::ZeroDuration(), now - balance.at);
  return std::min(part.at_once, balance.left + since * part.share);
}

void WarningBudget::Take(Balance* from, const Part& part, absl::Duration cpu, absl::Time now) {
  from->left = Left(*from, part, now) - cpu;
  from->at = now;
}

bool WarningBudget::Allows(std::string_view name_space, absl::Time now) {
  const std::lock_guard lock(mutex_);
  if (Left(all_, kOfAll, now) <= absl::ZeroDuration()) return false;
  const auto of = of_namespace_.find(name_space);
  return of == of_namespace_.end() || Left(of->second, kOfNamespace, now) > absl::ZeroDuration();
}

void WarningBudget::Charge(std::string_view name_space, absl::Duration cpu, absl::Time now) {
  const std::lock_guard lock(mutex_);
  Take(&all_, kOfAll, cpu, now);
  if (!of_namespace_.contains(name_space) && of_namespace_.size() >= kMostNamespaces) Forget(now);
  Take(&of_namespace_[std::string(name_space)], kOfNamespace, cpu, now);
}

void WarningBudget::Forget(absl::Time now) {
  const auto least = std::ranges::max_element(
      of_namespace_, {}, [&](const auto& entry) { return Left(entry.second, kOfNamespace, now); });
  of_namespace_.erase(least);
}

size_t WarningBudget::namespaces() const {
  const std::lock_guard lock(mutex_);
  return of_namespace_.size();
}

}  // namespace muster::extender
