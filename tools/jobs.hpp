// The running jobs of this machine and user, as the commands find them that ask one about itself.
#pragma once

#include <sys/types.h>

#include <string>

namespace heddle::tools {

inline constexpr int kAnswerMs = 10'000;  // that a job may take to answer

// The job that a command's argument means: the number of its launcher's process or of a rank's;
// empty: the only job that there is. What is wrong is written, with the command's name.
struct FoundJob {
  pid_t job = 0;  // the process to ask; 0: there is none
  int code = 0;   // then: the command's exit code
};
[[nodiscard]] FoundJob find_job(const char* command, const std::string& argument);

}  // namespace heddle::tools
