#include "kube/client/lease.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "kube/objects/json_value.h"
#include "kube/objects/time_text.h"

namespace muster::kube {
namespace {

// As client-go: what must fit between two attempts of a candidate, and how far apart they may be.
constexpr double kJitterFactor = 1.2;

}  // namespace

absl::Status Validate(const LeaseOptions& options) {
  if (options.name_space.empty()) return absl::InvalidArgumentError("lease namespace is empty");
  if (options.name.empty()) return absl::InvalidArgumentError("lease name is empty");
  if (options.identity.empty()) return absl::InvalidArgumentError("lease identity is empty");
  if (options.duration < absl::Seconds(1)) {
    return absl::InvalidArgumentError(fmt::format("lease duration is {}, must be at least 1s",
                                                  absl::FormatDuration(options.duration)));
  }
  if (options.duration <= options.renew_deadline) {
    return absl::InvalidArgumentError(fmt::format(
        "lease duration is {}, must be longer than the renew deadline of {}",
        absl::FormatDuration(options.duration), absl::FormatDuration(options.renew_deadline)));
  }
  if (options.retry_period < absl::ZeroDuration() ||
      options.renew_deadline <= kJitterFactor * options.retry_period) {
    return absl::InvalidArgumentError(fmt::format(
        "lease retry period is {}, must be at least 0s and 1.2 times it shorter than the renew "
        "deadline of {}",
        absl::FormatDuration(options.retry_period), absl::FormatDuration(options.renew_deadline)));
  }
  return absl::OkStatus();
}

LeaderElection::LeaderElection(LeaseOptions options, uint64_t seed)
    : options_(std::move(options)), random_(seed) {}

absl::Time LeaderElection::NextTick() const {
  if (pending_ != Pending::kNone) return absl::InfiniteFuture();
  if (stopping_) return holds_lease_ ? absl::InfinitePast() : absl::InfiniteFuture();
  return next_attempt_;
}

std::optional<Request> LeaderElection::Tick(absl::Time now) {
  if (pending_ != Pending::kNone || now < NextTick()) return std::nullopt;
  sent_at_ = now;
  if (stopping_) return Release(now);
  if (!exists_) return Create(now);
  if (must_look_ || !MayTake(now)) return Get();
  return Renew(now);
}

bool LeaderElection::MayTake(absl::Time now) const {
  const bool former = !options_.former.empty() && seen_.holder.starts_with(options_.former);
  return seen_.holder.empty() || seen_.holder == options_.identity || former ||
         seen_at_ + seen_.duration <= now;
}

Request LeaderElection::MakeRequest(Pending kind, Method method, bool named) {
  pending_ = kind;
  Request request;
  request.method = method;
  request.path = fmt::format("/apis/coordination.k8s.io/v1/namespaces/{}/leases{}{}",
                             options_.name_space, named ? "/" : "", named ? options_.name : "");
  // Two attempts fit before the deadline.
  request.timeout = options_.renew_deadline / 2;
  request.urgent = true;
  return request;
}

Request LeaderElection::Get() { return MakeRequest(Pending::kGet, Method::kGet, true); }

Request LeaderElection::Create(absl::Time now) {
  Request request = MakeRequest(Pending::kCreate, Method::kPost, false);
  request.content_type = kJson;
  const nlohmann::json lease = {
      {"apiVersion", "coordination.k8s.io/v1"},
      {"kind", "Lease"},
      {"metadata", {{"name", options_.name}, {"namespace", options_.name_space}}},
      {"spec",
       {{"holderIdentity", options_.identity},
        {"leaseDurationSeconds", absl::ToInt64Seconds(options_.duration)},
        {"acquireTime", MicroTimeText(now)},
        {"renewTime", MicroTimeText(now)},
        {"leaseTransitions", 0}}}};
  request.body = lease.dump();
  return request;
}

Request LeaderElection::Renew(absl::Time now) {
  Request request = MakeRequest(Pending::kRenew, Method::kPatch, true);
  request.content_type = kMergePatch;
  const bool mine = seen_.holder == options_.identity;
  nlohmann::json patch = {{"metadata", {{"resourceVersion", seen_.resource_version}}},
                          {"spec",
                           {{"holderIdentity", options_.identity},
                            {"leaseDurationSeconds", absl::ToInt64Seconds(options_.duration)},
                            {"renewTime", MicroTimeText(now)}}}};
  if (!mine) {
    patch["spec"]["acquireTime"] = MicroTimeText(now);
    patch["spec"]["leaseTransitions"] = seen_.transitions.value_or(0) + 1;
  }
  request.body = patch.dump();
  return request;
}

// Leaves a Lease of one second without a holder, so that the next candidate needn't wait.
Request LeaderElection::Release(absl::Time now) {
  Request request = MakeRequest(Pending::kRelease, Method::kPatch, true);
  request.content_type = kMergePatch;
  const nlohmann::json patch = {{"metadata", {{"resourceVersion", seen_.resource_version}}},
                                {"spec",
                                 {{"holderIdentity", nullptr},
                                  {"leaseDurationSeconds", 1},
                                  {"acquireTime", MicroTimeText(now)},
                                  {"renewTime", MicroTimeText(now)}}}};
  request.body = patch.dump();
  return request;
}

void LeaderElection::OnAnswer(absl::Time now, const absl::StatusOr<Response>& answer) {
  const Pending kind = std::exchange(pending_, Pending::kNone);
  if (kind == Pending::kRelease) {
    // Tried once: the Lease runs out by itself.
    holds_lease_ = false;
    last_error_ = answer.ok() ? ToStatus(*answer) : answer.status();
    return;
  }
  if (!answer.ok()) return OnFailed(now, answer.status());
  if (answer->ok()) return kind == Pending::kGet ? OnGet(now, *answer) : OnWritten(now, *answer);
  if (answer->status == 404 && kind != Pending::kCreate) {
    // Never there, or deleted: a new one is made at once.
    exists_ = false;
    holds_lease_ = false;
    leading_until_ = absl::InfinitePast();
    next_attempt_ = now;
    return;
  }
  if (answer->status == 409) {
    // Somebody has written since: another holder, or a mere annotation.
    exists_ = true;
    must_look_ = true;
    last_error_ = ToStatus(*answer);
    next_attempt_ = now;
    return;
  }
  OnFailed(now, ToStatus(*answer));
}

void LeaderElection::OnGet(absl::Time now, const Response& response) {
  if (const auto status = See(now, response.body); !status.ok()) return OnFailed(now, status);
  last_error_ = absl::OkStatus();
  must_look_ = false;
  exists_ = true;
  holds_lease_ = seen_.holder == options_.identity;
  if (!holds_lease_) leading_until_ = absl::InfinitePast();
  if (MayTake(now)) {
    next_attempt_ = now;
  } else {
    TryAgainLater(now);
  }
}

void LeaderElection::OnWritten(absl::Time now, const Response& response) {
  if (const auto status = See(now, response.body); !status.ok()) {
    must_look_ = true;
    return OnFailed(now, status);
  }
  last_error_ = absl::OkStatus();
  must_look_ = false;
  exists_ = true;
  holds_lease_ = true;
  if (stopping_) return;
  const bool was_leader = IsLeader(now);
  leading_until_ = sent_at_ + options_.renew_deadline;
  if (!was_leader && IsLeader(now)) ++term_;
  next_attempt_ = sent_at_ + options_.retry_period;
}

void LeaderElection::OnFailed(absl::Time now, const absl::Status& error) {
  last_error_ = error;
  // A lost answer may belong to a write that was done.
  must_look_ = true;
  TryAgainLater(now);
}

void LeaderElection::TryAgainLater(absl::Time now) {
  absl::Duration pause = options_.retry_period;
  if (!IsLeader(now)) {
    pause += pause * kJitterFactor * std::uniform_real_distribution<double>(0, 1)(random_);
  }
  next_attempt_ = now + pause;
}

absl::Status LeaderElection::See(absl::Time now, const std::string& json) {
  JsonReader reader(json);
  const JsonValue root = reader.root();
  const JsonValue spec = root.Get("spec");
  Seen seen;
  seen.resource_version = root.Get("metadata").Get("resourceVersion").String();
  seen.holder = spec.Get("holderIdentity").String();
  seen.renew_time = spec.Get("renewTime").String();
  seen.acquire_time = spec.Get("acquireTime").String();
  seen.transitions = spec.Get("leaseTransitions").Int();
  seen.duration = absl::Seconds(spec.Get("leaseDurationSeconds").Int());
  if (!reader.status().ok()) return reader.status();
  if (seen.resource_version.empty()) {
    return absl::InvalidArgumentError("the Lease has no resourceVersion");
  }
  const bool changed = seen.holder != seen_.holder || seen.renew_time != seen_.renew_time ||
                       seen.acquire_time != seen_.acquire_time ||
                       seen.transitions != seen_.transitions || seen.duration != seen_.duration;
  if (changed || seen_at_ == absl::InfinitePast()) seen_at_ = now;
  seen_ = std::move(seen);
  return absl::OkStatus();
}

void LeaderElection::Stop(absl::Time now) {
  stopping_ = true;
  leading_until_ = absl::InfinitePast();
  next_attempt_ = now;
}

}  // namespace muster::kube
