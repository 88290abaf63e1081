// A temporary folder with the three files of a given certificate.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "extender/admission/certificates.h"

namespace muster::extender {

inline const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
inline constexpr absl::Duration kDay = absl::Hours(24);

class CertificateFolder {
 public:
  CertificateFolder();
  ~CertificateFolder();
  CertificateFolder(const CertificateFolder&) = delete;
  CertificateFolder& operator=(const CertificateFolder&) = delete;

  const CertificateFiles& files() const { return files_; }
  // Replaces the file in one step, as a renewer does.
  void Write(const std::string& path, const std::string& text);
  // A certificate for `names`, signed by `authority`, in all three files.
  void WriteIssued(const CertificateNames& names, const KeyedCertificate& authority,
                   absl::Duration validity, absl::Time now);

 private:
  std::string folder_;
  CertificateFiles files_;
};

}  // namespace muster::extender
