#include "extender/admission/ca_bundle.h"

#include <algorithm>
#include <vector>

#include "extender/admission/openssl_handles.h"

namespace muster::extender {
namespace {

bool Has(const std::vector<X509Handle>& certificates, const X509Handle& wanted) {
  return std::ranges::any_of(certificates, [&](const X509Handle& certificate) {
    return X509_cmp(certificate.get(), wanted.get()) == 0;
  });
}

bool HasAll(const std::vector<X509Handle>& certificates, const std::vector<X509Handle>& wanted) {
  return std::ranges::all_of(wanted, [&](const X509Handle& one) { return Has(certificates, one); });
}

}  // namespace

bool BundleContains(std::string_view bundle, std::string_view wanted) {
  return HasAll(ReadCertificates(bundle), ReadCertificates(wanted));
}

bool SameBundle(std::string_view a, std::string_view b) {
  const std::vector<X509Handle> left = ReadCertificates(a);
  const std::vector<X509Handle> right = ReadCertificates(b);
  return HasAll(left, right) && HasAll(right, left);
}

std::string JoinBundles(std::string_view bundle, std::string_view own, absl::Time now,
                        size_t limit) {
  const std::vector<X509Handle> ours = ReadCertificates(own);
  std::vector<X509Handle> joined;
  for (X509Handle& certificate : ReadCertificates(bundle)) {
    if (NotAfter(certificate.get()) <= now || Has(joined, certificate)) continue;
    joined.push_back(std::move(certificate));
  }
  for (const X509Handle& certificate : ours) {
    if (Has(joined, certificate)) continue;
    X509_up_ref(certificate.get());
    joined.emplace_back(certificate.get());
  }
  size_t surplus = joined.size() > limit ? joined.size() - limit : 0;
  std::string result;
  for (const X509Handle& certificate : joined) {
    if (surplus > 0 && !Has(ours, certificate)) {
      --surplus;
      continue;
    }
    result += WriteCertificate(certificate.get());
  }
  return result;
}

}  // namespace muster::extender
