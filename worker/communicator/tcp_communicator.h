// A communicator over TCP, on the CPU: for tests, a laptop, and what isn't worth a GPU's time.
//
// Every rank is connected with every other, and sends each what that one needs. An all-reduce moves
// as many bytes as a ring would, in two steps instead of 2(n-1), and a rank that doesn't come is
// seen by all others directly. Connections grow with the square of the ranks: meant for some
// dozens.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/tcp_mesh.h"
#include "worker/communicator/tcp_socket.h"

namespace muster::worker {

// Every rank calls this at about the same time, with `endpoints[r]` where rank r listens and its
// own `listener`, which is only used during the call. Errors are ConnectMesh's.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectTcpCommunicator(
    const Membership& membership, const RoundName& round, const Socket& listener,
    std::span<const Endpoint> endpoints, absl::Duration timeout);

}  // namespace muster::worker
