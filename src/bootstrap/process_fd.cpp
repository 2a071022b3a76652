#include "bootstrap/process_fd.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>

namespace heddle::bootstrap {

// Neither the lock nor the list is ever destroyed: descriptors may be closed, and children forked,
// while the process ends.
std::mutex& ProcessFd::mutex() {
  static auto& lock = *new std::mutex;
  return lock;
}

std::vector<ProcessFd::Entry>& ProcessFd::all() {
  static auto& entries = *new std::vector<Entry>;
  return entries;
}

std::unique_lock<std::mutex> ProcessFd::hold_forks() {
  // Fails only for lack of memory; then children keep what they inherit.
  [[maybe_unused]] static const int registered = ::pthread_atfork(&before_fork, &after_fork, &in_child);
  return std::unique_lock(mutex());
}

void ProcessFd::before_fork() {
  mutex().lock();
}

void ProcessFd::after_fork() {
  mutex().unlock();
}

// Only what POSIX allows between the fork of a process with threads and an exec: no memory is
// allocated or freed.
void ProcessFd::in_child() {
  const auto make_unconnected = [] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); };
  int unconnected = -1;
  bool stays = false;  // its number is one of the list's
  for (const Entry& one : all()) {
    // The program may have closed it unnoticed; then the number may be that of another file.
    struct stat about{};
    if (::fstat(one.fd, &about) != 0 || about.st_dev != one.device || about.st_ino != one.file) continue;
    if (unconnected < 0) unconnected = make_unconnected();
    if (unconnected < 0) {  // the child may open no more files: this one makes room
      ::close(one.fd);
      unconnected = make_unconnected();
    }
    if (unconnected == one.fd) {
      stays = true;
    } else if (unconnected >= 0 && ::dup3(unconnected, one.fd, O_CLOEXEC) < 0) {
      ::close(one.fd);  // its number is above what the child may open
    }
  }
  if (unconnected >= 0 && !stays) ::close(unconnected);
  all().clear();
  mutex().unlock();
}

int ProcessFd::enlist(int fd) {
  const int error = errno;
  struct stat about{};
  try {
    if (fd >= 0 && ::fstat(fd, &about) == 0) all().push_back({fd, about.st_dev, about.st_ino});
  } catch (const std::bad_alloc&) {
    errno = error;
    return fd;  // children keep it
  }
  errno = error;
  return fd;
}

ProcessFd::ProcessFd(base::Fd fd) {
  const auto lock = hold_forks();
  fd_ = enlist(fd.release());
}

std::array<ProcessFd, 2> ProcessFd::make_pair() {
  const auto lock = hold_forks();
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return {};
  return {ProcessFd(enlist(ends[0])), ProcessFd(enlist(ends[1]))};
}

void ProcessFd::claim(int fd) {
  const auto lock = hold_forks();
  static_cast<void>(enlist(fd));
}

// Closes under the lock, too: otherwise a child could mistake a number that is another file's by
// now for the one that was registered.
void ProcessFd::reset() {
  if (fd_ < 0) return;
  const auto lock = hold_forks();
  std::erase_if(all(), [this](const Entry& one) { return one.fd == fd_; });
  ::close(std::exchange(fd_, -1));
}

}  // namespace heddle::bootstrap
