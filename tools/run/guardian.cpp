#include "tools/run/guardian.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "bootstrap/gather.hpp"

namespace heddle::tools::run {
namespace {

constexpr pid_t kDismissed = 0;

// Records are far smaller than PIPE_BUF, so they arrive whole.
[[noreturn]] void guard(int pipe) {
  std::array<pid_t, bootstrap::kMaxRanks> groups{};
  std::size_t count = 0;
  for (;;) {
    pid_t group = 0;
    const ssize_t got = ::read(pipe, &group, sizeof group);
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(sizeof group)) break;
    if (group == kDismissed) ::_exit(0);
    if (group > 1 && count < groups.size()) groups[count++] = group;
  }
  for (std::size_t i = 0; i < count; ++i) ::kill(-groups[i], SIGKILL);
  ::_exit(0);
}

// Keeps nothing of the launcher's: no terminal, no signals, no descriptors that would hold a reader's pipe open.
[[noreturn]] void become_guardian(int pipe) {
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::setsid();
  ::prctl(PR_SET_NAME, "heddle-guardian");
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int output :
       {STDOUT_FILENO, STDERR_FILENO}) {  // whoever reads the job's output must not wait for the guardian
    null >= 0 ? ::dup2(null, output) : ::close(output);
  }
  ::dup2(pipe, STDIN_FILENO);
  ::close_range(STDERR_FILENO + 1, ~0U, 0);
  if (::chdir("/") != 0) ::_exit(1);  // "/" can always be entered; do not pin the working directory
  guard(STDIN_FILENO);
}

}  // namespace

base::Result<Guardian> Guardian::start() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot make a pipe");
  const base::Fd reading(ends[0]);
  base::Fd writing(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot start the guardian process");
  if (pid == 0) {
    writing.reset();
    become_guardian(reading.get());
  }
  return Guardian(std::move(writing), pid);
}

bool Guardian::announce(pid_t group) const {
  return ::write(pipe_.get(), &group, sizeof group) == static_cast<ssize_t>(sizeof group);
}

Guardian::~Guardian() {
  if (pid_ == 0) return;
  static_cast<void>(announce(kDismissed));  // if it is gone already, there is nothing to dismiss
  pipe_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace heddle::tools::run
