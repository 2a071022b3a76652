#include "report/plot.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace heddle::bench::report {

namespace {

constexpr double kWidth = 560;
constexpr double kHeight = 340;
constexpr double kLeft = 62;
constexpr double kRight = 16;
constexpr double kTop = 44;
constexpr double kBottom = 46;
constexpr double kLegendRow = 18;
constexpr double kValueRow = 14;  // under bars

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value >= 100 ? "%.0f" : value >= 10 ? "%.1f" : "%.2f", value);
  return text;
}

std::string tick_text(double value) {
  char text[32];
  if (value >= 1e6) {
    std::snprintf(text, sizeof text, "%gM", value / 1e6);
  } else if (value >= 1e3) {
    std::snprintf(text, sizeof text, "%gk", value / 1e3);
  } else {
    std::snprintf(text, sizeof text, "%g", value);
  }
  return text;
}

std::string bytes_text(double value) {
  char text[32];
  if (value >= 1048576) {
    std::snprintf(text, sizeof text, "%gM", value / 1048576);
  } else if (value >= 1024) {
    std::snprintf(text, sizeof text, "%gK", value / 1024);
  } else {
    std::snprintf(text, sizeof text, "%g", value);
  }
  return text;
}

std::string line(double x1, double y1, double x2, double y2, const char* css) {
  return "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) + "\" y2=\"" + number(y2) +
         "\" class=\"" + css + "\"/>";
}

std::string text_at(double x, double y, const char* anchor, const char* css, const std::string& text) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\" class=\"" + css + "\">" +
         escape(text) + "</text>";
}

std::string open_svg(const std::string& title, const std::string& unit, double height) {
  return "<figure><svg viewBox=\"0 0 " + number(kWidth) + " " + number(height) + "\" role=\"img\" aria-label=\"" +
         escape(title) + "\">" + text_at(8, 20, "start", "title", title) + text_at(8, 36, "start", "unit", unit);
}

// Entries in rows below the chart; *height grows by what they need.
std::string legend(const std::vector<Series>& entries, double* height) {
  std::string out;
  double x = kLeft;
  double y = *height + 4;
  for (const Series& entry : entries) {
    const double width = 36 + 7.2 * static_cast<double>(entry.name.size());
    if (x + width > kWidth && x > kLeft) {
      x = kLeft;
      y += kLegendRow;
    }
    out += "<line x1=\"" + number(x) + "\" y1=\"" + number(y - 4) + "\" x2=\"" + number(x + 18) + "\" y2=\"" +
           number(y - 4) + "\" stroke=\"" + entry.colour + "\" stroke-width=\"3\"" +
           (entry.dashed ? " stroke-dasharray=\"5 3\"" : "") + "/>" + text_at(x + 23, y, "start", "label", entry.name);
    x += width;
  }
  *height = y + 10;
  return out;
}

struct LogScale {
  double low, high, from, to;
  [[nodiscard]] double at(double value) const {
    const double span = std::log(high / low);
    return from + (span > 0 ? std::log(value / low) / span : 0.5) * (to - from);
  }
};

// The next of 1, 2, 5 × 10^k that is not below the value: where an axis ends, so that its last line
// has a label.
double next_tick(double value) {
  const double decade = std::pow(10, std::floor(std::log10(value)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (decade * step >= value * 0.999) return decade * step;
  }
  return decade * 10;
}

struct Bounds {
  double x_low = 1e300, x_high = 0, y_low = 1e300, y_high = 0;
};

Bounds bounds_of(const std::vector<Series>& series) {
  Bounds b;
  for (const Series& one : series) {
    for (const Point& point : one.points) {
      if (!(point.x > 0 && point.y > 0)) continue;
      b.x_low = std::min(b.x_low, point.x);
      b.x_high = std::max(b.x_high, point.x);
      b.y_low = std::min(b.y_low, point.low > 0 ? point.low : point.y);
      b.y_high = std::max(b.y_high, std::max(point.high, point.y));
    }
  }
  return b;
}

// Grid lines at 1, 2, 5 × 10^k (or only 10^k where that would be too many).
std::string y_grid(const LogScale& y) {
  std::string out;
  const bool dense = y.high / y.low < 200;
  const double top = y.high * 0.999;
  for (double decade = std::pow(10, std::floor(std::log10(y.low))); decade <= y.high; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      const double value = decade * step;
      if (value < y.low * 0.999 || value > y.high * 1.001 || (step > 1 && !dense && value < top)) continue;
      out += line(kLeft, y.at(value), kWidth - kRight, y.at(value), "grid") +
             text_at(kLeft - 8, y.at(value) + 4, "end", "tick", tick_text(value));
    }
  }
  return out;
}

// The first and the last size are labelled, and as many between them as there is room for.
std::string x_grid(const LogScale& x) {
  std::string out;
  const int last = static_cast<int>(std::lround(std::ceil(std::log2(x.high / x.low) - 0.001)));
  const int every = last <= 8 ? 1 : last <= 14 ? 2 : 3;
  for (int i = 0; i <= last; ++i) {
    if (i != last && (i % every != 0 || i + every > last)) continue;
    const double value = i == last ? x.high : x.low * std::pow(2, i);
    out += line(x.at(value), kTop, x.at(value), kHeight - kBottom, "grid") +
           text_at(x.at(value), kHeight - kBottom + 18, "middle", "tick", bytes_text(value));
  }
  return out + text_at((x.from + x.to) / 2, kHeight - 8, "middle", "unit", "bytes");
}

std::string draw(const Series& one, const LogScale& x, const LogScale& y) {
  std::string path;
  std::string marks;
  for (const Point& point : one.points) {
    if (!(point.x > 0 && point.y > 0)) continue;
    path += (path.empty() ? "M" : "L") + number(x.at(point.x)) + " " + number(y.at(point.y));
    if (point.low > 0 && point.high > point.low) {
      marks += "<line x1=\"" + number(x.at(point.x)) + "\" x2=\"" + number(x.at(point.x)) + "\" y1=\"" +
               number(y.at(point.low)) + "\" y2=\"" + number(y.at(point.high)) + "\" stroke=\"" + one.colour +
               "\" stroke-width=\"5\" opacity=\"0.25\"/>";
    }
    marks += "<circle cx=\"" + number(x.at(point.x)) + "\" cy=\"" + number(y.at(point.y)) + "\" r=\"3.4\" fill=\"" +
             one.colour + "\"><title>" + escape(one.name) + ", " + bytes_text(point.x) + ": " + short_number(point.y) +
             "</title></circle>";
  }
  return "<path d=\"" + path + "\" fill=\"none\" stroke=\"" + one.colour + "\" stroke-width=\"2.2\"" +
         (one.dashed ? " stroke-dasharray=\"6 4\"" : "") + "/>" + marks;
}

// A round step that cuts `high` into about five.
double linear_step(double high) {
  return next_tick(high / 5);
}

}  // namespace

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string line_chart(const std::string& title, const std::string& y_unit, const std::vector<Series>& series) {
  const Bounds b = bounds_of(series);
  if (!(b.x_high > 0)) return {};
  const LogScale x{b.x_low, b.x_high, kLeft + 10, kWidth - kRight - 14};
  const LogScale y{b.y_low / 1.25, next_tick(b.y_high), kHeight - kBottom, kTop + 6};
  std::string body = y_grid(y) + x_grid(x);
  // The first series is Heddle's: drawn last, so that it lies on top.
  for (auto one = series.rbegin(); one != series.rend(); ++one) body += draw(*one, x, y);
  double height = kHeight + 14;
  body += legend(series, &height);
  return open_svg(title, y_unit, height) + body + "</svg></figure>\n";
}

std::string bar_chart(const std::string& title, const std::string& y_unit, const std::vector<Group>& groups) {
  double high = 0;
  std::size_t count = 0;
  std::vector<Series> names;
  for (const Group& group : groups) {
    for (const Series& bar : group.bars) {
      high = std::max({high, bar.points[0].y, bar.points[0].high});
      ++count;
      const auto same = [&](const Series& other) { return other.name == bar.name; };
      if (std::none_of(names.begin(), names.end(), same)) names.push_back(bar);
    }
  }
  if (!(high > 0)) return {};
  const double step = linear_step(high);
  high = std::ceil(high / step - 0.001) * step;
  const double base = kHeight - kBottom - kValueRow;
  const auto y = [&](double value) { return base - value / high * (base - kTop - 6); };
  std::string body;
  for (double value = 0; value <= high * 1.001; value += step) {
    body += line(kLeft, y(value), kWidth - kRight, y(value), "grid") +
            text_at(kLeft - 8, y(value) + 4, "end", "tick", tick_text(value));
  }
  const double slot = (kWidth - kLeft - kRight) / static_cast<double>(count + groups.size());
  const double width = std::min(slot, 46.0);
  double x = kLeft + slot / 2;
  for (const Group& group : groups) {
    const double begin = x;
    for (const Series& bar : group.bars) {
      const Point& point = bar.points[0];
      const double left = x + (slot - width) / 2;
      body += "<rect x=\"" + number(left + 1.5) + "\" y=\"" + number(y(point.y)) + "\" width=\"" + number(width - 3) +
              "\" height=\"" + number(base - y(point.y)) + "\" rx=\"2\" fill=\"" + bar.colour + "\"" +
              (bar.dashed ? " fill-opacity=\"0.45\"" : "") + "><title>" + escape(bar.name) + ": " +
              short_number(point.y) + "</title></rect>";
      body += line(left + width / 2, y(point.low), left + width / 2, y(point.high), "whisker");
      // Below the bar: above it the number would stand at the whisker's end, and seem to be that of
      // the interval.
      if (width >= 24) body += text_at(left + width / 2, base + 13, "middle", "value", short_number(point.y));
      x += slot;
    }
    body += text_at((begin + x) / 2, base + kValueRow + 18, "middle", "tick", group.name);
    x += slot;
  }
  double height = kHeight + 2;
  body += legend(names, &height);
  return open_svg(title, y_unit, height) + body + "</svg></figure>\n";
}

}  // namespace heddle::bench::report
