#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

#include "extender/admission/certificates.h"
#include "extender/admission/openssl_handles.h"
#include "kube/objects/time_text.h"

namespace muster::extender {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

using TlsHandle = std::unique_ptr<SSL_CTX, OpensslFree<&SSL_CTX_free>>;

// "webhook certificate /etc/tls.crt"
struct Source {
  const char* field;
  const std::string& path;

  absl::Status Error(const std::string& fault) const {
    return absl::InvalidArgumentError(fmt::format("{} {}: {}", field, path, fault));
  }
};

absl::StatusOr<std::string> ReadFile(const Source& source) {
  if (source.path.empty()) {
    return absl::InvalidArgumentError(fmt::format("{}: no file is named", source.field));
  }
  errno = 0;
  std::ifstream file(source.path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad() || (file.fail() && !file.eof())) {
    return absl::NotFoundError(fmt::format("{} {}: {}", source.field, source.path,
                                           std::generic_category().message(errno)));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) {
    return source.Error(fmt::format("larger than {} bytes", kMaxFileBytes));
  }
  return text;
}

absl::StatusOr<std::vector<X509Handle>> ParseCertificates(const Source& source,
                                                          const std::string& text) {
  std::vector<X509Handle> certificates = ReadCertificates(text);
  if (certificates.empty()) return source.Error("contains no PEM certificate");
  return certificates;
}

absl::StatusOr<KeyHandle> ParseKey(const Source& source, const std::string& text) {
  const BioHandle bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  bool encrypted = false;
  constexpr auto kNoPassword = [](char*, int, int, void* asked) {
    *static_cast<bool*>(asked) = true;
    return -1;
  };
  KeyHandle key(PEM_read_bio_PrivateKey(bio.get(), nullptr, kNoPassword, &encrypted));
  ERR_clear_error();
  if (encrypted) return source.Error("the private key is encrypted");
  if (!key) return source.Error("contains no PEM private key");
  return key;
}

absl::Status CheckTimes(const Source& source, const X509* certificate, absl::Time now) {
  if (now >= NotAfter(certificate)) {
    return source.Error(fmt::format("expired at {}, now is {}",
                                    kube::TimeText(NotAfter(certificate)), kube::TimeText(now)));
  }
  if (now < NotBefore(certificate)) {
    return source.Error(fmt::format("not valid before {}, now is {}",
                                    kube::TimeText(NotBefore(certificate)), kube::TimeText(now)));
  }
  return absl::OkStatus();
}

absl::Status CheckNames(const Source& source, X509* certificate, const CertificateNames& names) {
  for (const std::string& dns : names.dns) {
    if (X509_check_host(certificate, dns.data(), dns.size(), X509_CHECK_FLAG_NEVER_CHECK_SUBJECT,
                        nullptr) != 1) {
      return source.Error(fmt::format("no subject alternative name covers DNS name {}", dns));
    }
  }
  for (const std::string& ip : names.ips) {
    if (X509_check_ip_asc(certificate, ip.c_str(), 0) != 1) {
      return source.Error(fmt::format("no subject alternative name covers IP address {}", ip));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckChain(const Source& source, const std::vector<X509Handle>& chain,
                        const Source& authority_source, const std::vector<X509Handle>& authorities,
                        absl::Time now) {
  const std::string why = WhyUnverified(chain, authorities, X509_PURPOSE_SSL_SERVER, now);
  if (why.empty()) return absl::OkStatus();
  return source.Error(fmt::format("does not verify against {} {}: {}", authority_source.field,
                                  authority_source.path, why));
}

// TLS itself has demands: key sizes, signature digests.
absl::Status CheckServable(const Source& source, const std::vector<X509Handle>& chain,
                           EVP_PKEY* key) {
  const TlsHandle context(SSL_CTX_new(TLS_server_method()));
  bool usable = SSL_CTX_use_certificate(context.get(), chain[0].get()) == 1 &&
                SSL_CTX_use_PrivateKey(context.get(), key) == 1;
  for (size_t i = 1; usable && i < chain.size(); ++i) {
    usable = SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) == 1;
  }
  if (usable) return absl::OkStatus();
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return source.Error(fmt::format("can't be served: {}", reason == nullptr ? "unknown" : reason));
}

std::string WriteCertificates(const std::vector<X509Handle>& certificates) {
  std::string text;
  for (const X509Handle& certificate : certificates) text += WriteCertificate(certificate.get());
  return text;
}

}  // namespace

absl::StatusOr<GivenCertificate> LoadCertificateFiles(const CertificateFiles& files,
                                                      const CertificateNames& names,
                                                      absl::Time now) {
  const Source certificate_source{"webhook certificate", files.certificate};
  const Source key_source{"webhook key", files.key};
  const Source authority_source{"webhook CA", files.authority};

  absl::StatusOr<std::string> chain_text = ReadFile(certificate_source);
  if (!chain_text.ok()) return chain_text.status();
  absl::StatusOr<std::vector<X509Handle>> chain =
      ParseCertificates(certificate_source, *chain_text);
  if (!chain.ok()) return chain.status();
  absl::StatusOr<std::string> key_text = ReadFile(key_source);
  if (!key_text.ok()) return key_text.status();
  absl::StatusOr<KeyHandle> key = ParseKey(key_source, *key_text);
  if (!key.ok()) return key.status();
  absl::StatusOr<std::string> authority_text = ReadFile(authority_source);
  if (!authority_text.ok()) return authority_text.status();
  absl::StatusOr<std::vector<X509Handle>> authorities =
      ParseCertificates(authority_source, *authority_text);
  if (!authorities.ok()) return authorities.status();

  X509* certificate = chain->front().get();
  if (X509_check_private_key(certificate, key->get()) != 1) {
    ERR_clear_error();
    return key_source.Error(fmt::format("is not the key of {}", files.certificate));
  }
  if (absl::Status status = CheckTimes(certificate_source, certificate, now); !status.ok()) {
    return status;
  }
  if (absl::Status status =
          CheckChain(certificate_source, *chain, authority_source, *authorities, now);
      !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckNames(certificate_source, certificate, names); !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckServable(certificate_source, *chain, key->get()); !status.ok()) {
    return status;
  }
  // Only the certificates: nothing else that stands in the files goes any further.
  return GivenCertificate{{WriteCertificates(*chain), *std::move(key_text), NotBefore(certificate),
                           NotAfter(certificate)},
                          WriteCertificates(*authorities)};
}

std::string StampOf(const CertificateFiles& files) {
  std::string stamp;
  for (const std::string& path : {files.certificate, files.key, files.authority}) {
    struct stat status = {};
    if (stat(path.c_str(), &status) != 0) {
      stamp += "absent;";
      continue;
    }
    stamp += fmt::format("{}.{}.{}.{}.{};", status.st_dev, status.st_ino, status.st_size,
                         status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  }
  return stamp;
}

}  // namespace muster::extender
