// A descriptor that belongs to this process alone: a child that it forks does not keep it.
//
// Other processes learn of a process's death by the end of its connections, and a connection ends
// when the last process that has it open closes it. Close-on-exec is enough for children that run
// another program. A child that is only forked (Python's multiprocessing) would keep the
// connection, and a process that waits for the dead one would wait until that child ends, too. So
// each such descriptor is registered, and a handler that runs in every forked child
// (pthread_atfork) replaces it by a socket that is connected to nothing. The number stays taken, so
// that objects which the child has inherited may close it, and never close a file that the child
// has opened since.
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
  // Takes over a descriptor that is open already.
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

  // Calls open(), which returns a descriptor or -1 with errno set. No thread can fork meanwhile, so
  // open() must not wait.
  template <class Open>
  static ProcessFd make(Open&& open) {
    const auto lock = hold_forks();
    return ProcessFd(enlist(open()));
  }
  // Both ends of a local stream (socketpair(2)), close-on-exec. Not valid: errno says why.
  static std::array<ProcessFd, 2> make_pair();
  // For a program all of whose children run another one at once: close-on-exec is enough, and no
  // child spends time on a long list.
  static ProcessFd unlisted(base::Fd fd) { return ProcessFd(fd.release()); }
  // For a descriptor that is never closed: the launcher's.
  static void claim(int fd);

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  void reset();
  // From now on this object never closes it, and still no child keeps it.
  void stay_open() { fd_ = -1; }

 private:
  struct Entry {
    int fd = -1;
    dev_t device = 0;
    ino_t file = 0;
  };

  explicit ProcessFd(int enlisted) : fd_(enlisted) {}
  // A thread that forks holds it from before the fork until after it: the child finds the list
  // whole, and owns the lock.
  static std::mutex& mutex();
  static std::unique_lock<std::mutex> hold_forks();
  static std::vector<Entry>& all();
  // Call it while forks are held. Returns its argument.
  static int enlist(int fd);
  static void before_fork();
  static void after_fork();
  static void in_child();

  int fd_ = -1;
};

}  // namespace heddle::bootstrap
