// Threads: the library's own in an application's process, and a small number for each thread that
// runs.
#pragma once

#include <signal.h>

#include <cstdint>
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

// A small number for the calling thread, unique among the live threads that have one, so that
// per-thread slots can be an array. When a thread ends, its number goes to a later thread, which
// then sees everything that was written in those slots.
//
// Process-wide, as threads are: a number is not tied to any context.

inline constexpr std::uint32_t kThreadNumbers = 128;
// all numbers are taken: there are more threads than numbers
inline constexpr std::uint32_t kNoThreadNumber = kThreadNumbers;

namespace detail {
// number + 1; 0: the thread has not asked for a number yet. initial-exec: accessed without a call,
// which is allowed in a library that programs are linked with.
extern thread_local constinit std::uint32_t t_thread_number [[gnu::tls_model("initial-exec")]];
std::uint32_t take_thread_number();
}  // namespace detail

// Below kThreadNumbers, or kNoThreadNumber. Constant for a thread: one that found no free number
// keeps kNoThreadNumber.
inline std::uint32_t thread_number() {
  const std::uint32_t known = detail::t_thread_number;
  return known != 0 ? known - 1 : detail::take_thread_number();
}

// For a thread that the library starts and that does everything that programs' threads do: takes
// its number, and room for its messages (last_message()). Later there may be no memory, and the C
// library ends the process where a thread-local object with a destructor finds none.
void prepare_thread();

// 1 + the calling thread's number, or 0 if it has none or has not asked yet: for hot paths, one
// comparison instead of the two of thread_number().
inline std::uint32_t known_thread_number() {
  const std::uint32_t known = detail::t_thread_number;
  return known - 1 < kThreadNumbers ? known : 0;
}

// The calling thread is the one that got this, not 0, of known_thread_number().
inline bool is_thread(std::uint32_t known) {
  return detail::t_thread_number == known;
}

// Identifies the calling thread, whether or not it has a number. Never null.
inline const void* thread_mark() {
  return &detail::t_thread_number;
}

}  // namespace heddle::base
