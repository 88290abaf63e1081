// How many requests may be under way at once, by what the server makes of them.
//
// As TCP finds out what a path takes: answers are judged in rounds, of as many as may be under way.
// A good round doubles the limit until the first sign of overload, and adds `step` afterwards; a
// sign halves it. Signs are 429, 503, 504, no answer in time, and a round whose answers took longer
// than `patience` on average. Requests that were sent before the last change don't judge the next
// one, so a burst of signs halves once; and a round in which the limit was never reached raises
// nothing, since it says nothing about more.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kube/api.h"

namespace muster::kube {

struct ConcurrencyOptions {
  size_t least = 8;  // at least 1
  size_t first = 64;
  size_t most = 128;
  size_t step = 4;
  // Half of what Kubernetes promises for 99 of 100 writes.
  absl::Duration patience = absl::Milliseconds(500);
};

// Not thread-safe.
class ConcurrencyLimit {
 public:
  // `most` goes before the other bounds.
  explicit ConcurrencyLimit(const ConcurrencyOptions& options);

  size_t limit() const { return limit_; }
  // An attempt sent at `sent` has ended at `now`, with so many under way, it included.
  void OnAnswer(absl::Time sent, absl::Time now, const absl::StatusOr<Response>& answer,
                size_t under_way);

 private:
  void BeginRound(absl::Time now);
  void Lower(absl::Time now);
  void Raise(absl::Time now);

  ConcurrencyOptions options_;
  size_t limit_;
  bool had_sign_ = false;
  // Of this round.
  absl::Time began_ = absl::InfinitePast();
  size_t answers_ = 0;
  absl::Duration took_;
  bool reached_ = false;
};

}  // namespace muster::kube
