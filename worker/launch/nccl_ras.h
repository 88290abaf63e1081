// NCCL's RAS (since 2.24): each process that uses NCCL listens on its node and tells, asked, how
// far the ranks of all communicators have come.
//
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/communicator/tcp_socket.h"
#include "worker/launch/environment.h"
#include "worker/launch/standstill.h"

namespace muster::worker {

// As NCCL_RAS_ADDR says, or localhost:28028.
Endpoint RasEndpoint(const Environment& environment);

// Its verbose status; empty if nobody answers. Takes at most `timeout`.
std::string AskRas(const Endpoint& endpoint, absl::Duration timeout);

// The rank that has launched fewer collectives than the others, or that doesn't answer. RAS numbers
// ranks within their communicator; `rank_of` knows a process of this pod by its id. Nothing found:
// no rank and no detail.
Standstill ReadRas(absl::string_view status,
                   const std::function<std::optional<int>(int64_t pid)>& rank_of);

}  // namespace muster::worker
