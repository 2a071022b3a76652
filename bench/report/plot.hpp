// Charts as inline SVG: lines over logarithmic axes, and grouped bars.
#pragma once

#include <string>
#include <vector>

namespace heddle::bench::report {

struct Point {
  double x = 0;
  double y = 0;
  double low = 0;  // the interval; equal to y if there is none
  double high = 0;
};

struct Series {
  std::string name;
  std::string colour;
  bool dashed = false;
  std::vector<Point> points;  // x ascending
};

// Both axes logarithmic; x are bytes. Values that are not positive are left out.
std::string line_chart(const std::string& title, const std::string& y_unit, const std::vector<Series>& series);

struct Group {
  std::string name;
  std::vector<Series> bars;  // one point each
};
// Linear, from zero.
std::string bar_chart(const std::string& title, const std::string& y_unit, const std::vector<Group>& groups);

// Text for HTML and SVG.
std::string escape(const std::string& text);

}  // namespace heddle::bench::report
