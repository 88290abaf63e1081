// A failure of the worker itself, told as diagnose would tell it: a sentence for the log, an exit
// code, and a termination message for whoever reads the pod.
//
//   Failure failure{.cause = CauseId::kRendezvousTimeout,
//                   .detail = "2 of 16 ranks are missing after 600 s: 7, 12",
//                   .rank = 0, .host = "train-0"};
//   spdlog::error(Sentence(failure));
//   WriteTerminationMessage(failure, kTerminationLog).IgnoreError();
//   return CauseOf(failure.cause).exit_code;
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "worker/diagnose/cause.h"
#include "worker/diagnose/efa_error.h"

namespace muster::worker {

struct Failure {
  CauseId cause = CauseId::kConfigurationInvalid;
  // The numbers, as half a sentence that may follow a colon; may be empty.
  std::string detail = {};
  // The rank that failed and its host, which need not be the ones that say so.
  std::optional<int> rank = {};
  std::string host = {};
};

// The failure that an error's text shows (of NCCL, libfabric, CUDA or PyTorch, in one or several
// lines), or nothing. `peer` is what the heartbeat says of the other end: EFA error 4126 is the
// security group's if the peer is alive, and the peer's end if it is silent. The first line that
// shows more than a result code counts.
std::optional<Failure> FailureOf(std::string_view error_text, PeerState peer);

// "rank 3 on train-3: other processes hold the memory of this rank's GPU: 30.99 GiB of ... Start
// one process per GPU, ..."
std::string Sentence(const Failure& failure);

// Where Kubernetes reads a container's termination message by default.
inline constexpr char kTerminationLog[] = "/dev/termination-log";
// Kubernetes cuts off what is longer.
inline constexpr size_t kMaxTerminationMessage = 4096;

// One line of JSON, at most kMaxTerminationMessage bytes:
// {"cause":"...","exitCode":137,"fix":"...","host":"...","fault":"node","outcome":"retry","rank":3,
// "sentence":"...","detail":"..."}; rank, host and detail only if known. Too long a detail is cut.
std::string TerminationMessage(const Failure& failure);

// The failure in a line that contains a termination message, or nothing.
std::optional<Failure> ReadTerminationMessage(std::string_view line);

// Replaces the contents of `path` by one write of the whole message, so that a process that is
// killed leaves the old contents or the new ones. (The file is a mount of its own and can't be
// renamed over.) Errors are those of the system, with the path.
absl::Status WriteTerminationMessage(const Failure& failure, const std::string& path);

}  // namespace muster::worker
