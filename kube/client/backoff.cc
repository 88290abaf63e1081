#include "kube/client/backoff.h"

#include <algorithm>

namespace muster::kube {

Backoff::Backoff(BackoffOptions options, uint64_t seed)
    : options_(options), pause_(options.first), random_(seed) {}

absl::Duration Backoff::Next() {
  const absl::Duration pause = pause_;
  pause_ = std::min(pause_ * options_.factor, options_.longest);
  return pause * std::uniform_real_distribution<double>(0.5, 1.0)(random_);
}

void Backoff::Reset() { pause_ = options_.first; }

}  // namespace muster::kube
