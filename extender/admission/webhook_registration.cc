#include "extender/admission/webhook_registration.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

namespace muster::extender {
namespace {

constexpr absl::Duration kRequestTimeout = absl::Seconds(10);
// A repair that lasts this long was not undone.
constexpr absl::Duration kRepairHolds = absl::Minutes(1);

}  // namespace

// What other threads leave for the owner, and what it publishes to them.
struct WebhookRegistration::Inbox {
  std::mutex mutex;
  std::optional<absl::StatusOr<kube::Response>> answer;
  bool changed = false;
  bool closed = false;
  absl::Status in_place;
  std::optional<std::string> other_install;
};

WebhookRegistration::WebhookRegistration(WebhookRegistrationOptions options,
                                         kube::Transport& transport, std::function<void()> wake)
    : options_(std::move(options)),
      transport_(transport),
      wake_(std::move(wake)),
      object_(ObjectFor(options_.webhook.purpose)),
      inbox_(std::make_shared<Inbox>()),
      random_(options_.seed),
      failures_(options_.backoff, options_.seed),
      repairs_(options_.repair_backoff, options_.seed + 1) {
  inbox_->in_place = absl::FailedPreconditionError(why_not_);
}

WebhookRegistration::~WebhookRegistration() {
  std::lock_guard lock(inbox_->mutex);
  inbox_->closed = true;
}

absl::Status WebhookRegistration::InPlace() const {
  std::lock_guard lock(inbox_->mutex);
  return inbox_->in_place;
}

std::optional<std::string> WebhookRegistration::OtherInstall() const {
  std::lock_guard lock(inbox_->mutex);
  return inbox_->other_install;
}

void WebhookRegistration::OnChanged() {
  {
    std::lock_guard lock(inbox_->mutex);
    inbox_->changed = true;
  }
  wake_();
}

void WebhookRegistration::SetCaBundle(const std::string& ca_bundle) {
  if (options_.webhook.ca_bundle == ca_bundle) return;
  options_.webhook.ca_bundle = ca_bundle;
  next_check_ = absl::InfinitePast();
}

void WebhookRegistration::SetLeading(bool leading) {
  if (options_.leading == leading) return;
  options_.leading = leading;
  next_check_ = absl::InfinitePast();
}

absl::Time WebhookRegistration::NextTick() const {
  absl::Time next = absl::InfiniteFuture();
  if (pending_ == Pending::kNone) next = std::max(next_check_, not_before_);
  if (in_place_) next = std::min({next, counts_from_, trusted_until_});
  return next;
}

void WebhookRegistration::Tick(absl::Time now) {
  std::optional<absl::StatusOr<kube::Response>> answer;
  {
    std::lock_guard lock(inbox_->mutex);
    answer.swap(inbox_->answer);
    if (std::exchange(inbox_->changed, false)) next_check_ = absl::InfinitePast();
  }
  if (answer) OnAnswer(now, std::exchange(pending_, Pending::kNone), *answer);
  if (in_place_ && now >= trusted_until_) {
    MarkNotInPlace(fmt::format("the webhook's registration could not be checked for {}",
                               absl::FormatDuration(options_.trust_time)));
  }
  if (in_place_ && now >= counts_from_) {
    counts_from_ = absl::InfiniteFuture();
    Publish(absl::OkStatus());
  }
  if (pending_ == Pending::kNone && now >= std::max(next_check_, not_before_)) Get();
}

void WebhookRegistration::Send(Pending pending, kube::Request request) {
  pending_ = pending;
  request.timeout = kRequestTimeout;
  transport_.Send(std::move(request),
                  [inbox = inbox_, wake = wake_](absl::StatusOr<kube::Response> answer) {
                    {
                      std::lock_guard lock(inbox->mutex);
                      if (inbox->closed) return;
                      inbox->answer = std::move(answer);
                    }
                    wake();
                  });
}

void WebhookRegistration::Get() {
  // What changes from now on may be missing in the answer: it is to be looked at again.
  next_check_ = absl::InfiniteFuture();
  kube::Request request;
  request.path = fmt::format("{}/{}", object_.collection, object_.name);
  Send(Pending::kGet, std::move(request));
}

void WebhookRegistration::Create(absl::Time now) {
  last_repair_ = now;
  kube::Request request;
  request.method = kube::Method::kPost;
  request.path = object_.collection;
  request.content_type = kube::kJson;
  request.body = NewWebhook(options_.webhook);
  Send(Pending::kCreate, std::move(request));
}

void WebhookRegistration::Write(absl::Time now, std::string patch) {
  last_repair_ = now;
  kube::Request request;
  request.method = kube::Method::kPatch;
  request.path = fmt::format("{}/{}", object_.collection, object_.name);
  request.content_type = kube::kMergePatch;
  request.body = std::move(patch);
  Send(Pending::kWrite, std::move(request));
}

void WebhookRegistration::OnAnswer(absl::Time now, Pending answered,
                                   const absl::StatusOr<kube::Response>& answer) {
  if (answer.ok() && answer->ok()) {
    OnObject(now, answer->body, answered != Pending::kGet);
    return;
  }
  const int status = answer.ok() ? answer->status : 0;
  if (answered == Pending::kGet && status == 404) {
    // Of a Service: whoever waits for another install to go waits for its own manifests, too.
    if (!options_.webhook.service || !OtherInstall()) PublishInstall("");
    registered_bundle_.clear();
    if (!options_.webhook.enabled) return OnAsWanted(now, /*written=*/false);
    SetRight(now, {}, "the webhook is not registered");
    return;
  }
  // Somebody was faster: created, changed or deleted it.
  if (answered != Pending::kGet && (status == 409 || status == 404) && ++conflicts_ == 1) {
    next_check_ = absl::InfinitePast();
    next_repair_ = absl::InfinitePast();
    return;
  }
  OnFailed(now, answered, answer);
}

void WebhookRegistration::OnFailed(absl::Time now, Pending failed,
                                   const absl::StatusOr<kube::Response>& answer) {
  const absl::Status status = answer.ok() ? kube::ToStatus(*answer) : answer.status();
  const char* verb = failed == Pending::kGet      ? "get"
                     : failed == Pending::kCreate ? "create"
                                                  : "patch";
  if (answer.ok() && answer->status < 500 && answer->status != 429 && !OtherInstall()) {
    PublishInstall("");
  }
  std::string failure = fmt::format("{} {}/{}: {}", verb, object_.resource, object_.name,
                                    std::string(status.message()));
  absl::Duration pause = failures_.Next();
  if (answer.ok() && answer->retry_after) pause = std::max(pause, *answer->retry_after);
  not_before_ = now + pause;
  next_check_ = absl::InfinitePast();
  if (failure != last_failure_) spdlog::warn("webhook: {}", failure);
  last_failure_ = std::move(failure);
  if (!in_place_) PublishWhyNot();
}

std::string WebhookRegistration::WhatIsMissing(const FoundWebhook& found) const {
  if (options_.leading) return found.difference;
  return options_.webhook.service ? found.bundle_difference : "";
}

void WebhookRegistration::OnObject(absl::Time now, const std::string& json, bool written) {
  const absl::StatusOr<FoundWebhook> found = InspectWebhook(json, options_.webhook);
  if (!found.ok()) {
    OnFailed(now, written ? Pending::kWrite : Pending::kGet, found.status());
    return;
  }
  not_before_ = absl::InfinitePast();
  registered_bundle_ = found->ca_bundle;
  LookAgainLater(now);
  PublishInstall(found->other_install);
  if (!found->other_install.empty()) {
    failures_.Reset();
    last_failure_.clear();
    MarkNotInPlace(found->other_install);
    return;
  }
  const std::string difference = WhatIsMissing(*found);
  if (difference.empty()) return OnAsWanted(now, written);
  if (written) {
    // An API server that drops what it doesn't know: another try now would end the same.
    next_repair_ = std::max(next_repair_, now + repairs_.Next());
  }
  SetRight(now, *found, difference);
}

void WebhookRegistration::LookAgainLater(absl::Time now) {
  // A change that was told of while the request was under way has made this InfinitePast.
  if (next_check_ != absl::InfiniteFuture()) return;
  next_check_ =
      now + options_.check_interval * std::uniform_real_distribution<double>(0.9, 1.1)(random_);
}

void WebhookRegistration::OnAsWanted(absl::Time now, bool written) {
  // Not before: a write that keeps failing between successful reads has failed all the same.
  not_before_ = absl::InfinitePast();
  conflicts_ = 0;
  failures_.Reset();
  last_failure_.clear();
  LookAgainLater(now);
  MarkInPlace(now, written);
}

bool WebhookRegistration::MayRepair(absl::Time now) {
  if (now >= last_repair_ + kRepairHolds) {
    repairs_.Reset();
    next_repair_ = absl::InfinitePast();
  }
  if (now < next_repair_) return false;
  next_repair_ = now + repairs_.Next();
  return true;
}

void WebhookRegistration::SetRight(absl::Time now, const FoundWebhook& found,
                                   const std::string& difference) {
  const bool absent = found.resource_version.empty();
  const bool service = options_.webhook.service.has_value();
  const bool whole = options_.leading && (!service || found.of_version_before);
  const bool mine =
      whole || (service && !found.webhooks.empty() && !found.bundle_difference.empty());
  if (!mine) {
    failures_.Reset();
    last_failure_.clear();
    MarkNotInPlace(difference + (service ? "; apply Muster's chart or manifests"
                                         : "; the leader puts it right"));
    next_check_ = std::min(next_check_, now + options_.check_interval);
    return;
  }
  MarkNotInPlace(difference);
  if (!MayRepair(now)) {
    next_check_ = next_repair_;
    return;
  }
  next_check_ = absl::InfiniteFuture();
  if (absent) return Create(now);
  spdlog::info("webhook: putting {} right: {}", object_.name,
               whole ? difference : found.bundle_difference);
  Write(now, whole ? RepairPatch(found, options_.webhook, now)
                   : BundlePatch(found, options_.webhook, now));
}

void WebhookRegistration::MarkInPlace(absl::Time now, bool written) {
  trusted_until_ = now + options_.trust_time;
  if (in_place_) return;
  in_place_ = true;
  counts_from_ = written ? now + options_.settle_time : now;
  spdlog::info("webhook: {} is in place", object_.name);
}

void WebhookRegistration::MarkNotInPlace(std::string why) {
  if (in_place_ || why != why_not_)
    spdlog::warn("webhook: {} is not in place: {}", object_.name, why);
  in_place_ = false;
  counts_from_ = absl::InfiniteFuture();
  why_not_ = std::move(why);
  PublishWhyNot();
}

void WebhookRegistration::PublishWhyNot() {
  Publish(absl::FailedPreconditionError(
      last_failure_.empty() ? why_not_ : fmt::format("{}; {}", why_not_, last_failure_)));
}

void WebhookRegistration::PublishInstall(std::string other) {
  std::lock_guard lock(inbox_->mutex);
  inbox_->other_install = std::move(other);
}

void WebhookRegistration::Publish(absl::Status status) {
  std::lock_guard lock(inbox_->mutex);
  inbox_->in_place = std::move(status);
}

}  // namespace muster::extender
