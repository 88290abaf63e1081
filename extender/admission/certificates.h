// The certificates that the webhook is served with: made here, or given as files.
//
// Keys are ECDSA P-256 and exist in memory only; no message ever contains one. The verification
// rules are those of Go's crypto/x509, which the API server uses: the names are in the subject
// alternative name, and an expired authority verifies nothing.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::extender {

// What the API server calls the webhook by: "muster-webhook.muster-system.svc", "127.0.0.1".
struct CertificateNames {
  std::vector<std::string> dns;
  std::vector<std::string> ips;
};

// A certificate with its private key, both PEM.
struct KeyedCertificate {
  std::string chain;  // the certificate itself first
  std::string key;
  absl::Time issued_at = absl::InfinitePast();
  absl::Time not_after = absl::InfinitePast();

  bool Expired(absl::Time now) const { return now >= not_after; }
  // When a third of the lifetime is left.
  absl::Time RotationTime() const { return not_after - (not_after - issued_at) / 3; }
  bool NeedsRotation(absl::Time now) const { return now >= RotationTime(); }
};

// A new authority, signed by itself, that may sign serving certificates only. Each has a subject of
// its own, so that several stand in one bundle without being mistaken for each other.
// InvalidArgument for a validity below two seconds.
absl::StatusOr<KeyedCertificate> IssueAuthority(absl::Duration validity, absl::Time now);

// A serving certificate for `names`, valid from a little before `now` (clocks differ) and never
// longer than its authority. InvalidArgument names an unusable name or validity.
absl::StatusOr<KeyedCertificate> IssueServingCertificate(const CertificateNames& names,
                                                         const KeyedCertificate& authority,
                                                         absl::Duration validity, absl::Time now);

// Files that somebody else writes and renews.
struct CertificateFiles {
  std::string certificate;  // PEM chain, the certificate itself first
  std::string key;          // PEM, not encrypted
  std::string authority;    // PEM, what the API server is to trust
};

struct GivenCertificate {
  KeyedCertificate serving;
  std::string authorities;  // PEM
};

// Reads and checks the files. InvalidArgument (NotFound for a file that can't be read) names file
// and fault: no PEM, key of another certificate, not signed by the authority, a name that isn't
// covered, not yet valid, expired.
absl::StatusOr<GivenCertificate> LoadCertificateFiles(const CertificateFiles& files,
                                                      const CertificateNames& names,
                                                      absl::Time now);

// Changes whenever one of the files is written or replaced: sizes, times and inodes.
std::string StampOf(const CertificateFiles& files);

}  // namespace muster::extender
