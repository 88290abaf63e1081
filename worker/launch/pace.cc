#include "worker/launch/pace.h"

#include <algorithm>

namespace muster::worker {
namespace {

// Looks come about each second.
constexpr absl::Duration kStopped = absl::Seconds(15);
// From then on the job is past its start.
constexpr int kLooksAtWork = 5;

}  // namespace

void Pace::See(absl::Duration now, const std::set<int>& active, size_t ranks) {
  const absl::Duration passed = now - last_;
  last_ = now;
  if (passed > kStopped) {
    quiet_ = absl::ZeroDuration();
    return;
  }
  if (active.empty()) {
    quiet_ += passed;
    return;
  }
  second_longest_pause_ = std::max(second_longest_pause_, std::min(quiet_, longest_pause_));
  longest_pause_ = std::max(longest_pause_, quiet_);
  quiet_ = absl::ZeroDuration();
  if (ranks > 0 && active.size() == ranks) ++looks_at_work_;
}

absl::Duration Pace::limit() const {
  const absl::Duration pauses =
      std::max(options_.factor_of_one * longest_pause_, options_.factor * second_longest_pause_);
  const absl::Duration learned = std::clamp(pauses, options_.least, options_.most);
  return looks_at_work_ < kLooksAtWork ? std::max(learned, options_.at_first) : learned;
}

}  // namespace muster::worker
