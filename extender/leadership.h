// Whether this process leads, however that is decided: always, by a Lease of Muster's own, or by
// the Lease of the kube-scheduler beside it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "extender/lease_follower.h"
#include "kube/api.h"
#include "kube/client/lease.h"
#include "kube/client/timer.h"

namespace muster::extender {

// Thread-safe.
class Leadership {
 public:
  // Told each time the lead is taken or lost, in order, on the transport's or the timer's thread;
  // of the methods below it may call Leads only.
  using Changed = std::function<void(bool leading)>;

  // `changed` is told once, by Always itself.
  static std::unique_ptr<Leadership> Always(const Changed& changed);
  // A candidate for Muster's own Lease; `options` must be valid (kube::Validate). Transport and
  // timer must outlive it, here and below.
  static std::unique_ptr<Leadership> Elect(kube::Transport& transport, kube::Timer& timer,
                                           const kube::LeaseOptions& options, Changed changed);
  static std::unique_ptr<Leadership> Follow(kube::Transport& transport, kube::Timer& timer,
                                            LeaseFollowerOptions options, Changed changed);
  // What `make` makes, which doesn't lead while Restrict's reason stands, as at first.
  class Restricted;
  static std::unique_ptr<Restricted> Restrict(
      const std::function<std::unique_ptr<Leadership>(Changed)>& make, Changed changed,
      std::string why);
  // Afterwards `changed` isn't called any more.
  virtual ~Leadership() = default;

  // Exact at this moment and without a lock.
  virtual bool Leads() const = 0;
  // Who leads as far as known; empty if nobody does, or it isn't known yet.
  virtual std::string Holder() const = 0;
  // "" if this process leads or knows who does; else why not.
  virtual std::string WhyNoLeader() const = 0;
  // "" unless the Lease can't be read or written any more, whoever leads: the API server doesn't
  // tell, or take, what its store holds.
  virtual std::string WhyOutOfTouch() const = 0;
  // How often the Lease has passed to another holder, as it says itself; nullopt if none has been
  // seen. It outlives those who led.
  virtual std::optional<int64_t> transitions() const = 0;
  // Stops leading before it returns; what is its own is released, which is waited for at most
  // `patience`.
  virtual void Stop(absl::Duration patience) = 0;
};

class Leadership::Restricted : public Leadership {
 public:
  // Why this process may not lead, whoever else does; "": it may.
  virtual void SetReason(std::string why) = 0;
  virtual std::string Reason() const = 0;
  // It would lead without a reason: what finds the reasons out goes by this.
  virtual bool HoldsLead() const = 0;
};

}  // namespace muster::extender
