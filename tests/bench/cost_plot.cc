#include "tests/bench/cost_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "fmt/format.h"

namespace muster::bench {
namespace {

constexpr double kWidth = 460;
constexpr double kHeight = 360;
constexpr double kLeft = 70;
constexpr double kRight = 20;
constexpr double kTop = 40;
constexpr double kBottom = 110;
constexpr std::array<const char*, 5> kColours = {"#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad",
                                                 "#b9770e"};

// A range of powers of ten that holds all values.
struct Axis {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();

  void Hold(double value) {
    least = std::min(least, std::floor(std::log10(value)));
    most = std::max(most, std::ceil(std::log10(value)));
  }
  // 0 at the least, 1 at the most.
  double Place(double value) const {
    return most > least ? (std::log10(value) - least) / (most - least) : 0.5;
  }
};

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", x, y, anchor,
                     text) +
         "\n";
}

std::string PanelSvg(const Panel& panel, double offset) {
  Axis x;
  Axis y;
  for (const Curve& curve : panel.curves) {
    for (const auto& [size, cost] : curve.points) {
      x.Hold(size);
      y.Hold(cost);
    }
  }
  const auto across = [&](double place) {
    return offset + kLeft + place * (kWidth - kLeft - kRight);
  };
  const auto down = [&](double place) {
    return kHeight - kBottom - place * (kHeight - kTop - kBottom);
  };
  std::string svg = Text(across(0.5), kTop - 16, "middle", panel.title);
  for (double power = x.least; power <= x.most; ++power) {
    const double at = across(x.Place(std::pow(10, power)));
    svg +=
        fmt::format(R"(<path d="M{0:.1f} {1:.1f}V{2:.1f}" stroke="#ddd"/>)", at, down(0), down(1));
    svg += Text(at, down(0) + 16, "middle", fmt::format("{:g}", std::pow(10, power)));
  }
  for (double power = y.least; power <= y.most; ++power) {
    const double at = down(y.Place(std::pow(10, power)));
    svg += fmt::format(R"(<path d="M{0:.1f} {2:.1f}H{1:.1f}" stroke="#ddd"/>)", across(0),
                       across(1), at);
    svg += Text(across(0) - 6, at + 4, "end", fmt::format("{:g}", std::pow(10, power)));
  }
  svg += Text(across(0.5), down(0) + 34, "middle", panel.x_name);
  svg += Text(offset + 6, kTop - 16, "start", panel.y_name);
  for (size_t i = 0; i < panel.curves.size(); ++i) {
    const Curve& curve = panel.curves[i];
    const char* colour = kColours[i % kColours.size()];
    std::string path;
    for (const auto& [size, cost] : curve.points) {
      const double left = across(x.Place(size));
      const double top = down(y.Place(cost));
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", left, top);
      svg += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"/>)", left, top, colour);
    }
    if (!path.empty()) {
      svg += fmt::format(R"(<path d="{}" fill="none" stroke="{}"/>)", path, colour) + "\n";
    }
    const double legend = down(0) + 52 + 15 * static_cast<double>(i);
    svg += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4" fill="{}"/>)", across(0) + 4,
                       legend - 4, colour);
    svg += Text(across(0) + 14, legend, "start", curve.name);
  }
  return svg;
}

}  // namespace

std::string PlotSvg(const std::vector<Panel>& panels) {
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0:g}\" height=\"{1:g}\" "
      "fill=\"white\"/>\n",
      kWidth * static_cast<double>(panels.size()), kHeight);
  for (size_t i = 0; i < panels.size(); ++i) {
    svg += PanelSvg(panels[i], kWidth * static_cast<double>(i));
  }
  return svg + "</svg>\n";
}

double Growth(const Curve& curve) {
  const auto count = static_cast<double>(curve.points.size());
  if (count < 2) return 0;
  double x = 0;
  double y = 0;
  for (const auto& [size, cost] : curve.points) {
    x += std::log(size) / count;
    y += std::log(cost) / count;
  }
  double covariance = 0;
  double variance = 0;
  for (const auto& [size, cost] : curve.points) {
    covariance += (std::log(size) - x) * (std::log(cost) - y);
    variance += (std::log(size) - x) * (std::log(size) - x);
  }
  return variance > 0 ? covariance / variance : 0;
}

}  // namespace muster::bench
