// OpenSSL objects that free themselves, and what both users of X.509 here read and write.
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace muster::extender {

template <auto Free>
struct OpensslFree {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};

using X509Handle = std::unique_ptr<X509, OpensslFree<&X509_free>>;
using KeyHandle = std::unique_ptr<EVP_PKEY, OpensslFree<&EVP_PKEY_free>>;
using BioHandle = std::unique_ptr<BIO, OpensslFree<&BIO_free_all>>;

// Every certificate of a PEM text, in order; other blocks are skipped, and what isn't PEM is
// ignored, as Go's x509.CertPool does. Empty if there is none.
std::vector<X509Handle> ReadCertificates(std::string_view pem);
std::string WriteCertificate(X509* certificate);
absl::Time NotBefore(const X509* certificate);
absl::Time NotAfter(const X509* certificate);
// Why a chain doesn't lead from its first certificate to one of the authorities, in OpenSSL's
// words; empty if it does. As in Go an authority is trusted though it isn't signed by itself.
// `purpose` is one of X509_PURPOSE_...
std::string WhyUnverified(const std::vector<X509Handle>& chain,
                          const std::vector<X509Handle>& authorities, int purpose, absl::Time now);

}  // namespace muster::extender
