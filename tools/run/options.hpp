// The options of `heddle run` and `oshrun`, and what --trace adds to them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "tools/run/beside.hpp"
#include "tools/run/metrics_port.hpp"

namespace heddle::tools::run {

// The terms of the command's users.
struct Names {
  const char* command;
  const char* rank;     // an s is appended for the plural
  const char* leaving;  // what a rank must do before it ends
  const char* aborting;
  const char* version;
};
// `heddle run`, and `heddle oshrun` (also called as `oshrun`), the same for OpenSHMEM.
inline constexpr Names kRunNames{"heddle run", "rank", "leaving the job", "heddle_context_abort", "heddle run"};
inline constexpr Names kOshrunNames{"oshrun", "PE", "shmem_finalize", "shmem_global_exit", "oshrun of Heddle"};

inline constexpr std::uint64_t kUnlimited = UINT64_MAX;

struct RunOptions {
  const Names* names = &kRunNames;
  std::uint32_t ranks = 1;
  std::uint32_t threads = 0;  // per process, a hint; 0: none given
  bool bind_cores = false;
  bool tag = false;                        // lines of output carry their rank
  std::uint64_t timeout_ns = 0;            // 0: none
  std::uint64_t grace_ns = 5'000'000'000;  // kUnlimited: the other ranks end by themselves
  bool forgives_deaths = false;            // a death does not count if a rank ends well
  std::string trace;                       // an absolute path; empty: the job is not traced
  bool trace_calls = true;                 // of MPI and OpenSHMEM, by name
  std::optional<std::uint16_t> metrics;    // at which port; 0: at any
  MetricsPort::For metrics_for = MetricsPort::For::user;
  UtofuMachine utofu;  // an empty shape: none
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> command;  // program and arguments
};

// The command's arguments, its name first. If they are invalid: ARGUMENT, with a message for the
// user. For help and version, *answer is the text to print.
base::Result<RunOptions> parse(int argc, char** argv, const Names& names, std::string* answer);

// `heddle run --trace`: the libraries that show the ranks' calls of MPI and OpenSHMEM by name
// (observe/calls).

// The ranks load these libraries before all others, behind those that the user's LD_PRELOAD names.
// One that is not built or installed is left out. ERR_SYSTEM: LD_PRELOAD cannot name them; the
// ranks run without.
base::Status preload_calls(RunOptions* options);

}  // namespace heddle::tools::run
