// What is measured of collective operations: the command line of `heddle bench broadcast` and its
// like, and of the peers' program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::bench::harness {

inline const std::vector<std::string> kCollectiveNames = {
    "barrier", "broadcast", "reduce",   "allreduce", "reduce_scatter",
    "scan",    "gather",    "gatherv",  "allgather", "allgatherv",
    "scatter", "scatterv",  "alltoall", "alltoallv", "neighbor_alltoallv"};
inline const std::vector<std::string> kCollectiveForms = {"persistent", "nonblocking", "blocking"};

struct CollectiveOptions {
  std::vector<std::string> names;
  std::vector<std::string> forms = kCollectiveForms;
  std::vector<std::uint32_t> ranks = {2};  // outside of a job: one job of each
  std::vector<std::uint64_t> sizes;        // of a block; multiples of 8
  std::string algorithm;                   // of persistent ones; empty: chosen
  std::string memory = "allocated";        // or own
  std::uint32_t repeat = 5;
  std::uint64_t target_ns = 20'000'000;  // of one repeat
  bool overlap = true;                   // once more with a computation
};

extern const char* const kCollectiveUsage;

// Whether the first of the arguments names one of these measurements.
bool is_collective_name(std::string_view name);
// Empty: *error says what was wrong with the value and what is accepted.
std::optional<CollectiveOptions> parse_collective_options(int argc, char** argv, std::string* error);

}  // namespace heddle::bench::harness
