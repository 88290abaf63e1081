#include "worker/rendezvous/job_secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace muster::worker {
namespace {

constexpr size_t kNonceBytes = 32;

std::string Hexadecimal(const unsigned char* bytes, size_t size) {
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(bytes), size));
}

}  // namespace

absl::StatusOr<JobSecret> JobSecret::Create(std::string_view text) {
  JobSecret secret;
  secret.key_ =
      std::string(absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size())));
  if (secret.key_.size() < kLeastBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the job's secret has ", secret.key_.size(),
                                                   " bytes; it takes at least ", kLeastBytes));
  }
  return secret;
}

std::string JobSecret::Proof(Side side, std::string_view member_nonce,
                             std::string_view store_nonce) const {
  // Nonces are of one length, so no two pairs make one text.
  const std::string text =
      absl::StrCat("muster-worker rendezvous, ", side == Side::kMember ? "member" : "store", "\n",
                   std::string(member_nonce), "\n", std::string(store_nonce));
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  // Fails only where OpenSSL lacks SHA-256 or memory.
  if (HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(),
           &size) == nullptr) {
    std::abort();
  }
  return Hexadecimal(digest.data(), size);
}

bool JobSecret::Proves(std::string_view proof, Side side, std::string_view member_nonce,
                       std::string_view store_nonce) const {
  const std::string expected = Proof(side, member_nonce, store_nonce);
  return proof.size() == expected.size() &&
         CRYPTO_memcmp(proof.data(), expected.data(), expected.size()) == 0;
}

std::string NewNonce() {
  std::array<unsigned char, kNonceBytes> bytes;
  // Fails only where the system has no random numbers.
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) std::abort();
  return Hexadecimal(bytes.data(), bytes.size());
}

bool IsNonce(std::string_view text) {
  return text.size() == 2 * kNonceBytes && std::ranges::all_of(text, absl::ascii_isxdigit);
}

}  // namespace muster::worker
