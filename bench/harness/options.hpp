// What the command line of `heddle bench` and of every peer program says: the same for all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::bench::harness {

struct Options {
  std::vector<std::string> names;      // benches; empty: all
  std::vector<std::string> ops;        // empty: all
  std::vector<std::uint64_t> sizes;    // empty: each bench's own
  std::vector<std::uint32_t> threads;  // empty: 1, 2
  std::vector<std::string> sharing;    // modes in which all threads use one worker as well
  std::uint32_t workers = 0;           // per process; 0: one per thread
  std::uint32_t repeat = 9;
  bool peers = false;
  bool quick = false;
  bool demo = false;
  std::string memory = "both";              // allocated, registered, both
  std::string json;                         // file to write
  std::uint64_t total_words = 0;            // gups table over both processes; 0: the default
  std::uint64_t target_ns = 20'000'000;     // time of one repeat
  std::uint64_t limit_ns = 0;               // of the whole session, 0: none; then there are as many repeats as fit
  std::uint64_t retry_ns = 15'000'000'000;  // for repeating what was disturbed, in the whole session

  // Between the driver and the participants it starts.
  std::string channel;  // path; set: this is a participant
  std::string cores;
  bool pair = false;  // start both processes by fork
};

inline const std::vector<std::string> kBenchNames = {"limit",   "pingpong", "rate",     "bandwidth",
                                                     "atomics", "gups",     "reaction", "compute"};

// Empty optional: *error says what was wrong with the value and what is accepted.
std::optional<Options> parse_options(int argc, char** argv, std::string* error);
// The arguments that give a participant these options, for `repeat` repeats.
std::vector<std::string> participant_arguments(const Options& options, std::uint32_t repeat);
extern const char* const kUsage;

// The list, or its default.
std::vector<std::uint64_t> sizes_or(const Options& options, std::vector<std::uint64_t> sizes);
bool wants_sharing(const Options& options, std::string_view name);
std::vector<std::uint32_t> threads_of(const Options& options);

}  // namespace heddle::bench::harness
