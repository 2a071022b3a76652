// For tests: a world of several processes. Each is a child that has not used the emulator before.
#pragma once

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utofu.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/test_support.hpp"

namespace tofu_emulator::test {

inline constexpr std::size_t kMostProcesses = 64;
inline constexpr std::size_t kNotes = 8;

// Values that the processes exchange without the emulator.
struct Board {
  std::array<std::array<std::atomic<std::uint64_t>, kNotes>, kMostProcesses> notes;
  std::atomic<std::uint32_t> arrived;  // count of arrivals at all barriers; release and acquire
};

class Place {
 public:
  Place(std::uint32_t process, std::uint32_t processes, Board* board)
      : process_(process), processes_(processes), board_(board) {}

  [[nodiscard]] std::uint32_t process() const { return process_; }
  [[nodiscard]] std::uint32_t processes() const { return processes_; }
  std::atomic<std::uint64_t>& note(std::uint32_t process, std::size_t which) const {
    return board_->notes[process][which];
  }
  // False: a process has not come within a time that only a fault exceeds.
  [[nodiscard]] bool barrier() {
    board_->arrived.fetch_add(1, std::memory_order_acq_rel);
    goal_ += processes_;
    return heddle::test::within_time([this] { return board_->arrived.load(std::memory_order_acquire) >= goal_; });
  }

 private:
  std::uint32_t process_;
  std::uint32_t processes_;
  Board* board_;
  std::uint32_t goal_ = 0;
};

using Variables = std::map<std::string, std::string>;

// How the children ended, in waitpid's format.
template <class Body>
std::vector<int> run_world(std::uint32_t processes, const Variables& variables, Body&& body) {
  void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* board = static_cast<Board*>(memory);
  const int world = ::memfd_create("world", 0);
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (std::uint32_t process = 0; process < processes; ++process) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("UTOFU_EMU_FD", std::to_string(world).c_str(), 1);
      ::setenv("UTOFU_EMU_RANK", std::to_string(process).c_str(), 1);
      ::setenv("UTOFU_EMU_PROCESSES", std::to_string(processes).c_str(), 1);
      for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
      Place place(process, processes, board);
      std::exit(body(place));
    }
    children.push_back(child);
  }
  std::vector<int> ends;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    ends.push_back(status);
  }
  ::close(world);
  ::munmap(memory, sizeof(Board));
  return ends;
}

// Repeats poll() until it returns something other than NOT_FOUND, and returns that; NOT_FOUND: the
// time is over.
template <class Poll>
int poll_until(Poll&& poll) {
  int status = UTOFU_ERR_NOT_FOUND;
  (void)heddle::test::within_time([&] {
    status = poll();
    return status != UTOFU_ERR_NOT_FOUND;
  });
  return status;
}

}  // namespace tofu_emulator::test
