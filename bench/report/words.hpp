// The words of a report: about names, about noise, about one figure compared with another.
#pragma once

#include <optional>
#include <string>

#include "harness/record.hpp"

namespace heddle::bench::report {

// Three digits: "2.40", "71.1", "257".
std::string figure_text(double value);
// The same with the unit: "71.1 ns".
std::string figure_text(const harness::Record& record);

// Two digits: "0.79 %", "313 %".
std::string percent_text(double percent);

// The meaning of the name of a bench or an operation; empty if nothing is known of it.
std::string meaning(const std::string& name);

// "Heddle", "UCX", "Open MPI": a transport, or what a ratio is `against`, as people call it.
std::string library_name(const std::string& name);

// Anything that makes a figure less reliable than it seems, or else its noise: "steady: ±1 %",
// "noisy: ±40 %, only a rough figure", "measured once: its noise is unknown".
std::string noise_words(const harness::Record& record);

// "3.1 × ", "1.15 × ".
std::string times(double ratio);
// Heddle's figure beside a peer's: "3.1 × UCX", "0.49 × UCX's time", and whether that says
// anything: "ahead", "behind", or "level, within the noise".
std::string ratio_words(const harness::Record& ours, double ratio, const std::string& against);
std::string beside_words(const harness::Record& ours, const harness::Record& peer);

// The same figure of two runs. Level: the intervals overlap, or nobody knows them. In words: "3 %
// slower, within the noise of ±5 %", "2.4 × as fast, beyond the noise of ±5 %".
struct Change {
  harness::Standing standing = harness::Standing::level;  // ahead: the later run is the better one
  // change of the figure itself, no matter which is better
  double percent = 0;
  std::string words;
};
Change change(const harness::Record& before, const harness::Record& after);

}  // namespace heddle::bench::report
