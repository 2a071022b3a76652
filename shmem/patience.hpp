// How a PE waits: it looks, moves the engine now and then, gives its core away when that takes long, and sleeps when it takes
// longer still. The policy is the engine's (decision 0017), for words that other processes store to directly: those wake nobody.
#pragma once

#include <atomic>
#include <cstdint>

#include "shmem/order.hpp"
#include "shmem/state.hpp"

namespace heddle::shmem {

// What the waits of this process have learned about its cores: whether who gives one away finds somebody else on it. A hint, which
// may be wrong for a while and whose updates may be lost; any thread. Before anybody has waited: whether there are more PEs than cores.
void expect_crowd(bool crowded);

// One per wait. Call pause() after each look that found nothing.
class Patience {
 public:
  explicit Patience(heddle_worker worker) : worker_(worker), spins_(first_spins()) {}

  void pause() {
    // The answer is mostly one cache transfer away: look again at once, since a call of the engine takes longer than that.
    if (++looks_ < spins_) {
      if (looks_ > kFree) cpu_relax();
      return;
    }
    give_way();
  }

 private:
  static constexpr std::uint32_t kFree = 128;
  static std::uint32_t first_spins();
  void give_way();

  heddle_worker worker_;
  std::uint32_t spins_;
  std::uint32_t looks_ = 0;
  std::uint64_t since_ns_ = 0;  // when it first gave way; 0: not since something happened
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
