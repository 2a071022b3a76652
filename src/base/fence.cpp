#include "base/fence.hpp"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace heddle::base {
namespace {

bool command(int what) {
  return ::syscall(SYS_membarrier, what, 0, 0) == 0;
}

// ENOMEM: the kernel had no memory for its list of processors at that moment.
bool barrier(int what) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    if (command(what)) return true;
    if (errno != ENOMEM) return false;
    ::sched_yield();
  }
  return false;
}

bool supported(int commands) {
  const long mask = ::syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  return mask >= 0 && (mask & commands) == commands;
}

}  // namespace

// Registration is idempotent and belongs to the process's memory, so nothing is remembered here: a
// child of fork() is still registered, and a program started by exec() registers anew.
bool membarrier_private_ready() {
  return supported(MEMBARRIER_CMD_PRIVATE_EXPEDITED | MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
         command(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
}

bool membarrier_private() {
  return barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

bool membarrier_shared_ready() {
  return supported(MEMBARRIER_CMD_GLOBAL_EXPEDITED | MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) &&
         command(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
}

bool membarrier_shared() {
  return barrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

}  // namespace heddle::base
