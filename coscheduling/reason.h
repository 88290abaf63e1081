// Why a gang is in its state: a stable code, one sentence with the numbers, and the fix.
#pragma once

#include <string>

#include "muster/v1/states.pb.h"

namespace muster::coscheduling {

struct Reason {
  v1::ReasonCode code = v1::REASON_UNSPECIFIED;
  std::string message;
  std::string fix;
  bool operator==(const Reason&) const = default;
};

}  // namespace muster::coscheduling
