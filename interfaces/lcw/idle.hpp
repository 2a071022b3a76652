// A thread that finds nothing again and again leaves its core to others, if there are any. LCW's
// programs poll in loops of their own and never give up their cores. With more threads than cores,
// each thread would use up its time slice for nothing.
#pragma once

#include <cstdint>

namespace heddle::for_lcw {

class Idle {
 public:
  // The calling thread has found something.
  static void reset() { t_idle.fruitless = 0; }
  // It has found nothing: returns at once, or after others had the core.
  static void found_nothing() {
    if (++t_idle.fruitless >= t_idle.patience) leave_core();
  }
  // LCW_HEDDLE_YIELD: whether threads leave their cores at all.
  static void set_enabled(bool enabled);

 private:
  // The number of polls that find nothing before the thread leaves the core. If other threads used
  // the core, the number gets small. If nobody did, the system call was useless, and the number
  // grows.
  static constexpr std::uint32_t kLeast = 16;
  static constexpr std::uint32_t kMost = 16384;
  struct State {
    std::uint32_t fruitless;
    std::uint32_t patience;
  };
  static thread_local State t_idle [[gnu::tls_model("initial-exec")]];

  [[gnu::cold]] static void leave_core();
};

}  // namespace heddle::for_lcw
