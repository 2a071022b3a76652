// Threads of ours in somebody else's program.
#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace heddle::base {

// With all signals blocked: they are the application's threads' business. Throws std::system_error
// if there is no thread.
template <class Function>
std::thread start_quiet_thread(Function&& function) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread thread(std::forward<Function>(function));
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
}

}  // namespace heddle::base
