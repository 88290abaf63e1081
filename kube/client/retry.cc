#include "kube/client/retry.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace muster::kube {
namespace {

bool MayBeDoneTwice(const Request& request, const RetryPolicy& policy) {
  switch (request.method) {
    case Method::kGet:
    case Method::kPut:
    case Method::kDelete:
      return true;
    case Method::kPatch:
      return policy.carries_precondition || request.content_type != kJsonPatch;
    case Method::kPost:
      return policy.carries_precondition;
  }
  return false;
}

bool IsServerTrouble(int status) {
  return status == 500 || status == 502 || status == 503 || status == 504;
}

}  // namespace

bool MayRetry(const Request& request, const RetryPolicy& policy,
              const absl::StatusOr<Response>& answer) {
  if (answer.ok()) {
    if (answer->status == 429) return true;
    if (!IsServerTrouble(answer->status)) return false;
    return answer->retry_after.has_value() || MayBeDoneTwice(request, policy);
  }
  switch (answer.status().code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      return true;
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnknown:
      return MayBeDoneTwice(request, policy);
    default:
      return false;
  }
}

struct RetryingSender::Attempt {
  Request request;
  RetryPolicy policy;
  Transport::Done done;
  Backoff backoff;
  absl::Time deadline;
  int number = 0;
  absl::StatusOr<Response> last = absl::UnknownError("not sent yet");
};

class RetryingSender::State : public std::enable_shared_from_this<State> {
 public:
  State(Transport& transport, Timer& timer, size_t max_waiting)
      : transport_(transport), timer_(timer), max_waiting_(max_waiting) {}

  void Start(Request request, RetryPolicy policy, Transport::Done done) {
    const absl::Time deadline = timer_.Now() + policy.budget;
    Try(std::make_shared<Attempt>(
        Attempt{std::move(request), policy, std::move(done), Backoff(policy.backoff), deadline}));
  }

  void Close() {
    std::map<std::shared_ptr<Attempt>, Timer::Id> waiting;
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
      waiting.swap(waiting_);
    }
    for (auto& [attempt, alarm] : waiting) {
      timer_.Cancel(alarm);
      attempt->done(std::move(attempt->last));
    }
  }

  uint64_t retries() const {
    std::lock_guard lock(mutex_);
    return retries_;
  }
  size_t waiting() const {
    std::lock_guard lock(mutex_);
    return waiting_.size();
  }

 private:
  void Try(std::shared_ptr<Attempt> attempt) {
    Request request = attempt->request;
    request.timeout = std::min(request.timeout, attempt->deadline - timer_.Now());
    ++attempt->number;
    transport_.Send(std::move(request),
                    [state = weak_from_this(), attempt](absl::StatusOr<Response> answer) mutable {
                      const auto alive = state.lock();
                      if (alive && alive->Again(attempt, answer)) return;
                      attempt->done(std::move(answer));
                    });
  }

  // Whether another attempt has been scheduled.
  bool Again(const std::shared_ptr<Attempt>& attempt, absl::StatusOr<Response>& answer) {
    if (attempt->number >= attempt->policy.max_attempts) return false;
    if (!MayRetry(attempt->request, attempt->policy, answer)) return false;
    absl::Duration pause = attempt->backoff.Next();
    if (answer.ok() && answer->retry_after) pause = std::max(pause, *answer->retry_after);
    std::lock_guard lock(mutex_);
    if (closed_ || timer_.Now() + pause >= attempt->deadline) return false;
    if (waiting_.size() >= max_waiting_) return false;
    attempt->last = std::move(answer);
    ++retries_;
    waiting_[attempt] = timer_.After(pause, [state = weak_from_this(), attempt] {
      if (const auto alive = state.lock()) alive->Resume(attempt);
    });
    return true;
  }

  void Resume(const std::shared_ptr<Attempt>& attempt) {
    {
      std::lock_guard lock(mutex_);
      if (waiting_.erase(attempt) == 0) return;
    }
    Try(attempt);
  }

  Transport& transport_;
  Timer& timer_;
  const size_t max_waiting_;
  mutable std::mutex mutex_;
  std::map<std::shared_ptr<Attempt>, Timer::Id> waiting_;
  uint64_t retries_ = 0;
  bool closed_ = false;
};

RetryingSender::RetryingSender(Transport& transport, Timer& timer, size_t max_waiting)
    : state_(std::make_shared<State>(transport, timer, max_waiting)) {}

RetryingSender::~RetryingSender() { state_->Close(); }

void RetryingSender::Send(Request request, RetryPolicy policy, Transport::Done done) {
  state_->Start(std::move(request), policy, std::move(done));
}

uint64_t RetryingSender::retries() const { return state_->retries(); }
size_t RetryingSender::waiting() const { return state_->waiting(); }

}  // namespace muster::kube
