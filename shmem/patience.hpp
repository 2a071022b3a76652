// How a PE waits: it looks often, moves the engine now and then, and gives its core away when that takes long.
#pragma once

#include <sched.h>

#include "shmem/order.hpp"
#include "shmem/state.hpp"

namespace heddle::shmem {

// One per wait. Call pause() after each look that found nothing.
class Patience {
 public:
  explicit Patience(heddle_worker worker) : worker_(worker) {}

  void pause() {
    // The answer is mostly one cache transfer away: look again at once, since a call of the engine takes longer than that.
    if (++looks_ < kLooks) return;
    if (looks_ < kSpins) {
      cpu_relax();
      if (looks_ % kProgressPeriod == 0) progress();
      return;
    }
    looks_ = kSpins;  // with more PEs than cores the partner may need this very core
    progress();
    sched_yield();
  }

 private:
  static constexpr unsigned kLooks = 256;
  static constexpr unsigned kSpins = 400;
  static constexpr unsigned kProgressPeriod = 16;

  void progress() {
    if (heddle_worker_progress(worker_) > 0) looks_ = 0;
  }

  heddle_worker worker_;
  unsigned looks_ = 0;
};

template <class Ready>
inline void wait_until_true(heddle_worker worker, const Ready& ready) {
  if (ready()) return;
  Patience patience(worker);
  do {
    patience.pause();
  } while (!ready());
}

}  // namespace heddle::shmem
