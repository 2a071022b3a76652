// heddle hang: asks a running job what its ranks wait for.
#include <cstdio>
#include <string>
#include <string_view>

#include "observe/commands.hpp"
#include "observe/jobs.hpp"
#include "tap/ask.hpp"

namespace heddle::observe {
namespace {

constexpr const char* kHangHelp =
    R"(usage: heddle hang [PID]

Asks a running job of this machine and this user what each rank waits for, and says who keeps it
from going on. It takes two or three seconds, and the job goes on undisturbed.

  PID            the launcher's process, or that of a rank; without it: the only job there is
  -h, --help     show this text

Jobs of `heddle run` and `heddle oshrun` answer by their launcher, jobs of another launcher by the
process of rank 0. The first line names who is to blame; the others tell each rank's waits, and
what its workers have under way. The same is written by the launcher itself when nothing has moved
for HEDDLE_HANG_SECONDS (60).

The exit code is 0, 1 if no job answers, and 2 for wrong arguments.
)";

}  // namespace

int hang_command(int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  if (word == "-h" || word == "--help") {
    std::fputs(kHangHelp, stdout);
    return 0;
  }
  if (argc > 2 && !word.starts_with('-')) {
    std::fprintf(stderr, "heddle hang: one process at most; `heddle hang --help` tells more\n");
    return kUsageCode;
  }
  if (argc > 1 && word.empty()) {
    std::fprintf(stderr, "heddle hang: \"\" is not the number of a process\n");
    return kUsageCode;
  }
  const FoundJob found = find_job("hang", std::string(word));
  if (found.job == 0) return found.code;
  const auto answer = tap::ask_door(found.job, "hang", kAnswerMs);
  if (!answer) {
    std::fprintf(stderr, "heddle hang: %s\n", base::last_message());
    return 1;
  }
  std::fputs(answer->c_str(), stdout);
  return 0;
}

}  // namespace heddle::observe
