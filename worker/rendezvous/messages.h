// The rendezvous' protocol: frames of JSON over TCP, a big-endian uint32 of the length before each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/communicator/tcp_socket.h"
#include "worker/rendezvous/round.h"

namespace muster::worker {

// From a member to the store.
struct MemberMessage {
  enum class Type {
    kJoin,
    kBeat,
    kLeave,
    kProve,  // the answer to a kChallenge: `proof`
  };
  Type type = Type::kBeat;
  // Of a join:
  Member member;
  int64_t generation = 0;    // the last round it was in
  uint64_t incarnation = 0;  // random, one per process
  absl::Status cause;        // what ended that round for it, if it knows
  std::string nonce = {};    // to be proved to with the job's secret; empty without one
  // Of a beat: what the member does now, "all-reduce 42 (1024 bytes)".
  std::string position;
  std::string proof = {};
};

// From the store to a member.
struct StoreMessage {
  enum class Type {
    kBeat,
    kWaiting,  // for `ranks`
    kRound,
    kRefused,  // `status`: don't try again
    kLost,     // `status`: the round is over
    kLeft,     // the answer to a kLeave
    // The answer to a join with a nonce, where there is a secret: the store's own `nonce`, and its
    // `proof`. The join counts after a kProve.
    kChallenge,
  };
  Type type = Type::kBeat;
  std::vector<int> ranks;
  Round round;
  absl::Status status;
  std::string nonce = {};
  std::string proof = {};
};

std::string Encode(const MemberMessage& message);
std::string Encode(const StoreMessage& message);
// InvalidArgument for what is none.
absl::StatusOr<MemberMessage> DecodeMemberMessage(absl::string_view text);
absl::StatusOr<StoreMessage> DecodeStoreMessage(absl::string_view text);

// One connection's frames. One thread.
class FrameStream {
 public:
  // A member's identity is a few hundred bytes, a round of thousands of members one of these.
  static constexpr size_t kLargestFrame = 4 << 20;

  // Whoever hasn't proved yet that it knows the secret has no more to say than this.
  static constexpr size_t kLargestGuestFrame = 64 << 10;

  explicit FrameStream(Socket socket, size_t largest = kLargestFrame)
      : socket_(std::move(socket)), largest_(largest) {}

  // Of frames that come.
  void set_largest(size_t largest) { largest_ = largest; }

  const Socket& socket() const { return socket_; }
  bool wants_to_send() const { return !outgoing_.empty(); }

  // Queues a frame, and sends what can be sent now. Unavailable if the other end is gone or hasn't
  // read for so long that kLargestFrame bytes and this frame are waiting.
  absl::Status Send(absl::string_view frame);
  absl::Status Flush();
  // The frames that have come. Unavailable once the other end is gone; those before that are
  // returned first.
  absl::StatusOr<std::vector<std::string>> Receive();

 private:
  Socket socket_;
  size_t largest_;
  std::string outgoing_;
  std::string incoming_;
  absl::Status broken_;
};

}  // namespace muster::worker
