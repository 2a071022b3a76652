#include "tools/run/guardian.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "bootstrap/gather.hpp"
#include "tools/run/spawn.hpp"

namespace heddle::tools::run {
namespace {

constexpr pid_t kDismissed = 0;

// The ranks, and the processes that have joined in their place.
constexpr std::size_t kMostProcesses = std::size_t{2} * bootstrap::kMaxRanks;

// The processes that the guardian kills.
struct Charges {
  std::array<pid_t, bootstrap::kMaxRanks> groups{};
  std::size_t group_count = 0;
  std::array<base::Fd, kMostProcesses> processes;
  std::size_t process_count = 0;

  // record: the number of a group, which is also that of its first process; or minus the number of
  // a process.
  void add(pid_t record) {
    const pid_t process = record < 0 ? -record : record;
    if (process <= 1) return;
    if (record > 0 && group_count < groups.size()) groups[group_count++] = record;
    if (process_count < processes.size()) processes[process_count++] = open_pidfd(process);
  }
  void kill_all() const {
    for (std::size_t i = 0; i < group_count; ++i) ::kill(-groups[i], SIGKILL);
    for (std::size_t i = 0; i < process_count; ++i) send_signal(processes[i], SIGKILL);
  }
};

// Records are much smaller than PIPE_BUF, so a read gets a whole record.
[[noreturn]] void guard(int pipe) {
  static Charges charges;
  for (;;) {
    pid_t record = 0;
    const ssize_t got = ::read(pipe, &record, sizeof record);
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(sizeof record)) break;
    if (record == kDismissed) ::_exit(0);
    charges.add(record);
  }
  charges.kill_all();
  ::_exit(0);
}

// Releases everything of the launcher's: the terminal, and descriptors that would keep a reader's
// pipe open. All signals are blocked.
[[noreturn]] void become_guardian(int pipe) {
  ::setsid();
  ::prctl(PR_SET_NAME, "heddle-guardian");
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int output :
       // a reader of the job's output must not wait for the guardian
       {STDOUT_FILENO, STDERR_FILENO}) {
    null >= 0 ? ::dup2(null, output) : ::close(output);
  }
  ::dup2(pipe, STDIN_FILENO);
  ::close_range(STDERR_FILENO + 1, ~0U, 0);
  // "/" can always be entered; do not keep the working directory in use
  if (::chdir("/") != 0) ::_exit(1);
  guard(STDIN_FILENO);
}

}  // namespace

base::Result<Guardian> Guardian::start() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot make a pipe");
  const base::Fd reading(ends[0]);
  base::Fd writing(ends[1]);
  // Blocked before the fork, so that no signal ends the guardian at its start.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid == 0) {
    writing.reset();
    become_guardian(reading.get());
  }
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  if (pid < 0) return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot start the guardian process");
  return Guardian(std::move(writing), pid);
}

bool Guardian::announce(pid_t group) const {
  return ::write(pipe_.get(), &group, sizeof group) == static_cast<ssize_t>(sizeof group);
}

Guardian::~Guardian() {
  if (pid_ == 0) return;
  // fails if the guardian has ended already; then there is nothing to dismiss
  static_cast<void>(announce(kDismissed));
  pipe_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace heddle::tools::run
