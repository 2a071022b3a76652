// What heddle info --job prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::tools {

// What one rank says.
struct JobRow {
  std::uint32_t node = 0;
  std::string host;
  std::string problem;            // why it has no transport; empty: it has
  std::vector<std::string> ways;  // by rank, the transport that reaches it
  bool operator==(const JobRow&) const = default;
};

// "0-3,7", of ranks in their order.
std::string ranks_text(const std::vector<std::uint32_t>& ranks);
// A table: a line of words, then one for each set of ranks that say the same. `rows`: by rank.
std::string job_text(const std::vector<JobRow>& rows);

}  // namespace heddle::tools
