// Why a training job fails: the one table of causes, each with its sentence, its fix, and whether
// starting again helps. Saved logs, live failures and preflight all speak of causes by it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace muster::worker {

// In the order of the table in cause.cc.
enum class CauseId : uint8_t {
  // The fabric between ranks.
  kSecurityGroupEgress,
  kHandshakeFailed,
  kPeerLost,
  kPeerUnreachable,
  kConnectionClosed,
  kPeerBusy,
  kRequestsFlushed,
  kFabricSoftware,
  kFabricMemory,
  kFabricUnknown,
  kEfaDevice,
  kNoEfaProvider,
  kNetworkIsSocket,
  kRdmaReadForced,
  kSharedMemorySmall,
  kLockedMemoryLow,
  kNoSocketInterface,
  // Ranks that don't go together.
  kVersionsDiffer,
  kRanksShareDevice,
  kRankTaken,
  kWorldSizeMismatch,
  kRendezvousTimeout,
  kNameNotFound,
  kAddressInUse,
  kCollectiveTimeout,
  kAllReduceWrong,
  kAllReduceSlow,
  kPeerSlow,
  // NCCL's own result codes, where nothing more is said.
  kNcclSystemError,
  kNcclInternalError,
  kNcclMisuse,
  kCudaFailure,
  // Memory.
  kMemoryHeldByOthers,
  kOutOfMemory,
  kModelTooLarge,
  kMemoryPressure,
  kHostOutOfMemory,
  // The node and its devices.
  kGpuFault,
  kGpuLinksSlow,
  kContainedMemoryError,
  kProgramFault,
  kProgramCrash,
  kDriverMissing,
  kDriverTooOld,
  kNoHealthyDevices,
  kNodeLost,
  kNodeStorageLow,
  // The pod's life.
  kTerminated,
  kKilled,
  kGracePeriodShort,
  kImageNotFound,
  kImageDenied,
  kImagePullFailed,
  kImageArchitecture,
  kVolumeNotMounted,
  kUnschedulableCapacity,
  kUnschedulableAffinity,
  kUnschedulableTaint,
  kUnschedulableSelector,
  kNoInstanceType,
  // The worker's own input and output.
  kConfigurationInvalid,
  kCheckpointUnwritable,
  kCheckpointCorrupt,
  kDataCorrupt,
  kDiskFull,
  kStorageFailed,
  kLossNotFinite,
  kCount,
};

// Whether the same job, started again, may succeed.
enum class Outcome : uint8_t {
  kRetry,          // exit code >= 128, which restartPolicy ExitCode starts again
  kConfiguration,  // exit code < 128: somebody has to change something first
};

// How a cause relates to others that are seen at about the same time.
enum class Role : uint8_t {
  kOrigin,    // something that goes wrong by itself
  kReaction,  // what ranks see when another rank, the network or the cluster ended first
  kWarning,   // slows a job down or endangers it, but doesn't end it
};

struct Cause {
  CauseId id = CauseId::kCount;
  // Stable; part of JSON outputs and of termination messages. Muster suspects a node when a
  // termination message has a cause that starts with "gpu" or "efa", so exactly the faults of the
  // node's own devices are called that.
  std::string_view name;
  Role role = Role::kOrigin;
  // The exit code says whether to start again; see OutcomeOf.
  int exit_code = 0;
  std::string_view sentence;  // without a full stop, so that details can follow
  std::string_view fix;       // one sentence
};

// All causes, in the order of CauseId.
std::span<const Cause> Causes();

// `id` must not be kCount.
const Cause& CauseOf(CauseId id);

// By its name, or null.
const Cause* FindCause(std::string_view name);

Outcome OutcomeOf(const Cause& cause);
std::string_view OutcomeName(Outcome outcome);  // "retry", "configuration"

}  // namespace muster::worker
