// What `heddle run`, or `oshrun`, is asked to do.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "tools/run/utofu.hpp"

namespace heddle::tools::run {

// The words of the command's users.
struct Names {
  const char* command;
  const char* rank;     // also with an s behind it
  const char* leaving;  // what a rank has to do before it ends
  const char* aborting;
  const char* version;
};
// `heddle run`, and `heddle oshrun`, which is `oshrun`: the same for OpenSHMEM.
inline constexpr Names kRunNames{"heddle run", "rank", "leaving the job", "heddle_context_abort", "heddle run"};
inline constexpr Names kOshrunNames{"oshrun", "PE", "shmem_finalize", "shmem_global_exit", "oshrun of Heddle"};

struct Options {
  const Names* names = &kRunNames;
  std::uint32_t ranks = 1;
  std::uint32_t threads = 0;  // per process, a hint; 0: none given
  bool bind_cores = false;
  bool tag = false;              // lines of output carry their rank
  std::uint64_t timeout_ns = 0;  // 0: none
  std::uint64_t grace_ns = 5'000'000'000;
  UtofuMachine utofu;  // with an empty shape: none
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> command;  // program and arguments
};

// The words of the command, its name first. ARGUMENT with a message for the user if they make no
// sense. Asked for help or the version, *answer is the text to print.
base::Result<Options> parse(int argc, char** argv, const Names& names, std::string* answer);

}  // namespace heddle::tools::run
