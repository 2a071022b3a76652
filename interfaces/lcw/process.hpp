// What this process has once: its membership in the job, how it ends on an error, and how its
// threads give their cores away.
#pragma once

#include <cstdint>

#include "heddle/heddle.h"
#include "lcw/device.hpp"

namespace heddle::for_lcw {

// This process's membership in the job. A process joins its launcher's job once, so it stays a
// member between finalize and a later initialize, and leaves when it exits.

// Joins, or goes on as a member; then agrees with all ranks on the number of the next worker, so
// that device k has the same number everywhere, although ranks may have opened different numbers of
// devices before.
JoinedJob* join();
// Waits until all ranks are here. The job stays open until the process exits.
void suspend();

// The number of the next worker; the caller serializes.
std::uint32_t take_worker_number();

// How this backend ends a program: as LCW's other backends do, by LCW's logger and abort.

// Prints the text, formatted as by printf, with rank and place, and aborts.
[[noreturn, gnu::cold]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Fails unless the status is HEDDLE_DONE. `what`: the action that was tried, such as "opening a
// device".
inline void must(heddle_status status, const char* what) {
  if (status != HEDDLE_DONE) fail("%s: %s: %s", what, heddle_status_name(status), heddle_last_error());
}

// A variable of this backend that is 0 or 1; `otherwise` if it is not set. Any other value fails.
[[nodiscard]] bool flag(const char* name, bool otherwise);

// A thread that finds nothing again and again leaves its core to others, if there are any. LCW's
// programs poll in loops of their own and never give up their cores. With more threads than cores,
// each thread would use up its time slice for nothing.
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
