#include "driver/table.hpp"

#include <algorithm>
#include <cstdio>

namespace heddle::bench::driver {

namespace {

using harness::Record;

// below, a figure is shown without interval and without ratio
constexpr std::uint64_t kLeastRepeats = 3;
constexpr std::size_t kOpWidth = 34;  // of "persistent_overlapped, 8 processes"
constexpr const char* kLegend =
    "\nP: half the round trip of a word between two cache lines, one written by each core, around each repeat. (far), "
    "(close): all repeats while P was far above or below the usual; (changed): P changed meanwhile. "
    "On a terminal a ratio is coloured where the 95 % intervals are apart.\n";

std::string figure_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value >= 1000 ? "%.0f" : value >= 100 ? "%.1f" : "%.2f", value);
  return text;
}

std::string padded(std::string text, std::size_t width) {
  // Width counts characters, not bytes; the only longer ones here are × and –.
  const auto continuation = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
  const auto shown = text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), continuation));
  if (shown < width) text.append(width - shown, ' ');
  return text;
}

std::string right(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string ratio_text(const Record& record, const std::vector<Record>& records, bool colour) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f× ", record.ratio);
  const std::string plain = text + record.against;
  // Being slower than a physical limit is no defeat.
  const Record* peer = colour ? harness::peer_of(record, records) : nullptr;
  if (peer == nullptr) return plain;
  const harness::Standing stands = harness::standing(record, *peer);
  if (stands == harness::Standing::level) return plain;
  return (stands == harness::Standing::ahead ? "\033[32m" : "\033[31m") + plain + "\033[0m";
}

// What the repeats tell about the median. Too few repeats tell nothing.
std::string spread_text(const Record& record) {
  if (record.repeats >= kLeastRepeats) {
    return "[" + figure_text(record.low95) + "–" + figure_text(record.high95) + "]";
  }
  return "[" + std::to_string(record.repeats) + (record.repeats == 1 ? " repeat]" : " repeats]");
}

std::string row(const Record& record, const std::string& ratios) {
  const harness::Key& key = record.key;
  std::string op = key.op;
  // Each is measured in several ways.
  if (key.bench == "atomics" || key.bench == "overhead") op += " " + key.metric;
  if (key.memory == "registered" || key.memory == "adopted" || key.memory == "malloc") op += " (" + key.memory + ")";
  if (key.processes > 2) op += ", " + std::to_string(key.processes) + " processes";
  std::string line = "  " + padded(op, kOpWidth) +
                     padded(key.transport + (key.sharing == "exclusive" || key.sharing == "own" ||
                                                     key.sharing == "none" || key.sharing == "multiple"
                                                 ? ""
                                                 : " " + key.sharing),
                            18) +
                     right(size_text(key.size_bytes), 8) + right(std::to_string(key.threads), 4) + "   " +
                     right(figure_text(record.median), 9) + " " + padded(key.unit, 10) +
                     padded(spread_text(record), 20) + right(figure_text(record.p_ns), 7) + "  ";
  if (record.distance != "near") line += "(" + record.distance + ") ";
  if (!record.verified) line += "WRONG RESULT ";
  line += ratios;
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line + "\n";
}

}  // namespace

std::string size_text(std::uint64_t bytes) {
  if (bytes >= (1U << 20) && bytes % (1U << 20) == 0) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= 1024 && bytes % 1024 == 0) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes);
}

std::string table(const std::vector<Record>& records, bool colour) {
  std::string out;
  std::vector<std::string> benches;
  for (const Record& record : records) {
    if (std::find(benches.begin(), benches.end(), record.key.bench) == benches.end()) {
      benches.push_back(record.key.bench);
    }
  }
  for (const std::string& bench : benches) {
    out += "\n" + padded(bench, kOpWidth + 2) + padded("on", 18) + right("bytes", 8) + right("thr", 4) + "   " +
           right("median", 9) + " " + padded("", 10) + padded("[95 %]", 20) + right("P ns", 7) + "  ratios\n";
    for (const Record& record : records) {
      if (record.key.bench != bench || !record.against.empty()) continue;
      std::string ratios;
      for (const Record& other : records) {
        const bool its = other.key == record.key && other.distance == record.distance && !other.against.empty();
        if (its && record.repeats >= kLeastRepeats) ratios += ratio_text(other, records, colour) + "  ";
      }
      out += row(record, ratios);
    }
  }
  if (!out.empty()) out += kLegend;
  return out;
}

}  // namespace heddle::bench::driver
