#include "extender/lease_follower.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "kube/objects/json_value.h"

namespace muster::extender {

LeaseFollower::LeaseFollower(LeaseFollowerOptions options) : options_(std::move(options)) {}

std::optional<kube::Request> LeaseFollower::Tick(absl::Time now) {
  const absl::Duration interval =
      now < alive_until_ ? options_.look_interval : options_.vacant_look_interval;
  if (pending_ || now < sent_at_ + interval) return std::nullopt;
  pending_ = true;
  sent_at_ = now;
  kube::Request request;
  request.path = fmt::format("/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}",
                             options_.name_space, options_.name);
  // Two looks fit before the trust ends.
  request.timeout = options_.trust_time / 2;
  request.urgent = true;
  return request;
}

void LeaseFollower::OnAnswer(absl::Time now, const absl::StatusOr<kube::Response>& answer) {
  pending_ = false;
  if (!answer.ok()) {
    OnFailed(answer.status());
  } else if (answer->ok()) {
    OnLease(answer->body);
  } else if (answer->status == 404) {
    absent_ = true;
    looked_at_ = sent_at_;
    seen_ = {};
    alive_until_ = leading_until_ = absl::InfinitePast();
    last_error_ = absl::OkStatus();
  } else {
    OnFailed(kube::ToStatus(*answer));
  }
  if (!IsLeader(now)) leading_until_ = absl::InfinitePast();
}

void LeaseFollower::OnFailed(const absl::Status& error) {
  last_error_ = error;
  ++failed_looks_;
}

void LeaseFollower::OnLease(const std::string& json) {
  kube::JsonReader reader(json);
  const kube::JsonValue spec = reader.root().Get("spec");
  Seen seen;
  seen.holder = spec.Get("holderIdentity").String();
  seen.renew_time = spec.Get("renewTime").String();
  seen.acquire_time = spec.Get("acquireTime").String();
  seen.transitions = spec.Get("leaseTransitions").Int();
  seen.duration = absl::Seconds(spec.Get("leaseDurationSeconds").Int());
  if (!reader.status().ok()) return OnFailed(reader.status());
  last_error_ = absl::OkStatus();
  absent_ = false;
  // It was as it is now when the look was sent, or came to be so later: alive at least from then.
  if (seen != seen_) {
    alive_until_ = sent_at_ + seen.duration;
    // And wasn't yet when the look before was sent; after the first one there is nothing to go by.
    renewed_until_ = (looked_at_ == absl::InfinitePast() ? sent_at_ : looked_at_) + seen.duration;
  }
  looked_at_ = sent_at_;
  seen_ = std::move(seen);
  if (seen_.holder.empty()) alive_until_ = absl::InfinitePast();
  const bool ours = !seen_.holder.empty() && seen_.holder.starts_with(options_.holder_prefix);
  leading_until_ =
      ours ? std::min(renewed_until_, looked_at_ + options_.trust_time) : absl::InfinitePast();
}

std::string LeaseFollower::WhyOutOfTouch(absl::Time now) const {
  if (looked_at_ == absl::InfinitePast() || now < looked_at_ + options_.trust_time) return "";
  return fmt::format("Lease {} has not been read for {}: {}", LeaseName(),
                     absl::FormatDuration(options_.trust_time),
                     std::string(last_error_.ok() ? "no answer" : last_error_.message()));
}

std::string LeaseFollower::WhyNoLeader(absl::Time now) const {
  if (now < alive_until_) return "";
  std::string why;
  if (looked_at_ == absl::InfinitePast()) {
    why = fmt::format("Lease {} has not been read yet", LeaseName());
  } else if (absent_) {
    why = fmt::format("no scheduler leads: there is no Lease {}", LeaseName());
  } else if (seen_.holder.empty()) {
    why = fmt::format("no scheduler leads: Lease {} has no holder", LeaseName());
  } else {
    why = fmt::format("no scheduler leads: {} has not renewed Lease {} for more than {}",
                      seen_.holder, LeaseName(), absl::FormatDuration(seen_.duration));
  }
  if (!last_error_.ok()) why += fmt::format("; {}", std::string(last_error_.message()));
  return why;
}

}  // namespace muster::extender
