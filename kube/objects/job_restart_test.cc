#include "kube/objects/job_restart.h"

#include <gtest/gtest.h>

namespace muster::kube {
namespace {

const absl::Time kTried = absl::FromUnixSeconds(1'700'000'000);

TEST(RestartMark, SaysWhenAndWhyInTheAnnotation) {
  const std::string text = EncodeMark({kTried, "nodes \"a\" didn't come", 3});
  EXPECT_EQ(text,
            R"({"at":"2023-11-14T22:13:20.000Z","why":"nodes \"a\" didn't come","generation":3})");
  const RestartMark mark = DecodeMark(text);
  EXPECT_EQ(mark.at, kTried);
  EXPECT_EQ(mark.why, "nodes \"a\" didn't come");
  EXPECT_EQ(mark.generation, 3);
}

TEST(RestartMark, OneThatCannotBeReadSaysNothing) {
  for (const char* text : {"", "now", "[]", R"({"at":1,"why":2,"generation":"3"})"}) {
    const RestartMark mark = DecodeMark(text);
    EXPECT_EQ(mark.at, absl::InfinitePast()) << text;
    EXPECT_EQ(mark.why, "") << text;
    EXPECT_EQ(mark.generation, 0) << text;
  }
}

TEST(TriedFlavors, SurviveInTheAnnotation) {
  const TriedFlavors tried = {2, {{"spot", kTried}, {"on-demand", kTried + absl::Minutes(1)}}};
  const std::optional<TriedFlavors> read = DecodeTried(EncodeTried(tried));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->attempt, 2);
  EXPECT_EQ(read->flavors, tried.flavors);
  for (const char* text : {"", "{}", R"({"attempt":0,"flavors":{}})", R"({"attempt":1})"}) {
    EXPECT_FALSE(DecodeTried(text).has_value()) << text;
  }
}

TEST(NextRestartStep, IsReadFromTheJobAlone) {
  struct Case {
    const char* name;
    bool suspended;
    int64_t changes;  // of its spec since it was suspended
    int64_t pods_left;
    RestartStep want;
  };
  for (const Case& c : {
           Case{"pods are left", true, 0, 3, RestartStep::kWait},
           Case{"none is left", true, 0, 0, RestartStep::kResume},
           Case{"somebody scaled it meanwhile", true, 1, 0, RestartStep::kResume},
           Case{"its user resumed it", false, 1, 3, RestartStep::kLeave},
           Case{"its user resumed and suspended it", true, 2, 0, RestartStep::kLeave},
           Case{"its user did so while pods are left", true, 2, 3, RestartStep::kLeave},
       }) {
    AnyJob job;
    job.suspended = c.suspended;
    job.generation = 5 + c.changes;
    job.annotations[std::string(kRestartAnnotation)] = EncodeMark({kTried, "why", 5});
    EXPECT_EQ(NextRestartStep(job, c.pods_left), c.want) << c.name;
  }
}

// Who could not say better than by the annotation alone is believed.
TEST(NextRestartStep, AMarkThatCannotBeReadResumesAllTheSame) {
  AnyJob job;
  job.suspended = true;
  job.generation = 9;
  job.annotations[std::string(kRestartAnnotation)] = "please";
  EXPECT_EQ(NextRestartStep(job, 0), RestartStep::kResume);
}

TEST(Fallback, IsOnUnlessSomebodySaysNever) {
  EXPECT_EQ(WhyFallbackIsOff(""), "");
  EXPECT_EQ(WhyFallbackIsOff("restart"), "");
  EXPECT_EQ(WhyFallbackIsOff("never"), "annotation muster.dev/fallback is \"never\"");
  EXPECT_EQ(WhyFallbackIsOff("Never"),
            "annotation muster.dev/fallback is \"Never\", want \"restart\" or \"never\"");
}

}  // namespace
}  // namespace muster::kube
