// Runs a whole benchmark session from a plain shell: the limit, Heddle, and its peers, in turns;
// then the comparison.
#pragma once

#include <string>
#include <vector>

#include "harness/options.hpp"
#include "harness/record.hpp"
#include "harness/results.hpp"

namespace heddle::bench::driver {

// The exit status. Progress goes to stderr, the table to stdout.
int run_session(const harness::Options& options);

// The main job of `./heddle demo`: a short session, its records and its report in the current
// directory.
int run_demo(harness::Options options);

// Aggregates, compares, prints the table, writes options.json.
int finish(const harness::Options& options, const harness::Origin& origin, const std::vector<harness::Sample>& samples);

}  // namespace heddle::bench::driver
