#include "worker/diagnose/patterns.h"

#include <algorithm>

namespace muster::worker {
namespace {

using enum CauseId;
using enum LineKind;

constexpr std::array kPatterns = std::to_array<Pattern>({
    // libfabric and aws-ofi-nccl. EFA's own numbers are read by efa_error.h.
    {kNoEfaProvider, {"No eligible providers"}, kNcclInfo},
    {kNoEfaProvider, {"provider efa output empty list"}},
    {kNetworkIsSocket, {"NCCL INFO Using network Socket"}, kNcclInfo},
    {kRdmaReadForced, {"no rdma-read capability"}},
    {kPeerUnreachable, {"Unable to insert remote address into address vector"}},
    {kPeerUnreachable, {"NCCL WARN", "No route to host"}},
    {kPeerUnreachable, {"EHOSTUNREACH"}},
    {kPeerUnreachable, {"NCCL WARN", "Connection timed out"}},
    {kConnectionClosed, {"NCCL WARN", "Connection closed by remote peer"}},
    {kConnectionClosed, {"NCCL WARN", "Connection reset by peer"}},
    {kConnectionClosed, {"NCCL WARN", "Broken pipe"}},
    {kConnectionClosed, {"NCCL WARN", "Connection refused"}},
    {kConnectionClosed, {"Gloo", "Connection closed by peer"}},
    {kSharedMemorySmall, {"failed to extend /dev/shm"}},
    {kSharedMemorySmall, {"/dev/shm/nccl-", "No space left on device"}},
    {kSharedMemorySmall, {"out of shared memory"}},
    {kLockedMemoryLow, {"ibv_", "failed with error Cannot allocate memory"}},
    {kLockedMemoryLow, {"RLIMIT_MEMLOCK"}},
    {kNoSocketInterface, {"no socket interface found"}},
    {kNoSocketInterface, {"NET/Socket : no interface found"}},
    // Ranks that don't go together.
    {kVersionsDiffer, {"Mismatched NCCL version detected"}},
    {kVersionsDiffer, {"mismatched NCCL versions"}},
    {kRanksShareDevice, {"Duplicate GPU detected"}},
    {kRanksShareDevice, {"duplicate GPU UUID"}},
    {kRendezvousTimeout, {"waiting for clients.", "clients joined"}},
    {kRendezvousTimeout, {"RendezvousTimeoutError"}},
    {kRendezvousTimeout, {"client socket has timed out", "trying to connect"}},
    {kNameNotFound, {"Name or service not known"}},
    {kNameNotFound, {"Temporary failure in name resolution"}},
    {kAddressInUse, {"EADDRINUSE"}},
    {kRendezvousTimeout, {" ranks came in time; missing: "}},
    {kRendezvousTimeout, {"the rendezvous store of rank 0", "was not reached within"}},
    {kRankTaken, {"two processes have one rank"}},
    {kWorldSizeMismatch, {"was started for ", " ranks, rank 0 for "}},
    {kWorldSizeMismatch, {"doesn't exist among ", " ranks"}},
    {kVersionsDiffer, {"Mismatched ", " version: "}},
    {kCollectiveTimeout, {" did not come to ", " was last heard from "}},
    {kCollectiveTimeout, {" did not finish ", " was last heard from "}},
    {kPeerLost, {"rank ", " is lost: "}},
    {kPeerLost, {"rank ", " is gone"}},
    {kCollectiveTimeout, {"Watchdog caught collective operation timeout"}},
    {kCollectiveTimeout, {"collective operation timeout detected by watchdog"}},
    // Memory. "Tried to allocate" is read by gpu_memory.h.
    {kOutOfMemory, {"CUDA out of memory"}},
    {kOutOfMemory, {"CUDA error: out of memory"}},
    {kOutOfMemory, {"Cuda failure", "out of memory"}},
    {kMemoryPressure, {"pytorch allocator cache flushes since last step"}},
    {kHostOutOfMemory, {"OOMKilled"}},
    {kHostOutOfMemory, {"ut of memory: Killed process"}},
    {kHostOutOfMemory, {"cannot allocate memory for thread-local data"}},
    {kHostOutOfMemory, {"DefaultCPUAllocator: can't allocate memory"}},
    // GPUs and drivers. Xids are read by xid.h.
    {kGpuFault, {"uncorrectable ECC error encountered"}},
    {kGpuFault, {"uncorrectable NVLink error"}},
    {kGpuFault, {"GPU has fallen off the bus"}},
    {kGpuFault, {"GPU is lost"}},
    {kGpuFault, {"CUDA error: system not yet initialized"}},
    {kProgramFault, {"an illegal memory access was encountered"}},
    {kProgramFault, {"device-side assert triggered"}},
    {kProgramCrash, {"Signal 11 (SIGSEGV)"}},
    {kProgramCrash, {"Signal 6 (SIGABRT)"}},
    {kDriverTooOld, {"CUDA driver version is insufficient"}},
    {kDriverTooOld, {"The NVIDIA driver on your system is too old"}},
    {kDriverTooOld, {"unsatisfied condition: cuda>="}},
    {kDriverMissing, {"nvidia-container-cli: initialization error"}},
    {kDriverMissing, {"Found no NVIDIA driver on your system"}},
    {kDriverMissing, {"no CUDA-capable device is detected"}},
    {kNoHealthyDevices, {"no healthy devices present"}},
    {kNoHealthyDevices, {"UnexpectedAdmissionError", "Allocate failed"}},
    // Events of pods and jobs.
    {kNodeLost, {"NodeNotReady"}},
    {kNodeLost, {"TaintManagerEviction"}},
    {kNodeLost, {"Pod was terminated in response to imminent node shutdown"}},
    {kNodeLost, {"SpotInterrupted"}},
    {kNodeStorageLow, {"The node was low on resource"}},
    {kGracePeriodShort, {"did not kill the pod within specified grace period"}},
    {kImageDenied, {"Failed to pull image", "Unauthorized"}},
    {kImageDenied, {"Failed to pull image", "access denied"}},
    {kImageDenied, {"Failed to pull image", "403 Forbidden"}},
    {kImageNotFound, {"Failed to pull image", "not found"}},
    {kImageNotFound, {"Failed to pull image", "manifest unknown"}},
    {kImageNotFound, {"InvalidImageName"}},
    {kImagePullFailed, {"Failed to pull image"}},
    {kImagePullFailed, {"ErrImagePull"}},
    {kImagePullFailed, {"Back-off pulling image"}},
    {kImageArchitecture, {"exec format error"}},
    {kVolumeNotMounted, {"FailedMount"}},
    {kVolumeNotMounted, {"FailedAttachVolume"}},
    {kUnschedulableAffinity, {"nodes are available:", "didn't match pod affinity rules"}},
    {kUnschedulableCapacity, {"nodes are available:", "Insufficient "}},
    {kUnschedulableTaint, {"nodes are available:", "had untolerated taint"}},
    {kUnschedulableSelector, {"nodes are available:", "node affinity/selector"}},
    {kNoInstanceType, {"no instance type which had enough resources"}},
    {kNoInstanceType, {"no instance type met"}},
    // Ends. Last: where a line says more, that counts.
    {kTerminated, {"Received Signals.SIGTERM death signal"}},
    {kTerminated, {"SignalException: Process", "got signal: 15"}},
    {kTerminated, {"Signal 15 (SIGTERM)"}},
    {kTerminated, {"Exit Code:", " 143"}, kResult},
    {kKilled, {"Signal 9 (SIGKILL)"}, kResult},
    {kKilled, {"Exit Code:", " 137"}, kResult},
    // What NCCL says of itself when it says nothing else.
    {kPeerLost, {"ncclRemoteError"}, kResult},
    {kCudaFailure, {"ncclUnhandledCudaError"}, kResult},
    {kNcclSystemError, {"ncclSystemError"}, kResult},
    {kNcclInternalError, {"ncclInternalError"}, kResult},
    {kNcclMisuse, {"ncclInvalidUsage"}, kResult},
    {kNcclMisuse, {"ncclInvalidArgument"}, kResult},
    {kDiskFull, {"No space left on device"}},
    // The worker's own words for what it does.
    {kCheckpointCorrupt, {"none of ", " checkpoints can be loaded"}},
    {kLossNotFinite, {"the loss is ", "the parameters were not updated"}},
});

constexpr std::array kRecoveries = std::to_array<Recovery>({
    {"Successfully assigned", kUnschedulableCapacity, kNoInstanceType, true},
    {"Successfully pulled image", kImageNotFound, kImagePullFailed},
    {"already present on machine", kImageNotFound, kImagePullFailed},
    // The worker's: the lost rank was replaced.
    {" ranks are here", kPeerLost, kPeerLost},
    {"is successfully completed.", kUnschedulableCapacity, kNoInstanceType, true},
});

bool Matches(const Pattern& pattern, std::string_view line) {
  for (const std::string_view word : pattern.words) {
    const size_t at = line.find(word);
    if (at == std::string_view::npos) return false;
    line.remove_prefix(at + word.size());
  }
  return true;
}

}  // namespace

std::span<const Pattern> Patterns() { return kPatterns; }

const Pattern* FindPattern(std::string_view line) {
  const bool nccl_info = line.find(" NCCL INFO ") != std::string_view::npos;
  const auto* found = std::ranges::find_if(kPatterns, [&](const Pattern& pattern) {
    return (pattern.kind == kNcclInfo || !nccl_info) && Matches(pattern, line);
  });
  return found == kPatterns.end() ? nullptr : found;
}

std::span<const Recovery> Recoveries() { return kRecoveries; }

}  // namespace muster::worker
