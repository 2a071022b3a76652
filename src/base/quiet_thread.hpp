// The library's own threads in an application's process.
#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace heddle::base {

// Starts a thread that takes no signal sent to the process: those are for the application's
// threads. A fault of the thread itself, for example in a handler of the application, goes to the
// application's signal handler, as from any thread. Throws std::system_error if the thread cannot
// be started.
template <class Function>
std::thread start_quiet_thread(Function&& function) {
  sigset_t sent;
  sigset_t before;
  sigfillset(&sent);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&sent, own);
  pthread_sigmask(SIG_SETMASK, &sent, &before);
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
