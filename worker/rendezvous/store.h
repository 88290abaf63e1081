// The place where ranks meet: serves the RoundBook's decisions on a port, on its own thread. Rank 0
// has it.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/rendezvous/job_secret.h"
#include "worker/rendezvous/round_book.h"

namespace muster::worker {

class RendezvousStore {
 public:
  // Port 0 takes a free one. AlreadyExists if it is taken. With a secret only who proves to know it
  // is heard.
  static absl::StatusOr<std::unique_ptr<RendezvousStore>> Start(uint16_t port, int world_size,
                                                                HeartbeatOptions options,
                                                                const JobSecret& secret = {});
  // Hangs up on everyone.
  ~RendezvousStore();
  RendezvousStore(const RendezvousStore&) = delete;
  RendezvousStore& operator=(const RendezvousStore&) = delete;

  uint16_t port() const;
  // Until every member has left or is lost, so that the last words of a job find someone.
  void WaitUntilEmpty(absl::Duration limit);

 private:
  struct State;
  explicit RendezvousStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace muster::worker
