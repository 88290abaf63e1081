#include "coscheduling/in_flight.h"

#include <algorithm>
#include <utility>

namespace muster::coscheduling {

namespace {
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(10);

absl::Duration PauseAfter(int failures) {
  return std::min(kFirstPause * (1 << std::min(failures - 1, 10)), kLongestPause);
}
}  // namespace

bool InFlight::MayStart(const std::string& target, absl::Time now) const {
  if (under_way_.contains(target)) return false;
  auto it = pauses_.find(target);
  return it == pauses_.end() || it->second.until <= now;
}

bool InFlight::IsUnderWay(const std::string& target) const { return under_way_.contains(target); }

uint64_t InFlight::Start(const std::string& target, OnFinish on_finish) {
  const uint64_t id = next_id_++;
  under_way_[target] = id;
  targets_by_id_[id] = {target, std::move(on_finish)};
  return id;
}

void InFlight::Finish(uint64_t id, const absl::Status& status, absl::Time now) {
  auto it = targets_by_id_.find(id);
  if (it == targets_by_id_.end()) return;
  Entry entry = std::move(it->second);
  targets_by_id_.erase(it);
  under_way_.erase(entry.target);
  if (status.ok()) {
    pauses_.erase(entry.target);
  } else {
    Pause& pause = pauses_[entry.target];
    pause.until = now + PauseAfter(++pause.failures);
  }
  if (entry.on_finish) entry.on_finish(status, now);
}

absl::Time InFlight::PausedUntil(const std::string& target) const {
  auto it = pauses_.find(target);
  return it == pauses_.end() ? absl::InfinitePast() : it->second.until;
}

int InFlight::Failures(const std::string& target) const {
  auto it = pauses_.find(target);
  return it == pauses_.end() ? 0 : it->second.failures;
}

absl::Time InFlight::NextRetry(absl::Time now) const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [target, pause] : pauses_) {
    if (pause.until > now) next = std::min(next, pause.until);
  }
  return next;
}

void InFlight::Prune(absl::Time now) {
  absl::erase_if(pauses_,
                 [now](const auto& entry) { return entry.second.until + absl::Minutes(1) < now; });
}

}  // namespace muster::coscheduling
