// A lock that is tried and never waited for: a thread that finds it held skips the object.
//
// Invariant: held == 1 exactly while one thread is between a successful try_lock() and its
// unlock().
//
// A thread that skips may leave work behind that the holder, on its way out, no longer sees: the
// holder looks and finds nothing, the other thread adds work and finds the lock held, the holder
// unlocks. Either some thread comes by again (a progress loop), or look and leave must be one step:
// the sleeping bit of CommandQueue, which needs no lock besides.
#pragma once

#include <atomic>
#include <cstdint>

namespace heddle::queue {

template <template <class> class Atomic = std::atomic>
class TryLock {
 public:
  TryLock() = default;
  TryLock(const TryLock&) = delete;
  TryLock& operator=(const TryLock&) = delete;

  // The load before the exchange leaves the line where it is while another thread works.
  [[nodiscard]] bool try_lock() {
    return held_.load(std::memory_order_relaxed) == 0 && held_.exchange(1, std::memory_order_acquire) == 0;
  }
  void unlock() { held_.store(0, std::memory_order_release); }

  // For heuristics and printing: out of date when the caller reads the result.
  [[nodiscard]] bool looks_held() const { return held_.load(std::memory_order_relaxed) != 0; }

  // if (TryLock<>::Guard guard{lock}) { … }
  class [[nodiscard]] Guard {
   public:
    explicit Guard(TryLock& lock) : lock_(lock.try_lock() ? &lock : nullptr) {}
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() {
      if (lock_ != nullptr) lock_->unlock();
    }
    explicit operator bool() const { return lock_ != nullptr; }

   private:
    TryLock* lock_;
  };

 private:
  Atomic<std::uint32_t> held_{0};  // release by unlock(), acquire by try_lock()'s exchange
};

}  // namespace heddle::queue
