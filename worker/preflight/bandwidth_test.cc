#include "worker/preflight/bandwidth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using testing::HasSubstr;

// nccl-tests' README of two p4de.24xlarge: 16 ranks, 1 GiB in 26,217 us are 76.79 GB/s.
TEST(BusBandwidth, IsThatOfNcclTests) {
  EXPECT_NEAR(BusBandwidth(16, int64_t{1} << 30, absl::Microseconds(26'217)), 76.79, 0.01);
  EXPECT_DOUBLE_EQ(BusBandwidth(2, 1'000'000'000, absl::Seconds(1)), 1);
  EXPECT_EQ(BusBandwidth(1, 1'000'000'000, absl::Seconds(1)), 0);
  EXPECT_EQ(BusBandwidth(8, 1'000'000'000, absl::ZeroDuration()), 0);
}

TEST(Bandwidths, EveryTypeIsThereOnceWithGpus) {
  for (const InstanceBandwidth& each : Ec2Bandwidths()) {
    EXPECT_EQ(FindBandwidth(Ec2Bandwidths(), each.instance_type), &each);
    EXPECT_GT(each.gpus, 0) << each.instance_type;
    EXPECT_GT(each.node, 0) << each.instance_type;
    EXPECT_GT(each.across, 0) << each.instance_type;
  }
  EXPECT_EQ(FindBandwidth(Ec2Bandwidths(), "PowerEdge XE9680"), nullptr);
}

TEST(Bandwidths, AFilesTypesWinOverTheTables) {
  const auto table = ParseBandwidths(
      "# ours\n\n"
      "p5.48xlarge 8 400 350   # with NVLS\n"
      "PowerEdge 4\t90 0\r\n",
      Ec2Bandwidths());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(FindBandwidth(*table, "p5.48xlarge")->node, 400);
  EXPECT_EQ(FindBandwidth(*table, "PowerEdge")->across, 0);
  EXPECT_EQ(FindBandwidth(*table, "p4d.24xlarge")->across, 37);
}

TEST(Bandwidths, ALineThatMakesNoSenseIsNamed) {
  for (const char* line :
       {"p5.48xlarge 8 400", "p5.48xlarge 8 400 350 1", "p5.48xlarge x 400 350",
        "p5.48xlarge 0 400 350", "p5.48xlarge 8 -1 350", "p5.48xlarge 8 1 nan"}) {
    const auto table = ParseBandwidths(std::string("\n") + line, {});
    EXPECT_TRUE(absl::IsInvalidArgument(table.status())) << line;
    EXPECT_THAT(std::string(table.status().message()), HasSubstr("line 2 ")) << line;
  }
}

TEST(AcrossThreshold, IsSharedOutWithGpusAndHalfForManyNodes) {
  const InstanceBandwidth p5 = *FindBandwidth(Ec2Bandwidths(), "p5.48xlarge");
  EXPECT_EQ(AcrossThreshold(p5, 8, 2), 300);
  EXPECT_EQ(AcrossThreshold(p5, 2, 2), 75);
  EXPECT_EQ(AcrossThreshold(p5, 8, 8), 300);
  EXPECT_EQ(AcrossThreshold(p5, 8, 9), 150);
}

}  // namespace
}  // namespace muster::worker
