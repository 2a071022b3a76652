// The library's own threads in an application's process.
#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace heddle::base {

// Starts a thread with all signals blocked: signals are for the application's threads. Throws
// std::system_error if the thread cannot be started.
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
