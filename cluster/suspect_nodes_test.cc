#include "cluster/suspect_nodes.h"

#include <gtest/gtest.h>

namespace muster::cluster {
namespace {

const absl::Time kFailed = absl::FromUnixSeconds(1'000);

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

bool TurnAway(SuspectNodes* suspects, const std::string& pod, const std::string& whose,
              absl::Time now = kFailed) {
  return suspects->Report(FailedPod(pod, "OutOfcpu"), whose, "OutOfcpu: \"2\" cpu", true, now);
}

bool IsLeftOut(const SuspectNodes& suspects, const std::string& whose) {
  return suspects.WhyLeftOut("n1", whose) != nullptr;
}

TEST(SuspectNodes, TheKubeletsRejectionsCountForTheNamespaceAfterTwoGangsForAllAfterTwoNamespaces) {
  SuspectNodes suspects(absl::Minutes(10));
  EXPECT_TRUE(TurnAway(&suspects, "p1", "team/a"));
  EXPECT_TRUE(IsLeftOut(suspects, "team/a"));
  EXPECT_FALSE(IsLeftOut(suspects, "team/b"));
  EXPECT_EQ(suspects.WhyLeftOut("n2", "team/a"), nullptr);
  TurnAway(&suspects, "p2", "team/b");
  EXPECT_TRUE(IsLeftOut(suspects, "team/c"));
  EXPECT_FALSE(IsLeftOut(suspects, "team-2/a"));
  TurnAway(&suspects, "p3", "others/a");
  EXPECT_TRUE(IsLeftOut(suspects, "team-2/a"));
}

TEST(SuspectNodes, WhatUsersSayCountsForTheirOwnGangOnly) {
  SuspectNodes suspects(absl::Minutes(10));
  for (const char* whose : {"team/a", "team/b", "others/a"}) {
    EXPECT_TRUE(suspects.Report(FailedPod(whose, ""), whose, "GPU is lost", false, kFailed));
  }
  EXPECT_TRUE(IsLeftOut(suspects, "team/a"));
  EXPECT_EQ(suspects.WhyLeftOut("n1", "team/a")->fault, "GPU is lost");
  EXPECT_FALSE(IsLeftOut(suspects, "team/c"));
  EXPECT_TRUE(suspects.Find("n1")->turned_away.empty());
}

TEST(SuspectNodes, SuspicionEndsAndTheSamePodDoesNotProlongIt) {
  SuspectNodes suspects(absl::Minutes(10));
  TurnAway(&suspects, "p1", "team/a");
  EXPECT_FALSE(TurnAway(&suspects, "p1", "team/a", kFailed + absl::Minutes(5)));
  suspects.Report(FailedPod("p2", ""), "team/b", "GPU is lost", false, kFailed + absl::Minutes(1));
  EXPECT_EQ(suspects.NextExpiry(), kFailed + absl::Minutes(10));
  EXPECT_TRUE(suspects.Expire(kFailed + absl::Minutes(9)).empty());
  EXPECT_EQ(suspects.Expire(kFailed + absl::Minutes(10)), std::vector<std::string>{"n1"});
  EXPECT_FALSE(IsLeftOut(suspects, "team/a"));
  EXPECT_TRUE(IsLeftOut(suspects, "team/b"));
  EXPECT_EQ(suspects.Expire(kFailed + absl::Minutes(11)), std::vector<std::string>{"n1"});
  EXPECT_EQ(suspects.Find("n1"), nullptr);
}

TEST(SuspectNodes, TheTimeCountsFromTheEndOfThePodWhereItIsKnown) {
  SuspectNodes suspects(absl::Minutes(10));
  kube::Pod pod = FailedPod("p1", "", "GPU is lost");
  pod.ended_at = kFailed - absl::Minutes(4);
  suspects.Report(pod, "team/a", "GPU is lost", false, kFailed);
  EXPECT_EQ(suspects.NextExpiry(), kFailed + absl::Minutes(6));
  pod.meta.uid = "p2";
  pod.ended_at = kFailed - absl::Minutes(10);
  EXPECT_FALSE(suspects.Report(pod, "team/b", "GPU is lost", false, kFailed));
}

TEST(SuspectNodes, AnotherProcessReadsThemFromTheNode) {
  SuspectNodes suspects(absl::Minutes(10));
  TurnAway(&suspects, "p1", "team/a");
  TurnAway(&suspects, "p2", "team/b");
  const std::string text = SuspectAnnotationOf(*suspects.Find("n1"));
  EXPECT_EQ(text, R"({"fault":"OutOfcpu: \"2\" cpu","gangs":["team/a","team/b"],)"
                  R"("until":"1970-01-01T00:26:40Z"})");
  SuspectNodes next(absl::Minutes(10));
  next.Restore("n1", text);
  EXPECT_EQ(SuspectAnnotationOf(*next.Find("n1")), text);
  // The pod that failed is still there. When it did isn't known, but that it was counted is.
  EXPECT_FALSE(TurnAway(&next, "p1", "team/a", kFailed + absl::Minutes(5)));
  EXPECT_EQ(next.NextExpiry(), kFailed + absl::Minutes(10));
}

TEST(SuspectNodes, AnAnnotationThatCannotBeReadSaysNothing) {
  SuspectNodes suspects(absl::Minutes(10));
  for (const char* text : {"", "true", "[]", "{", R"({"until":"soon"})", R"({"until":7})"}) {
    suspects.Restore("n1", text);
    EXPECT_EQ(suspects.Find("n1"), nullptr) << text;
  }
  suspects.Restore("n1", R"({"until":"1970-01-01T00:26:40Z","fault":3,"gangs":[1,"team/a"]})");
  EXPECT_TRUE(IsLeftOut(suspects, "team/a"));
}

TEST(SuspectNodes, ATaintsValueIsALabelsValue) {
  SuspectNodes::Entry entry;
  entry.rejection.until = kFailed;
  EXPECT_EQ(SuspectTaintValueOf(entry), "19700101T001640Z");
}

}  // namespace
}  // namespace muster::cluster
