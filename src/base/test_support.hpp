// For tests: sanitizers, features of the kernel, deadlines and states of threads.
//
// A test that runs for most of a minute because it repeats itself, or covers many similar cases,
// may do less with a sanitizer; builds without one run everything.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fence.hpp"

namespace heddle::base {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#else
inline constexpr bool kAddressSanitizer = false;
#endif

// How many of many similar cases a test covers. Builds with a sanitizer cover `few`: they take two
// to ten times as long, and look for errors that one case shows as well as the next. Builds without
// a sanitizer cover all cases, and so do builds with one if TEST_IN_FULL=1 is set, as in
// .ci/nightly.
template <class Cases>
Cases few_if_sanitized(Cases few, Cases all) {
  static const bool in_full = (!kThreadSanitizer && !kAddressSanitizer) || std::getenv("TEST_IN_FULL") != nullptr;
  return in_full ? all : few;
}

}  // namespace heddle::base

namespace heddle::test {

// For tests: kernel features that some kernels lack. A test that needs one says "skipped: …" where
// it is missing.

inline constexpr const char* kNoKernelCopy =
    "skipped: process_vm_readv is not to be had here (an emulator, a filter of calls)";

// Whether processes may copy from each other's memory. A process that may not copy from its own
// memory may not copy from another's either.
inline bool kernel_copies() {
  char from = 1;
  char to = 0;
  const iovec here{&to, 1};
  const iovec there{&from, 1};
  return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == 1 && to == 1;
}

inline constexpr const char* kNoFilters = "skipped: no filters of system calls (seccomp) here";

// From now on this system call fails with `error` in the calling thread, and in threads that it
// starts. False: there are no such filters here.
inline bool forbid_call(std::uint32_t call, std::uint32_t error) {
  std::array<sock_filter, 4> filter = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// For tests: waits for the actions of other threads. They use deadlines that only a fault can miss,
// and the state that the kernel shows for a thread; they never guess how long something takes.

// Longer than anything takes, even on a loaded machine with sanitizers.
inline constexpr std::chrono::seconds kFaultTime{base::kThreadSanitizer ? 180 : 60};

class Deadline {
 public:
  [[nodiscard]] bool over() const { return std::chrono::steady_clock::now() >= end_; }

 private:
  std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::now() + kFaultTime;
};

// Calls turn_once() until done(); false: not within kFaultTime. It yields: another thread has to
// act.
template <class Done, class Turn>
bool within_time(Done&& done, Turn&& turn_once) {
  const Deadline deadline;
  while (!done()) {
    if (deadline.over()) return false;
    turn_once();
    std::this_thread::yield();
  }
  return true;
}
template <class Done>
bool within_time(Done&& done) {
  return within_time(std::forward<Done>(done), [] {});
}

inline pid_t this_thread() {
  return static_cast<pid_t>(::syscall(SYS_gettid));
}

// The threads of this process whose names begin with `beginning`.
inline std::vector<pid_t> threads_named(const std::string& beginning) {
  std::vector<pid_t> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name.starts_with(beginning)) found.push_back(static_cast<pid_t>(std::stol(task.path().filename().string())));
  }
  return found;
}
// The first of them; 0: there is none.
inline pid_t thread_named(const std::string& beginning) {
  const std::vector<pid_t> all = threads_named(beginning);
  return all.empty() ? 0 : all.front();
}

// Whether the kernel says that a thread of this process, or a child process, sleeps now.
inline bool sleeps_in_kernel(pid_t thread, const char* processes = "/proc/self/task/") {
  std::string line;
  std::getline(std::ifstream(processes + std::to_string(thread) + "/stat"), line);
  const std::size_t name = line.rfind(')');
  return name != std::string::npos && name + 2 < line.size() && line[name + 2] == 'S';
}

// Waits until the thread sleeps in the kernel. The thread must have no other reason to sleep than
// the one that the test is about.
[[nodiscard]] inline bool await_asleep(pid_t thread) {
  return within_time([thread] { return sleeps_in_kernel(thread); });
}

}  // namespace heddle::test
