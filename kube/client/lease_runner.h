// Runs a LeaderElection over a transport.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "kube/api.h"
#include "kube/client/lease.h"
#include "kube/client/timer.h"

namespace muster::kube {

struct LeaseStatus {
  bool leading = false;
  std::optional<int64_t> transitions = std::nullopt;  // LeaderElection's
  std::string holder;
  absl::Time leading_until = absl::InfinitePast();
  absl::Status last_error;
};

// Thread-safe. Transport and timer must outlive it.
class LeaseRunner {
 public:
  // `changed` is told each time the lead is taken or lost, in order, on the transport's or the
  // timer's thread; of the runner's methods it may call IsLeader only. Starts at once.
  // `options` must be valid (Validate). `seed` spreads the candidates' attempts.
  LeaseRunner(Transport& transport, Timer& timer, LeaseOptions options,
              std::function<void(bool leading)> changed, uint64_t seed = std::random_device()());
  // Gives the lead up without releasing the Lease; call Stop first to release it.
  ~LeaseRunner();
  LeaseRunner(const LeaseRunner&) = delete;
  LeaseRunner& operator=(const LeaseRunner&) = delete;

  // Exact at this moment and without a lock: false from the renew deadline on, whether or not
  // `changed` has been told yet. Ask before each write that only a leader may make.
  bool IsLeader() const;
  LeaseStatus Status() const;

  // Stops leading before it returns, then releases the Lease in the background.
  void Stop();
  // Waits until the release has been answered; false if it took longer than `patience`.
  bool AwaitStopped(absl::Duration patience);

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::kube
