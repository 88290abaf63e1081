#include "worker/diagnose/cause.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace muster::worker {
namespace {

constexpr int kChange = 78;  // EX_CONFIG of sysexits.h
constexpr int kAgain =
    138;  // what Kubeflow's training operator keeps for programs that want a retry
constexpr int kSigkill = 137;
constexpr int kSigterm = 143;

using enum CauseId;
using enum Role;

constexpr std::array<Cause, static_cast<size_t>(kCount)> kCauses = {{
    {kSecurityGroupEgress, "security-group-egress", kOrigin, kChange,
     "the peer is alive but no EFA handshake with it succeeds: the security group has no rule for "
     "egress to itself",
     "Give the nodes' security group an egress rule (and an ingress rule) for all traffic whose "
     "other end is the group itself; a rule for 0.0.0.0/0 doesn't cover EFA, which isn't IP."},
    {kHandshakeFailed, "handshake-failed", kReaction, kChange,
     "the peer's EFA device answers but the handshake with its process fails: mostly a security "
     "group without a rule for egress to itself, otherwise a peer that has ended",
     "Give the nodes' security group an egress rule for all traffic to itself (0.0.0.0/0 doesn't "
     "cover EFA); if it has one, diagnose the peer's log together with this one, because its first "
     "error is the cause."},
    {kPeerLost, "peer-lost", kReaction, kAgain,
     "the peer no longer answers: its process ended, or its node or device failed",
     "Find the first error of the peer (diagnose all ranks' logs together) and start the gang "
     "again; if it is the same node each time, replace that node."},
    {kPeerUnreachable, "peer-unreachable", kReaction, kChange,
     "the peer's address can't be reached: security group, subnet or network policy, or a peer "
     "that is gone",
     "Let the security group pass all traffic from and to itself, keep all nodes of the gang in "
     "one zone and subnet for EFA, and check that no NetworkPolicy stands between its pods."},
    {kConnectionClosed, "connection-closed", kReaction, kAgain,
     "a connection was closed by the rank at its other end, which ended first",
     "Find the first rank that failed (diagnose all ranks' logs together); this one only noticed."},
    {kPeerBusy, "peer-busy", kReaction, kAgain,
     "the peer took no messages in time: it is stuck or overloaded",
     "Look at what the peer did at that time (CPU limit, data loading, a checkpoint), then start "
     "again."},
    {kRequestsFlushed, "requests-flushed", kReaction, kAgain,
     "requests were flushed because the connection was being taken down",
     "Look for the error before this one; it is the reason."},
    {kFabricSoftware, "fabric-software", kOrigin, kChange,
     "the EFA software of two ranks, or of one, doesn't fit together",
     "Use one image for all ranks with an EFA installer, libfabric, aws-ofi-nccl and NCCL that "
     "were tested as a set."},
    {kFabricMemory, "fabric-memory", kOrigin, kChange,
     "libfabric couldn't get memory for its buffers",
     "Ask for hugepages-2Mi: 5120Mi per pod with EFA devices, raise the memory limit, and check "
     "that ulimit -l is unlimited."},
    {kFabricUnknown, "fabric-unknown", kReaction, kAgain,
     "the EFA provider reported an error that it has no words for",
     "Start again; if it comes back, set FI_LOG_LEVEL=warn and diagnose all ranks' logs together."},
    {kEfaDevice, "efa-device-fault", kOrigin, kAgain,
     "the queue pair of this node's EFA device failed",
     "Start the gang on another node and replace this one if it happens again."},
    {kNoEfaProvider, "no-efa-provider", kOrigin, kChange,
     "libfabric found no EFA device in the pod",
     "Ask for vpc.amazonaws.com/efa in the pod's limits (p4d 4, p5 32, p5en 16, p6-b200 8), and "
     "use an image with the EFA installer's libfabric."},
    {kNetworkIsSocket, "network-is-socket", kWarning, kChange,
     "NCCL uses TCP sockets: no EFA device in the pod, or aws-ofi-nccl isn't loaded",
     "On nodes with EFA ask for vpc.amazonaws.com/efa and put the folder of aws-ofi-nccl's "
     "libnccl-net.so on LD_LIBRARY_PATH; on nodes without it this is as it should be."},
    {kRdmaReadForced, "rdma-read-forced", kOrigin, kChange,
     "FI_EFA_USE_DEVICE_RDMA=1 is set, but this EFA device can't do RDMA reads",
     "Remove FI_EFA_USE_DEVICE_RDMA from the environment; libfabric decides by itself."},
    {kSharedMemorySmall, "shared-memory-small", kOrigin, kChange, "/dev/shm is too small",
     "Mount an emptyDir with medium: Memory at /dev/shm (8Gi is plenty); the container runtime's "
     "own has 64 MiB."},
    {kLockedMemoryLow, "locked-memory-low", kOrigin, kChange,
     "memory couldn't be locked for the network device",
     "Raise the limit for locked memory (ulimit -l unlimited on the node's container runtime), or "
     "give the container the capability IPC_LOCK."},
    {kNoSocketInterface, "no-socket-interface", kOrigin, kChange,
     "no network interface is left for NCCL's bootstrap",
     "Set NCCL_SOCKET_IFNAME to an interface that exists in the pod, or to ^docker,lo,veth."},
    {kVersionsDiffer, "versions-differ", kOrigin, kChange, "ranks run different versions",
     "Give all ranks the same image, by digest, and delete pods that still run the old one."},
    {kRanksShareDevice, "ranks-share-device", kOrigin, kChange, "two ranks use the same GPU",
     "Start as many processes per pod as the pod has GPUs, and let every rank take the GPU of its "
     "local rank; a pod must not see GPUs that it didn't ask for (NVIDIA_VISIBLE_DEVICES)."},
    {kRankTaken, "rank-taken", kOrigin, kChange, "two members have the same rank",
     "Check RANK, PET_NODE_RANK and the completion index of the pods: each must occur once."},
    {kWorldSizeMismatch, "world-size-mismatch", kOrigin, kChange,
     "members disagree on the number of ranks",
     "Make replicas times processes per pod the same number everywhere, and let the launcher set "
     "it."},
    {kRendezvousTimeout, "rendezvous-timeout", kReaction, kAgain,
     "not all ranks came to the rendezvous in time",
     "Look at the pods of the missing ranks (kubectl describe pod): pending, pulling their image, "
     "or failed; a gang scheduler starts all of them or none."},
    {kNameNotFound, "name-not-found", kReaction, kAgain, "the name of rank 0 can't be resolved",
     "Check that the job's headless Service exists with publishNotReadyAddresses: true, and that "
     "MASTER_ADDR is a name in it."},
    {kAddressInUse, "address-in-use", kOrigin, kChange, "the rendezvous port is taken",
     "Choose another MASTER_PORT, or don't run two jobs with hostNetwork on one node."},
    {kCollectiveTimeout, "collective-timeout", kReaction, kAgain,
     "a collective wasn't finished in time: some rank was late, hung, or did something else",
     "Find the rank that is behind (diagnose all ranks' logs together) and what it did at that "
     "time."},
    {kAllReduceWrong, "all-reduce-wrong", kOrigin, kAgain,
     "an all-reduce of known numbers gave wrong ones",
     "Start the gang on other nodes, and test the GPUs and network devices of these (dcgmi diag -r "
     "3): one of them changes data."},
    {kAllReduceSlow, "all-reduce-slow", kOrigin, kChange,
     "all-reduces are slower than the nodes' instance type makes them",
     "Run with NCCL_DEBUG=INFO and look for what all nodes have in common (\"via P2P\" or \"via "
     "SHM\", \"Using network\"), and for a node that is slow in itself; if this is as fast as it "
     "gets, say so by node-bandwidth and fabric-bandwidth."},
    {kPeerSlow, "peer-slow", kReaction, kAgain,
     "another node's GPUs exchange data slower than their instance type does",
     "Start the gang without the node that is named."},
    {kNcclSystemError, "nccl-system-error", kReaction, kAgain,
     "a system call or the network failed under NCCL",
     "Run with NCCL_DEBUG=WARN: the NCCL WARN line before this one names the call."},
    {kNcclInternalError, "nccl-internal-error", kReaction, kAgain, "NCCL failed internally",
     "Run with NCCL_DEBUG=WARN: the NCCL WARN line before this one says more; mixed versions and "
     "a peer that ended are the usual reasons."},
    {kNcclMisuse, "nccl-misuse", kReaction, kChange, "NCCL was called wrongly",
     "Run with NCCL_DEBUG=WARN: the NCCL WARN line before this one names the argument; two ranks "
     "on one GPU is the usual reason."},
    {kCudaFailure, "cuda-failure", kReaction, kAgain, "a CUDA call failed",
     "Look for the first CUDA error of this rank and for Xid lines in the node's kernel log."},
    {kMemoryHeldByOthers, "memory-held-by-others", kOrigin, kAgain,
     "other processes hold the memory of this rank's GPU",
     "Start one process per GPU, each with its own device, and end what an earlier job left "
     "running on the node (nvidia-smi names it)."},
    {kOutOfMemory, "out-of-memory", kOrigin, kChange,
     "the GPU's memory is too small for what this rank does",
     "Use a higher ZeRO stage, more ranks, a smaller batch per GPU or activation recomputation."},
    {kModelTooLarge, "model-too-large", kOrigin, kChange,
     "the model's memory plan is larger than the memory that is free",
     "Use ZeRO-3, more ranks on other nodes, or a smaller batch per rank."},
    {kMemoryPressure, "memory-pressure", kWarning, kChange,
     "PyTorch gives memory back and takes it again in each step, because the GPU is nearly full",
     "Lower the batch per GPU, or call empty_cache() on all ranks at the same step."},
    {kHostOutOfMemory, "host-out-of-memory", kOrigin, kChange,
     "the kernel killed the process because the container reached its memory limit",
     "Raise resources.limits.memory (a memory emptyDir such as /dev/shm counts too), or load the "
     "model without a full copy per rank in host memory."},
    {kGpuFault, "gpu-fault", kOrigin, kAgain, "a GPU of this node failed",
     "Start the gang on other nodes, and drain this one: its GPU needs a reset or a replacement."},
    {kGpuLinksSlow, "gpu-links-slow", kOrigin, kAgain,
     "the GPUs of this node exchange data slower than their instance type does",
     "Start the gang on other nodes, and look at this one's NVLinks (nvidia-smi nvlink -e, "
     "nvidia-smi topo -m); if this is as fast as it gets, say so by node-bandwidth."},
    {kContainedMemoryError, "contained-memory-error", kOrigin, kAgain,
     "the GPU found a memory error and ended the program that used that page",
     "Start again; the page isn't used any more. Replace the node if it happens often."},
    {kProgramFault, "program-fault", kOrigin, kChange,
     "the program did something illegal on the GPU",
     "Run with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer; an index out of range, often a token "
     "id above the vocabulary, is the usual reason."},
    {kProgramCrash, "program-crash", kOrigin, kChange, "the process crashed",
     "Look at the process's last lines; mixed versions of native libraries are the usual reason."},
    {kDriverMissing, "driver-missing", kOrigin, kAgain,
     "the node's GPU driver isn't there or doesn't answer",
     "Ask for nvidia.com/gpu in the pod's limits; if it does, replace the node, whose driver isn't "
     "loaded."},
    {kDriverTooOld, "driver-too-old", kOrigin, kChange,
     "the node's GPU driver is older than the image's CUDA version needs",
     "Use nodes with a newer driver (CUDA 13 needs 580, CUDA 12 needs 525), or an image with an "
     "older CUDA version."},
    {kNoHealthyDevices, "no-healthy-devices", kOrigin, kAgain,
     "the kubelet had no healthy device left for the pod that was bound to it",
     "Let the pod be made anew on another node: on this one the devices failed, the device plugin "
     "is restarting, or the node is being shut down."},
    {kNodeLost, "node-lost", kOrigin, kAgain, "the pod's node stopped answering, or was taken away",
     "Annotate the pods with karpenter.sh/do-not-disrupt: \"true\" and use consolidationPolicy: "
     "WhenEmpty; then start the gang again."},
    {kNodeStorageLow, "node-storage-low", kOrigin, kChange,
     "the kubelet evicted the pod because its node ran short of a resource",
     "Give the pod a request and a limit for it (ephemeral-storage, memory), or the nodes a larger "
     "disk."},
    {kTerminated, "terminated", kReaction, kSigterm,
     "the process got SIGTERM: an eviction, or its job was ended",
     "Nothing, if that was intended; otherwise look at the pod's events for who evicted it."},
    {kKilled, "killed", kOrigin, kSigkill,
     "the process was killed with SIGKILL: mostly by the kernel at the container's memory limit",
     "Look for OOMKilled in kubectl describe pod and raise resources.limits.memory; otherwise for "
     "a grace period that was too short."},
    {kGracePeriodShort, "grace-period-short", kWarning, kChange,
     "the container didn't end within its grace period and was killed",
     "Raise terminationGracePeriodSeconds above the time of a checkpoint, and start the program in "
     "exec form so that SIGTERM reaches it."},
    {kImageNotFound, "image-not-found", kOrigin, kChange, "the image doesn't exist",
     "Correct the image's name or tag."},
    {kImageDenied, "image-denied", kOrigin, kChange, "the registry refuses the image",
     "Give the pod imagePullSecrets, or the node's role the right to pull from the registry."},
    {kImagePullFailed, "image-pull-failed", kOrigin, kAgain, "the image couldn't be pulled",
     "It is tried again by itself; check the node's way to the registry and the registry's rate "
     "limit if it goes on."},
    {kImageArchitecture, "image-architecture", kOrigin, kChange,
     "the image's program is for another processor, or its script has no interpreter line",
     "Build the image for the node's architecture, or select nodes by kubernetes.io/arch."},
    {kVolumeNotMounted, "volume-not-mounted", kReaction, kAgain,
     "a volume of the pod couldn't be mounted",
     "Check that the volume's claim, ConfigMap or Secret exists; while a pod or its node is going "
     "away this is to be expected."},
    {kUnschedulableCapacity, "unschedulable-capacity", kOrigin, kAgain,
     "no node has enough of what the pod asks for",
     "Wait for Karpenter to bring a node, or ask for no more devices than an instance type has."},
    {kUnschedulableAffinity, "unschedulable-affinity", kOrigin, kChange,
     "the pods' required affinity can't be met",
     "Drop the required podAffinity on kubernetes.io/hostname, which wants all pods on one node; "
     "use a preferred one, or one on the zone."},
    {kUnschedulableTaint, "unschedulable-taint", kOrigin, kAgain,
     "the nodes that would do have a taint that the pod doesn't tolerate",
     "Wait if it is karpenter.sh/unregistered or another that goes by itself; otherwise add the "
     "toleration."},
    {kUnschedulableSelector, "unschedulable-selector", kOrigin, kChange,
     "no node has the labels that the pod selects",
     "Check the pod's nodeSelector against the labels of the NodePools; Karpenter can only make "
     "nodes that one of them describes."},
    {kNoInstanceType, "no-instance-type", kOrigin, kChange,
     "no instance type has what the pod asks for within what the NodePools allow",
     "Ask for no more GPUs and EFA devices than one instance has (p4d: 8 and 4), and check the "
     "NodePool's zones, capacity types and instance types."},
    {kConfigurationInvalid, "configuration-invalid", kOrigin, kChange,
     "the job's configuration is wrong", "Correct what the message names."},
    {kCheckpointUnwritable, "checkpoint-unwritable", kOrigin, kChange,
     "the checkpoint folder can't be written",
     "Mount a shared volume there that the container's user may write (securityContext.fsGroup)."},
    {kCheckpointCorrupt, "checkpoint-corrupt", kOrigin, kChange, "a checkpoint can't be read",
     "Resume from the last checkpoint that was committed whole, and delete this one."},
    {kDataCorrupt, "data-corrupt", kOrigin, kChange, "a file of training data can't be read",
     "Make the shard again with the converter."},
    {kDiskFull, "disk-full", kOrigin, kChange, "a disk is full",
     "Make room, keep fewer checkpoints, or give the volume more space."},
    {kStorageFailed, "storage-failed", kOrigin, kAgain, "a volume didn't do what was asked of it",
     "Look at the events of the volume's claim and at its server (a network file system that went "
     "away, a disk with errors), then start again."},
    {kLossNotFinite, "loss-not-finite", kOrigin, kChange, "the loss is not a number",
     "Lower the learning rate or lengthen its warm-up, and resume from a checkpoint before it."},
}};

}  // namespace

std::span<const Cause> Causes() { return kCauses; }

const Cause& CauseOf(CauseId id) { return kCauses.at(static_cast<size_t>(id)); }

const Cause* FindCause(std::string_view name) {
  const auto* found = std::ranges::find(kCauses, name, &Cause::name);
  return found == kCauses.end() ? nullptr : found;
}

Outcome OutcomeOf(const Cause& cause) {
  return cause.exit_code < 128 ? Outcome::kConfiguration : Outcome::kRetry;
}

std::string_view OutcomeName(Outcome outcome) {
  return outcome == Outcome::kRetry ? "retry" : "configuration";
}

}  // namespace muster::worker
