// What setbacks there are, each in one sentence, and what can be done about it.
#pragma once

#include <string>
#include <string_view>

#include "coscheduling/provisioning/setbacks.h"
#include "coscheduling/reason.h"

namespace muster::coscheduling {

struct SetbackKind {
  v1::ReasonCode code;
  cluster::BringUp behind;  // overcome once this is behind all nodes
  std::string_view since;   // of one that stands: what had been done with it
  std::string_view lacks;
  std::string_view end;  // of claims that went so
  std::string_view fix;  // with the NodePool's name
};

// They lie in one table, worst first: what money can't mend at once, what somebody must put right,
// what may only be slow. For any other code that of NODE_TAKEN_BACK, the last.
const SetbackKind& KindOf(v1::ReasonCode code);

// "p4d.24xlarge in us-west-2a (NodePool gpu-efa) was refused for insufficient capacity 5 times,
// last at 12:04:31Z: WORDS". Says when, never for how long, so that it changes only with what it
// tells.
std::string SentenceOf(const Setback& setback);

// The sentence as a reason, after what is to be said before it.
Reason ReasonOf(const Setback& setback, const std::string& before);

}  // namespace muster::coscheduling
