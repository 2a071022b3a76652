// `heddle bench tune`: runs every algorithm of the collectives and writes the table that
// HEDDLE_COLLECTIVE_TABLE names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collective/select.hpp"
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

// The fastest algorithm for each size, from all measurements of one operation in one form, by
// ascending ranks. The algorithm of the previous size stays unless another is faster by more than 3
// %, because smaller differences are noise. The border between two sizes, and between two numbers
// of ranks, is their geometric mean. The last has no border.
std::vector<collective::SelectionTable::Row> fastest(const std::vector<Measured>& measured);

// The exit status: 0; 1 (a job failed, the file could not be written); 2 (it was called in a job).
int run_tuning(const harness::Options& options);

}  // namespace heddle::bench::driver
