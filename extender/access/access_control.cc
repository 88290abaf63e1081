#include "extender/access/access_control.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"

namespace muster::extender {
namespace {

constexpr int kKeyBytes = 32;

std::string NewKey() {
  std::string key(kKeyBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(key.data()), kKeyBytes) != 1) std::abort();
  return key;
}

// RFC 6750, 2.1.
bool IsTokenLetter(char letter) {
  return absl::ascii_isalnum(static_cast<unsigned char>(letter)) ||
         std::string_view("-._~+/=").find(letter) != std::string_view::npos;
}

// Nothing if there is none, or none that could be one.
std::optional<std::string> TokenOf(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  std::string scheme(authorization.substr(0, kScheme.size()));
  absl::AsciiStrToLower(&scheme);
  if (scheme != kScheme) return std::nullopt;
  std::string_view token = authorization.substr(kScheme.size());
  token.remove_prefix(std::min(token.find_first_not_of(' '), token.size()));
  if (token.empty() || !std::all_of(token.begin(), token.end(), IsTokenLetter)) {
    return std::nullopt;
  }
  return std::string(token);
}

// Different callers, or wants, are different texts: each part says how long it is.
void Append(std::string_view part, std::string* text) {
  *text += std::to_string(part.size());
  *text += ':';
  *text += part;
}

std::string TextOf(const Caller& caller, const Wanted& wanted) {
  std::string text;
  for (const std::string* part : {&caller.user, &caller.uid, &wanted.verb, &wanted.group,
                                  &wanted.resource, &wanted.name_space, &wanted.name}) {
    Append(*part, &text);
  }
  Append(std::to_string(caller.groups.size()), &text);
  for (const std::string& group : caller.groups) Append(group, &text);
  for (const auto& [key, values] : caller.extra) {
    Append(key, &text);
    Append(std::to_string(values.size()), &text);
    for (const std::string& value : values) Append(value, &text);
  }
  return text;
}

absl::Status Stopping() { return absl::UnavailableError("muster is stopping"); }

absl::Status TooMuch() {
  return absl::ResourceExhaustedError("too many tokens and rights are being asked about");
}

// One that was given, not one that failed to come.
bool IsAnswer(const absl::Status& status) {
  return status.ok() || absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status);
}

template <typename Waiting, typename Answer>
void TellAll(const Waiting& waiting, const Answer& answer) {
  for (const auto& each : waiting) each(answer);
}

}  // namespace

AccessControl::AccessControl(kube::Transport& transport, Clock clock, AccessOptions options)
    : clock_(std::move(clock)),
      options_(std::move(options)),
      key_(NewKey()),
      queue_(transport, options_.queue),
      accepted_(options_.capacity),
      refused_(options_.capacity),
      granted_(options_.capacity),
      denied_(options_.capacity) {}

std::string AccessControl::DigestOf(std::string_view text) const {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), key_.data(), kKeyBytes,
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest,
           &size) == nullptr) {
    std::abort();
  }
  return std::string(reinterpret_cast<const char*>(digest), size);
}

void AccessControl::Check(std::string_view authorization, const std::string& source, Wanted wanted,
                          Done done) {
  const std::optional<std::string> token = TokenOf(authorization);
  if (!token) {
    return Finish(absl::UnauthenticatedError(
                      "a bearer token is needed, of somebody whom the API server knows"),
                  done);
  }
  FindCaller(
      *token, source,
      [this, source, wanted = std::move(wanted), done = std::move(done)](const Token& found) {
        if (!found.ok()) return Finish(found.status(), done);
        CheckCaller(*found, source, wanted, done);
      });
}

void AccessControl::CheckCaller(Caller caller, const std::string& source, Wanted wanted,
                                Done done) {
  FindRight(caller, source, wanted,
            [this, done = std::move(done)](const absl::Status& answer) { Finish(answer, done); });
}

void AccessControl::Finish(const absl::Status& answer, const Done& done) {
  if (!answer.ok()) {
    const Refusal refusal = absl::IsUnauthenticated(answer)     ? kUnauthenticated
                            : absl::IsPermissionDenied(answer)  ? kForbidden
                            : absl::IsResourceExhausted(answer) ? kOverloaded
                                                                : kUnavailable;
    const std::lock_guard lock(mutex_);
    ++stats_.refusals[refusal];
  }
  done(answer);
}

void AccessControl::FindCaller(const std::string& token, const std::string& source,
                               std::function<void(const Token&)> done) {
  const std::string digest = DigestOf(token);
  std::optional<Token> known;
  {
    const std::lock_guard lock(mutex_);
    const absl::Time now = clock_();
    const Token* found = accepted_.Find(digest, now);
    if (found == nullptr) found = refused_.Find(digest, now);
    if (found != nullptr) known = *found;
    ++(known ? stats_.caches[kTokens].hits : stats_.caches[kTokens].misses);
    if (!known && stopped_) known = Stopping();
    if (!known) {
      auto& asking = asking_whose_[digest];
      asking.push_back(std::move(done));
      if (asking.size() > 1) return;
    }
  }
  if (known) return done(*known);
  const bool asked = queue_.Ask(source, TokenReviewOf(token, options_.audiences),
                                [this, digest](const absl::StatusOr<kube::Response>& answer) {
                                  OnToken(digest, ReadTokenReview(answer, options_.audiences));
                                });
  if (!asked) OnToken(digest, TooMuch());
}

void AccessControl::OnToken(const std::string& digest, const Token& answer) {
  std::vector<std::function<void(const Token&)>> waiting;
  {
    const std::lock_guard lock(mutex_);
    if (IsAnswer(answer.status())) {
      const bool good = answer.ok();
      (good ? accepted_ : refused_)
          .Put(digest, answer, clock_() + (good ? options_.accepted_for : options_.refused_for));
    }
    if (auto asking = asking_whose_.extract(digest)) waiting = std::move(asking.mapped());
  }
  TellAll(waiting, answer);
}

void AccessControl::FindRight(const Caller& caller, const std::string& source, const Wanted& wanted,
                              std::function<void(const absl::Status&)> done) {
  const std::string digest = DigestOf(TextOf(caller, wanted));
  std::optional<absl::Status> known;
  {
    const std::lock_guard lock(mutex_);
    const absl::Time now = clock_();
    const absl::Status* found = granted_.Find(digest, now);
    if (found == nullptr) found = denied_.Find(digest, now);
    if (found != nullptr) known = *found;
    ++(known ? stats_.caches[kRights].hits : stats_.caches[kRights].misses);
    if (!known && stopped_) known = Stopping();
    if (!known) {
      auto& asking = asking_rights_[digest];
      asking.push_back(std::move(done));
      if (asking.size() > 1) return;
    }
  }
  if (known) return done(*known);
  const bool asked =
      queue_.Ask(source, AccessReviewOf(caller, wanted),
                 [this, digest, caller, wanted](const absl::StatusOr<kube::Response>& answer) {
                   OnRight(digest, ReadAccessReview(answer, caller, wanted));
                 });
  if (!asked) OnRight(digest, TooMuch());
}

void AccessControl::OnRight(const std::string& digest, const absl::Status& answer) {
  std::vector<std::function<void(const absl::Status&)>> waiting;
  {
    const std::lock_guard lock(mutex_);
    if (IsAnswer(answer)) {
      const bool good = answer.ok();
      (good ? granted_ : denied_)
          .Put(digest, answer, clock_() + (good ? options_.accepted_for : options_.refused_for));
    }
    if (auto asking = asking_rights_.extract(digest)) waiting = std::move(asking.mapped());
  }
  TellAll(waiting, answer);
}

void AccessControl::Stop() {
  Asking<Token> whose;
  Asking<absl::Status> rights;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    whose.swap(asking_whose_);
    rights.swap(asking_rights_);
  }
  queue_.Drop();
  for (const auto& [digest, waiting] : whose) TellAll(waiting, Token(Stopping()));
  for (const auto& [digest, waiting] : rights) TellAll(waiting, Stopping());
}

AccessControl::Stats AccessControl::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.caches[kTokens].entries = accepted_.size() + refused_.size();
  stats.caches[kRights].entries = granted_.size() + denied_.size();
  stats.reviews = queue_.stats();
  return stats;
}

}  // namespace muster::extender
