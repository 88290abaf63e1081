#include "extender/admission/serving_certificates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "extender/admission/ca_bundle.h"
#include "kube/objects/time_text.h"

namespace muster::extender {
namespace {

constexpr absl::Duration kLookInterval = absl::Seconds(10);
constexpr absl::Duration kSettleTime = absl::Seconds(30);

}  // namespace

absl::StatusOr<ServingCertificates> ServingCertificates::Create(ServingCertificatesOptions options,
                                                                absl::Time now) {
  ServingCertificates certificates(std::move(options));
  absl::StatusOr<Generation> first = certificates.Make(now);
  if (!first.ok()) return first.status();
  certificates.current_ = *std::move(first);
  return certificates;
}

absl::StatusOr<ServingCertificates::Generation> ServingCertificates::Make(absl::Time now) {
  if (options_.files) {
    next_look_ = now + kLookInterval;
    // Taken first: a file that is written meanwhile is read again.
    std::string stamp = StampOf(*options_.files);
    absl::StatusOr<GivenCertificate> given =
        LoadCertificateFiles(*options_.files, options_.names, now);
    if (!given.ok()) return given.status();
    stamp_ = std::move(stamp);
    return Generation{std::move(given->authorities), std::nullopt, std::move(given->serving)};
  }
  absl::StatusOr<KeyedCertificate> authority = IssueAuthority(options_.authority_validity, now);
  if (!authority.ok()) return authority.status();
  absl::StatusOr<KeyedCertificate> serving =
      IssueServingCertificate(options_.names, *authority, options_.certificate_validity, now);
  if (!serving.ok()) return serving.status();
  std::string chain = authority->chain;
  return Generation{std::move(chain), *std::move(authority), *std::move(serving)};
}

std::string ServingCertificates::CaBundle() const {
  return current_.authorities + (next_ ? next_->authorities : "");
}

bool ServingCertificates::MayReissue() const {
  // Near the authority's own end nothing is won.
  return current_.authority && current_.authority->not_after > current_.serving.not_after;
}

bool ServingCertificates::Tick(absl::Time now) {
  if (now >= next_look_) RereadFiles(now);
  if (current_.authority && !next_ && current_.authority->NeedsRotation(now)) {
    next_ = Make(now).value();
  }
  if (Promote(now)) return true;
  if (!MayReissue() || !current_.serving.NeedsRotation(now)) return false;
  current_.serving = IssueServingCertificate(options_.names, *current_.authority,
                                             options_.certificate_validity, now)
                         .value();
  return true;
}

void ServingCertificates::RereadFiles(absl::Time now) {
  next_look_ = now + kLookInterval;
  if (StampOf(*options_.files) == stamp_) {
    file_error_ = absl::OkStatus();
    return;
  }
  absl::StatusOr<Generation> read = Make(now);
  file_error_ = read.status();
  if (read.ok()) next_ = *std::move(read);
}

bool ServingCertificates::IsNextTrusted() const {
  return BundleContains(trusted_, next_->authorities);
}

bool ServingCertificates::Promote(absl::Time now) {
  if (!next_) return false;
  if (!IsNextTrusted()) {
    next_trusted_since_ = absl::InfiniteFuture();
  } else {
    next_trusted_since_ = std::min(next_trusted_since_, now);
  }
  const bool same_authorities = BundleContains(current_.authorities, next_->authorities);
  const bool settled = now >= next_trusted_since_ + kSettleTime;
  if (!same_authorities && !settled && !current_.serving.Expired(now)) return false;
  current_ = *std::move(next_);
  next_.reset();
  next_trusted_since_ = absl::InfiniteFuture();
  return true;
}

absl::Time ServingCertificates::NextTick() const {
  absl::Time next = next_look_;
  if (next_) {
    next = std::min({next, current_.serving.not_after, next_trusted_since_ + kSettleTime});
  }
  if (!next_ && current_.authority) next = std::min(next, current_.authority->RotationTime());
  if (MayReissue()) next = std::min(next, current_.serving.RotationTime());
  return next;
}

absl::Status ServingCertificates::Health(absl::Time now) const {
  if (!current_.serving.Expired(now)) return absl::OkStatus();
  std::string message = fmt::format("the webhook's certificate expired at {}",
                                    kube::TimeText(current_.serving.not_after));
  if (!file_error_.ok()) message += fmt::format("; {}", std::string(file_error_.message()));
  return absl::FailedPreconditionError(message);
}

}  // namespace muster::extender
