#include "worker/diagnose/patterns.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "worker/diagnose/diagnosis.h"
#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

struct Case {
  std::string_view cause;
  std::string_view line;
};

// Lines of the form that each program writes.
const std::vector<Case>& Cases() {
  static const std::vector<Case> kCases = {
      {"no-efa-provider",
       "train-0:194:712 [0] nccl_net_ofi_create_plugin:213 NCCL WARN NET/OFI No eligible providers "
       "were found"},
      {"no-efa-provider",
       "libfabric:85:1747438790::core:core:fi_getinfo_():1392<warn> fi_getinfo: provider efa "
       "output "
       "empty list"},
      {"network-is-socket", "train-0:194:712 [0] NCCL INFO Using network Socket"},
      {"rdma-read-forced",
       "libfabric:194:1747438790::efa:core:efa_device_support_rdma_read():90<warn> "
       "FI_EFA_USE_DEVICE_RDMA=1 was set, but EFA device has no rdma-read capability."},
      {"peer-unreachable",
       "train-0:194:710 [0] NCCL WARN NET/OFI Unable to insert remote address into address vector "
       "for device 1"},
      {"peer-unreachable",
       "train-0:194:710 [0] misc/socket.cc:487 NCCL WARN socketStartConnect: Connect to "
       "10.0.5.89<41417> failed : No route to host"},
      {"peer-unreachable", "OSError: [Errno 113] EHOSTUNREACH: connect to 10.0.5.89 port 29500"},
      {"peer-unreachable",
       "train-0:194:710 [0] misc/socket.cc:487 NCCL WARN socketStartConnect: Connect to "
       "10.0.5.89<41417> failed : Connection timed out"},
      {"connection-closed",
       "train-0:194:710 [1] misc/socket.cc:538 NCCL WARN Net : Connection closed by remote peer "
       "train-1.train.default.svc.cluster.local<47861>"},
      {"connection-closed",
       "train-0:194:710 [1] misc/socket.cc:58 NCCL WARN socketProgressOpt: Call to recv from "
       "10.0.5.89<58355> failed : Connection reset by peer"},
      {"connection-closed",
       "train-0:194:710 [1] misc/socket.cc:518 NCCL WARN Net : Call to recv from 10.0.5.89<58355> "
       "failed : Broken pipe"},
      {"connection-refused",
       "train-0:194:710 [1] misc/socket.cc:441 NCCL WARN socketPollConnect: Connect to "
       "10.0.5.89<58355> returned 111(Connection refused) errno 115"},
      {"connection-closed",
       "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Gloo "
       "connectFullMesh "
       "failed with Connection closed by peer [10.0.5.89]:2345"},
      {"shared-memory-small",
       "train-0:194:712 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend "
       "/dev/shm/nccl-cwgGaZ to 33030532 bytes, error: No space left on device (28)"},
      {"shared-memory-small",
       "train-0:194:712 [0] include/shm.h:48 NCCL WARN Error while creating shared memory segment "
       "/dev/shm/nccl-cwgGaZ (size 9637888), error: No space left on device (28)"},
      {"shared-memory-small",
       "RuntimeError: DataLoader worker (pid 192) is killed by signal: Bus error. It is possible "
       "that "
       "dataloader's workers are out of shared memory. Please try to raise your shared memory "
       "limit."},
      {"locked-memory-low",
       "train-0:194:712 [0] misc/ibvwrap.cc:190 NCCL WARN Call to ibv_create_cq failed with error "
       "Cannot allocate memory"},
      {"locked-memory-low", "mlock failed, check RLIMIT_MEMLOCK (64 KiB)"},
      {"no-socket-interface",
       "train-0:194:712 [0] NCCL WARN Bootstrap : no socket interface found"},
      {"no-socket-interface", "train-0:194:712 [0] NCCL WARN NET/Socket : no interface found"},
      {"versions-differ",
       "train-0:194:712 [0] bootstrap.cc:200 NCCL WARN Mismatched NCCL version detected : rank 0 "
       "version 22703 rank 3 version 22203"},
      {"versions-differ", "ranks have mismatched NCCL versions: 2.27.3 and 2.28.9"},
      {"ranks-share-device",
       "train-0:194:712 [0] init.cc:943 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both "
       "on "
       "CUDA device 1a0"},
      {"ranks-share-device", "duplicate GPU UUID GPU-8f2f on ranks 0 and 1"},
      {"rendezvous-timeout",
       "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 "
       "clients "
       "joined."},
      {"rendezvous-timeout", "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"},
      {"rendezvous-timeout",
       "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while "
       "trying to connect to (train-0.train, 29500)."},
      {"name-not-found",
       "[W101 12:08:33.945328381 socket.cpp:752] [c10d] The IPv6 network addresses of "
       "(train-0.train, "
       "29500) cannot be retrieved (gai error: -2 - Name or service not known)."},
      {"name-not-found", "socket.gaierror: [Errno -3] Temporary failure in name resolution"},
      {"address-in-use",
       "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
       "network "
       "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address "
       "already in "
       "use"},
      {"collective-timeout",
       "[rank0]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught "
       "collective "
       "operation timeout: WorkNCCL(SeqNum=7753, OpType=_REDUCE_SCATTER_BASE, NumelIn=544997376, "
       "NumelOut=68124672, Timeout(ms)=600000) ran for 600061 milliseconds before timing out."},
      {"collective-timeout",
       "RuntimeError: NCCL communicator was aborted on rank 1: collective operation timeout "
       "detected by "
       "watchdog"},
      {"out-of-memory", "RuntimeError: CUDA out of memory."},
      {"out-of-memory", "RuntimeError: CUDA error: out of memory"},
      {"out-of-memory",
       "train-0:194:712 [0] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'"},
      {"memory-pressure",
       "[2025-12-31 17:08:24,236] [WARNING] [stage3.py:2236:step] 1 pytorch allocator cache "
       "flushes "
       "since last step. this happens when there is high memory pressure"},
      {"host-out-of-memory", "      Reason:       OOMKilled"},
      {"host-out-of-memory",
       "[Thu Jan  1 12:08:32 2026] Memory cgroup out of memory: Killed process 4242 (python) "
       "total-vm:93487252kB, anon-rss:66543212kB"},
      {"host-allocation-failed", "ld.so: cannot allocate memory for thread-local data: ABORT"},
      {"host-allocation-failed",
       "RuntimeError: [enforce fail at alloc_cpu.cpp:114] err == 0. DefaultCPUAllocator: can't "
       "allocate "
       "memory: you tried to allocate 117440512 bytes. Error code 12 (Cannot allocate memory)"},
      {"gpu-fault", "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"},
      {"gpu-fault",
       "train-0:194:712 [0] NCCL WARN Cuda failure 'uncorrectable NVLink error detected'"},
      {"gpu-fault", "NVRM: GPU 0000:53:00.0: GPU has fallen off the bus."},
      {"gpu-fault",
       "Unable to determine the device handle for GPU0000:53:00.0: GPU is lost.  Reboot the system "
       "to "
       "recover this GPU"},
      {"gpu-fabric-down", "RuntimeError: CUDA error: system not yet initialized"},
      {"program-fault",
       "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"},
      {"program-fault", "RuntimeError: CUDA error: device-side assert triggered"},
      {"program-crash", "  traceback : Signal 11 (SIGSEGV) received by PID 192"},
      {"process-aborted", "  traceback : Signal 6 (SIGABRT) received by PID 192"},
      {"driver-too-old",
       "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version"},
      {"driver-too-old",
       "RuntimeError: The NVIDIA driver on your system is too old (found version 12020). Please "
       "update "
       "your GPU driver"},
      {"driver-too-old",
       "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0, please update "
       "your "
       "driver to a newer version"},
      {"driver-missing",
       "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown"},
      {"driver-missing",
       "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA "
       "GPU"},
      {"driver-missing", "RuntimeError: CUDA error: no CUDA-capable device is detected"},
      {"no-healthy-devices",
       "  Warning  UnexpectedAdmissionError  3m2s  kubelet  Allocate failed due to no healthy "
       "devices "
       "present; cannot allocate unhealthy devices nvidia.com/gpu, which is unexpected"},
      {"no-healthy-devices",
       "  Warning  UnexpectedAdmissionError  8s  kubelet  Allocate failed due to requested number "
       "of "
       "devices unavailable for nvidia.com/gpu. Requested: 8, Available: 7, which is unexpected"},
      {"node-lost", "  Warning  NodeNotReady  2m  node-controller  Node is not ready"},
      {"node-lost",
       "  Normal  TaintManagerEviction  2m  taint-eviction-controller  Marking for deletion Pod "
       "default/train-0"},
      {"node-lost", "Message:          Pod was terminated in response to imminent node shutdown."},
      {"node-lost",
       "  Warning  SpotInterrupted  2m  karpenter  Spot interruption warning was triggered"},
      {"node-storage-low",
       "Message:          The node was low on resource: ephemeral-storage. Threshold quantity: "
       "8580850073, available: 7915824Ki."},
      {"grace-period-short",
       "  Warning  ExceededGracePeriod  6m31s  kubelet  Container runtime did not kill the pod "
       "within "
       "specified grace period."},
      {"image-denied",
       "  Warning  Failed  9s  kubelet  Failed to pull image \"r/i:1\": failed to authorize: "
       "unexpected "
       "status from HEAD request: 401 Unauthorized"},
      {"image-denied",
       "  Warning  Failed  9s  kubelet  Failed to pull image \"r/i:1\": pull access denied, "
       "repository "
       "does not exist or may require authorization"},
      {"image-denied",
       "  Warning  Failed  9s  kubelet  Failed to pull image \"r/i:1\": unexpected status: 403 "
       "Forbidden"},
      {"image-not-found",
       "  Warning  Failed  9s  kubelet  Failed to pull image \"r/i:1\": rpc error: code = NotFound "
       "desc "
       "= failed to pull and unpack image \"r/i:1\": r/i:1: not found"},
      {"image-not-found",
       "  Warning  Failed  9s  kubelet  Failed to pull image \"r/i:1\": manifest unknown"},
      {"image-not-found", "      Reason:       InvalidImageName"},
      {"image-pull-failed",
       "  Warning  Failed  9s  kubelet  Failed to pull image \"r/i:1\": toomanyrequests: You have "
       "reached your pull rate limit"},
      {"image-pull-failed", "  Warning  Failed  9s (x4 over 2m)  kubelet  Error: ErrImagePull"},
      {"image-pull-failed",
       "  Normal  BackOff  9s (x6 over 2m)  kubelet  Back-off pulling image \"r/i\""},
      {"image-architecture", "exec /usr/local/bin/muster-worker: exec format error"},
      {"volume-not-mounted",
       "  Warning  FailedMount  3m2s  kubelet  MountVolume.SetUp failed for volume "
       "\"kube-api-access-pj2nv\" : object \"default\"/\"kube-root-ca.crt\" not registered"},
      {"volume-not-mounted",
       "  Warning  FailedAttachVolume  9s  attachdetach-controller  Multi-Attach error for volume"},
      {"unschedulable-affinity",
       "  Warning  FailedScheduling  9m  default-scheduler  0/5 nodes are available: 4 node(s) "
       "didn't "
       "match pod affinity rules, 1 node(s) had untolerated taint(s)."},
      {"unschedulable-capacity",
       "  Warning  FailedScheduling  9m53s (x2 over 9m53s)  default-scheduler  0/5 nodes are "
       "available: "
       "1 Insufficient nvidia.com/gpu, 4 node(s) didn't match Pod's node affinity/selector."},
      {"unschedulable-capacity",
       "  Warning  FailedScheduling  9m  default-scheduler  0/5 nodes are available: 5 "
       "Insufficient "
       "vpc.amazonaws.com/efa."},
      {"unschedulable-capacity",
       "  Warning  FailedScheduling  9m  default-scheduler  0/5 nodes are available: 5 "
       "Insufficient "
       "hugepages-2Mi."},
      {"unschedulable-taint",
       "  Warning  FailedScheduling  9m  default-scheduler  0/3 nodes are available: 1 node(s) had "
       "untolerated taint {karpenter.sh/unregistered: }, 2 node(s) didn't match Pod's node "
       "affinity/selector."},
      {"unschedulable-selector",
       "  Warning  FailedScheduling  11m  default-scheduler  0/4 nodes are available: 4 node(s) "
       "didn't "
       "match Pod's node affinity/selector. no new claims to deallocate, preemption: 0/4 nodes are "
       "available: 4 Preemption is not helpful for scheduling."},
      {"no-instance-type",
       "\"error\":\"no instance type which had enough resources and the required offering met the "
       "scheduling requirements\""},
      {"no-instance-type",
       "  Warning  FailedScheduling  9m  karpenter  no instance type met all requirements"},
      {"terminated",
       "W0101 12:09:18.826000 7 torch/distributed/elastic/agent/server/api.py:704] Received "
       "Signals.SIGTERM death signal, shutting down workers"},
      {"terminated",
       "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15"},
      {"terminated", "  traceback : Signal 15 (SIGTERM) received by PID 192"},
      {"terminated", "      Exit Code:    143"},
      {"killed", "  traceback : Signal 9 (SIGKILL) received by PID 192"},
      {"killed", "      Exit Code:    137"},
      {"peer-lost",
       "[rank0]: ncclRemoteError: A call failed possibly due to a network error or a remote "
       "process "
       "exiting prematurely."},
      {"cuda-failure", "[rank0]: ncclUnhandledCudaError: Call to CUDA function failed."},
      {"nccl-system-error",
       "[rank0]: ncclSystemError: System call (e.g. socket, malloc) or external library call "
       "failed or "
       "device error."},
      {"nccl-internal-error", "[rank0]: ncclInternalError: Internal check failed."},
      {"nccl-misuse",
       "[rank0]: ncclInvalidUsage: This usually reflects invalid usage of NCCL library."},
      {"nccl-misuse", "[rank0]: ncclInvalidArgument: Invalid value for an argument."},
      {"disk-full", "OSError: [Errno 28] No space left on device: '/checkpoints/step-100'"},
      {"rendezvous-timeout",
       "rendezvous at train-0:29500: 2 of 4 ranks came in time; missing: ranks 2 and 3"},
      {"rendezvous-timeout",
       "the rendezvous store of rank 0 at train-0:29500 was not reached within 10m: connect: "
       "Connection refused"},
      {"rank-taken",
       "two processes have one rank: rank 1 (train-1, process 7) and rank 1 (train-2, process 7); "
       "check RANK of the pods"},
      {"world-size-mismatch",
       "rank 3 (train-3, process 7) was started for 8 ranks, rank 0 for 4: give all pods of the "
       "job "
       "the same replicas and processes per node"},
      {"world-size-mismatch", "rank 5 (train-5, process 7) doesn't exist among 4 ranks"},
      {"versions-differ",
       "Mismatched worker version: rank 0 (train-0, process 7) has 0.1.0, rank 1 (train-1, process "
       "7) has 0.2.0; use one image for all pods"},
      {"collective-timeout",
       "rank 2 did not come to all-reduce 42 (1024 bytes) within 5m; rank 2 was last heard from in "
       "all-reduce 41 (4 bytes)"},
      {"collective-timeout",
       "rank 2 did not finish all-reduce 42 (1024 bytes) within 5m; rank 2 was last heard from in "
       "all-reduce 42 (1024 bytes)"},
      {"peer-lost",
       "rank 5 (train-5, process 7) is lost: its connection ended; it was in all-reduce 42 (1024 "
       "bytes)"},
      {"peer-lost", "rank 5 is gone, during all-reduce 42 (1024 bytes): its connection broke"},
      {"checkpoint-corrupt",
       "/checkpoints: none of 3 checkpoints can be loaded, the last of step 200; move them away to "
       "start anew"},
      {"loss-not-finite",
       "step 12: the loss is nan and the gradient's norm nan; the parameters were not updated. "
       "Resume from the last checkpoint with a lower learning rate"},
  };
  return kCases;
}

// What a log of this line alone shows first; warnings, too.
std::string Shown(std::string_view line) {
  Diagnosis diagnosis;
  diagnosis.ReadText("log", line);
  const Explanation explanation = diagnosis.Explain();
  if (explanation.findings.empty()) return "nothing";
  return std::string(CauseOf(explanation.findings[0].observation.cause).name);
}

TEST(Patterns, LinesShowTheirCause) {
  for (const Case& item : Cases()) EXPECT_EQ(Shown(item.line), item.cause) << item.line;
}

TextKind KindOf(const Pattern& pattern) {
  switch (pattern.kind) {
    case RowKind::kRaised:
    case RowKind::kWraps:
    case RowKind::kData:
    case RowKind::kCheckpoint:
    case RowKind::kSharing:
      return TextKind::kException;
    case RowKind::kWarned:
      return TextKind::kQuiet;
    case RowKind::kInfo:
      return TextKind::kNcclInfo;
    case RowKind::kEvent:
      return TextKind::kEvent;
    default:
      return TextKind::kMessage;
  }
}

Doing DoingOf(const Pattern& pattern) {
  if (pattern.kind == RowKind::kData) return Doing::kData;
  if (pattern.kind == RowKind::kSharing) return Doing::kSharing;
  return pattern.kind == RowKind::kCheckpoint ? Doing::kCheckpoint : Doing::kUnsaid;
}

// A row that another cause's row always beats is dead.
TEST(Patterns, TheWordsOfEveryRowShowItsCause) {
  for (const Pattern& pattern : Patterns()) {
    std::string text;
    for (const std::string_view word : pattern.words) Append(&text, word, "~");
    const Pattern* found = FindPattern(text, KindOf(pattern), DoingOf(pattern));
    ASSERT_NE(found, nullptr) << text;
    EXPECT_EQ(CauseOf(found->cause).name, CauseOf(pattern.cause).name) << text;
    EXPECT_GE(pattern.words.front().size(), kMinFirstWord) << text;
  }
}

TEST(Patterns, TheMostLettersCountAndWhatSaysWhyBeforeHowItEnded) {
  const auto cause = [](std::string_view text) {
    return CauseOf(FindPattern(text, TextKind::kException)->cause).name;
  };
  EXPECT_EQ(cause("OSError: No space left on device"), "disk-full");
  EXPECT_EQ(cause("NCCL WARN /dev/shm/nccl-x: No space left on device"), "shared-memory-small");
  EXPECT_EQ(cause("ncclSystemError: System call failed\nNCCL WARN Broken pipe"),
            "connection-closed");
  EXPECT_EQ(FindPattern("Memory cgroup out of memory: Killed process 7", TextKind::kMessage)->cause,
            CauseId::kHostOutOfMemory);
  EXPECT_EQ(FindPattern("Out of memory: Killed process 7", TextKind::kMessage)->cause,
            CauseId::kNodeOutOfMemory);
}

TEST(Patterns, WordsAreNotLookedForWithinLongerOnes) {
  const auto shown = [](std::string_view text) {
    const Pattern* found = FindPattern(text, TextKind::kException);
    return found == nullptr ? "nothing" : CauseOf(found->cause).name;
  };
  EXPECT_EQ(shown("MemoryError"), "host-allocation-failed");
  EXPECT_EQ(shown("pool.OutOfMemoryError: no page is left"), "nothing");
  EXPECT_EQ(shown("Got completion from peer 1 with status=12"), "retries-exceeded");
  EXPECT_EQ(shown("Got completion from peer 1 with status=120"), "nothing");
}

TEST(Patterns, WhatIsReadDecidesWhatTheErrorOfAFormatMeans) {
  const auto shown = [](std::string_view text, Doing doing) {
    const Pattern* found = FindPattern(text, TextKind::kException, doing);
    return found == nullptr ? "nothing" : CauseOf(found->cause).name;
  };
  constexpr std::string_view kPickle = "EOFError: Ran out of input";
  EXPECT_EQ(shown(kPickle, Doing::kData), "data-corrupt");
  EXPECT_EQ(shown(kPickle, Doing::kCheckpoint), "checkpoint-corrupt");
  EXPECT_EQ(shown(kPickle, Doing::kUnsaid), "nothing");
  EXPECT_EQ(shown("OSError: [Errno 28] x", Doing::kSharing), "shared-memory-small");
  EXPECT_EQ(shown("OSError: [Errno 28] x", Doing::kUnsaid), "disk-full");
  constexpr std::string_view kTensors = "RuntimeError: PytorchStreamReader failed reading";
  EXPECT_EQ(shown(kTensors, Doing::kData), "data-corrupt");
  EXPECT_EQ(shown(kTensors, Doing::kUnsaid), "checkpoint-corrupt");
}

TEST(Patterns, WhatPassesOnAnErrorSaysNothingBesideIt) {
  constexpr std::string_view kWrapped =
      "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\n";
  EXPECT_EQ(FindPattern(kWrapped, TextKind::kException)->cause, CauseId::kCompileFailed);
  EXPECT_EQ(
      FindPattern(Concat(kWrapped, "OutOfMemoryError: CUDA out of memory."), TextKind::kException)
          ->cause,
      CauseId::kOutOfMemory);
}

TEST(Patterns, WhereWordsStandDecidesWhatTheyMean) {
  constexpr std::string_view kRefused = "Connection refused";
  EXPECT_NE(FindPattern(kRefused, TextKind::kException), nullptr);
  EXPECT_EQ(FindPattern(kRefused, TextKind::kMessage), nullptr);
  EXPECT_EQ(FindPattern("CUDA out of memory", TextKind::kQuiet), nullptr);
  EXPECT_EQ(FindPattern("FailedMount", TextKind::kMessage), nullptr);
  EXPECT_NE(FindPattern("FailedMount", TextKind::kEvent), nullptr);
}

TEST(Patterns, TheOrdinaryCourseOfThingsShowsNothing) {
  for (const std::string_view line : {
           "train-0:194:713 [0] NCCL INFO [Proxy Progress] Device 0 CPU core 19",
           "train-0:194:712 [0] NCCL INFO Channel 00/0 : 3[0] -> 0[0] [receive] via "
           "NET/Libfabric/0/GDRDMA",
           "train-0:194:712 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)",
           "train-0:194:712 [0] NCCL INFO Using network Libfabric",
           "train-0:194:712 [0] NCCL INFO NET/Plugin: Failed to find ncclCollNetPlugin_v10 symbol.",
           "train-0:194:712 [0] NCCL INFO Bootstrap: Using eth0:10.0.5.89<0>",
           "train-0:194:712 [0] NCCL INFO transport/net.cc:753 -> 6",
           "train-0:194:712 [0] NCCL INFO [Service thread] Connection closed by localRank 0",
           "train-0:194:712 [0] NCCL INFO comm 0x63d2 rank 0 nRanks 4 nNodes 4 localRanks 1 - "
           "Abort "
           "COMPLETE",
           "train-0:194:712 [0] NCCL INFO misc/socket.cc:64 NCCL WARN-free: Connection reset by "
           "peer",
           "train-0:194:712 [0] NCCL INFO ncclCommInitRank comm 0x63d2 rank 0 nranks 4 - Init "
           "COMPLETE",
           "[rank0]:[W101 12:08:33.9 ProcessGroupNCCL.cpp:1538] Warning: WARNING: "
           "destroy_process_group() was not called before program exit",
           "  Normal   Pulling  9m20s  kubelet  Pulling image \"r/i:1\"",
           "  Normal   Nominated  11m  karpenter  Pod should schedule on: nodeclaim/gpu-v278f",
           "Loading checkpoint shards: 100%|##########| 4/4 [00:00<00:00, 113.18it/s]",
           "step 100 loss 3.14 tokens/s 12345",
           "    State:          Running",
           "      Exit Code:    0",
           "",
       }) {
    EXPECT_EQ(Shown(line), "nothing") << line;
  }
}

}  // namespace
}  // namespace muster::worker
