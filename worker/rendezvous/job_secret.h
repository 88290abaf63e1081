// What the ranks of a job know and strangers on its network don't.
//
// When a member comes, it and the store prove to each other that they know it, without saying it:
// each names a number that was never used before, and answers the other's with an HMAC-SHA-256 over
// both. What follows on the connection is neither encrypted nor signed: this keeps out who can
// connect, not who can change others' packets.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace muster::worker {

class JobSecret {
 public:
  static constexpr size_t kLeastBytes = 16;

  // None: everyone who connects is believed.
  JobSecret() = default;
  // InvalidArgument if it is shorter than kLeastBytes, without white space at its ends.
  static absl::StatusOr<JobSecret> Create(std::string_view text);

  bool is_set() const { return !key_.empty(); }

  // Of either side, for the two nonces of one connection (IsNonce). Hexadecimal.
  enum class Side { kMember, kStore };
  std::string Proof(Side side, std::string_view member_nonce, std::string_view store_nonce) const;
  // Takes as long whatever `proof` is.
  bool Proves(std::string_view proof, Side side, std::string_view member_nonce,
              std::string_view store_nonce) const;

 private:
  std::string key_;
};

// 32 random bytes, hexadecimal.
std::string NewNonce();
// Whether it looks like one.
bool IsNonce(std::string_view text);

}  // namespace muster::worker
