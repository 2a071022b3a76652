// For tests: waits for the actions of other threads. They use deadlines that only a fault can miss,
// and the state that the kernel shows for a thread; they never guess how long something takes.
#pragma once

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fence.hpp"

namespace heddle::test {

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
