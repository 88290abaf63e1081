#include "worker/training/loss_plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fmt/format.h"

namespace muster::worker {
namespace {

// Of the picture, and of the axes within it.
constexpr double kWidth = 800;
constexpr double kHeight = 450;
constexpr double kLeft = 70;
constexpr double kRight = 780;
constexpr double kTop = 20;
constexpr double kBottom = 400;
constexpr int kLines = 5;  // of the grid

// What is drawn: steps from left to right, losses from bottom to top.
struct Range {
  double first_step = std::numeric_limits<double>::infinity();
  double last_step = -std::numeric_limits<double>::infinity();
  double lowest = std::numeric_limits<double>::infinity();
  double highest = -std::numeric_limits<double>::infinity();

  void Add(double step, double loss) {
    first_step = std::min(first_step, step);
    last_step = std::max(last_step, step);
    lowest = std::min(lowest, loss);
    highest = std::max(highest, loss);
  }
  double X(double step) const {
    const double steps = std::max(1.0, last_step - first_step);
    return kLeft + (step - first_step) / steps * (kRight - kLeft);
  }
  double Y(double loss) const {
    const double height = highest > lowest ? highest - lowest : 1;
    return kBottom - (loss - lowest) / height * (kBottom - kTop);
  }
};

template <typename Points>
std::string Line(const Points& points, const Range& range, std::string_view color) {
  std::string text;
  for (const auto& [step, loss] : points) {
    if (std::isfinite(loss)) {
      text += fmt::format("{:.1f},{:.1f} ", range.X(static_cast<double>(step)), range.Y(loss));
    }
  }
  return fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" points=\"{}\"/>\n",
                     color, text);
}

std::string Text(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     text);
}

std::string Grid(const Range& range) {
  std::string text;
  for (int i = 0; i < kLines; ++i) {
    const double part = static_cast<double>(i) / (kLines - 1);
    const double loss = range.lowest + part * (range.highest - range.lowest);
    const double step = range.first_step + part * (range.last_step - range.first_step);
    text += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n",
                        kLeft, kRight, range.Y(loss), range.Y(loss));
    text += Text(kLeft - 8, range.Y(loss) + 4, "end", fmt::format("{:.3g}", loss));
    text += Text(range.X(step), kBottom + 20, "middle", fmt::format("{:.0f}", step));
  }
  return text;
}

}  // namespace

void LossPlot::OnStep(const StepReport& report) {
  if (reports_++ % every_ != 0) {
    return;
  }
  training_.emplace_back(report.step, report.loss);
  if (training_.size() < kMostPoints) {
    return;
  }
  for (size_t i = 0; 2 * i < training_.size(); ++i) {
    training_[i] = training_[2 * i];
  }
  training_.resize(training_.size() / 2);
  every_ *= 2;
}

void LossPlot::OnValidation(int64_t step, double loss) { validation_.emplace_back(step, loss); }

void LossPlot::OnStart(int64_t step) {
  for (Points* points : {&training_, &validation_}) {
    std::erase_if(*points, [step](const auto& point) { return point.first > step; });
  }
}

std::string LossPlot::Svg() const {
  Range range;
  for (const Points* points : {&training_, &validation_}) {
    for (const auto& [step, loss] : *points) {
      if (std::isfinite(loss)) {
        range.Add(static_cast<double>(step), loss);
      }
    }
  }
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, kHeight);
  if (range.lowest > range.highest) {
    return text + Text(kWidth / 2, kHeight / 2, "middle", "no losses were reported") + "</svg>\n";
  }
  text += Grid(range);
  text += Line(training_, range, "#1f77b4") + Line(validation_, range, "#d62728");
  text += Text(kRight, kTop + 10, "end", "training loss (blue), validation loss (red), in nats");
  text += Text((kLeft + kRight) / 2, kHeight - 12, "middle", "step");
  return text + "</svg>\n";
}

}  // namespace muster::worker
