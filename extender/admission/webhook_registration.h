// Keeps one of the two registrations true on the API server, or its authorities alone.
//
// A state machine without a thread or a clock: Tick sends what is due over the transport, answers
// are kept until the next Tick, and `wake` says that there is one. Looks at once when it is told of
// a change, otherwise every ten seconds; writes only what is not as wanted, by compare-and-swap.
// Failures are tried again with growing pauses, and so are repairs that somebody keeps undoing.
//
// Who writes what, so that nobody undoes another's work. Of a Service the object is the chart's:
// each replica adds the authority it serves with to the caBundle and changes nothing else; what
// else isn't as it should be the leader says, and is not in place. Of a URL, which names one
// process, the leader makes the object and keeps it true, and followers leave it to it. It is never
// deleted: without Muster no pod of ours may get in ungated. Of a URL, warnings that are turned off
// leave an object without webhooks, where there was one. What is of another install is left as it
// is.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "extender/admission/webhook_configuration.h"
#include "kube/api.h"
#include "kube/client/backoff.h"

namespace muster::extender {

struct WebhookRegistrationOptions {
  WantedWebhook webhook;
  bool leading = true;
  absl::Duration check_interval = absl::Seconds(10);
  // After a change the API server needs a moment until it calls the webhook as it now is.
  absl::Duration settle_time = absl::Seconds(1);
  // What was seen in place counts as in place for this long while it can't be checked.
  absl::Duration trust_time = absl::Minutes(1);
  kube::BackoffOptions backoff = {absl::Milliseconds(500), absl::Seconds(5), 2};
  // Between putting it right once more, while somebody keeps undoing it.
  kube::BackoffOptions repair_backoff = {absl::Milliseconds(500), absl::Seconds(30), 2};
  uint64_t seed = std::random_device()();
};

// One owner calls everything; OnChanged, InPlace and OtherInstall may be called by any thread.
class WebhookRegistration {
 public:
  // `wake`: call Tick soon; runs on the transport's threads and inside OnChanged, and may be
  // running still when the destructor returns. The transport must outlive this; answers that come
  // later go nowhere.
  WebhookRegistration(WebhookRegistrationOptions options, kube::Transport& transport,
                      std::function<void()> wake);
  ~WebhookRegistration();
  WebhookRegistration(const WebhookRegistration&) = delete;
  WebhookRegistration& operator=(const WebhookRegistration&) = delete;

  // Does what is due. At most one request is under way.
  void Tick(absl::Time now);
  // When Tick next has something to do without an answer or a call of OnChanged.
  absl::Time NextTick() const;

  // Somebody has changed the object, or may have.
  void OnChanged();
  // Looks again at once if they differ from what they were.
  void SetCaBundle(const std::string& ca_bundle);
  void SetLeading(bool leading);

  // OK while the API server calls this process's webhook for our pods, as of the last Tick; else
  // what is in the way, in one sentence. Of a follower with a URL: while there is a registration.
  absl::Status InPlace() const;
  // Why the object isn't of this install, as last seen; "" if it is, there never was one, or nobody
  // may tell. nullopt: it hasn't been looked at yet.
  std::optional<std::string> OtherInstall() const;
  // The caBundle as last seen; PEM.
  const std::string& registered_bundle() const { return registered_bundle_; }

 private:
  enum class Pending { kNone, kGet, kCreate, kWrite };
  struct Inbox;

  void Send(Pending pending, kube::Request request);
  void Get();
  void Create(absl::Time now);
  void Write(absl::Time now, std::string patch);
  void OnAnswer(absl::Time now, Pending answered, const absl::StatusOr<kube::Response>& answer);
  void OnFailed(absl::Time now, Pending failed, const absl::StatusOr<kube::Response>& answer);
  void OnObject(absl::Time now, const std::string& json, bool written);
  void OnAsWanted(absl::Time now, bool written);
  void LookAgainLater(absl::Time now);
  void SetRight(absl::Time now, const FoundWebhook& found, const std::string& difference);
  void MarkInPlace(absl::Time now, bool written);
  void MarkNotInPlace(std::string why);
  void PublishWhyNot();
  void Publish(absl::Status status);
  void PublishInstall(std::string other);
  bool MayRepair(absl::Time now);
  std::string WhatIsMissing(const FoundWebhook& found) const;

  WebhookRegistrationOptions options_;
  kube::Transport& transport_;
  const std::function<void()> wake_;
  const WebhookObject& object_;
  std::shared_ptr<Inbox> inbox_;
  std::mt19937_64 random_;
  kube::Backoff failures_;
  kube::Backoff repairs_;

  Pending pending_ = Pending::kNone;
  absl::Time next_check_ = absl::InfinitePast();
  absl::Time not_before_ = absl::InfinitePast();   // of the next request, after a failure
  absl::Time next_repair_ = absl::InfinitePast();  // when somebody undoes them
  absl::Time last_repair_ = absl::InfinitePast();
  int conflicts_ = 0;
  // While in place: since when it counts, and until when without another look.
  bool in_place_ = false;
  absl::Time counts_from_ = absl::InfiniteFuture();
  absl::Time trusted_until_ = absl::InfinitePast();
  std::string why_not_ = "the webhook's registration has not been looked at yet";
  std::string last_failure_;
  std::string registered_bundle_;
};

}  // namespace muster::extender
