// Leading by somebody else's Lease: this process leads while the kube-scheduler beside it does.
//
// kube-scheduler calls the extender of its own pod, so of several Musters the one beside the
// leading kube-scheduler must decide. Its identity in the Lease is HOSTNAME_UUID (k8s.io/kubernetes
// v1.34 cmd/kube-scheduler/app/options/options.go, makeLeaderElectionConfig), and the containers of
// a pod share the host name. This class reads the Lease and writes nothing.
//
// The rules of k8s.io/client-go v0.34 tools/leaderelection as an onlooker sees them: a holder is
// alive until the Lease has stood unchanged, by our own clock, for the Lease's duration. A lead
// ends when a look shows another holder or none, when nobody is known to have renewed the Lease
// within its duration, and when no look has succeeded for trust_time. It was renewed after the last
// look that didn't show it yet, and others count from when they see it: they take it later than our
// lead ends. A Lease that is released, or that somebody else takes at once, they may take before
// our next look; what both write then is fenced by the epoch of the admission records.
//
// A state machine without thread or I/O; leadership.h drives it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kube/api.h"

namespace muster::extender {

struct LeaseFollowerOptions {
  std::string name_space;
  std::string name;
  // Ours is every holder whose identity begins with this: "HOSTNAME_".
  std::string holder_prefix;
  absl::Duration look_interval = absl::Seconds(1);
  // Between looks while no live holder is known: who leads next is waited for.
  absl::Duration vacant_look_interval = absl::Milliseconds(250);
  absl::Duration trust_time = absl::Seconds(10);
};

// Not thread-safe. Times are a clock that never steps back.
class LeaseFollower {
 public:
  explicit LeaseFollower(LeaseFollowerOptions options);

  // The look to send now, if one is due. Its answer goes to OnAnswer; until then there is no other.
  std::optional<kube::Request> Tick(absl::Time now);
  void OnAnswer(absl::Time now, const absl::StatusOr<kube::Response>& answer);

  bool IsLeader(absl::Time now) const { return now < leading_until_; }
  // InfinitePast when not leading.
  absl::Time leading_until() const { return leading_until_; }
  // As last seen; empty if nobody holds the Lease or nothing has been seen yet.
  const std::string& holder() const { return seen_.holder; }
  // How often it has passed to another, as it says; nullopt before it was seen.
  std::optional<int64_t> transitions() const { return seen_.transitions; }
  // "" while a live holder is known, ours or another; else why there is none.
  std::string WhyNoLeader(absl::Time now) const;
  // "" unless the Lease, which was read before, hasn't been for trust_time: the API server doesn't
  // tell what its store holds.
  std::string WhyOutOfTouch(absl::Time now) const;
  uint64_t failed_looks() const { return failed_looks_; }

 private:
  // What the Lease's spec said.
  struct Seen {
    std::string holder;
    std::string renew_time;
    std::string acquire_time;
    std::optional<int64_t> transitions = std::nullopt;
    absl::Duration duration = absl::ZeroDuration();

    friend bool operator==(const Seen&, const Seen&) = default;
  };

  void OnLease(const std::string& json);
  void OnFailed(const absl::Status& error);
  std::string LeaseName() const { return options_.name_space + "/" + options_.name; }

  const LeaseFollowerOptions options_;
  bool pending_ = false;
  absl::Time sent_at_ = absl::InfinitePast();
  absl::Time looked_at_ = absl::InfinitePast();  // when the last look that succeeded was sent
  bool absent_ = false;                          // then there was no such Lease
  Seen seen_;
  absl::Time alive_until_ = absl::InfinitePast();
  absl::Time renewed_until_ = absl::InfinitePast();  // no earlier may others take it
  absl::Time leading_until_ = absl::InfinitePast();
  absl::Status last_error_;  // of the last look
  uint64_t failed_looks_ = 0;
};

}  // namespace muster::extender
