// The counters of a job: as the text that ranks send, and as OpenMetrics. They are shown while the
// job runs (`heddle top`, `heddle metrics`).
//
// Each rank tells its counters as text, which its launcher passes on:
//
//   rank 1 pid 4242 transport shm waiting 1 longest_wait_ns 5000000000 resident_bytes 9437184
//   worker 1 0 mode auto internal 0 puts 12 gets 0 …
//
// a line for the rank, one for each worker: after its numbers pairs of a name and a value. Readers
// skip names that they do not know.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/heddle.h"

namespace heddle::tap {

struct WorkerCounters {
  std::uint32_t index = 0;
  bool internal = false;  // of the library itself, for collective calls
  std::string mode;       // its sharing mode
  heddle_worker_stats stats{};
  std::uint64_t helper_polls = 0;  // calls of progress by helpers, among stats.polls
};

struct RankCounters {
  std::uint32_t rank = 0;
  std::int64_t pid = 0;
  std::string transport;
  std::uint64_t waiting = 0;  // threads that wait in the library, in vain so far
  std::uint64_t longest_wait_ns = 0;
  std::uint64_t resident_bytes = 0;  // memory of the process; 0: not known
  std::vector<WorkerCounters> workers;
};

// A count of a worker that only grows.
struct Count {
  const char* name;
  std::uint64_t WorkerCounters::* own;  // null: it is one of the engine's
  std::uint64_t heddle_worker_stats::* field;
  const char* help;
  [[nodiscard]] std::uint64_t of(const WorkerCounters& worker) const {
    return own != nullptr ? worker.*own : worker.stats.*field;
  }
};
[[nodiscard]] std::span<const Count> counts();

[[nodiscard]] std::string to_text(const RankCounters& rank);
// Reads the counters of any number of ranks, in rising order. Text in another format is skipped.
[[nodiscard]] std::vector<RankCounters> read_counters(std::string_view text);

// A job's counters as OpenMetrics text, which Prometheus and others read.

inline constexpr const char* kOpenMetricsType = "application/openmetrics-text; version=1.0.0; charset=utf-8";

// All families, also those without samples, and the end mark.
[[nodiscard]] std::string openmetrics(std::span<const RankCounters> ranks);

}  // namespace heddle::tap
