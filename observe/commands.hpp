// The commands of heddle-observe, and the job that an argument names. A new command is a function,
// a row in main.cpp, and a row in tools/main.cpp.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/commands.hpp"

namespace heddle::observe {

// Each parses its own arguments: argv[0] is the command's name. The result is the exit code.
int hang_command(int argc, char** argv);
int trace_command(int argc, char** argv);
int explain_command(int argc, char** argv);
int top_command(int argc, char** argv);
int metrics_command(int argc, char** argv);

using base::kUsageCode;

// The running jobs of this machine and user, as the commands find them that ask one about itself.

inline constexpr int kAnswerMs = 10'000;  // that a job may take to answer

// "-x" is no option; …: for every command that has few.
[[nodiscard]] std::string no_option(const char* command, std::string_view word);

// The processes of a job's ranks, by rank; 0: that one has not joined. None: the job does not
// answer.
[[nodiscard]] std::vector<pid_t> ranks_of(pid_t job, int timeout_ms);

// The job that a command's argument means: the number of its launcher's process or of a rank's;
// empty: the only job that there is. An error is written, with the command's name.
struct FoundJob {
  pid_t job = 0;  // the process to ask; 0: there is none
  int code = 0;   // then: the command's exit code
};
[[nodiscard]] FoundJob find_job(const char* command, const std::string& argument);

}  // namespace heddle::observe
