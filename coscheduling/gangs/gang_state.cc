#include "coscheduling/gangs/gang_state.h"

namespace muster::coscheduling {

v1::GangState NextState(const GangFacts& facts) {
  const int64_t standing = facts.bound + facts.succeeded;
  if (facts.live == 0 && !facts.terminating && !facts.made_anew &&
      facts.succeeded + facts.failed > 0) {
    return v1::FINISHED;
  }
  if (facts.evicting) return facts.without_quota ? v1::WAITING_FOR_MEMBERS : v1::WAITING_FOR_QUOTA;
  if (standing > 0 && standing >= facts.min_member) return v1::BOUND;
  if (facts.bound + facts.lost > 0) {
    if (facts.bound_before) return v1::REPAIRING;
    return facts.planned && !facts.blocked ? v1::BINDING : v1::REPAIRING;
  }
  if (facts.blocked) return v1::WAITING_FOR_MEMBERS;
  if (facts.infeasible) return v1::INFEASIBLE;
  if (facts.backing_off) return v1::BACKING_OFF;
  if (!facts.admitted) {
    return facts.waits_for_quota ? v1::WAITING_FOR_QUOTA : v1::WAITING_FOR_MEMBERS;
  }
  if (!facts.planned) return v1::PROVISIONING;
  return facts.committing ? v1::BINDING : v1::READY;
}

}  // namespace muster::coscheduling
