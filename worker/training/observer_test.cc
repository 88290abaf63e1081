#include "worker/training/observer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace muster::worker {
namespace {

using testing::HasSubstr;
using testing::Not;

const StepReport kReport = {.step = 120,
                            .total_steps = 1000,
                            .loss = 4.0312,
                            .gradient_norm = 0.5,
                            .learning_rate = 0.001,
                            .tokens_per_second = 12'400,
                            .flops_per_token = 1e9,
                            .memory_bytes = 858'993'459,
                            .seconds_left = 199.2};

TEST(ProgressLine, SaysHowFarHowGoodHowFastHowLong) {
  EXPECT_EQ(
      ProgressLine(kReport, 0),
      "step 120/1000 [#         ]  loss 4.0312  grad norm 0.50  12.4k tokens/s  0.8 GiB  3m20s "
      "left");
  EXPECT_EQ(
      ProgressLine(kReport, 31e12),
      "step 120/1000 [#         ]  loss 4.0312  grad norm 0.50  12.4k tokens/s  MFU 40.0 %  0.8 "
      "GiB  3m20s left");
  StepReport on_gpus = kReport;
  on_gpus.peak_flops = 62e12;
  EXPECT_THAT(ProgressLine(on_gpus, 0), HasSubstr("MFU 20.0 %"));
  EXPECT_THAT(ProgressLine(on_gpus, 31e12), HasSubstr("MFU 40.0 %"));
  StepReport unknown = kReport;
  unknown.seconds_left = std::numeric_limits<double>::infinity();
  EXPECT_THAT(ProgressLine(unknown, 0), HasSubstr("? left"));
}

TEST(Json, IsOneLineForEachEvent) {
  EXPECT_EQ(
      StepJson(kReport),
      R"({"event":"step","gradient_norm":0.5,"learning_rate":0.001,"loss":4.0312,)"
      R"("memory_bytes":858993459,"seconds_left":199.2,"step":120,"tokens_per_second":12400.0,"total_steps":1000})");
  EXPECT_EQ(SkipJson({.step = 7,
                      .loss = std::numeric_limits<double>::quiet_NaN(),
                      .gradient_norm = 2,
                      .in_a_row = 1,
                      .total = 3}),
            R"({"event":"skip","gradient_norm":2.0,"in_a_row":1,"loss":null,"step":7,"total":3})");
  EXPECT_EQ(StartJson(7), R"({"event":"start","step":7})");
  EXPECT_EQ(ValidationJson(7, std::numeric_limits<double>::quiet_NaN()),
            R"({"event":"validation","loss":null,"step":7})");
  EXPECT_EQ(CheckpointJson(7, absl::OkStatus()),
            R"({"committed":true,"event":"checkpoint","step":7})");
  EXPECT_EQ(CheckpointJson(7, absl::UnavailableError("disk\n\xFF")),
            "{\"committed\":false,\"error\":\"disk\\n\xEF\xBF\xBD\",\"event\":\"checkpoint\","
            "\"step\":7}");
}

TEST(TrainingMetrics, ShowTheLatestValuesAndNothingThatIsNotKnown) {
  TrainingMetrics metrics;
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("muster_worker_loss")));
  metrics.OnStart(100);
  metrics.OnStep(kReport);
  metrics.OnValidation(120, 4.5);
  metrics.OnCheckpoint(120, absl::ResourceExhaustedError("full"));
  metrics.OnSkip({.step = 121});
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("# TYPE muster_worker_steps gauge\nmuster_worker_steps 120\n"));
  EXPECT_THAT(text, HasSubstr("\nmuster_worker_loss 4.0312\n"));
  EXPECT_THAT(text, HasSubstr("\nmuster_worker_validation_loss 4.5\n"));
  EXPECT_THAT(text, HasSubstr("\nmuster_worker_checkpoint_step 100\n"));
  EXPECT_THAT(text, HasSubstr("\nmuster_worker_checkpoint_failures_total 1\n"));
  EXPECT_THAT(text, HasSubstr("\nmuster_worker_skipped_steps_total 1\n"));
}

}  // namespace
}  // namespace muster::worker
