// One step of an operation over a mesh: payloads to some ranks, payloads from some, all at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/tcp_mesh.h"

namespace muster::worker {

struct Outgoing {
  int peer = 0;
  std::span<const std::byte> payload;
};

struct Incoming {
  int peer = 0;
  std::span<std::byte> payload;
};

// Knows of every peer what it did last. One thread.
class TcpExchange {
 public:
  // `wake` is an eventfd that becomes readable when `aborted` becomes an error. Both belong to the
  // caller, and outlive this.
  TcpExchange(int rank, std::vector<Link> links, int wake, std::function<absl::Status()> aborted);

  // Returns when all of it is sent and received. Errors: see Communicator. At most one payload to
  // and one from a peer.
  absl::Status Run(const Operation& operation, uint8_t step, std::span<const Outgoing> outgoing,
                   std::span<const Incoming> incoming, Deadline deadline);

  const std::vector<Link>& links() const { return links_; }

 private:
  // What is under way with one peer.
  struct Transfer;
  struct Peer {
    NoticeReader control;
    std::optional<Operation> last;
  };

  absl::Status CheckControls();
  absl::Status Progress(const Operation& operation, Transfer& transfer);
  absl::Status Send(Transfer& transfer);
  absl::Status Receive(const Operation& operation, Transfer& transfer);
  absl::Status CheckHeader(const Operation& operation, Transfer& transfer);
  // A data connection has ended: why is on its control connection, at once or very soon.
  absl::Status Explain(int peer, const Operation& operation);
  // The peers that keep this rank waiting: those that haven't begun, or else haven't finished.
  static std::vector<int> Behind(std::span<const Transfer> transfers);
  absl::Status Late(const Operation& operation, std::span<const Transfer> transfers) const;
  void Wait(std::span<const Transfer> transfers, Deadline deadline) const;

  const int rank_;
  const std::vector<Link> links_;
  const int wake_;
  const std::function<absl::Status()> aborted_;
  std::vector<Peer> peers_;
};

}  // namespace muster::worker
