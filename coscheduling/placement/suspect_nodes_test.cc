#include "coscheduling/placement/suspect_nodes.h"

#include <gtest/gtest.h>

namespace muster::coscheduling {
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

TEST(SuspectNodes, OneGangAvoidsItAtOnceAllOfThemAfterTwo) {
  SuspectNodes suspects(absl::Minutes(10));
  EXPECT_TRUE(suspects.Report(FailedPod("p1", "OutOfcpu"), "team/a", "OutOfcpu", kFailed));
  EXPECT_TRUE(suspects.IsSuspectFor("n1", "team/a"));
  EXPECT_FALSE(suspects.IsSuspectFor("n1", "team/b"));
  EXPECT_FALSE(suspects.IsSuspectFor("n2", "team/a"));
  suspects.Report(FailedPod("p2", "OutOfcpu"), "team/b", "OutOfcpu", kFailed);
  EXPECT_TRUE(suspects.IsSuspectFor("n1", "team/c"));
}

TEST(SuspectNodes, SuspicionEndsAndTheSamePodDoesNotProlongIt) {
  SuspectNodes suspects(absl::Minutes(10));
  suspects.Report(FailedPod("p1", "OutOfcpu"), "team/a", "OutOfcpu", kFailed);
  EXPECT_FALSE(suspects.Report(FailedPod("p1", "OutOfcpu"), "team/a", "OutOfcpu",
                               kFailed + absl::Minutes(5)));
  EXPECT_EQ(suspects.NextExpiry(), kFailed + absl::Minutes(10));
  EXPECT_TRUE(suspects.Expire(kFailed + absl::Minutes(9)).empty());
  EXPECT_EQ(suspects.Expire(kFailed + absl::Minutes(10)), std::vector<std::string>{"n1"});
  EXPECT_FALSE(suspects.IsSuspectFor("n1", "team/a"));
}

TEST(SuspectNodes, TheTimeCountsFromTheEndOfThePodWhereItIsKnown) {
  SuspectNodes suspects(absl::Minutes(10));
  kube::Pod pod = FailedPod("p1", "", "GPU is lost");
  pod.ended_at = kFailed - absl::Minutes(4);
  suspects.Report(pod, "team/a", "GPU is lost", kFailed);
  EXPECT_EQ(suspects.NextExpiry(), kFailed + absl::Minutes(6));
  pod.meta.uid = "p2";
  pod.ended_at = kFailed - absl::Minutes(10);
  EXPECT_FALSE(suspects.Report(pod, "team/b", "GPU is lost", kFailed));
}

TEST(SuspectNodes, AnotherProcessReadsThemFromTheNode) {
  SuspectNodes suspects(absl::Minutes(10));
  suspects.Report(FailedPod("p1", "OutOfcpu"), "team/a", "OutOfcpu: \"2\" cpu", kFailed);
  suspects.Report(FailedPod("p2", "OutOfcpu"), "team/b", "OutOfcpu: \"2\" cpu", kFailed);
  const std::string text = SuspectAnnotationOf(*suspects.Find("n1"));
  EXPECT_EQ(text, R"({"fault":"OutOfcpu: \"2\" cpu","gangs":["team/a","team/b"],)"
                  R"("until":"1970-01-01T00:26:40Z"})");
  SuspectNodes next(absl::Minutes(10));
  next.Restore("n1", text);
  EXPECT_EQ(SuspectAnnotationOf(*next.Find("n1")), text);
  // The pod that failed is still there. When it did isn't known, but that it was counted is.
  EXPECT_FALSE(
      next.Report(FailedPod("p1", "OutOfcpu"), "team/a", "OutOfcpu", kFailed + absl::Minutes(5)));
  EXPECT_EQ(next.NextExpiry(), kFailed + absl::Minutes(10));
}

TEST(SuspectNodes, AnAnnotationThatCannotBeReadSaysNothing) {
  SuspectNodes suspects(absl::Minutes(10));
  for (const char* text : {"", "true", "[]", "{", R"({"until":"soon"})", R"({"until":7})"}) {
    suspects.Restore("n1", text);
    EXPECT_EQ(suspects.Find("n1"), nullptr) << text;
  }
  suspects.Restore("n1", R"({"until":"1970-01-01T00:26:40Z","fault":3,"gangs":[1,"team/a"]})");
  EXPECT_TRUE(suspects.IsSuspectFor("n1", "team/a"));
}

TEST(SuspectNodes, ATaintsValueIsALabelsValue) {
  SuspectNodes::Entry entry;
  entry.until = kFailed;
  EXPECT_EQ(SuspectTaintValueOf(entry), "19700101T001640Z");
}

}  // namespace
}  // namespace muster::coscheduling
