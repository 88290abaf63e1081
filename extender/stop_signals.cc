#include "extender/stop_signals.h"

#include <algorithm>

#include "absl/time/clock.h"

namespace muster::extender {
namespace {

// sigtimedwait takes no infinite wait; nothing is lost by coming round once an hour.
constexpr absl::Duration kLongestWait = absl::Hours(1);

}  // namespace

StopSignals::StopSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  signal(SIGPIPE, SIG_IGN);
}

StopSignals::~StopSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

bool StopSignals::Wait(absl::Duration limit) {
  const absl::Time until = absl::Now() + limit;
  while (received_ == 0) {
    const absl::Duration left = std::clamp(until - absl::Now(), absl::ZeroDuration(), kLongestWait);
    const timespec time = absl::ToTimespec(left);
    const int signal = sigtimedwait(&signals_, nullptr, &time);
    if (signal > 0) received_ = signal;
    if (signal <= 0 && absl::Now() >= until) return false;
  }
  return true;
}

}  // namespace muster::extender
