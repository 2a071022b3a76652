#include "tools/run/spawn.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/topology.hpp"
#include "bootstrap/common.hpp"
#include "bootstrap/local/local.hpp"

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

namespace {

// The child's ends of the socket and the pipes.
struct Inherited {
  base::Fd socket;
  base::Fd output;
  base::Fd error;
};

base::Status make_pipe(base::Fd* reading, base::Fd* writing) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot make a pipe");
  reading->reset(ends[0]);
  writing->reset(ends[1]);
  return HEDDLE_DONE;
}

base::Status connect(bool tag, Child* child, Inherited* inherited) {
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot make a socket pair");
  }
  child->socket.reset(pair[0]);
  inherited->socket.reset(pair[1]);
  // The kernel must say which process joins, since signals are sent to it.
  constexpr int kOn = 1;
  if (::setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &kOn, sizeof kOn) != 0) {
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "SO_PASSCRED");
  }
  if (!tag) return HEDDLE_DONE;
  const base::Status status = make_pipe(&child->output, &inherited->output);
  return status == HEDDLE_DONE ? make_pipe(&child->error, &inherited->error) : status;
}

bool redirect(const SpawnPlan& plan, std::uint32_t rank, const Inherited& inherited) {
  // The ranks are background process groups, which cannot read from a terminal.
  const bool keeps_input = rank == 0 && ::isatty(STDIN_FILENO) == 0 && ::fcntl(STDIN_FILENO, F_GETFD) >= 0;
  if (!keeps_input && ::dup2(plan.null, STDIN_FILENO) < 0) return false;
  if (inherited.output.valid() && ::dup2(inherited.output.get(), STDOUT_FILENO) < 0) return false;
  return !inherited.error.valid() || ::dup2(inherited.error.get(), STDERR_FILENO) >= 0;
}

bool set_environment(const SpawnPlan& plan, std::uint32_t rank, int socket) {
  const auto set = [](const char* name, const std::string& value) { return ::setenv(name, value.c_str(), 1) == 0; };
  for (const auto& [name, value] : plan.options->environment) {
    if (!set(name.c_str(), value)) return false;
  }
  if (plan.options->threads > 0 && !set("HEDDLE_THREADS", std::to_string(plan.options->threads))) return false;
  if (plan.utofu >= 0 && !set("UTOFU_EMU_RANK", std::to_string(rank))) return false;
  return set(bootstrap::local::kFdVariable, std::to_string(socket)) &&
         set(bootstrap::local::kRankVariable, std::to_string(rank)) &&
         set(bootstrap::local::kSizeVariable, std::to_string(plan.options->ranks));
}

// Runs between fork and exec. The launcher has one thread, so it may call any function here.
[[noreturn]] void become_rank(const SpawnPlan& plan, std::uint32_t rank, const std::optional<cpu_set_t>& cpus,
                              const Inherited& inherited, pid_t launcher) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(1);  // the launcher ended before the line above
  ::setpgid(0, 0);
  if (!plan.guardian->announce(::getpid())) ::_exit(1);
  SpawnStep step = SpawnStep::redirect;
  const auto next = [&step](SpawnStep one, bool done) {
    step = one;
    return done;
  };
  // The argument of next() is done before next() is called: `step` is the one that failed.
  const bool ready = next(SpawnStep::redirect, redirect(plan, rank, inherited)) &&
                     next(SpawnStep::inherit, set_environment(plan, rank, inherited.socket.get()) &&
                                                  ::fcntl(inherited.socket.get(), F_SETFD, 0) == 0 &&
                                                  (plan.utofu < 0 || ::fcntl(plan.utofu, F_SETFD, 0) == 0)) &&
                     next(SpawnStep::bind, !cpus || ::sched_setaffinity(0, sizeof *cpus, &*cpus) == 0) &&
                     next(SpawnStep::limit, ::setrlimit(RLIMIT_NOFILE, &plan.files) == 0);
  if (ready) {
    step = SpawnStep::start;
    std::vector<char*> arguments;
    for (const std::string& word : plan.options->command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    ::sigprocmask(SIG_SETMASK, &plan.signals, nullptr);
    ::execvp(arguments[0], arguments.data());
  }
  const SpawnFailure failure{rank, step, errno};
  [[maybe_unused]] const auto written = ::write(plan.failures, &failure, sizeof failure);
  ::_exit(127);
}

}  // namespace

base::Fd open_pidfd(pid_t pid) {
  return base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

bool send_signal(const base::Fd& pidfd, int signal) {
  return ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0;
}

base::Result<Child> spawn(const SpawnPlan& plan, std::uint32_t rank, const std::optional<cpu_set_t>& cpus) {
  Child child;
  Inherited inherited;
  if (const auto status = connect(plan.options->tag, &child, &inherited); status != HEDDLE_DONE) return status;
  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot start rank %u", rank);
  if (pid == 0) become_rank(plan, rank, cpus, inherited, launcher);
  // the child does this too: the first call counts; after the child's exec it fails harmlessly
  ::setpgid(pid, pid);
  child.pid = pid;
  child.pidfd = open_pidfd(pid);
  if (!child.pidfd.valid()) {
    const base::Status status =
        base::fail_errno(HEDDLE_ERR_SYSTEM, "pidfd_open for rank %u (Linux 5.3 or later)", rank);
    ::kill(pid, SIGKILL);
    ::kill(-pid, SIGKILL);
    return status;
  }
  return child;
}

base::Result<std::vector<cpu_set_t>> place(std::uint32_t ranks, std::uint32_t threads, bool* wrapped) {
  const auto topology = base::read_topology();
  if (!topology) return topology.status();
  const std::size_t cores = topology->cores.size();
  const std::size_t each = std::max<std::uint32_t>(threads, 1);
  *wrapped = std::size_t{ranks} * each > cores;
  std::vector<cpu_set_t> sets(ranks);
  std::size_t next = 0;
  for (cpu_set_t& set : sets) {
    CPU_ZERO(&set);
    for (std::size_t i = 0; i < each; ++i, ++next) {
      for (const int cpu : topology->cores[next % cores]) CPU_SET(static_cast<unsigned>(cpu), &set);
    }
  }
  return sets;
}

base::Status allow_descriptors(std::size_t wanted, std::size_t needed, rlimit* before) {
  if (::getrlimit(RLIMIT_NOFILE, before) != 0) return base::fail_errno(HEDDLE_ERR_SYSTEM, "getrlimit");
  if (before->rlim_cur >= wanted) return HEDDLE_DONE;
  rlimit raised = *before;
  raised.rlim_cur = std::min<rlim_t>(wanted, before->rlim_max);
  if (raised.rlim_cur < needed || ::setrlimit(RLIMIT_NOFILE, &raised) != 0) {
    return base::fail(
        HEDDLE_ERR_SYSTEM,
        "the job needs %zu descriptors in the launcher, %llu are allowed; raise the hard limit (ulimit -Hn) "
        "or start fewer processes",
        needed, static_cast<unsigned long long>(before->rlim_max));
  }
  return HEDDLE_DONE;
}

std::size_t open_descriptors() {
  std::error_code error;
  std::size_t count = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    ++count;
  }
  return count;
}

rlimit rank_descriptors(const rlimit& given, std::uint32_t ranks) {
  rlimit files = given;
  // RLIM_INFINITY is the largest number
  if (given.rlim_cur >= ranks + kUsualDescriptors) return files;
  files.rlim_cur = std::min<rlim_t>(std::max(given.rlim_cur, kUsualDescriptors) + ranks, given.rlim_max);
  return files;
}

}  // namespace heddle::tools::run
