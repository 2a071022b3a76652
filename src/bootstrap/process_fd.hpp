// A descriptor that belongs to this process alone: a child that it forks does not keep it.
//
// Others learn of a process's death by the end of its connections, and a connection ends when the
// last process that has it open closes it. Close-on-exec is enough for children that run another
// program; a child that is only forked (Python's multiprocessing) would keep the connection, and
// who waits for the dead process would wait until that child ends, too. So each such descriptor is
// registered, and a handler that runs in every forked child (pthread_atfork) puts a socket that is
// connected to nothing in its place. The number stays taken, so that objects which the child has
// inherited may close it, and never close a file that the child has opened since.
#pragma once

#include <sys/types.h>

#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fd.hpp"

namespace heddle::bootstrap {

class ProcessFd {
 public:
  ProcessFd() = default;
  // Takes one that is open already.
  explicit ProcessFd(base::Fd fd);
  ProcessFd(ProcessFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ProcessFd& operator=(ProcessFd&& other) noexcept {
    if (this != &other) reset();
    std::swap(fd_, other.fd_);
    return *this;
  }
  ProcessFd(const ProcessFd&) = delete;
  ProcessFd& operator=(const ProcessFd&) = delete;
  ~ProcessFd() { reset(); }

  // What open() returns, a descriptor or -1 with errno set. No thread forks in between; so it must
  // not wait.
  template <class Open>
  static ProcessFd make(Open&& open) {
    const auto lock = hold_forks();
    return ProcessFd(enlist(open()));
  }
  // Both ends of a local stream (socketpair(2)), close-on-exec. Not valid: errno says why.
  static std::array<ProcessFd, 2> make_pair();
  // In a program all of whose children run another one at once: close-on-exec is enough, and none
  // of them spends time on a long list.
  static ProcessFd unlisted(base::Fd fd) { return ProcessFd(fd.release()); }
  // For one that is never closed: the launcher's.
  static void claim(int fd);

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  void reset();
  // Never closed by us from here on, and still not for children.
  void stay_open() { fd_ = -1; }

 private:
  struct Entry {
    int fd = -1;
    dev_t device = 0;
    ino_t file = 0;
  };

  explicit ProcessFd(int enlisted) : fd_(enlisted) {}
  // Held by a thread that forks, from before the fork until after it: the child finds the list
  // whole and the lock its own.
  static std::mutex& mutex();
  static std::unique_lock<std::mutex> hold_forks();
  static std::vector<Entry>& all();
  // While forks are held. Gives back what it was given.
  static int enlist(int fd);
  static void before_fork();
  static void after_fork();
  static void in_child();

  int fd_ = -1;
};

}  // namespace heddle::bootstrap
