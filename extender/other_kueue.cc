#include "extender/other_kueue.h"

#include <spdlog/spdlog.h>

#include <mutex>
#include <utility>

#include "fmt/format.h"

namespace muster::extender {
namespace {

constexpr absl::Duration kLookInterval = absl::Seconds(2);
constexpr absl::Duration kTrustTime = absl::Seconds(20);
constexpr std::string_view kNobody = "\n";  // begins no identity: Muster never is the holder

}  // namespace

// What the transport's thread leaves for the owner.
struct OtherKueue::Inbox {
  std::mutex mutex;
  std::optional<absl::StatusOr<kube::Response>> answer;
};

OtherKueue::OtherKueue(kube::Transport& transport, std::string name_space, std::string name)
    : transport_(transport),
      lease_(name_space + "/" + name),
      follower_({.name_space = std::move(name_space),
                 .name = std::move(name),
                 .holder_prefix = std::string(kNobody),
                 .look_interval = kLookInterval,
                 .vacant_look_interval = kLookInterval,
                 .trust_time = kTrustTime}),
      inbox_(std::make_shared<Inbox>()) {}

std::optional<quota::Wait> OtherKueue::Tick(absl::Time now) {
  std::optional<absl::StatusOr<kube::Response>> answer;
  {
    const std::lock_guard lock(inbox_->mutex);
    answer.swap(inbox_->answer);
  }
  if (answer) {
    follower_.OnAnswer(now, *answer);
    answered_ = true;
  }
  if (std::optional<kube::Request> look = follower_.Tick(now)) {
    transport_.Send(*std::move(look), [inbox = inbox_](absl::StatusOr<kube::Response> response) {
      const std::lock_guard lock(inbox->mutex);
      inbox->answer = std::move(response);
    });
  }
  quota::Wait verdict = Verdict(now);
  if (told_ == verdict.message) return std::nullopt;
  told_ = verdict.message;
  if (running_) spdlog::warn("{}", verdict.message);
  return verdict;
}

quota::Wait OtherKueue::Verdict(absl::Time now) {
  running_ = answered_ && follower_.WhyNoLeader(now).empty();
  if (!answered_) {
    return {quota::WaitCode::kAnotherKueue,
            fmt::format("whether another Kueue runs (Lease {}) isn't known yet", lease_), ""};
  }
  if (!running_) {
    if (follower_.failed_looks() > 0 && failed_before_ == 0) {
      spdlog::warn("whether another Kueue runs isn't known: {}", follower_.WhyNoLeader(now));
    }
    failed_before_ = follower_.failed_looks();
    return {};
  }
  return {quota::WaitCode::kAnotherKueue,
          fmt::format("another Kueue is running: {} holds Lease {}; two that admit from the same "
                      "queues would each count only their own",
                      follower_.holder(), lease_),
          "scale Kueue's Deployment to 0 (docs/from-kueue.md), or set "
          "quota: kueue"};
}

}  // namespace muster::extender
