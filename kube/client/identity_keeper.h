// Keeps the client's identity fresh beside the thread that uses it: fetching one may block.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "kube/client/credentials.h"

namespace muster::kube {

// Fetches on a thread of its own: once at the start, when the identity's time is up, and when asked
// because the server refused it, but never twice within `interval`. A fetch that fails keeps the
// identity there is.
class IdentityKeeper {
 public:
  struct View {
    std::shared_ptr<const Identity> identity;  // null until the first fetch succeeds
    uint64_t generation = 0;                   // grows when the identity changes
    uint64_t fetches = 0;                      // attempts finished
    absl::Status error;                        // of the last attempt
  };

  // `changed` runs on the keeper's thread after each attempt.
  IdentityKeeper(std::shared_ptr<Credentials> credentials, absl::Duration interval,
                 std::function<void()> changed);
  // Waits for a fetch that is under way; plugins are bounded in time.
  ~IdentityKeeper();

  View Get() const;
  // Asks for a new identity because one was refused. What comes of it is known once Get().fetches
  // has reached the number returned. 0: nothing will come of it (the identity never changes, or the
  // last fetch was too recent).
  uint64_t Refetch();

 private:
  void Run();

  const std::shared_ptr<Credentials> credentials_;
  const absl::Duration interval_;
  const std::function<void()> changed_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  View view_;
  absl::Time last_fetch_ = absl::InfinitePast();
  bool wanted_ = true;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace muster::kube
