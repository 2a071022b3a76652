// One thread sleeps until another wakes it: wake() leaves a token, sleep() consumes it. A token
// that is left while the thread does not sleep is kept, so a wake-up is never lost. That does not
// depend on other agreements of the two threads about when a wake-up is due (the command queue's
// sleeping bit). Several tokens are one. Within one process.
//
// state: kNothing, kToken, kAsleep. Only the sleeper goes to kAsleep and from kToken to kNothing;
// wake() goes from any state to kToken, and makes the system call only if it came from kAsleep.
#pragma once

#include <atomic>
#include <cstdint>

namespace heddle::queue {

// Blocks in the kernel, on a word of this process.
struct SystemFutex {
  // Returns when woken, when *word is not `expected`, after `timeout_ns` (negative: never), or for
  // no reason.
  static void wait(std::atomic<std::uint32_t>* word, std::uint32_t expected, std::int64_t timeout_ns);
  static void wake_one(std::atomic<std::uint32_t>* word);
};

template <template <class> class Atomic = std::atomic, class Futex = SystemFutex>
class Sleeper {
 public:
  Sleeper() = default;
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  // One thread at a time. True: woken. False: the time is over, or a signal came; the caller sleeps
  // again or checks what it waits for.
  [[nodiscard]] bool sleep(std::int64_t timeout_ns) {
    std::uint32_t state = kNothing;
    if (state_.compare_exchange_strong(state, kAsleep, std::memory_order_acquire, std::memory_order_acquire)) {
      Futex::wait(&state_, kAsleep, timeout_ns);
    }
    return state_.exchange(kNothing, std::memory_order_acquire) == kToken;
  }

  // Any thread. The thread that wakes sees what the caller did before.
  void wake() {
    if (state_.exchange(kToken, std::memory_order_release) == kAsleep) Futex::wake_one(&state_);
  }

 private:
  static constexpr std::uint32_t kNothing = 0;
  static constexpr std::uint32_t kToken = 1;
  static constexpr std::uint32_t kAsleep = 2;

  Atomic<std::uint32_t> state_{kNothing};  // release by wake(), acquire by sleep()
};

}  // namespace heddle::queue
