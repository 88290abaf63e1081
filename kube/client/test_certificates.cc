#include "kube/client/test_certificates.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdlib>

namespace muster::kube {
namespace {

std::string Take(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, size);
  BIO_free(bio);
  return text;
}

void AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  if (!extension) abort();
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

TestCertificate Make(const std::string& name, const std::string& alternative_names,
                     const TestCertificate* authority) {
  static int serial = 0;
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509* issuer = certificate;
  EVP_PKEY* issuer_key = key;
  if (authority) {
    BIO* bio = BIO_new_mem_buf(authority->certificate_pem.data(), -1);
    issuer = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    BIO_free(bio);
    bio = BIO_new_mem_buf(authority->key_pem.data(), -1);
    issuer_key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
    BIO_free(bio);
  }
  X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
  if (!authority) AddExtension(certificate, issuer, NID_basic_constraints, "critical,CA:TRUE");
  if (!alternative_names.empty()) {
    AddExtension(certificate, issuer, NID_subject_alt_name, alternative_names);
  }
  if (X509_sign(certificate, issuer_key, EVP_sha256()) == 0) abort();

  TestCertificate result;
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, certificate);
  result.certificate_pem = Take(bio);
  bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  result.key_pem = Take(bio);
  if (authority) {
    X509_free(issuer);
    EVP_PKEY_free(issuer_key);
  }
  X509_free(certificate);
  EVP_PKEY_free(key);
  return result;
}

}  // namespace

TestCertificate MakeTestAuthority(const std::string& name) { return Make(name, "", nullptr); }

TestCertificate MakeTestCertificate(const std::string& name, const std::string& alternative_names,
                                    const TestCertificate& authority) {
  return Make(name, alternative_names, &authority);
}

}  // namespace muster::kube
