#include "extender/admission/certificates.h"

#include <fmt/format.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "extender/admission/openssl_handles.h"

namespace muster::extender {
namespace {

constexpr absl::Duration kClockDifference = absl::Minutes(5);
constexpr absl::Duration kShortest = absl::Seconds(2);  // X.509 counts in whole seconds
constexpr size_t kSerialBytes = 16;

using GeneralNamesHandle = std::unique_ptr<GENERAL_NAMES, OpensslFree<&GENERAL_NAMES_free>>;
using ExtensionHandle = std::unique_ptr<X509_EXTENSION, OpensslFree<&X509_EXTENSION_free>>;
using BignumHandle = std::unique_ptr<BIGNUM, OpensslFree<&BN_free>>;

// OpenSSL fails at what is done here only without memory or entropy.
void Check(bool done) {
  if (!done) std::abort();
}

std::string WriteKey(EVP_PKEY* key) {
  const BioHandle bio(BIO_new(BIO_s_secmem()));
  Check(PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

KeyHandle ReadKey(const std::string& pem) {
  const BioHandle bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  // Never asks a terminal for a password.
  constexpr auto kNoPassword = [](char*, int, int, void*) { return -1; };
  KeyHandle key(PEM_read_bio_PrivateKey(bio.get(), nullptr, kNoPassword, nullptr));
  ERR_clear_error();
  return key;
}

void AddExtension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ExtensionHandle extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  Check(extension && X509_add_ext(certificate, extension.get(), -1) == 1);
}

void AddToName(X509_NAME* name, const char* field, const std::string& value) {
  Check(X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8,
                                   reinterpret_cast<const unsigned char*>(value.c_str()), -1, -1,
                                   0) == 1);
}

// Random and positive; returned in hexadecimal too.
std::string SetSerial(X509* certificate) {
  unsigned char bytes[kSerialBytes];
  Check(RAND_bytes(bytes, sizeof bytes) == 1);
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);
  const BignumHandle number(BN_bin2bn(bytes, sizeof bytes, nullptr));
  Check(BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr);
  std::string hex;
  for (unsigned char byte : bytes) hex += fmt::format("{:02x}", byte);
  return hex;
}

struct Unsigned {
  X509Handle certificate;
  KeyHandle key;
  std::string serial;
};

Unsigned Prepare(absl::Time now, absl::Time not_after) {
  Unsigned result{X509Handle(X509_new()), KeyHandle(EVP_EC_gen("P-256")), {}};
  Check(result.certificate && result.key);
  X509* certificate = result.certificate.get();
  Check(X509_set_version(certificate, X509_VERSION_3) == 1);
  result.serial = SetSerial(certificate);
  const time_t from = absl::ToTimeT(now - kClockDifference);
  const time_t until = absl::ToTimeT(not_after);
  Check(ASN1_TIME_set(X509_getm_notBefore(certificate), from) != nullptr);
  Check(ASN1_TIME_set(X509_getm_notAfter(certificate), until) != nullptr);
  Check(X509_set_pubkey(certificate, result.key.get()) == 1);
  return result;
}

KeyedCertificate Finish(const Unsigned& made, EVP_PKEY* signer, absl::Time now,
                        absl::Time not_after) {
  Check(X509_sign(made.certificate.get(), signer, EVP_sha256()) > 0);
  return {WriteCertificate(made.certificate.get()), WriteKey(made.key.get()), now, not_after};
}

absl::Status CheckValidity(absl::Duration validity) {
  if (validity >= kShortest && validity < absl::InfiniteDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("webhook certificate validity is {}, must be at least {}",
                  absl::FormatDuration(validity), absl::FormatDuration(kShortest)));
}

absl::Time WholeSecond(absl::Time time) { return absl::FromUnixSeconds(absl::ToUnixSeconds(time)); }

bool IsDnsName(const std::string& name) {
  return !name.empty() && name.size() <= 253 && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '.';
  });
}

absl::StatusOr<GeneralNamesHandle> AlternativeNames(const CertificateNames& names) {
  GeneralNamesHandle result(GENERAL_NAMES_new());
  const auto add = [&](int type, const std::string& value) {
    GENERAL_NAME* name = a2i_GENERAL_NAME(nullptr, nullptr, nullptr, type, value.c_str(), 0);
    ERR_clear_error();
    if (name == nullptr) return false;
    Check(sk_GENERAL_NAME_push(result.get(), name) > 0);
    return true;
  };
  for (const std::string& dns : names.dns) {
    if (!IsDnsName(dns) || !add(GEN_DNS, dns)) {
      return absl::InvalidArgumentError(fmt::format("webhook name \"{}\" is no DNS name", dns));
    }
  }
  for (const std::string& ip : names.ips) {
    if (!add(GEN_IPADD, ip)) {
      return absl::InvalidArgumentError(fmt::format("webhook name \"{}\" is no IP address", ip));
    }
  }
  if (sk_GENERAL_NAME_num(result.get()) == 0) {
    return absl::InvalidArgumentError("webhook names are empty: a certificate needs one");
  }
  return result;
}

}  // namespace

absl::StatusOr<KeyedCertificate> IssueAuthority(absl::Duration validity, absl::Time now) {
  if (absl::Status status = CheckValidity(validity); !status.ok()) return status;
  const absl::Time not_after = WholeSecond(now + validity);
  const Unsigned made = Prepare(now, not_after);
  X509* certificate = made.certificate.get();
  X509_NAME* name = X509_get_subject_name(certificate);
  AddToName(name, "O", "muster.dev");
  AddToName(name, "CN", "muster admission " + made.serial);
  Check(X509_set_issuer_name(certificate, name) == 1);
  AddExtension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  AddExtension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign");
  AddExtension(certificate, certificate, NID_subject_key_identifier, "hash");
  return Finish(made, made.key.get(), now, not_after);
}

absl::StatusOr<KeyedCertificate> IssueServingCertificate(const CertificateNames& names,
                                                         const KeyedCertificate& authority,
                                                         absl::Duration validity, absl::Time now) {
  if (absl::Status status = CheckValidity(validity); !status.ok()) return status;
  absl::StatusOr<GeneralNamesHandle> alternative_names = AlternativeNames(names);
  if (!alternative_names.ok()) return alternative_names.status();
  const std::vector<X509Handle> issuer = ReadCertificates(authority.chain);
  const KeyHandle signer = ReadKey(authority.key);
  Check(!issuer.empty() && signer);

  const absl::Time not_after = std::min(WholeSecond(now + validity), authority.not_after);
  const Unsigned made = Prepare(now, not_after);
  X509* certificate = made.certificate.get();
  AddToName(X509_get_subject_name(certificate), "CN", "muster admission webhook");
  Check(X509_set_issuer_name(certificate, X509_get_subject_name(issuer[0].get())) == 1);
  AddExtension(certificate, issuer[0].get(), NID_basic_constraints, "critical,CA:FALSE");
  AddExtension(certificate, issuer[0].get(), NID_key_usage, "critical,digitalSignature");
  AddExtension(certificate, issuer[0].get(), NID_ext_key_usage, "serverAuth");
  AddExtension(certificate, issuer[0].get(), NID_subject_key_identifier, "hash");
  AddExtension(certificate, issuer[0].get(), NID_authority_key_identifier, "keyid:always");
  Check(X509_add1_ext_i2d(certificate, NID_subject_alt_name, alternative_names->get(), 0,
                          X509V3_ADD_DEFAULT) == 1);
  return Finish(made, signer.get(), now, not_after);
}

}  // namespace muster::extender
