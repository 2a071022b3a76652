// Programs started by a test, with their output and their end. No wait here is without a deadline.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"

namespace heddle::tests {

inline base::Fd open_pidfd(pid_t pid) {
  return base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

// True once the process has ended (a zombie has).
inline bool ended(const base::Fd& pidfd, int timeout_ms) {
  pollfd end{pidfd.get(), POLLIN, 0};
  return ::poll(&end, 1, timeout_ms) == 1;
}

class Launched {
 public:
  static constexpr int kDeadlineMs = 90'000;

  // input: what it finds on its standard input. inherit: a descriptor that it shall have.
  explicit Launched(std::vector<std::string> words, const std::string& input = "", int inherit = -1) {
    std::array<std::array<int, 2>, 3> pipes{};
    for (auto& pipe : pipes) EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(pipes[0][0], 0);
      ::dup2(pipes[1][1], 1);
      ::dup2(pipes[2][1], 2);
      if (inherit >= 0) ::fcntl(inherit, F_SETFD, 0);
      ::execv(arguments[0], arguments.data());
      ::_exit(98);
    }
    ::close(pipes[0][0]);
    ::close(pipes[1][1]);
    ::close(pipes[2][1]);
    out_fd_.reset(pipes[1][0]);
    err_fd_.reset(pipes[2][0]);
    EXPECT_EQ(::write(pipes[0][1], input.data(), input.size()), static_cast<ssize_t>(input.size()));
    ::close(pipes[0][1]);
    pidfd_ = open_pidfd(pid_);
  }
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;
  ~Launched() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] const std::string& out() const { return out_; }
  [[nodiscard]] const std::string& err() const { return err_; }
  void signal(int number) const { ::kill(pid_, number); }

  // Reads until there are `count` lines of output.
  bool await_lines(std::size_t count) {
    const auto lines = [&] { return static_cast<std::size_t>(std::count(out_.begin(), out_.end(), '\n')); };
    const std::uint64_t end = deadline();
    while (lines() < count && read_some(end)) {
    }
    return lines() >= count;
  }

  // Waits until all processes that hold its output have ended. Returns the exit code; 1000 + number
  // for a signal; -1: it hangs (and is killed).
  int wait() {
    const std::uint64_t end = deadline();
    while ((out_fd_.valid() || err_fd_.valid()) && read_some(end)) {
    }
    if (out_fd_.valid() || err_fd_.valid() || !ended(pidfd_, kDeadlineMs)) return -1;
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  // The numbers in lines of the form "WORD NUMBER", whatever stands before WORD.
  [[nodiscard]] std::vector<long long> numbers(const std::string& word) const {
    std::vector<long long> found;
    for (std::size_t at = 0; (at = out_.find(word + " ", at)) != std::string::npos; at += word.size()) {
      found.push_back(std::stoll(out_.substr(at + word.size() + 1)));
    }
    return found;
  }

 private:
  static std::uint64_t deadline() { return base::SystemClock().now_ns() + kDeadlineMs * 1'000'000ULL; }

  bool read_some(std::uint64_t end) {
    const std::uint64_t now = base::SystemClock().now_ns();
    if (now >= end) return false;
    std::array<pollfd, 2> both{{{out_fd_.get(), POLLIN, 0}, {err_fd_.get(), POLLIN, 0}}};
    if (::poll(both.data(), both.size(), static_cast<int>((end - now) / 1'000'000 + 1)) <= 0) return false;
    if (both[0].revents != 0) take(&out_fd_, &out_);
    if (both[1].revents != 0) take(&err_fd_, &err_);
    return true;
  }
  static void take(base::Fd* fd, std::string* text) {
    std::array<char, 4096> bytes;
    const ssize_t got = ::read(fd->get(), bytes.data(), bytes.size());
    if (got > 0) {
      text->append(bytes.data(), static_cast<std::size_t>(got));
    } else {
      fd->reset();
    }
  }

  pid_t pid_ = 0;
  base::Fd pidfd_;
  base::Fd out_fd_;
  base::Fd err_fd_;
  std::string out_;
  std::string err_;
};

}  // namespace heddle::tests
