// What the webhook warns of: lint's rules for one object, with the NodePools, flavors, queues and
// PodGroups that the service watches in any case.
//
// Written by the watches' threads, read by the webhook's; the engine has no part in it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "cluster/instance_types.h"
#include "extender/cluster_watch.h"
#include "extender/warning_budget.h"
#include "lint/known_policies.h"
#include "lint/object_lint.h"

namespace muster::extender {

class AdmissionLint : public ObjectObserver {
 public:
  // `options`: as the engine has them. `whole`: everything there is has been observed, and is being
  // kept up. While it says no, only what an object says by itself is looked at: a NodePool that
  // isn't known yet may offer the rest.
  AdmissionLint(const coscheduling::EngineOptions& options, std::function<bool()> whole)
      : scheduler_name_(options.scheduler_name),
        types_(options.instance_types),
        whole_(std::move(whole)),
        known_(options) {}

  void Upsert(std::string_view kind, const kube::ObjectHeader& header,
              std::string_view json) override;
  void Remove(std::string_view kind, const kube::ObjectHeader& header) override;

  // Of an object in that namespace, or in none. What the budget doesn't allow is skipped.
  lint::ObjectLint Check(std::string_view name_space, std::string_view json);

 private:
  lint::ObjectLint Look(std::string_view json) const;

  const std::string scheduler_name_;
  const cluster::InstanceTypes types_;
  const std::function<bool()> whole_;
  lint::KnownPolicies known_;
  WarningBudget budget_;
};

}  // namespace muster::extender
