#include "cluster/disruption_budgets.h"

#include <cstdint>
#include <utility>

namespace muster::cluster {

bool DisruptionBudgets::Upsert(kube::PodDisruptionBudget budget) {
  std::string name = budget.meta.FullName();
  const auto known = budgets_.find(name);
  const bool changed = known == budgets_.end() ||
                       known->second.disruptions_allowed != budget.disruptions_allowed ||
                       known->second.selector != budget.selector;
  budgets_.insert_or_assign(std::move(name), std::move(budget));
  return changed;
}

bool DisruptionBudgets::Remove(const kube::PodDisruptionBudget& budget) {
  return budgets_.erase(budget.meta.FullName()) > 0;
}

bool DisruptionBudgets::Allow(const std::vector<const kube::Pod*>& pods) const {
  std::map<std::string, int64_t> evicted;
  for (const kube::Pod* pod : pods) {
    if (pod->phase != kube::PodPhase::kRunning) continue;
    int budgets_of_pod = 0;
    for (const auto& [name, budget] : budgets_) {
      if (budget.meta.name_space != pod->meta.name_space || !budget.selector ||
          !budget.selector->Matches(pod->meta.labels)) {
        continue;
      }
      if (++evicted[name] > budget.disruptions_allowed || ++budgets_of_pod > 1) return false;
    }
  }
  return true;
}

}  // namespace muster::cluster
