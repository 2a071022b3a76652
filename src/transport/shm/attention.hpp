// One word that a worker's poll looks at besides its rings. It says whether there are new rings
// and, for the worker's peers, whether the worker polls at all.
//
// Zeroed memory is a valid word.
#pragma once

#include <atomic>
#include <cstdint>

namespace heddle::transport::shm {

template <template <class> class Atomic = std::atomic>
class Attention {
 public:
  // ---- the owner ----
  // Its poll needs to call take(). One load of a line that rarely changes.
  [[nodiscard]] bool wanted() const { return word_.load(std::memory_order_relaxed) != 0; }
  [[nodiscard]] bool has_rings() const { return (word_.load(std::memory_order_relaxed) & kRings) != 0; }
  // It polls, as the peers may know. True: there are new rings.
  [[nodiscard]] bool take() {
    // Acquire: partner of announce(). An ignore() between the two is no store of its own, so what
    // announce() has released is found through it.
    return (word_.exchange(0, std::memory_order_acquire) & kRings) != 0;
  }

  // ---- any process ----
  // After a ring has been made known.
  void announce() { word_.fetch_or(kRings, std::memory_order_release); }
  // It does not poll, as far as the caller knows: a request by a record would wait. A hint, which
  // orders nothing; the owner's next poll clears it. Only the first to say so writes the line.
  void ignore() {
    if (polls()) word_.fetch_or(kIgnored, std::memory_order_relaxed);
  }
  [[nodiscard]] bool polls() const { return (word_.load(std::memory_order_relaxed) & kIgnored) == 0; }

 private:
  static constexpr std::uint32_t kRings = 1;
  static constexpr std::uint32_t kIgnored = 2;

  Atomic<std::uint32_t> word_{0};
};

}  // namespace heddle::transport::shm
