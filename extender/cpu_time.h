#pragma once

#include <time.h>

#include "absl/time/time.h"

namespace muster::extender {

// What the calling thread has had of the processor.
inline absl::Duration ThreadCpuTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

}  // namespace muster::extender
