#include "coscheduling/suspect_nodes.h"

#include <gtest/gtest.h>

namespace muster::coscheduling {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'000);

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

TEST(NodeFault, WhatTheKubeletRefusesOrAWorkerBlamesOnItsDevices) {
  EXPECT_EQ(NodeFault(FailedPod("u", "UnexpectedAdmissionError")),
            "UnexpectedAdmissionError: Allocate failed due to no healthy devices present");
  EXPECT_TRUE(NodeFault(FailedPod("u", "OutOfnvidia.com/gpu")).has_value());
  EXPECT_TRUE(NodeFault(FailedPod("u", "", R"({"cause":"gpu-xid","rank":3})")).has_value());
  EXPECT_TRUE(NodeFault(FailedPod("u", "Error", "NVRM: XID 79: fell off the bus")).has_value());
}

TEST(NodeFault, AnOrdinaryFailureOrARunningPodSaysNothingOfTheNode) {
  EXPECT_FALSE(NodeFault(FailedPod("u", "Error", "exit 1")).has_value());
  EXPECT_FALSE(NodeFault(FailedPod("u", "Evicted")).has_value());
  kube::Pod running = FailedPod("u", "UnexpectedAdmissionError");
  running.phase = kube::PodPhase::kRunning;
  EXPECT_FALSE(NodeFault(running).has_value());
}

TEST(SuspectNodes, OneGangAvoidsItAtOnceAllOfThemAfterTwo) {
  SuspectNodes suspects(absl::Minutes(10));
  suspects.Report(FailedPod("p1", "OutOfcpu"), "gang-a", "OutOfcpu", kNow);
  EXPECT_TRUE(suspects.IsSuspectFor("n1", "gang-a"));
  EXPECT_FALSE(suspects.IsSuspectFor("n1", "gang-b"));
  EXPECT_FALSE(suspects.IsSuspectFor("n2", "gang-a"));
  suspects.Report(FailedPod("p2", "OutOfcpu"), "gang-b", "OutOfcpu", kNow);
  EXPECT_TRUE(suspects.IsSuspectFor("n1", "gang-c"));
}

TEST(SuspectNodes, SuspicionEndsAndTheSamePodDoesNotProlongIt) {
  SuspectNodes suspects(absl::Minutes(10));
  suspects.Report(FailedPod("p1", "OutOfcpu"), "gang-a", "OutOfcpu", kNow);
  suspects.Report(FailedPod("p1", "OutOfcpu"), "gang-a", "OutOfcpu", kNow + absl::Minutes(5));
  EXPECT_EQ(suspects.NextExpiry(), kNow + absl::Minutes(10));
  EXPECT_FALSE(suspects.Expire(kNow + absl::Minutes(9)));
  EXPECT_TRUE(suspects.Expire(kNow + absl::Minutes(10)));
  EXPECT_FALSE(suspects.IsSuspectFor("n1", "gang-a"));
}

}  // namespace
}  // namespace muster::coscheduling
