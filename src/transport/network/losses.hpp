// Which ranks are not reached any more: connections to them broke, or could not be made. Any
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/log.hpp"
#include "bootstrap/bootstrap.hpp"

namespace heddle::transport::network {

class Losses {
 public:
  explicit Losses(bootstrap::Bootstrap& bootstrap)
      : bootstrap_(bootstrap), unreachable_(bootstrap.size()), lost_(bootstrap.size()), stage_(bootstrap.size()) {}

  // A connection to the rank is lost; only the first time counts.
  void lose(std::uint32_t rank) {
    std::uint32_t not_yet = 0;
    if (lost_[rank].load(std::memory_order_relaxed) != 0) return;
    lost_[rank].compare_exchange_strong(not_yet, count_.fetch_add(1, std::memory_order_relaxed) + 1,
                                        std::memory_order_relaxed);
  }
  // The connection between the device workers is lost. True: it was lost before.
  bool lose_device(std::uint32_t rank) {
    if (unreachable_[rank].exchange(true, std::memory_order_relaxed)) return true;
    lose(rank);
    return false;
  }
  // The rank has died or left, or its device worker cannot be reached any more.
  [[nodiscard]] bool failed(std::uint32_t rank) const {
    return bootstrap_.failed(rank) || unreachable_[rank].load(std::memory_order_relaxed);
  }
  // See Transport::lost() and disconnected().
  [[nodiscard]] std::uint32_t lost(std::uint32_t rank) const { return lost_[rank].load(std::memory_order_relaxed); }
  [[nodiscard]] bool disconnected(std::uint32_t rank) const {
    return stage_[rank].load(std::memory_order_acquire) == Stage::disconnected;
  }

  // By the helper, from time to time: takes for failed each rank that was lost already at the last
  // call and has not died or left by now. A rank that leaves or dies loses its connections too, but
  // the bootstrap reports that, sooner or later.
  void disconnect_lost(const base::Log& log) {
    if (count_.load(std::memory_order_relaxed) == 0) return;
    bool some = false;
    for (std::uint32_t rank = 0; rank < lost_.size(); ++rank) {
      const Stage before = stage_[rank].load(std::memory_order_relaxed);
      if (lost(rank) == 0 || before == Stage::disconnected || bootstrap_.failed(rank)) continue;
      stage_[rank].store(before == Stage::none ? Stage::seen : Stage::disconnected, std::memory_order_release);
      if (before == Stage::none) continue;
      some = true;
      log.line(base::Level::warn, "rank %u is not reached any more: what waits for it ends with PEER_FAILED", rank);
    }
    if (some) bootstrap_.note_disconnected();
  }

 private:
  enum class Stage : std::uint8_t { none, seen, disconnected };

  bootstrap::Bootstrap& bootstrap_;
  std::vector<std::atomic<bool>> unreachable_;  // relaxed: nothing is read by it
  // the value of count_ when the rank was lost; 0: it is not. Relaxed
  std::vector<std::atomic<std::uint32_t>> lost_;
  std::atomic<std::uint32_t> count_{0};  // losses so far, for their order. Relaxed
  // written by the helper (release), read by workers (acquire)
  std::vector<std::atomic<Stage>> stage_;
};

}  // namespace heddle::transport::network
