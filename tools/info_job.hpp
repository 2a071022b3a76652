// The output of heddle info --job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heddle::tools {

// The row of one rank.
struct JobRow {
  std::uint32_t node = 0;
  std::string host;
  std::string problem;    // why it has no transport; empty: it has one
  std::string uses;       // its transport's name, as transport::Choice has it
  std::string rejection;  // why it does not talk to the first of the ranks without a way
  std::string probe;      // "PID ADDRESS": a word of this process, for the next rank's try
  // kWork: the kernel copies from and to the next rank of this node; or why not; empty: not tried,
  // there is none that shm reaches
  std::string copies;
  std::vector<std::string> ways;  // for each rank, the transport that reaches it; empty: none does
  bool operator==(const JobRow&) const = default;
};

// A row as bytes for the other ranks, and back. The node is not in it. Nothing: another program has
// sent the bytes.
std::string encode(const JobRow& row);
std::optional<JobRow> decode(const std::vector<std::byte>& bytes);

inline constexpr const char* kWork = "work";
// The rows' results about the kernel's copies, as lines; empty: nothing was tried.
std::string copies_text(const std::vector<JobRow>& rows);

// "0-3,7", of ascending ranks.
std::string ranks_text(const std::vector<std::uint32_t>& ranks);
// A table: a line of headings, then a line for each set of ranks with equal rows. `rows`: by rank.
std::string job_text(const std::vector<JobRow>& rows);

}  // namespace heddle::tools
