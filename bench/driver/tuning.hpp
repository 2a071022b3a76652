// `heddle bench tune`: runs every algorithm of the collectives and writes the table that
// HEDDLE_COLLECTIVE_TABLE names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collective/selection_table.hpp"
#include "harness/options.hpp"

namespace heddle::bench::driver {

// Times of one operation in one form by so many ranks.
struct Measured {
  collective::Operation operation = collective::Operation::barrier;
  bool kept = false;
  collective::Rank ranks = 0;
  // By bytes, then algorithm: the medians of several jobs.
  std::map<std::uint64_t, std::map<const collective::Algorithm*, std::vector<double>>> times_ns;
};

// The fastest for each size, of all that were measured of one operation in one form, by ascending
// ranks. The one of the size before stays unless another is faster by more than 3 %, for that is
// noise. Between two sizes, and two numbers of ranks, the border is their geometric mean; the last
// has none.
std::vector<collective::SelectionTable::Row> fastest(const std::vector<Measured>& measured);

// The exit status: 0; 1 (a job failed, the file could not be written); 2 (it was called in a job).
int run_tuning(const harness::Options& options);

}  // namespace heddle::bench::driver
