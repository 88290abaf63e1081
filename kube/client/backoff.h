// Growing, jittered pauses between attempts.
#pragma once

#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace muster::kube {

// Pauses of first * factor^n up to `longest`, each drawn evenly from [pause/2, pause], so that
// clients that failed together don't come back together.
struct BackoffOptions {
  absl::Duration first = absl::Milliseconds(500);
  absl::Duration longest = absl::Seconds(30);
  double factor = 2;
};

// Not thread-safe.
class Backoff {
 public:
  explicit Backoff(BackoffOptions options, uint64_t seed = std::random_device()());

  absl::Duration Next();
  void Reset();

 private:
  BackoffOptions options_;
  absl::Duration pause_;
  std::mt19937_64 random_;
};

}  // namespace muster::kube
