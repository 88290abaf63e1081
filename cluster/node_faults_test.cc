#include "cluster/node_faults.h"

#include <gtest/gtest.h>

#include "cluster/snapshot.h"
#include "cluster/test_objects.h"

namespace muster::cluster {
namespace {

kube::Pod FailedPod(std::string uid, std::string reason, std::string termination = "") {
  kube::Pod pod;
  pod.meta.uid = std::move(uid);
  pod.node_name = "n1";
  pod.phase = kube::PodPhase::kFailed;
  pod.status_reason = std::move(reason);
  pod.status_message = "Allocate failed due to no healthy devices present";
  pod.termination_message = std::move(termination);
  return pod;
}

TEST(FailureText, IsTheFaultOfTheNodeOrElseWhatTheStatusSays) {
  EXPECT_EQ(FailureText(FailedPod("a", "UnexpectedAdmissionError")),
            "UnexpectedAdmissionError: Allocate failed due to no healthy devices present");
  EXPECT_EQ(FailureText(FailedPod("b", "Evicted", "out of memory")),
            "Evicted: Allocate failed due to no healthy devices present: out of memory");
  EXPECT_EQ(FailureText(kube::Pod()), "");
}

TEST(DeviceFault, NamesTheFaultAndQuotesItsLine) {
  const struct {
    const char* message;
    const char* fault;
  } cases[] = {
      {"epoch 3\nNVRM: Xid (PCI:0000:53:00): 79, pid=2718, GPU has fallen off the bus.\nbye",
       "Xid 79 (the GPU has fallen off the bus): NVRM: Xid (PCI:0000:53:00): 79, pid=2718, GPU has "
       "fallen off the bus."},
      {"XID 48: DBE", "Xid 48 (double-bit ECC error): XID 48: DBE"},
      {"Xid 13 ignored, then Xid 95",
       "Xid 95 (uncontained ECC error): Xid 13 ignored, then Xid 95"},
      {"Traceback (most recent call last):\n"
       "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n"
       "CUDA kernel errors might be asynchronously reported",
       "uncorrectable ECC error: torch.AcceleratorError: CUDA error: uncorrectable ECC error "
       "encountered"},
      {"CUDA error: system not yet initialized",
       "the GPUs' fabric isn't up: CUDA error: system not yet initialized"},
      {"GPU 0000:53:00.0: GPU is lost. Reboot the system to recover this GPU",
       "the GPU is lost: GPU 0000:53:00.0: GPU is lost. Reboot the system to recover this GPU"},
      {"OCI runtime create failed: nvidia-container-cli: initialization error: nvml error: driver "
       "not loaded: unknown",
       "no GPU driver: OCI runtime create failed: nvidia-container-cli: initialization error: nvml "
       "error: driver not loaded: unknown"},
      {R"({"cause":"gpu-xid","rank":3})",
       R"(the worker reports its GPU: {"cause":"gpu-xid","rank":3})"},
      {"NET/OFI Request 0x7f completed with error. RC: 5. Error: 2 (Internal queue pair error)",
       "the EFA device's queue pair failed: NET/OFI Request 0x7f completed with error. RC: 5. "
       "Error: 2 (Internal queue pair error)"},
  };
  for (const auto& test : cases) EXPECT_EQ(DeviceFaultIn(test.message), test.fault);
}

TEST(DeviceFault, WhatAProgramOrAPeerMayHaveCausedSaysNothingOfTheNode) {
  for (const char* message : {
           "",
           "Traceback (most recent call last):\nValueError: max_id 79 is out of range",
           "KeyError: 'xid'",
           "RuntimeError: maxid: 79",
           "NVRM: Xid (PCI:0000:53:00): 31, pid=2718, MMU Fault",
           "NVRM: Xid (PCI:0000:53:00): 13, Graphics Exception",
           "NVRM: Xid (PCI:0000:53:00): 94, Contained: CE User Channel",
           "Xid (PCI",
           "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB.",
           "CUDA error: an illegal memory access was encountered",
           "CUDA error: device-side assert triggered",
           ("ncclRemoteError: A call failed possibly due to a network error or a remote process "
            "exiting prematurely."),
           "NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
           ("NCCL WARN NET/OFI Request 0x7f456c224810 completed with error. RC: 103. Error: 4126 "
            "(Unresponsive receiver (reachable by EFA device but handshake failed)"),
           "NET/OFI Request 0x7f completed with error. RC: 113. Error: 15 (Unreachable remote)",
           "NET/OFI Request 0x7f completed with error. RC: 103. Error: 4124 (Unresponsive receiver",
           "nvidia-container-cli: device error: GPU-1: unknown device",
       }) {
    EXPECT_EQ(DeviceFaultIn(message), "") << message;
  }
}

TEST(DeviceFault, QuotesAtMostTwoHundredCharacters) {
  const std::string message = std::string(1'000, 'x') + " GPU is lost " + std::string(1'000, 'y');
  const std::string fault = DeviceFaultIn(message);
  EXPECT_EQ(fault.substr(0, 29), "the GPU is lost: GPU is lost ");
  EXPECT_EQ(fault.size(), 17 + 200);
}

TEST(NodeFault, WhatTheKubeletRefusesOrAWorkerBlamesOnItsDevices) {
  EXPECT_EQ(NodeFault(FailedPod("u", "UnexpectedAdmissionError")),
            "UnexpectedAdmissionError: Allocate failed due to no healthy devices present");
  EXPECT_TRUE(NodeFault(FailedPod("u", "OutOfnvidia.com/gpu")).has_value());
  EXPECT_EQ(NodeFault(FailedPod("u", "Error", "NVRM: XID 79: fell off")),
            "Xid 79 (the GPU has fallen off the bus): NVRM: XID 79: fell off");
}

TEST(NodeFault, AContainerThatFailedSoAndWasStartedAgainCountsAsWell) {
  kube::Pod pod = FailedPod("u", "", "CUDA error: uncorrectable ECC error encountered");
  pod.phase = kube::PodPhase::kRunning;
  EXPECT_TRUE(NodeFault(pod).has_value());
  pod.phase = kube::PodPhase::kSucceeded;
  EXPECT_FALSE(NodeFault(pod).has_value());
}

TEST(NodeFault, AnOrdinaryFailureOrARunningPodSaysNothingOfTheNode) {
  EXPECT_FALSE(NodeFault(FailedPod("u", "Error", "exit 1")).has_value());
  EXPECT_FALSE(NodeFault(FailedPod("u", "Evicted")).has_value());
  kube::Pod running = FailedPod("u", "UnexpectedAdmissionError");
  running.phase = kube::PodPhase::kRunning;
  EXPECT_FALSE(NodeFault(running).has_value());
}

TEST(KubeletRejection, IsTheStatusAndNotWhatAContainerSays) {
  EXPECT_EQ(KubeletRejection(FailedPod("u", "OutOfcpu")),
            "OutOfcpu: Allocate failed due to no healthy devices present");
  EXPECT_EQ(KubeletRejection(FailedPod("u", "Error", "GPU is lost")), std::nullopt);
  EXPECT_EQ(KubeletRejection(FailedPod("u", "Evicted")), std::nullopt);
}

// A node of 8 GPUs, on which others ask for `others`, and a pod that asks for `asks`.
bool IsTaken(int64_t allocatable, int64_t others, int64_t asks) {
  NodeInfo info;
  info.node =
      std::make_shared<const kube::Node>(test::WithGpus(test::MakeNode("n1"), allocatable, 8));
  info.requested = test::Resources({{"nvidia.com/gpu", others}});
  kube::Pod pod = FailedPod("u", "OutOfnvidia.com/gpu");
  kube::PodSpec spec;
  spec.requests = test::Resources({{"nvidia.com/gpu", asks}});
  pod.spec = std::make_shared<const kube::PodSpec>(std::move(spec));
  return IsTakenByOthers(pod, info);
}

TEST(IsTakenByOthers, IfTheNodeHasAllItsDevicesAndNoneIsLeft) {
  EXPECT_FALSE(IsTaken(8, 0, 8));
  EXPECT_TRUE(IsTaken(8, 1, 8));
  EXPECT_FALSE(IsTaken(8, 7, 1));
  // The node has lost one.
  EXPECT_FALSE(IsTaken(7, 0, 8));
  EXPECT_FALSE(IsTaken(7, 7, 1));
  EXPECT_TRUE(IsTaken(7, 8, 1));
}

}  // namespace
}  // namespace muster::cluster
