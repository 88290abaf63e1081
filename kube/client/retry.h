// Sends again what may be sent again.
//
// Retried: what was certainly not carried out (no connection, no room in the transport's queue,
// 429, an answer that says Retry-After), and, for a request that may be carried out twice, any 5xx
// and any lost answer. A request may be carried out twice if it reads, replaces, deletes or merges,
// or if its caller says that a precondition in it (a UID, a resourceVersion, a chosen name) makes
// the second time harmless: the second time is then answered 409, which the caller has to
// understand.
#pragma once

#include <memory>

#include "kube/api.h"
#include "kube/client/backoff.h"
#include "kube/client/timer.h"

namespace muster::kube {

struct RetryPolicy {
  int max_attempts = 6;
  // From Send on: no attempt outlives it, and a pause that would reach past it isn't made.
  absl::Duration budget = absl::Seconds(30);
  BackoffOptions backoff = {absl::Milliseconds(100), absl::Seconds(5), 2};
  bool carries_precondition = false;
};

// Whether `answer` to `request` is worth another attempt, number and time left aside.
bool MayRetry(const Request& request, const RetryPolicy& policy,
              const absl::StatusOr<Response>& answer);

// Thread-safe. Transport and timer must outlive it.
class RetryingSender {
 public:
  // Past `max_waiting` requests that wait for their next attempt, one more isn't retried.
  RetryingSender(Transport& transport, Timer& timer, size_t max_waiting = 20'000);
  // Whatever waits for its next attempt ends with the answer it has, on this thread; what is under
  // way ends with the next answer.
  ~RetryingSender();
  RetryingSender(const RetryingSender&) = delete;
  RetryingSender& operator=(const RetryingSender&) = delete;

  // `done` runs exactly once with the last answer, on the transport's or the timer's thread.
  void Send(Request request, RetryPolicy policy, Transport::Done done);

  // Attempts beyond the first so far, and requests that wait for one now.
  uint64_t retries() const;
  size_t waiting() const;

 private:
  struct Attempt;
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::kube
