// Label muster.dev/leading=true on this process's own pod while it leads, so that a Service can
// select the one replica that has answers.
//
// A state machine without a thread or a clock, as admission/webhook_registration.h: Tick sends what
// is due and reads what was answered. Written again every minute, should somebody have removed it;
// a patch that changes nothing costs the API server no write. Failures are tried again with growing
// pauses. A label that a killed process left is removed by its successor in the pod.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "absl/time/time.h"
#include "kube/api.h"
#include "kube/client/backoff.h"

namespace muster::extender {

inline constexpr const char* kLeadingLabel = "muster.dev/leading";

// One owner calls everything.
class LeaderLabel {
 public:
  // The transport must outlive this; answers that come later go nowhere.
  LeaderLabel(kube::Transport& transport, std::string name_space, std::string pod,
              uint64_t seed = std::random_device()());
  ~LeaderLabel();
  LeaderLabel(const LeaderLabel&) = delete;
  LeaderLabel& operator=(const LeaderLabel&) = delete;

  // At most one request is under way.
  void Tick(absl::Time now, bool leading);

 private:
  struct Inbox;

  void OnAnswer(absl::Time now, const absl::StatusOr<kube::Response>& answer);

  kube::Transport& transport_;
  const std::string path_;
  const std::shared_ptr<Inbox> inbox_;
  kube::Backoff failures_;
  std::optional<bool> sent_;   // under way
  std::optional<bool> shown_;  // what the pod says, as far as known
  absl::Time not_before_ = absl::InfinitePast();
  absl::Time next_refresh_ = absl::InfinitePast();
  std::string last_failure_;
};

}  // namespace muster::extender
