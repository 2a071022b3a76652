// The parts of `heddle bench programs`: which program runs in how many processes, and the facts
// that both the participants and the driver need.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/options.hpp"

namespace heddle::bench::measure {

// Messages, puts or gets that are begun before any of them is waited for: OSU's 64, and 8 of those
// that are longer than 64 KiB.
inline constexpr std::uint64_t kWindow = 64;
constexpr std::uint64_t window_of(std::uint64_t bytes) {
  return bytes <= 65536 ? kWindow : 8;
}
inline constexpr std::uint32_t kMostThreads = 8;
inline constexpr std::uint32_t kManyProcesses = 8;  // 7 to 1; 4 pairs; all to all

// A library is started once for each of these: MPI with MPI_THREAD_SINGLE or MULTIPLE, as its
// programs do it.
enum class Group { alone, threads, many };
inline constexpr Group kGroups[] = {Group::alone, Group::threads, Group::many};

inline std::uint32_t processes_of(Group group) {
  return group == Group::many ? kManyProcesses : 2;
}
inline std::vector<std::string> programs_of(Group group) {
  switch (group) {
    case Group::alone:
      return {"latency",    "bw",         "bibw", "mbw_mr",  "put_latency",
              "put_window", "get_window", "rpc",  "overlap", "exchange"};
    case Group::threads:
      return {"latency_mt", "pingpong_mt", "pairs", "rpc_mt", "halo"};
    case Group::many:
      return {"mbw_mr", "fan_in", "exchange"};
  }
  return {};
}
using harness::contains;
// Those of a group that these options ask for; empty: the group is left out.
inline std::vector<std::string> asked_of(Group group, const harness::BenchOptions& options) {
  std::vector<std::string> out = programs_of(group);
  if (!options.ops.empty()) std::erase_if(out, [&](const std::string& one) { return !contains(options.ops, one); });
  return out;
}
// Whether the driver has asked for programs of several threads.
inline bool has_threads(const harness::BenchOptions& options) {
  return !asked_of(Group::threads, options).empty();
}

// They have a job of their own: their workers would be too many beside others.
inline bool only_programs(const harness::BenchOptions& options) {
  return options.names == std::vector<std::string>{"programs"};
}

// The bench's name in records.
inline constexpr const char* kQuiet = "programs";
inline std::string bench_name(std::uint32_t busy) {
  return busy == 0 ? std::string(kQuiet) : std::string(kQuiet) + "_busy_" + std::to_string(busy);
}
inline bool is_program(std::string_view bench) {
  return bench.starts_with(kQuiet);
}

}  // namespace heddle::bench::measure
