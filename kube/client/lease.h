// Leader election on a coordination.k8s.io/v1 Lease, without threads or I/O of its own.
//
// The rules of k8s.io/client-go v0.34 tools/leaderelection, so that client-go's electors can share
// the Lease: the holder renews it every retry_period; another may take it once it has seen it
// unchanged, by its own clock, for the Lease's duration. A leader that hasn't renewed for
// renew_deadline is none any more, whether or not anybody has asked: the time counts from when the
// last successful renewal was sent. Every write is a merge patch with the resourceVersion it was
// decided on, so what others keep in the object stays. A Lease is no fencing token: what a former
// leader has sent may still arrive.
//
// lease_runner.h drives it with a Transport and a Timer.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kube/api.h"

namespace muster::kube {

struct LeaseOptions {
  std::string name_space;
  std::string name;
  std::string identity;  // of this process, unique among the candidates
  // A holder whose identity begins so was this process's own former life and is dead: its Lease is
  // taken at once. Empty: that can't be told.
  std::string former{};
  // As deploy/base/scheduler-config.yaml has them for kube-scheduler.
  absl::Duration duration = absl::Seconds(6);
  absl::Duration renew_deadline = absl::Seconds(4);
  absl::Duration retry_period = absl::Seconds(1);
};

// InvalidArgument naming the option unless duration > renew_deadline > 1.2 x retry_period >= 0 and
// the names are there.
absl::Status Validate(const LeaseOptions& options);

// Not thread-safe. Times are a clock that never steps back.
class LeaderElection {
 public:
  // `options` must be valid. `seed` spreads the candidates' attempts.
  explicit LeaderElection(LeaseOptions options, uint64_t seed = std::random_device()());

  // The request to send now, if one is due. Its answer goes to OnAnswer; until then there is no
  // other.
  std::optional<Request> Tick(absl::Time now);
  void OnAnswer(absl::Time now, const absl::StatusOr<Response>& answer);
  // When Tick next has something to do; InfiniteFuture while an answer is awaited and when stopped.
  absl::Time NextTick() const;

  bool IsLeader(absl::Time now) const { return now < leading_until_; }
  // InfinitePast when not leading.
  absl::Time leading_until() const { return leading_until_; }
  // Grows each time the lead is taken.
  uint64_t term() const { return term_; }
  // Who holds the Lease as last seen; empty if nobody, or nothing has been seen yet.
  const std::string& holder() const { return seen_.holder; }
  // How often it has passed to another, as it says; nullopt before it was seen.
  std::optional<int64_t> transitions() const { return seen_.transitions; }
  // Why the last attempt failed; OK otherwise.
  const absl::Status& last_error() const { return last_error_; }

  // Stops leading at once. Tick then gives the lease back, if it was held; after that, stopped().
  void Stop(absl::Time now);
  bool stopped() const { return stopping_ && pending_ == Pending::kNone && !holds_lease_; }

 private:
  enum class Pending { kNone, kGet, kCreate, kRenew, kRelease };
  // What the Lease's spec said when it was last seen.
  struct Seen {
    std::string resource_version;
    std::string holder;
    std::string renew_time;
    std::string acquire_time;
    std::optional<int64_t> transitions = std::nullopt;
    absl::Duration duration = absl::ZeroDuration();
  };

  Request Get();
  Request Create(absl::Time now);
  Request Renew(absl::Time now);
  Request Release(absl::Time now);
  Request MakeRequest(Pending kind, Method method, bool named);
  void OnGet(absl::Time now, const Response& response);
  void OnWritten(absl::Time now, const Response& response);
  void OnFailed(absl::Time now, const absl::Status& error);
  absl::Status See(absl::Time now, const std::string& json);
  bool MayTake(absl::Time now) const;
  void TryAgainLater(absl::Time now);

  const LeaseOptions options_;
  std::mt19937_64 random_;
  Pending pending_ = Pending::kNone;
  absl::Time sent_at_ = absl::InfinitePast();
  absl::Time next_attempt_ = absl::InfinitePast();
  bool must_look_ = true;     // what was seen may be out of date
  bool exists_ = true;        // false once the server has said that there is no such Lease
  bool holds_lease_ = false;  // by what was last seen, whether or not in time
  bool stopping_ = false;
  Seen seen_;
  absl::Time seen_at_ = absl::InfinitePast();  // when it last changed, by our clock
  absl::Time leading_until_ = absl::InfinitePast();
  uint64_t term_ = 0;
  absl::Status last_error_;
};

}  // namespace muster::kube
