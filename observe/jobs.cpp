#include "observe/jobs.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "observe/commands.hpp"
#include "tap/ask.hpp"

namespace heddle::observe {
namespace {

using tap::ask_door;
using tap::find_doors;

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
  const std::vector<pid_t> ranks = ranks_of(job, kAnswerMs);
  return std::find(ranks.begin(), ranks.end(), process) != ranks.end();
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

// The words of a process's command, as far as a line has room; empty: they are not known.
std::string words_of(pid_t pid) {
  constexpr std::size_t kMostWords = 60;
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline", std::ios::binary);
  std::string text;
  for (std::string word; text.size() <= kMostWords && std::getline(file, word, '\0');) {
    text += (text.empty() ? "" : " ") + word;
  }
  // They are shown in terminals.
  std::ranges::replace_if(text, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text.size() <= kMostWords ? text : text.substr(0, kMostWords - 1) + "…";
}

// "24232  ./app input, 2 ranks"
std::string line_of(pid_t job) {
  constexpr int kPatienceMs = 500;  // one that is stopped does not answer
  const std::vector<pid_t> ranks = ranks_of(job, kPatienceMs);
  const auto joined = std::ranges::find_if(ranks, [](pid_t rank) { return rank > 0; });
  std::string program = joined != ranks.end() ? words_of(*joined) : std::string();
  if (program.empty()) program = words_of(job);
  std::string line = std::to_string(job);
  if (!program.empty()) line += "  " + program;
  if (!ranks.empty()) line += ", " + std::to_string(ranks.size()) + (ranks.size() == 1 ? " rank" : " ranks");
  return line;
}

FoundJob refuse(const char* command, int code, const std::string& why) {
  std::fprintf(stderr, "heddle %s: %s\n", command, why.c_str());
  return {0, code};
}

}  // namespace

std::string no_option(const char* command, std::string_view word) {
  return '"' + std::string(word) + "\" is no option; `heddle " + command + " --help` tells more";
}

std::vector<pid_t> ranks_of(pid_t job, int timeout_ms) {
  std::vector<pid_t> ranks;
  const auto text = ask_door(job, "ranks", timeout_ms);
  if (!text) return ranks;
  std::istringstream lines(*text);
  std::uint32_t rank = 0;
  pid_t process = 0;
  while (lines >> rank >> process) ranks.push_back(process);
  return ranks;
}

FoundJob find_job(const char* command, const std::string& argument) {
  pid_t process = 0;
  if (argument.starts_with('-')) return refuse(command, kUsageCode, no_option(command, argument));
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
    for (const pid_t job : jobs) all += "\n  " + line_of(job);
    return refuse(command, kUsageCode, "several jobs run; name one of these:" + all);
  }
  const pid_t job = process == 0 ? jobs.front() : job_of(process, jobs);
  if (job != 0) return {job, 0};
  return refuse(command, 1, "process " + std::to_string(process) + " belongs to no job of this user");
}

}  // namespace heddle::observe
