#include "kube/embedded/self_signed.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <memory>

namespace muster::kube::embedded {
namespace {

struct Free {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using Key = std::unique_ptr<EVP_PKEY, Free>;
using Certificate = std::unique_ptr<X509, Free>;

absl::Status OpenSslError(const std::string& doing) {
  char text[256] = "unknown error";
  unsigned long code = ERR_get_error();
  if (code != 0) ERR_error_string_n(code, text, sizeof(text));
  return absl::InternalError(doing + ": " + text);
}

template <typename Write>
std::string Pem(Write write) {
  std::unique_ptr<BIO, Free> bio(BIO_new(BIO_s_mem()));
  if (!bio || write(bio.get()) != 1) return "";
  char* data = nullptr;
  long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

bool AddExtension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  std::unique_ptr<X509_EXTENSION, Free> extension(
      X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

struct Wish {
  std::string common_name;
  std::string alternative_names;  // empty: an authority
  absl::Time not_before;
  absl::Time not_after;
};

Certificate Sign(const Wish& wish, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key) {
  Certificate certificate(X509_new());
  if (!certificate) return nullptr;
  X509* it = certificate.get();
  const bool authority = wish.alternative_names.empty();
  unsigned char serial[16];
  if (RAND_bytes(serial, sizeof(serial)) != 1) return nullptr;
  serial[0] &= 0x7f;  // a serial number is positive
  BIGNUM* number = BN_bin2bn(serial, sizeof(serial), nullptr);
  bool ok = number != nullptr && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(it)) != nullptr;
  BN_free(number);
  ok = ok && X509_set_version(it, 2) == 1 && X509_set_pubkey(it, key) == 1 &&
       ASN1_TIME_set(X509_getm_notBefore(it), absl::ToTimeT(wish.not_before)) != nullptr &&
       ASN1_TIME_set(X509_getm_notAfter(it), absl::ToTimeT(wish.not_after)) != nullptr;
  X509_NAME* name = X509_get_subject_name(it);
  ok = ok && X509_NAME_add_entry_by_txt(
                 name, "CN", MBSTRING_ASC,
                 reinterpret_cast<const unsigned char*>(wish.common_name.c_str()), -1, -1, 0) == 1;
  X509* signer = issuer == nullptr ? it : issuer;
  ok = ok && X509_set_issuer_name(it, X509_get_subject_name(signer)) == 1 &&
       AddExtension(it, signer, NID_basic_constraints,
                    authority ? "critical,CA:TRUE" : "critical,CA:FALSE") &&
       AddExtension(it, signer, NID_key_usage,
                    authority ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature");
  if (!authority) {
    ok = ok && AddExtension(it, signer, NID_ext_key_usage, "serverAuth") &&
         AddExtension(it, signer, NID_subject_alt_name, wish.alternative_names);
  }
  ok = ok && X509_sign(it, issuer_key, EVP_sha256()) > 0;
  return ok ? std::move(certificate) : nullptr;
}

}  // namespace

absl::StatusOr<ServerCertificate> MakeServerCertificate(const std::vector<std::string>& addresses,
                                                        const std::vector<std::string>& names,
                                                        absl::Time not_before,
                                                        absl::Duration lifetime) {
  Key ca_key(EVP_EC_gen("P-256"));
  Key key(EVP_EC_gen("P-256"));
  if (!ca_key || !key) return OpenSslError("making keys");
  // Authorities of different makes must differ in name, or OpenSSL takes one for the other.
  uint32_t number = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&number), sizeof(number)) != 1) {
    return OpenSslError("drawing a name");
  }
  Wish wish{"embedded-api-server-ca-" + std::to_string(number), "", not_before,
            not_before + lifetime};
  Certificate ca = Sign(wish, ca_key.get(), nullptr, ca_key.get());
  if (!ca) return OpenSslError("making the authority's certificate");
  wish.common_name = "embedded-api-server";
  for (const std::string& address : addresses) wish.alternative_names += ",IP:" + address;
  for (const std::string& name : names) wish.alternative_names += ",DNS:" + name;
  if (wish.alternative_names.empty()) {
    return absl::InvalidArgumentError("a server certificate needs an address or a name");
  }
  wish.alternative_names.erase(0, 1);
  Certificate certificate = Sign(wish, key.get(), ca.get(), ca_key.get());
  if (!certificate) return OpenSslError("making the server's certificate");
  ServerCertificate out;
  out.ca_pem = Pem([&](BIO* bio) { return PEM_write_bio_X509(bio, ca.get()); });
  out.certificate_pem = Pem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate.get()); });
  out.key_pem = Pem([&](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  if (out.ca_pem.empty() || out.certificate_pem.empty() || out.key_pem.empty()) {
    return OpenSslError("writing certificates");
  }
  return out;
}

}  // namespace muster::kube::embedded
