#include "driver/spawn.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "harness/channel.hpp"

namespace heddle::bench::driver {

namespace {

volatile sig_atomic_t running_group = 0;  // the participant that runs; for the handler below

// Ctrl-C reaches only the driver, since participants have groups of their own: hand it on, then end
// as usual.
void forward(int signal) {
  if (running_group > 0) kill(-running_group, SIGTERM);
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
  raise(signal);
}

void forward_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action{};
    action.sa_handler = forward;
    sigaction(signal, &action, nullptr);
  }
}

[[noreturn]] void become(const Program& program, int out, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, 0);
  dup2(out, 1);
  std::vector<char*> arguments;
  for (const std::string& argument : program.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  for (const std::string& variable : program.environment) {
    if (variable.find('=') != std::string::npos) {
      putenv(const_cast<char*>(variable.c_str()));
    } else {
      unsetenv(variable.c_str());
    }
  }
  execvp(arguments[0], arguments.data());
  std::fprintf(stderr, "heddle bench: %s: %s\n", arguments[0], std::strerror(errno));
  _exit(127);
}

// Reads lines until the end or until nothing comes for too long; false: silent.
bool read_lines(int fd, std::uint64_t silence_ns, const std::function<void(const std::string&)>& line) {
  std::string text;
  char buffer[65536];
  while (true) {
    pollfd wait{fd, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(silence_ns / 1'000'000));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    text.append(buffer, static_cast<std::size_t>(got));
    std::size_t end = 0;
    while ((end = text.find('\n')) != std::string::npos) {
      line(text.substr(0, end));
      text.erase(0, end + 1);
    }
  }
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A launcher is asked first, so that it can take its processes along; then the group is ended for
// good.
void end(pid_t child) {
  kill(-child, SIGTERM);
  for (int i = 0; i < 200; ++i) {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child) break;
    usleep(10'000);
  }
  kill(-child, SIGKILL);
}

}  // namespace

int run(const Program& program, std::uint64_t silence_ns, const std::function<void(const std::string&)>& line) {
  int pipes[2];
  if (pipe2(pipes, O_CLOEXEC) != 0) {
    std::perror("heddle bench: pipe");
    return -1;
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    std::perror("heddle bench: fork");
    close(pipes[0]);
    close(pipes[1]);
    return -1;
  }
  if (child == 0) become(program, pipes[1], parent);
  setpgid(child, child);
  running_group = child;
  forward_signals();
  close(pipes[1]);
  const bool spoke = read_lines(pipes[0], silence_ns, line);
  if (!spoke) {
    std::fprintf(stderr, "heddle bench: %s printed nothing for %llu s; ended\n", program.name.c_str(),
                 static_cast<unsigned long long>(silence_ns / 1'000'000'000));
    end(child);
  }
  close(pipes[0]);
  const int status = wait_for(child);
  running_group = 0;
  return spoke ? status : 124;
}

namespace {
std::string heddle_at;
}  // namespace

void set_own_path(const char* path) {
  heddle_at = path;
}

std::string own_path() {
  return heddle_at;
}

std::string find_in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string rest = path != nullptr ? path : "/usr/bin:/bin";
  rest += ':';
  for (std::size_t colon = 0; (colon = rest.find(':')) != std::string::npos; rest.erase(0, colon + 1)) {
    const std::string candidate = rest.substr(0, colon) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

}  // namespace heddle::bench::driver
