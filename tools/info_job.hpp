// What heddle info --job prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::tools {

// The row of one rank.
struct JobRow {
  std::uint32_t node = 0;
  std::string host;
  std::string problem;            // why it has no transport; empty: it has one
  std::vector<std::string> ways;  // for each rank, the transport that reaches it
  bool operator==(const JobRow&) const = default;
};

// "0-3,7", of ascending ranks.
std::string ranks_text(const std::vector<std::uint32_t>& ranks);
// A table: a line of headings, then a line for each set of ranks with equal rows. `rows`: by rank.
std::string job_text(const std::vector<JobRow>& rows);

}  // namespace heddle::tools
