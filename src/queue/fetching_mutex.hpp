// A mutex that helpers may hold, too: a thread that waits for it fetches a helper that has lost its
// core (helper_claim.hpp). For locks that are taken rarely and briefly; where nobody waits it costs
// two read-modify-writes and a read of a thread-local variable.
//
// word_: 0 free, 1 held, 2 held and a thread may sleep. Only the holder stores 0, by an exchange
// that tells it whether to wake. A thread that waits stores 2 before it sleeps, and takes the mutex
// with 2, since others may still sleep.
#pragma once

#include <atomic>
#include <cstdint>

#include "queue/helper_claim.hpp"

namespace heddle::queue {

namespace detail {
// The number of this thread if it is a helper; 0: it is not.
inline thread_local constinit std::uint32_t t_helper = 0;
}  // namespace detail

// The calling thread is a helper from now on, with this number (as of Handover); 0: it is not.
inline void be_helper(std::uint32_t number) {
  detail::t_helper = number;
}
inline std::uint32_t this_helper() {
  return detail::t_helper;
}

template <template <class> class Atomic = std::atomic, class System = SystemHandover>
class BasicFetchingMutex {
 public:
  BasicFetchingMutex() = default;
  BasicFetchingMutex(const BasicFetchingMutex&) = delete;
  BasicFetchingMutex& operator=(const BasicFetchingMutex&) = delete;

  void lock() {
    if (detail::t_helper != 0) claim();
    if (!take()) wait();
  }
  [[nodiscard]] bool try_lock() {
    if (detail::t_helper != 0 && !helper_.try_claim(detail::t_helper)) return false;
    if (take()) return true;
    if (detail::t_helper != 0) helper_.release();
    return false;
  }
  void unlock() {
    if (word_.exchange(kFree, std::memory_order_release) == kAwaited) System::wake(&word_);
    if (detail::t_helper != 0) helper_.release();
  }
  // For another helper: gives its core to the helper that holds the mutex, if one does, and sleeps
  // for at most `sleep_ns`.
  bool fetch(std::int64_t sleep_ns) { return helper_.fetch(sleep_ns); }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kHeld = 1;
  static constexpr std::uint32_t kAwaited = 2;
  static constexpr std::int64_t kSleepNs = 1'000'000;

  bool take() {
    std::uint32_t free = kFree;
    return word_.compare_exchange_strong(free, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
  }
  // Helpers, too, fetch each other.
  [[gnu::noinline]] void claim() {
    while (!helper_.try_claim(detail::t_helper)) static_cast<void>(helper_.fetch(kSleepNs));
  }
  // The first round only sleeps, as long as a holder of ordinary priority may take. The later ones
  // fetch the helper, if one holds the mutex.
  [[gnu::noinline, gnu::cold]] void wait() {
    for (std::uint32_t round = 0; word_.exchange(kAwaited, std::memory_order_acquire) != kFree; ++round) {
      if (round > 0 && detail::t_helper == 0 && helper_.fetch(kSleepNs)) continue;
      System::wait(&word_, kAwaited, System::kStays, 0);
    }
  }

  // release by unlock(), acquire by take() and wait(): what it guards
  Atomic<std::uint32_t> word_{kFree};
  HelperClaim<Atomic, System> helper_;
};
using FetchingMutex = BasicFetchingMutex<>;

}  // namespace heddle::queue
