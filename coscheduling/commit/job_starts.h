// Suspended jobs: one that got quota is resumed, with what its flavors add to its pod templates;
// one that lost it gets back what they had, and waits. Nothing is remembered: a job that is
// suspended and a Workload that has quota say all that there is to know.
#pragma once

#include <string>

#include "coscheduling/admission/owner.h"
#include "coscheduling/admission/quota_admission.h"

namespace muster::coscheduling {

class JobStarts : Owner {
 public:
  // All of them outlive it.
  JobStarts(const Owner& owner, const Workloads& workloads, const QuotaAdmission& quota)
      : Owner(owner), workloads_(workloads), quota_(quota) {}

  void Decide(const Gang& gang);
  void Forget(GangId gang) { errors_.Forget(gang); }

  // It has quota, and its job is still suspended. The last refusal of that write, until one is
  // accepted, is told as well.
  bool IsStarting(const Gang& gang) const {
    return quota_.AsksBySpec(gang) && quota_.Holds(gang) && quota_.EvictionOf(gang) == nullptr;
  }
  const std::string& ErrorOf(const Gang& gang) const { return errors_.Of(gang.id); }

 private:
  const Workloads& workloads_;
  const QuotaAdmission& quota_;
  PerGang<std::string> errors_;
};

}  // namespace muster::coscheduling
