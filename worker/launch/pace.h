// When a job stands still: nobody in this pod has done anything for longer than this job ever
// paused.
//
// A job that computes, reads, writes or prints anywhere is at work, however long a step takes. What
// is learned is how long everybody is quiet at once in the ordinary course of things (a slow store,
// a barrier): `factor` times the longest such pause that came again is the limit, or
// `factor_of_one` times one that came once, as at the start. Before it has worked for a while there
// is nothing to learn from, and the limit is `at_first`.
#pragma once

#include <set>

#include "absl/time/time.h"

namespace muster::worker {

struct PaceOptions {
  absl::Duration least = absl::Seconds(40);
  absl::Duration at_first = absl::Minutes(5);
  absl::Duration most = absl::Minutes(30);
  double factor = 10;
  double factor_of_one = 3;
};

class Pace {
 public:
  explicit Pace(const PaceOptions& options) : options_(options) {}

  // What was seen since the last call: the ranks that did something, of how many. `now` never goes
  // back. If much more time has passed than between other calls, this process itself was stopped,
  // and the pause counts for nothing.
  void See(absl::Duration now, const std::set<int>& active, size_t ranks);

  // Since somebody did something.
  absl::Duration quiet() const { return quiet_; }
  // The longest pause so far that ended.
  absl::Duration longest_pause() const { return longest_pause_; }
  absl::Duration limit() const;
  bool StandsStill() const { return quiet_ >= limit(); }

 private:
  const PaceOptions options_;
  absl::Duration last_ = absl::ZeroDuration();
  absl::Duration quiet_ = absl::ZeroDuration();
  absl::Duration longest_pause_ = absl::ZeroDuration();
  absl::Duration second_longest_pause_ = absl::ZeroDuration();
  int looks_at_work_ = 0;  // in which every rank did something
};

}  // namespace muster::worker
