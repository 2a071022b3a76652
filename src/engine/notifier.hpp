// A thread that moves a worker tells a thread that waits for that outside the calls of the worker
// (worker/descriptor.hpp). The thread that moves pays one read of a word that rarely changes.
//
//   thread that moves                thread that waits
//   move                             arm()
//   light fence                      heavy fence (membarrier over the threads of this process)
//   armed_ == 0 ? done               has it moved? then do not wait
//   armed_: 1 -> 0 ? tell            wait
//
// Invariants
//   Because of the two fences, the moving thread sees armed_ == 1, or the waiting thread sees that
//   the worker has moved (Dekker).
//   For each arm() at most one thread tells: the one whose exchange finds 1.
#pragma once

#include <sys/eventfd.h>

#include <atomic>
#include <cstdint>

#include "base/fence.hpp"

namespace heddle::engine {

// Telling means that an eventfd becomes readable.
struct Eventfd {
  int descriptor = -1;
  void tell() const { static_cast<void>(::eventfd_write(descriptor, 1)); }
};

template <template <class> class Atomic = std::atomic, class Told = Eventfd>
class Notifier {
 public:
  Notifier() = default;
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  // Once, before the first arm().
  void open(Told told) { told_ = told; }

  // ---- the thread that waits
  void arm() { armed_.store(1, std::memory_order_release); }  // partner: the exchange in tell()
  // True: nobody has told, and nobody will.
  bool disarm() { return armed_.exchange(0, std::memory_order_acquire) != 0; }
  [[nodiscard]] bool armed() const { return armed_.load(std::memory_order_acquire) != 0; }

  // ---- any thread: after it has moved the worker
  void tell() {
    base::light_fence();
    if (armed_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      tell_now();
  }

 private:
  [[gnu::cold, gnu::noinline]] void tell_now() {
    // Acquire: told_ is as open() left it. Partner: arm().
    if (armed_.exchange(0, std::memory_order_acquire) != 0) told_.tell();
  }

  Atomic<std::uint32_t> armed_{0};
  Told told_;
};

}  // namespace heddle::engine
