// Whether a Kueue runs beside Muster's own quota: two that admit from the same queues would each
// count only their own.
//
// Kueue's managers elect their leader by a Lease, which a live one renews every few seconds. That
// in one namespace is looked at, its own: what is in others their users can write.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "extender/lease_follower.h"
#include "kube/api.h"
#include "quota/quota_scheduler.h"

namespace muster::extender {

// Not thread-safe; answers may come on any thread.
class OtherKueue {
 public:
  // The transport must outlive it.
  OtherKueue(kube::Transport& transport, std::string name_space, std::string name);

  // Call often. Why nobody may be given quota, if that has changed; without a code: nothing is in
  // the way. While it isn't known yet something is; where the Lease may not be read nothing is.
  std::optional<quota::Wait> Tick(absl::Time now);

  // As the last Tick said.
  bool IsRunning() const { return running_; }

 private:
  struct Inbox;

  quota::Wait Verdict(absl::Time now);

  kube::Transport& transport_;
  const std::string lease_;  // "namespace/name"
  LeaseFollower follower_;
  std::shared_ptr<Inbox> inbox_;
  bool answered_ = false;
  uint64_t failed_before_ = 0;
  bool running_ = false;
  std::optional<std::string> told_;
};

}  // namespace muster::extender
