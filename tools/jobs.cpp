#include "tools/jobs.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "bootstrap/local/door.hpp"
#include "tools/commands.hpp"

namespace heddle::tools {
namespace {

using bootstrap::local::ask_door;
using bootstrap::local::find_doors;

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

FoundJob refuse(const char* command, int code, const std::string& why) {
  std::fprintf(stderr, "heddle %s: %s\n", command, why.c_str());
  return {0, code};
}

}  // namespace

FoundJob find_job(const char* command, const std::string& argument) {
  pid_t process = 0;
  if (!argument.empty()) {
    const char* last = argument.data() + argument.size();
    const auto [end, error] = std::from_chars(argument.data(), last, process);
    if (error != std::errc() || end != last || process <= 0) {
      return refuse(command, kUsageCode, "\"" + argument + "\" is not the number of a process");
    }
  }
  const std::vector<pid_t> jobs = find_doors();
  if (jobs.empty()) return refuse(command, 1, "no job of this user runs on this machine");
  if (process == 0 && jobs.size() > 1) {
    std::string all;
    for (const pid_t job : jobs) all += ' ' + std::to_string(job);
    return refuse(command, kUsageCode, "several jobs run; name one of these:" + all);
  }
  const pid_t job = process == 0 ? jobs.front() : job_of(process, jobs);
  if (job != 0) return {job, 0};
  return refuse(command, 1, "process " + std::to_string(process) + " belongs to no job of this user");
}

}  // namespace heddle::tools
