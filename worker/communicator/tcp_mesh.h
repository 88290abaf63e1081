// The connections of a TCP communicator: two to every other rank. One carries operations; the other
// stays idle, so that a word about the end never waits behind a payload.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/tcp_socket.h"

namespace muster::worker {

struct Link {
  Socket data;
  Socket control;
};

// What both ends of a connection must agree on.
struct RoundName {
  int64_t generation = 0;
  uint64_t token = 0;  // random; tells this generation from one of that number in another job
};

// Connects to the ranks below, and accepts those above on `listener`, which stays the caller's.
// Strangers and ranks of another round are hung up on. The result has one link per rank; its own
// stays closed. At `deadline`: DeadlineExceeded, naming the ranks that were not reached or didn't
// come.
absl::StatusOr<std::vector<Link>> ConnectMesh(const Membership& membership, const RoundName& round,
                                              const Socket& listener,
                                              std::span<const Endpoint> endpoints,
                                              Deadline deadline);

// The last word on a control connection: why its sender aborts (`reason`), or, if that is OK, that
// it has finished.
struct Notice {
  absl::Status reason;
};
// At most 4 KiB: a longer message is cut.
std::string EncodeNotice(const Notice& notice);

// Reads a notice as its bytes come.
class NoticeReader {
 public:
  // Reads what is there. OK and `done()` once it is complete; Unavailable if the other end closed
  // first, or sent what is none.
  absl::Status Read(const Socket& control);
  bool done() const { return done_; }
  const Notice& notice() const { return notice_; }

 private:
  std::string bytes_;
  bool done_ = false;
  Notice notice_;
};

}  // namespace muster::worker
