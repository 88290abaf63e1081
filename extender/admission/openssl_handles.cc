#include "extender/admission/openssl_handles.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <cstdlib>
#include <ctime>
#include <limits>

namespace muster::extender {
namespace {

absl::Time ToTime(const ASN1_TIME* time) {
  std::tm fields = {};
  if (ASN1_TIME_to_tm(time, &fields) != 1) return absl::InfinitePast();
  return absl::FromTM(fields, absl::UTCTimeZone());
}

}  // namespace

std::vector<X509Handle> ReadCertificates(std::string_view pem) {
  std::vector<X509Handle> certificates;
  if (pem.size() > std::numeric_limits<int>::max()) return certificates;
  const BioHandle bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  char* name = nullptr;
  char* header = nullptr;
  unsigned char* data = nullptr;
  long size = 0;
  while (PEM_read_bio(bio.get(), &name, &header, &data, &size) == 1) {
    const unsigned char* position = data;
    if (std::string_view(name) == PEM_STRING_X509) {
      if (X509Handle certificate(d2i_X509(nullptr, &position, size)); certificate) {
        certificates.push_back(std::move(certificate));
      }
    }
    OPENSSL_free(name);
    OPENSSL_free(header);
    OPENSSL_clear_free(data, static_cast<size_t>(size));
  }
  ERR_clear_error();
  return certificates;
}

std::string WriteCertificate(X509* certificate) {
  const BioHandle bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(bio.get(), certificate) != 1) std::abort();
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

absl::Time NotBefore(const X509* certificate) { return ToTime(X509_get0_notBefore(certificate)); }
absl::Time NotAfter(const X509* certificate) { return ToTime(X509_get0_notAfter(certificate)); }

}  // namespace muster::extender
