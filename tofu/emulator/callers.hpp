// Checks which threads may call the interface. A forked child may not: nobody would execute its
// commands. With UTOFU_EMU_ONE_THREAD only one thread may, for programs that are to run with
// versions of the library that demand it.
#pragma once

#include <atomic>
#include <cstdint>

namespace tofu_emulator {

struct Settings;

class Callers {
 public:
  // To be called once, before the first check() in threads that use the process.
  static void watch(const Settings& settings);

  // Ends the child, or the job, if the calling thread may not call. Without UTOFU_EMU_ONE_THREAD,
  // and outside a forked child, it only reads one byte.
  static void check() {
    if (restricted_.load(std::memory_order_relaxed)) [[unlikely]]
      look();
  }

  // The kernel's thread id.
  static std::uint32_t this_thread();

 private:
  static void look();
  static void in_child();

  // Relaxed: set before any handle exists, or in a process with one thread.
  static std::atomic<bool> restricted_;
};

}  // namespace tofu_emulator
