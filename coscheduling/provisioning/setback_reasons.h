// A setback in one sentence, and what can be done about it.
#pragma once

#include <string>

#include "coscheduling/provisioning/setbacks.h"
#include "coscheduling/reason.h"

namespace muster::coscheduling {

// "p4d.24xlarge in us-west-2a (NodePool gpu-efa) was refused for insufficient capacity 5 times,
// last at 12:04:31Z: WORDS". Says when, never for how long, so that it changes only with what it
// tells.
std::string SentenceOf(const Setback& setback);

// The sentence as a reason, after what is to be said before it.
Reason ReasonOf(const Setback& setback, const std::string& before);

}  // namespace muster::coscheduling
