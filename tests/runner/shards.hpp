// Tests that wait for most of their time, at once: with TEST_PROCESSES=N in the environment N
// processes share the chosen tests, as shards of GoogleTest's.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::tests::runner {

constexpr const char* kProcesses = "TEST_PROCESSES";

inline int processes_asked_for() {
  const char* text = std::getenv(kProcesses);
  const int count = text != nullptr ? std::atoi(text) : 1;
  return GTEST_FLAG_GET(list_tests) ? 1 : std::clamp(count, 1, 64);
}

// A process with some of the tests. What it prints is passed on a test at a time, so that those of
// several shards do not mix; or at once if nothing more comes: whoever hangs is heard.
class Shard {
 public:
  Shard(int index, int count, const std::vector<Shard>& others) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe2");
    const pid_t parent = ::getpid();
    std::fflush(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) fail("fork");
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // ctest kills the parent at a time-out
      if (::getppid() != parent) ::_exit(1);
      for (const Shard& other : others) other.forget();
      ::close(ends[0]);
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(ends[1], STDERR_FILENO);
      ::close(ends[1]);
      ::setenv("GTEST_TOTAL_SHARDS", std::to_string(count).c_str(), 1);
      ::setenv("GTEST_SHARD_INDEX", std::to_string(index).c_str(), 1);
      ::unsetenv(kProcesses);
      std::exit(RUN_ALL_TESTS());
    }
    ::close(ends[1]);
    output_ = ends[0];
    ::fcntl(output_, F_SETFL, O_NONBLOCK);
    end_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
    if (end_ < 0) fail("pidfd_open");
  }

  [[nodiscard]] bool running() const { return pid_ != 0; }
  [[nodiscard]] pollfd output() const { return {running() ? output_ : -1, POLLIN, 0}; }
  [[nodiscard]] pollfd end() const { return {running() ? end_ : -1, POLLIN, 0}; }
  // Whether all its tests have passed, once it has ended.
  [[nodiscard]] bool passed() const { return WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }

  void read() {
    std::array<char, 4096> bytes;
    ssize_t got = 0;
    while ((got = ::read(output_, bytes.data(), bytes.size())) > 0) {
      held_.append(bytes.data(), static_cast<std::size_t>(got));
    }
    if (got == 0) {  // closed before its end, which end() will tell
      ::close(output_);
      output_ = -1;
    }
    // The end of GoogleTest's line about a test that is over.
    const std::size_t last = held_.rfind(" ms)\n");
    if (last != std::string::npos) pass_on(last + std::string_view(" ms)\n").size());
  }
  void pass_on_all() { pass_on(held_.size()); }

  // After its end. Processes that it has left may hold the pipe.
  void take() {
    if (output_ >= 0) read();
    ::waitpid(pid_, &status_, 0);
    if (WIFSIGNALED(status_)) {
      held_ += "a process of the tests has been killed by signal " + std::to_string(WTERMSIG(status_)) + '\n';
    }
    pass_on_all();
    ::close(end_);
    if (output_ >= 0) ::close(output_);
    pid_ = 0;
  }

 private:
  void forget() const {
    ::close(output_);
    ::close(end_);
  }
  [[noreturn]] static void fail(const char* what) {
    std::perror(what);
    ::_exit(1);
  }
  void pass_on(std::size_t bytes) {
    std::fwrite(held_.data(), 1, bytes, stdout);
    std::fflush(stdout);
    held_.erase(0, bytes);
  }

  pid_t pid_ = 0;
  int output_ = -1;
  int end_ = -1;
  int status_ = 0;
  std::string held_;
};

// The status to end with: 0 if all tests have passed.
inline int run_in_processes(int count) {
  constexpr int kPausesMs = 2000;
  std::vector<Shard> shards;
  shards.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) shards.emplace_back(i, count, shards);
  const auto running = [](const Shard& shard) { return shard.running(); };
  while (std::any_of(shards.begin(), shards.end(), running)) {
    std::vector<pollfd> polled;
    for (const Shard& shard : shards) {
      polled.push_back(shard.output());
      polled.push_back(shard.end());
    }
    const bool quiet = ::poll(polled.data(), polled.size(), kPausesMs) == 0;
    for (std::size_t i = 0; i < shards.size(); ++i) {
      if (quiet) shards[i].pass_on_all();
      if (polled[2 * i].revents != 0) shards[i].read();
      if (polled[2 * i + 1].revents != 0) shards[i].take();
    }
  }
  const auto passed = [](const Shard& shard) { return shard.passed(); };
  const auto failed = count - std::count_if(shards.begin(), shards.end(), passed);
  std::printf("%d processes have shared the tests, of which %d failed\n", count, static_cast<int>(failed));
  return failed == 0 ? 0 : 1;
}

}  // namespace heddle::tests::runner
