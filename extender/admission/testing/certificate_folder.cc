#include "extender/admission/testing/certificate_folder.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace muster::extender {

CertificateFolder::CertificateFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "webhook-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) std::abort();
  folder_ = pattern;
  files_ = {folder_ + "/tls.crt", folder_ + "/tls.key", folder_ + "/ca.crt"};
}

CertificateFolder::~CertificateFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void CertificateFolder::Write(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  std::ofstream(fresh, std::ios::binary) << text;
  std::filesystem::rename(fresh, path);
}

void CertificateFolder::WriteIssued(const CertificateNames& names,
                                    const KeyedCertificate& authority, absl::Duration validity,
                                    absl::Time now) {
  const KeyedCertificate issued = IssueServingCertificate(names, authority, validity, now).value();
  Write(files_.certificate, issued.chain);
  Write(files_.key, issued.key);
  Write(files_.authority, authority.chain);
}

}  // namespace muster::extender
