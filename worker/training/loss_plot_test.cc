#include "worker/training/loss_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace muster::worker {
namespace {

using testing::HasSubstr;
using testing::Not;

void Report(LossPlot& plot, int64_t step, double loss) {
  plot.OnStep({.step = step, .total_steps = 100, .loss = loss});
}

TEST(LossPlot, SpansFromTheFirstStepToTheLastAndFromTheLowestLossToTheHighest) {
  LossPlot plot;
  Report(plot, 10, 4);
  Report(plot, 20, 2);
  plot.OnValidation(20, 3);
  const std::string svg = plot.Svg();
  EXPECT_THAT(svg, HasSubstr("points=\"70.0,20.0 780.0,400.0 \""));
  EXPECT_THAT(svg, HasSubstr("points=\"780.0,210.0 \""));
  EXPECT_THAT(svg, testing::StartsWith("<svg "));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
}

TEST(LossPlot, ForgetsWhatARunThatResumesWillDoAgain) {
  LossPlot plot;
  for (const int64_t step : {1, 2, 3}) Report(plot, step, static_cast<double>(step));
  plot.OnStart(1);
  Report(plot, 2, 1);
  EXPECT_THAT(plot.Svg(), HasSubstr("points=\"70.0,400.0 780.0,400.0 \""));
}

TEST(LossPlot, KeepsABoundedNumberOfPointsOfALongRun) {
  LossPlot plot;
  for (int64_t step = 1; step <= 100'000; ++step)
    Report(plot, step, 1.0 / static_cast<double>(step));
  EXPECT_LT(plot.Svg().size(), 20 * LossPlot::kMostPoints);
  EXPECT_THAT(plot.Svg(), HasSubstr("70.0,20.0 "));
}

TEST(LossPlot, LeavesOutWhatIsNoNumberAndSaysWhenNothingIsLeft) {
  LossPlot plot;
  Report(plot, 1, std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(plot.Svg(), HasSubstr("no losses were reported"));
  Report(plot, 2, 3);
  EXPECT_THAT(plot.Svg(), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace muster::worker
