// Curves of cost against size, as an SVG that a browser shows: both axes logarithmic, so that what
// costs the same at every size is level and what grows with it rises at 45 degrees.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace muster::bench {

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // size and cost, both above zero
};

struct Panel {
  std::string title;
  std::string x_name;
  std::string y_name;
  std::vector<Curve> curves;
};

// Panels beside each other.
std::string PlotSvg(const std::vector<Panel>& panels);

// The exponent with which cost grows with size, by least squares: 0 is flat, 1 linear. 0 for fewer
// than two points.
double Growth(const Curve& curve);

}  // namespace muster::bench
