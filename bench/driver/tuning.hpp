// `heddle bench tune`: runs every algorithm of the collectives and writes the table that
// HEDDLE_COLLECTIVE_TABLE names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/options.hpp"

namespace heddle::bench::driver {

// Times of one operation in one form by so many ranks.
struct Measured {
  std::string operation;
  bool kept = false;
  std::uint32_t ranks = 0;
  // By bytes, then algorithm: the medians of several jobs.
  std::map<std::uint64_t, std::map<std::string, std::vector<double>>> times_ns;
};

// A row of the table: up to so many ranks and bytes this algorithm is the fastest.
struct TableRow {
  static constexpr std::uint32_t kAnyRanks = ~std::uint32_t{0};
  static constexpr std::uint64_t kAnyBytes = ~std::uint64_t{0};

  std::string operation;
  bool kept = false;
  std::uint32_t ranks = 0;
  std::uint64_t bytes = 0;
  std::string algorithm;
};

// Its line, in the form that the core reads (src/collective/select.hpp).
std::string line(const TableRow& row);

// The fastest algorithm for each size, from all measurements of one operation in one form, by
// ascending ranks. The algorithm of the previous size stays unless another is faster by more than 3
// %, because smaller differences are noise. The border between two sizes, and between two numbers
// of ranks, is their geometric mean. The last has no border.
std::vector<TableRow> fastest(const std::vector<Measured>& measured);

// The exit status: 0; 1 (a job failed, the file could not be written); 2 (it was called in a job).
int run_tuning(const harness::BenchOptions& options);

}  // namespace heddle::bench::driver
