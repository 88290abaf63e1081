#include "kube/client/lease_runner.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <set>
#include <utility>

namespace muster::kube {

class LeaseRunner::State : public std::enable_shared_from_this<State> {
 public:
  State(Transport& transport, Timer& timer, LeaseOptions options, std::function<void(bool)> changed,
        uint64_t seed)
      : transport_(transport),
        timer_(timer),
        election_(std::move(options), seed),
        changed_(std::move(changed)) {}

  void Pump() {
    std::lock_guard lock(mutex_);
    PumpLocked();
  }

  void Stop() {
    std::lock_guard lock(mutex_);
    election_.Stop(timer_.Now());
    PumpLocked();
  }

  void Close() {
    std::set<Timer::Id> alarms;
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
      leading_until_ = kNever;
      alarms.swap(alarms_);
    }
    for (const Timer::Id alarm : alarms) timer_.Cancel(alarm);
  }

  bool AwaitStopped(absl::Duration patience) {
    std::unique_lock lock(mutex_);
    return stopped_.wait_for(lock, absl::ToChronoNanoseconds(patience),
                             [this] { return election_.stopped(); });
  }

  bool IsLeader() const { return absl::ToUnixNanos(timer_.Now()) < leading_until_; }

  LeaseStatus Status() const {
    std::lock_guard lock(mutex_);
    LeaseStatus status;
    status.leading = IsLeader();
    status.transitions = election_.transitions();
    status.holder = election_.holder();
    status.leading_until = election_.leading_until();
    status.last_error = election_.last_error();
    return status;
  }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

  void PumpLocked() {
    if (closed_) return;
    const absl::Time now = timer_.Now();
    if (auto request = election_.Tick(now)) {
      transport_.Send(*std::move(request),
                      [state = weak_from_this()](absl::StatusOr<Response> answer) {
                        if (const auto alive = state.lock()) alive->OnAnswer(answer);
                      });
    }
    Report(now);
    if (election_.stopped()) stopped_.notify_all();
    Arm(now);
  }

  void OnAnswer(const absl::StatusOr<Response>& answer) {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    election_.OnAnswer(timer_.Now(), answer);
    PumpLocked();
  }

  void Report(absl::Time now) {
    const bool leading = election_.IsLeader(now);
    // A new term without a gap seen from here is a loss all the same.
    const bool new_term = leading && reported_ && election_.term() != reported_term_;
    leading_until_ = leading ? absl::ToUnixNanos(election_.leading_until()) : kNever;
    reported_term_ = election_.term();
    if (new_term) changed_(false);
    if (new_term || leading != reported_) {
      reported_ = leading;
      changed_(leading);
    }
  }

  // Alarms that are no longer needed stay set and find nothing to do: each renewal leaves at most
  // one behind, for at most the renew deadline.
  void Arm(absl::Time now) {
    absl::Time next = election_.NextTick();
    if (reported_) next = std::min(next, election_.leading_until());
    if (next == absl::InfiniteFuture() || (armed_for_ > now && armed_for_ <= next)) return;
    armed_for_ = std::max(next, now);
    const auto id = std::make_shared<Timer::Id>(0);
    *id = timer_.After(armed_for_ - now, [state = weak_from_this(), id] {
      const auto alive = state.lock();
      if (!alive) return;
      std::lock_guard lock(alive->mutex_);
      alive->alarms_.erase(*id);
      alive->armed_for_ = absl::InfinitePast();
      alive->PumpLocked();
    });
    alarms_.insert(*id);
  }

  Transport& transport_;
  Timer& timer_;
  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  LeaderElection election_;
  const std::function<void(bool)> changed_;
  std::set<Timer::Id> alarms_;
  absl::Time armed_for_ = absl::InfinitePast();
  bool reported_ = false;
  uint64_t reported_term_ = 0;
  bool closed_ = false;
  std::atomic<int64_t> leading_until_ = kNever;
};

LeaseRunner::LeaseRunner(Transport& transport, Timer& timer, LeaseOptions options,
                         std::function<void(bool)> changed, uint64_t seed)
    : state_(
          std::make_shared<State>(transport, timer, std::move(options), std::move(changed), seed)) {
  state_->Pump();
}

LeaseRunner::~LeaseRunner() { state_->Close(); }

bool LeaseRunner::IsLeader() const { return state_->IsLeader(); }
LeaseStatus LeaseRunner::Status() const { return state_->Status(); }
void LeaseRunner::Stop() { state_->Stop(); }
bool LeaseRunner::AwaitStopped(absl::Duration patience) { return state_->AwaitStopped(patience); }

}  // namespace muster::kube
