// The running jobs of this machine and user, as the commands find them that ask one about itself.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace heddle::observe {

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
