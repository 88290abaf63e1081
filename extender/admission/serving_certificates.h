// Which certificate is served now, and which authorities the API server has to trust for it.
//
// A certificate of an authority that is already trusted replaces the served one at once. One of a
// new authority waits until the API server has been known to trust that for half a minute (every
// API server of the cluster has seen it by then), so a change of authority is never noticed by a
// caller; should the served certificate expire first, it no longer waits.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "extender/admission/certificates.h"

namespace muster::extender {

struct ServingCertificatesOptions {
  CertificateNames names = {};
  // Given: these files, looked at every ten seconds. Absent: an authority of our own, in memory
  // only, and certificates signed by it; each is replaced when a third of its lifetime is left.
  std::optional<CertificateFiles> files = {};
  absl::Duration certificate_validity = absl::Hours(24 * 90);
  absl::Duration authority_validity = absl::Hours(24 * 365);
};

// Not thread-safe. Times are the wall clock's.
class ServingCertificates {
 public:
  // The errors of certificates.h.
  static absl::StatusOr<ServingCertificates> Create(ServingCertificatesOptions options,
                                                    absl::Time now);

  const KeyedCertificate& serving() const { return current_.serving; }
  // The authorities of the served certificate and of the one that waits, PEM.
  std::string CaBundle() const;
  // What the API server trusts, as far as known; PEM.
  void SetTrusted(std::string trusted) { trusted_ = std::move(trusted); }

  // Renews what is due. True if serving() has changed.
  bool Tick(absl::Time now);
  // When Tick next has something to do; at once if SetTrusted is called in between.
  absl::Time NextTick() const;

  // Not OK if what is served has expired: says until when it was valid and why nothing newer came.
  absl::Status Health(absl::Time now) const;
  // Why the files as they are now aren't used; OK if they are.
  const absl::Status& file_error() const { return file_error_; }

 private:
  struct Generation {
    std::string authorities;                    // PEM
    std::optional<KeyedCertificate> authority;  // our own
    KeyedCertificate serving;
  };

  explicit ServingCertificates(ServingCertificatesOptions options) : options_(std::move(options)) {}
  absl::StatusOr<Generation> Make(absl::Time now);
  void RereadFiles(absl::Time now);
  bool MayReissue() const;
  bool IsNextTrusted() const;
  bool Promote(absl::Time now);

  ServingCertificatesOptions options_;
  Generation current_;
  std::optional<Generation> next_;
  std::string trusted_;
  absl::Time next_trusted_since_ = absl::InfiniteFuture();
  std::string stamp_;  // of the files in use
  absl::Time next_look_ = absl::InfiniteFuture();
  absl::Status file_error_;
};

}  // namespace muster::extender
