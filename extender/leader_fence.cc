#include "extender/leader_fence.h"

#include <utility>

namespace muster::extender {

LeaderFence::LeaderFence(kube::Transport& transport, kube::Timer& timer,
                         std::function<bool()> leads)
    : transport_(transport), timer_(timer), leads_(std::move(leads)) {}

void LeaderFence::Send(kube::Request request, Done done) {
  if (request.method == kube::Method::kGet || leads_()) {
    transport_.Send(std::move(request), std::move(done));
    return;
  }
  // Not inside Send, as every transport.
  timer_.After(absl::ZeroDuration(), [done = std::move(done)] {
    done(absl::FailedPreconditionError("not sent: this process doesn't lead"));
  });
}

std::unique_ptr<kube::Stream> LeaderFence::Watch(kube::Request request, OnLine on_line,
                                                 OnEnd on_end) {
  return transport_.Watch(std::move(request), std::move(on_line), std::move(on_end));
}

}  // namespace muster::extender
