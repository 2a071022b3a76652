// The commands that ask a running job: `heddle top` and `heddle metrics`, which tell what it does,
// and `heddle hang`.

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "observe/commands.hpp"
#include "observe/live/table.hpp"
#include "tap/ask.hpp"
#include "tap/counters.hpp"

namespace heddle::observe {

namespace {

using tap::RankCounters;

constexpr const char* kTopHelp =
    R"(usage: heddle top [-d SECONDS] [-n COUNT] [PID]

Shows what the ranks of a running job of this machine and user do, again and again until the job
ends or Ctrl-C: operations per second by kind, bytes, refused attempts (again), the share of the
calls of progress that helpers make, threads that wait in vain and the longest of these waits, and
memory. The job goes on undisturbed.

  PID            the launcher's process, or that of a rank; without it: the only job there is
  -d SECONDS     between two refreshes; 1
  -n COUNT       ends after so many tables; without it: never
  -h, --help     show this text

If the output is no terminal, each table follows the one before.

The exit code is 0, also when the job has ended; 1 if no job answers; 2 for wrong arguments.
)";

constexpr const char* kMetricsHelp =
    R"(usage: heddle metrics [PID]

Writes the counters of all ranks of a running job of this machine and user, once, as OpenMetrics
text. `heddle run --metrics PORT` serves the same to Prometheus.

  PID            the launcher's process, or that of a rank; without it: the only job there is
  -h, --help     show this text

The exit code is 0, 1 if no job answers, and 2 for wrong arguments.
)";

struct TopOptions {
  double seconds = 1;
  std::uint64_t count = 0;  // 0: no end
  std::string job;
};

volatile std::sig_atomic_t g_stopped = 0;

void stop(int) {
  g_stopped = 1;
}

int reject(const char* command, const std::string& why) {
  std::fprintf(stderr, "heddle %s: %s; `heddle %s --help` tells more\n", command, why.c_str(), command);
  return kUsageCode;
}

template <class T>
bool read_number(std::string_view word, T& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size();
}

// None: they are wrong, and it has been said.
std::optional<TopOptions> parse_top(int argc, char** argv) {
  constexpr double kLeast = 0.1;
  constexpr double kMost = 86'400;
  TopOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool takes_value = word == "-d" || word == "-n";
    if (takes_value && ++i == argc) {
      reject("top", std::string(word) + " needs a number");
      return {};
    }
    const std::string_view value = argv[i];
    if (word == "-d") {
      if (read_number(value, options.seconds) && options.seconds >= kLeast && options.seconds <= kMost) continue;
      reject("top", "-d " + std::string(value) + " is no number of seconds from 0.1 to 86400");
      return {};
    }
    if (word == "-n") {
      if (read_number(value, options.count) && options.count > 0) continue;
      reject("top", "-n " + std::string(value) + " is no number of tables from 1 on");
      return {};
    }
    if (word.starts_with('-') || word.empty() || !options.job.empty()) {
      const std::string quoted = "\"" + std::string(word) + "\"";
      reject("top", quoted + (word.starts_with('-') ? " is no option"
                              : word.empty()        ? " is not the number of a process"
                                                    : " is one process too many"));
      return {};
    }
    options.job = word;
  }
  return options;
}

// BOOTSTRAP: the job has ended. TIMEOUT: it does not answer.
base::Result<std::vector<RankCounters>> ask(pid_t job, int timeout_ms) {
  const auto text = tap::ask_door(job, "counters", timeout_ms);
  if (!text) return text.status();
  return tap::read_counters(*text);
}

// Restores the terminal's contents at the end. Does nothing if the output is no terminal.
class Screen {
 public:
  explicit Screen(bool terminal) : terminal_(terminal) {
    if (terminal_) std::fputs("\033[?1049h\033[?25l", stdout);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen() {
    if (!terminal_) return;
    std::fputs("\033[?25h\033[?1049l", stdout);
    std::fflush(stdout);
  }

  void show(const std::string& title, std::span<const live::Row> rows) const {
    winsize size{};
    const bool known = terminal_ && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
    const std::size_t lines = known ? size.ws_row : rows.size() + 4;
    if (terminal_) std::fputs("\033[H", stdout);
    put(title, size.ws_col);
    for (const std::string& line : live::table_of(rows, lines - std::min<std::size_t>(lines, 2)))
      put(line, size.ws_col);
    if (terminal_) std::fputs("\033[J", stdout);
    std::fflush(stdout);
  }

 private:
  // A terminal's lines are cut: a line that goes on below would move the others.
  void put(std::string line, std::size_t columns) const {
    if (terminal_ && columns > 0 && line.size() > columns) line.resize(columns);
    std::printf("%s%s\n", line.c_str(), terminal_ ? "\033[K" : "");
  }

  const bool terminal_;
};

std::string title_of(pid_t job, const std::string& answered) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  std::array<char, 16> clock{};
  if (::localtime_r(&now, &local) != nullptr) std::strftime(clock.data(), clock.size(), "%H:%M:%S", &local);
  return std::string(clock.data()) + "  job " + std::to_string(job) + ", " + answered;
}

// Ends early for a signal.
void sleep_for(double seconds) {
  const auto whole = static_cast<std::time_t>(seconds);
  const timespec time{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  sigset_t none;
  sigemptyset(&none);
  if (g_stopped == 0) ::ppoll(nullptr, 0, &time, &none);
}

// The signals are blocked but in sleep_for(), so that none is missed before it.
void handle_signals() {
  sigset_t mine;
  sigemptyset(&mine);
  struct sigaction action{};
  action.sa_handler = &stop;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    sigaddset(&mine, signal);
    ::sigaction(signal, &action, nullptr);
  }
  ::sigprocmask(SIG_BLOCK, &mine, nullptr);
}

// DONE: all tables have been shown, or a signal has ended it. Else why the job did not answer.
base::Status show_all(pid_t job, const TopOptions& options, std::vector<RankCounters> before) {
  constexpr double kFirst = 0.5;  // seconds until the first table, at most
  constexpr int kPatienceMs = 3000;
  base::SystemClock clock;
  const std::size_t size = ranks_of(job, kAnswerMs).size();
  const Screen screen(::isatty(STDOUT_FILENO) != 0);
  std::uint64_t since = clock.now_ns();
  double seconds = std::min(options.seconds, kFirst);
  for (std::uint64_t shown = 0; options.count == 0 || shown < options.count; ++shown) {
    sleep_for(seconds);
    if (g_stopped != 0) break;
    auto now = ask(job, kPatienceMs);
    if (!now) return now.status();
    const std::uint64_t at = clock.now_ns();
    screen.show(title_of(job, live::answered_text(*now, size)),
                live::rows_of(before, *now, static_cast<double>(at - since) / 1e9));
    before = std::move(*now);
    since = at;
    seconds = options.seconds;
  }
  return HEDDLE_DONE;
}

bool asks_for_help(int argc, char** argv) {
  return argc > 1 && (std::string_view(argv[1]) == "-h" || std::string_view(argv[1]) == "--help");
}

}  // namespace

int top_command(int argc, char** argv) {
  if (asks_for_help(argc, argv)) {
    std::fputs(kTopHelp, stdout);
    return 0;
  }
  const std::optional<TopOptions> options = parse_top(argc, argv);
  if (!options) return kUsageCode;
  const FoundJob found = find_job("top", options->job);
  if (found.job == 0) return found.code;
  auto first = ask(found.job, kAnswerMs);
  if (!first) {
    std::fprintf(stderr, "heddle top: %s\n", base::last_message());
    return 1;
  }
  handle_signals();
  const base::Status status = show_all(found.job, *options, std::move(*first));
  if (status == HEDDLE_ERR_TIMEOUT) {
    std::fprintf(stderr, "heddle top: %s\n", base::last_message());
    return 1;
  }
  if (status != HEDDLE_DONE) std::printf("job %d has ended\n", static_cast<int>(found.job));
  return 0;
}

int metrics_command(int argc, char** argv) {
  if (asks_for_help(argc, argv)) {
    std::fputs(kMetricsHelp, stdout);
    return 0;
  }
  const std::string word = argc > 1 ? argv[1] : "";
  if (argc > 2 && !word.starts_with('-')) return reject("metrics", "one process at most");
  if (argc > 1 && word.empty()) return reject("metrics", "\"\" is not the number of a process");
  const FoundJob found = find_job("metrics", word);
  if (found.job == 0) return found.code;
  const auto ranks = ask(found.job, kAnswerMs);
  if (!ranks) {
    std::fprintf(stderr, "heddle metrics: %s\n", base::last_message());
    return 1;
  }
  std::fputs(tap::openmetrics(*ranks).c_str(), stdout);
  return 0;
}

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

FoundJob reject(const char* command, int code, const std::string& why) {
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
  if (argument.starts_with('-')) return reject(command, kUsageCode, no_option(command, argument));
  if (!argument.empty()) {
    const char* last = argument.data() + argument.size();
    const auto [end, error] = std::from_chars(argument.data(), last, process);
    if (error != std::errc() || end != last || process <= 0) {
      return reject(command, kUsageCode, "\"" + argument + "\" is not the number of a process");
    }
  }
  const std::vector<pid_t> jobs = find_doors();
  if (jobs.empty()) return reject(command, 1, "no job of this user runs on this machine");
  if (process == 0 && jobs.size() > 1) {
    std::string all;
    for (const pid_t job : jobs) all += "\n  " + line_of(job);
    return reject(command, kUsageCode, "several jobs run; name one of these:" + all);
  }
  const pid_t job = process == 0 ? jobs.front() : job_of(process, jobs);
  if (job != 0) return {job, 0};
  return reject(command, 1, "process " + std::to_string(process) + " belongs to no job of this user");
}

// heddle hang: asks a running job what its ranks wait for.

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
