// Who may make calls of the interface: no child that was forked, whose posts nobody would execute;
// and with UTOFU_EMU_ONE_THREAD one thread, for programs that are to run with versions of the
// library that demand it.
#pragma once

#include <atomic>
#include <cstdint>

namespace tofu_emulator {

struct Settings;

class Callers {
 public:
  // Once, before the first check() in threads that use the process.
  static void watch(const Settings& settings);

  // Ends the child, or the job, if the calling thread may not call. Where nothing is watched and
  // nobody was forked, a look at a byte.
  static void check() {
    if (restricted_.load(std::memory_order_relaxed)) [[unlikely]]
      look();
  }

  // Of the kernel.
  static std::uint32_t this_thread();

 private:
  static void look();
  static void in_child();

  // Relaxed: set before there are handles, or in a process of one thread.
  static std::atomic<bool> restricted_;
};

}  // namespace tofu_emulator
