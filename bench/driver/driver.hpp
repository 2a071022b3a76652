// The driver of a session, and the table that it prints. It runs a whole benchmark session from a
// plain shell: the limit, Heddle, and its peers, in turns; then the comparison.
#pragma once

#include <string>
#include <vector>

#include "harness/options.hpp"
#include "harness/record.hpp"

namespace heddle::bench::driver {

// The exit status. Progress goes to stderr, the table to stdout.
int run_session(const harness::BenchOptions& options);

// The main job of `./heddle demo`: a short session, its records and its report in the current
// directory.
int run_demo(harness::BenchOptions options);

// Aggregates, compares, prints the table, writes options.json.
int finish(const harness::BenchOptions& options, const harness::Origin& origin,
           const std::vector<harness::Sample>& samples);

// The table at the end of a run.

// One line per figure of Heddle and of the limit, with the ratios to everything it was compared
// with; `records` as with_ratios() gives them. `colour`: green where Heddle is ahead of the peer,
// red where it is behind. `spread`: the best repeat and what 99 % of them reach, not the interval.
std::string table(const std::vector<harness::BenchRecord>& records, bool colour, bool spread = false);

// "8", "4 KiB", "1 MiB".
std::string size_text(std::uint64_t bytes);

}  // namespace heddle::bench::driver
