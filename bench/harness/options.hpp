// The command line of `heddle bench` and of every peer program: the same for all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::bench::harness {

// The line that follows an error in the arguments of a command.
inline constexpr const char* kHelpHint = "`heddle bench --help` lists what can be measured, and the options\n";

inline bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Measured each by itself, by any number of processes, in any of these forms.
inline const std::vector<std::string> kCollectiveNames = {
    "barrier", "broadcast", "reduce",   "allreduce", "reduce_scatter",
    "scan",    "gather",    "gatherv",  "allgather", "allgatherv",
    "scatter", "scatterv",  "alltoall", "alltoallv", "neighbor_alltoallv"};
inline const std::vector<std::string> kCollectiveForms = {"persistent", "nonblocking", "blocking"};

struct BenchOptions {
  std::string command;                 // as it was given, to be written down with what it measured
  std::vector<std::string> names;      // benches; empty: kUsualNames
  std::vector<std::string> ops;        // empty: all
  std::vector<std::uint64_t> sizes;    // empty: each bench's own
  std::vector<std::uint32_t> threads;  // empty: 1, 2
  // modes in which all threads use one worker; rate: beside a worker each
  std::vector<std::string> sharing;
  std::uint32_t repeat = 9;
  // processes that compute while a measurement runs, one to each core in turn
  std::uint32_t busy = 0;
  bool switches = false;  // count context switches of windows
  bool spread = false;    // show the best repeat and what 99 % reach, not the interval
  bool peers = false;
  bool quick = false;
  bool demo = false;
  // allocated, registered, both, adopted; programs: malloc; collectives: own
  std::string memory = "both";
  std::string json;                      // file to write
  std::uint64_t total_words = 0;         // gups table over both processes; 0: the default
  std::uint64_t target_ns = 20'000'000;  // time of one repeat
  // of the whole session, 0: none; then there are as many repeats as fit
  std::uint64_t limit_ns = 0;
  // for repeating disturbed measurements, in the whole session
  std::uint64_t retry_ns = 15'000'000'000;

  // Of collectives.
  std::vector<std::uint32_t> ranks = {2};  // processes: a job of each
  std::vector<std::string> forms = kCollectiveForms;
  std::string algorithm;  // of persistent ones, such as broadcast.chain; empty: chosen
  bool overlap = true;    // once more with a computation
  bool tune = false;
  std::string output = "heddle-collectives.txt";  // of tune

  // Between the driver and the participants it starts.
  std::string channel;  // path; set: this is a participant
  std::string cores;
  bool pair = false;            // start the processes by fork
  std::uint32_t processes = 2;  // how many, then
};

// The benches that run if none is named, and those that run only by name: progress policies, and
// measurements as papers made them.
inline const std::vector<std::string> kUsualNames = {"limit", "pingpong", "rate", "bandwidth", "atomics", "gups"};
inline const std::vector<std::string> kOtherNames = {
    "reaction",         "compute",     "overhead",      "fairness",    "duplex",    "convolution", "overlap",
    "oversubscription", "network_tcp", "network_posix", "network_ofi", "mixed_job", "programs"};
// Those of kOtherNames that go over a network; a participant has at most one of them.
inline const std::vector<std::string> kNetworkNames = {"network_tcp", "network_posix", "network_ofi", "mixed_job"};
inline bool is_network(std::string_view name) {
  return std::find(kNetworkNames.begin(), kNetworkNames.end(), name) != kNetworkNames.end();
}
inline constexpr std::uint32_t kMixedProcesses = 4;
// Operations of the bench `programs`: see bench/measure/README.md.
inline const std::vector<std::string> kProgramNames = {
    "latency",    "bw",    "bibw", "mbw_mr", "latency_mt", "pingpong_mt", "put_latency", "put_window",
    "get_window", "pairs", "rpc",  "rpc_mt", "halo",       "fan_in",      "overlap",     "exchange"};
inline const std::vector<std::uint32_t> kOverheadThreads = {1, 2, 4, 8, 15};
inline const std::vector<std::uint64_t> kDuplexSizes = {8, 4096, 65536, 1U << 20};
inline const std::vector<std::uint32_t> kDuplexThreads = {1, 2, 4, 8};
inline const std::vector<std::uint32_t> kConvolutionThreads = {2, 8};
inline const std::vector<std::uint32_t> kOversubscribed = {4, 8};  // processes
// Threads of each process that does its part of the mixed work.
inline std::uint32_t oversubscription_threads(std::uint32_t processes) {
  return processes > 2 ? 8 : 1;
}

// Empty optional: *error says what was wrong with the value and what is accepted.
std::optional<BenchOptions> parse_options(int argc, char** argv, std::string* error);
// The arguments that give a participant these options, for `repeat` repeats.
std::vector<std::string> participant_arguments(BenchOptions options, std::uint32_t repeat);
extern const char* const kUsage;

inline bool are_collectives(const BenchOptions& options) {
  return !options.names.empty() && contains(kCollectiveNames, options.names.front());
}
// The list, or its default.
std::vector<std::uint64_t> sizes_or(const BenchOptions& options, std::vector<std::uint64_t> sizes);
bool wants_sharing(const BenchOptions& options, std::string_view name);
// Named, or usual where none is named.
bool wants_bench(const BenchOptions& options, std::string_view name);
bool wants_op(const BenchOptions& options, std::string_view op);  // named, or none is
// For benches that compare modes: those given, or all but mutex.
bool wants_mode(const BenchOptions& options, std::string_view name);
std::vector<std::uint32_t> threads_of(const BenchOptions& options);
// In `duplex`, each thread of a process has its own stretch of so many bytes.
std::uint64_t duplex_stretch(const BenchOptions& options);
// The one of kNetworkNames that these options name; null: none. And its numbers of threads.
const char* network_of(const BenchOptions& options);
std::vector<std::uint32_t> network_threads(const BenchOptions& options);
std::vector<std::uint32_t> threads_or(const BenchOptions& options, std::vector<std::uint32_t> threads);

}  // namespace heddle::bench::harness
