// The error numbers of libfabric's EFA provider (prov/efa/src/efa_errno.h), and what each means for
// a training job.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "worker/diagnose/cause.h"

namespace muster::worker {

// What is known of the process at the other end, by other means than the fabric: a heartbeat over
// TCP, or the peer's own log.
enum class PeerState : uint8_t { kUnknown, kAlive, kSilent };

struct EfaError {
  int number = 0;
  std::string_view meaning;
  // Several numbers mean one thing when the peer has ended and another when it lives.
  CauseId unknown;
  CauseId alive;
  CauseId silent;
};

std::span<const EfaError> EfaErrors();

// A request that failed, as a log line tells it. The views are into that line.
struct FailedRequest {
  int number = 0;
  // Of EfaErrors(); 4096 (unknown) if the number isn't in the table. Never null, never that of 0.
  const EfaError* error = nullptr;
  // "fi_addr_efa://[fe80::...]:0:825957744"; empty where the line doesn't say.
  std::string_view my_address = {};
  std::string_view peer_address = {};
  // EC2's instance ids; empty where the line doesn't say, or says N/A.
  std::string_view my_instance = {};
  std::string_view peer_instance = {};
};

// Reads the lines of aws-ofi-nccl ("... completed with error. RC: 103. Error: 4126 (...") and of
// libfabric itself. Nothing if the line is none of these.
std::optional<FailedRequest> ReadFailedRequest(std::string_view line);

// What a request's failure with this number means. `number` isn't 0.
CauseId CauseOfEfaError(int number, PeerState peer);

}  // namespace muster::worker
