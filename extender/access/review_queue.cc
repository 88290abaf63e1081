#include "extender/access/review_queue.h"

#include <optional>
#include <utility>

namespace muster::extender {

bool ReviewQueue::Ask(const std::string& source, kube::Request request,
                      kube::Transport::Done done) {
  {
    const std::lock_guard lock(mutex_);
    if (in_flight_ >= options_.in_flight) {
      const auto of = waiting_of_.find(source);
      if (waiting_.size() >= options_.waiting) return false;
      if (of != waiting_of_.end() && of->second >= options_.waiting_of_one) return false;
      ++waiting_of_[source];
      waiting_.push_back({source, std::move(request), std::move(done)});
      return true;
    }
    ++in_flight_;
  }
  Send(std::move(request), std::move(done));
  return true;
}

void ReviewQueue::Send(kube::Request request, kube::Transport::Done done) {
  transport_.Send(std::move(request),
                  [this, done = std::move(done)](absl::StatusOr<kube::Response> answer) {
                    OnAnswer();
                    done(std::move(answer));
                  });
}

void ReviewQueue::OnAnswer() {
  std::optional<Waiting> next;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) {
      --in_flight_;
      return;
    }
    next = std::move(waiting_.front());
    waiting_.pop_front();
    const auto of = waiting_of_.find(next->source);
    if (--of->second == 0) waiting_of_.erase(of);
  }
  Send(std::move(next->request), std::move(next->done));
}

void ReviewQueue::Drop() {
  const std::lock_guard lock(mutex_);
  waiting_.clear();
  waiting_of_.clear();
}

ReviewQueue::Stats ReviewQueue::stats() const {
  const std::lock_guard lock(mutex_);
  return {in_flight_, waiting_.size()};
}

}  // namespace muster::extender
