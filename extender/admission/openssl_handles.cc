#include "extender/admission/openssl_handles.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>

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

std::string WhyUnverified(const std::vector<X509Handle>& chain,
                          const std::vector<X509Handle>& authorities, int purpose, absl::Time now) {
  using StoreHandle = std::unique_ptr<X509_STORE, OpensslFree<&X509_STORE_free>>;
  using StoreContextHandle = std::unique_ptr<X509_STORE_CTX, OpensslFree<&X509_STORE_CTX_free>>;
  const StoreHandle store(X509_STORE_new());
  for (const X509Handle& authority : authorities) X509_STORE_add_cert(store.get(), authority.get());
  // The store keeps its own references; the stack borrows.
  STACK_OF(X509)* intermediates = sk_X509_new_null();
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(intermediates, chain[i].get());
  const StoreContextHandle context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), intermediates);
  X509_VERIFY_PARAM* rules = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_time(rules, absl::ToTimeT(now));
  X509_VERIFY_PARAM_set_purpose(rules, purpose);
  X509_VERIFY_PARAM_set_flags(rules, X509_V_FLAG_PARTIAL_CHAIN);
  const bool verified = X509_verify_cert(context.get()) == 1;
  const int error = X509_STORE_CTX_get_error(context.get());
  sk_X509_free(intermediates);
  ERR_clear_error();
  return verified ? "" : X509_verify_cert_error_string(error);
}

}  // namespace muster::extender
