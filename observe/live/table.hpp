// The table of `heddle top`: what the ranks of a job have done between two looks at their counters.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tap/counters.hpp"

namespace heddle::observe::live {

// A rank's row, or that of all: amounts of one second.
struct Row {
  std::string name;  // "3", "all"
  std::string transport;
  double puts = 0;
  double gets = 0;
  double atomics = 0;
  double messages = 0;
  double sends = 0;
  double bytes = 0;
  double again = 0;
  double polls = 0;
  double helper_polls = 0;
  std::uint64_t waiting = 0;
  std::uint64_t longest_wait_ns = 0;
  std::uint64_t resident_bytes = 0;
};

// A row for each rank of `now`, in its order. A worker that was not there before counts from its
// opening on. The counts of closed workers after `before` are not known.
[[nodiscard]] std::vector<Row> rows_of(std::span<const tap::RankCounters> before,
                                       std::span<const tap::RankCounters> now, double seconds);
// Of all of them.
[[nodiscard]] Row sum_of(std::span<const Row> rows);

// The ranks of the job that have answered: "3 ranks have answered", "1 of 2 ranks has answered;
// missing: rank 1". `size`: how many the job has; 0: it is not known.
[[nodiscard]] std::string answered_text(std::span<const tap::RankCounters> now, std::size_t size);

// The table as lines, without line ends: at most `most` (at least 4); rows that have no place are
// counted in the last one.
[[nodiscard]] std::vector<std::string> table_of(std::span<const Row> rows, std::size_t most);

// In at most six characters: "0", "12.3", "998", "1.25k", "37.1M".
[[nodiscard]] std::string amount(double value);

}  // namespace heddle::observe::live
