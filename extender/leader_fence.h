// Writes only while this process leads.
//
// The engine learns of a lost lead a moment late, and a process that was stopped for a while (a
// frozen container, a paused virtual machine) goes on where it was: what it then sends, retries
// included, meets this. It can't stop what is already on its way, so the epoch of the admission
// records and the objects' resourceVersions stay the last guard.
#pragma once

#include <functional>
#include <memory>

#include "kube/api.h"
#include "kube/client/timer.h"

namespace muster::extender {

// Reads and watches pass. A write is answered FailedPrecondition while `leads` says no; it was not
// carried out, and isn't retried. Thread-safe, as `leads` must be. Transport and timer must outlive
// it.
class LeaderFence : public kube::Transport {
 public:
  LeaderFence(kube::Transport& transport, kube::Timer& timer, std::function<bool()> leads);

  void Send(kube::Request request, Done done) override;
  std::unique_ptr<kube::Stream> Watch(kube::Request request, OnLine on_line, OnEnd on_end) override;

 private:
  kube::Transport& transport_;
  kube::Timer& timer_;
  const std::function<bool()> leads_;
};

}  // namespace muster::extender
