// SIGINT and SIGTERM, waited for instead of handled.
#pragma once

#include <signal.h>

#include "absl/time/time.h"

namespace muster::extender {

// Blocks both signals (and ignores SIGPIPE) in this thread and those it starts from then on, so
// make it before any of them. The destructor restores the thread's mask. One thread at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Waits at most `limit` for a signal; once one has come, returns true at once, for ever.
  bool Wait(absl::Duration limit);
  // The one that came; 0 before.
  int received() const { return received_; }

 private:
  sigset_t signals_;
  sigset_t before_;
  int received_ = 0;
};

}  // namespace muster::extender
