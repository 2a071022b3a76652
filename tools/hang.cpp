// heddle hang: asks a running job what its ranks wait for.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/local/door.hpp"
#include "tools/commands.hpp"

namespace heddle::tools {
namespace {

using bootstrap::local::ask_door;
using bootstrap::local::find_doors;

constexpr int kAnswerMs = 10'000;

constexpr const char* kHelp =
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

// The parent of a process; 0: there is none, or it is not known.
pid_t parent_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("PPid:")) continue;
    return static_cast<pid_t>(std::strtol(line.c_str() + 5, nullptr, 10));
  }
  return 0;
}

// Ranks of a foreign launcher are no children of the process that answers.
bool has_rank(pid_t job, pid_t process) {
  const auto ranks = ask_door(job, "ranks", kAnswerMs);
  if (!ranks) return false;
  return ("\n" + *ranks).find(" " + std::to_string(process) + "\n") != std::string::npos;
}

// The job that the process watches or belongs to; 0: none.
pid_t job_of(pid_t process, const std::vector<pid_t>& jobs) {
  for (pid_t at = process; at > 1; at = parent_of(at)) {
    if (std::find(jobs.begin(), jobs.end(), at) != jobs.end()) return at;
  }
  for (const pid_t job : jobs) {
    if (has_rank(job, process)) return job;
  }
  return 0;
}

int refuse(const std::string& why) {
  std::fprintf(stderr, "heddle hang: %s\n", why.c_str());
  return kUsageCode;
}

}  // namespace

int hang_command(int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  if (word == "-h" || word == "--help") {
    std::fputs(kHelp, stdout);
    return 0;
  }
  if (argc > 2) return refuse("one process at most; `heddle hang --help` tells more");
  pid_t process = 0;
  if (argc > 1) {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), process);
    if (error != std::errc() || end != word.data() + word.size() || process <= 0) {
      return refuse("\"" + std::string(word) + "\" is not the number of a process");
    }
  }
  const std::vector<pid_t> jobs = find_doors();
  if (jobs.empty()) {
    std::fprintf(stderr, "heddle hang: no job of this user runs on this machine\n");
    return 1;
  }
  if (argc == 1 && jobs.size() > 1) {
    std::string all;
    for (const pid_t job : jobs) all += ' ' + std::to_string(job);
    return refuse("several jobs run; name one of these:" + all);
  }
  const pid_t job = argc == 1 ? jobs.front() : job_of(process, jobs);
  if (job == 0) {
    std::fprintf(stderr, "heddle hang: process %d belongs to no job of this user\n", static_cast<int>(process));
    return 1;
  }
  const auto answer = ask_door(job, "hang", kAnswerMs);
  if (!answer) {
    std::fprintf(stderr, "heddle hang: %s\n", base::last_message());
    return 1;
  }
  std::fputs(answer->c_str(), stdout);
  return 0;
}

}  // namespace heddle::tools
