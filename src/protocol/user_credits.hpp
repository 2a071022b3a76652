// How much one worker may have on its way to, or waiting in, each worker of its peers: messages of
// class USER, which the receiver stores until one of its threads runs their handlers. The receiver
// grants back what it has handled, so that its store is bounded by the window times the number of
// workers that send to it, and a sender that is ahead is told AGAIN. Nothing else of either worker
// waits for a store that is full. See docs/decisions/0012.
//
// Invariants
//   used = what was taken and neither given back nor granted: 0 … window. One message never counts
//   more than half a window, and the receiver grants whenever half a window is handled: so who
//   waits for a message's worth waits for handlers only.
// Rows are allocated at the first message to a rank.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/heddle.h"
#include "wire/packet.hpp"

namespace heddle::protocol {

// What a message counts. Both sides reckon by this, so it is part of the protocol. The least is
// what a stored message takes.
constexpr std::uint64_t credit_charge(std::uint32_t header_bytes, std::uint64_t payload_bytes, std::uint64_t window) {
  constexpr std::uint64_t kRecord = 192;
  constexpr std::uint64_t kLeastPayload = 256;
  const std::uint64_t all = kRecord + wire::pad8(header_bytes) + std::max(payload_bytes, kLeastPayload);
  return std::min(all, window / 2);
}

// The sender's side. take() and give_back() may be called by any thread, unless it was made for
// one.
template <template <class> class Atomic = std::atomic>
class BasicUserCredits {
 public:
  BasicUserCredits(std::uint32_t ranks, std::uint32_t workers, std::uint64_t window, bool one_thread)
      : rows_(ranks), workers_(workers), window_(window), one_thread_(one_thread) {}
  ~BasicUserCredits() {
    for (auto& row : rows_) delete[] row.load(std::memory_order_relaxed);
  }
  BasicUserCredits(const BasicUserCredits&) = delete;
  BasicUserCredits& operator=(const BasicUserCredits&) = delete;

  [[nodiscard]] std::uint64_t window() const { return window_; }

  // False: not now, nothing happened. Throws std::bad_alloc at the first message to a rank. The
  // target is a legal one.
  [[nodiscard]] bool take(heddle_peer target, std::uint64_t charge) {
    Count& used = place(target);
    std::uint64_t now = used.load(std::memory_order_relaxed);
    do {
      if (charge > window_ - now) return false;
      if (one_thread_) {
        used.store(now + charge, std::memory_order_relaxed);
        return true;
      }
    } while (!used.compare_exchange_weak(now, now + charge, std::memory_order_relaxed));
    return true;
  }

  // What was taken for a message that did not leave, or that the target has refused.
  void give_back(heddle_peer target, std::uint64_t charge) { static_cast<void>(grant(target, charge)); }

  // What the target has handled. False: more than was taken, or of a rank that nothing was sent to;
  // nothing happened.
  bool grant(heddle_peer source, std::uint64_t bytes) {
    if (source.rank >= rows_.size() || source.worker >= workers_) return false;
    Count* row = rows_[source.rank].load(std::memory_order_acquire);
    if (row == nullptr) return false;
    Count& used = row[source.worker];
    std::uint64_t now = used.load(std::memory_order_relaxed);
    do {
      if (bytes > now) return false;
      if (one_thread_) {
        used.store(now - bytes, std::memory_order_relaxed);
        return true;
      }
    } while (!used.compare_exchange_weak(now, now - bytes, std::memory_order_relaxed));
    return true;
  }

  // Any thread; what it says is out of date when it arrives.
  [[nodiscard]] std::uint64_t used(heddle_peer target) const {
    const Count* row = rows_[target.rank].load(std::memory_order_acquire);
    return row == nullptr ? 0 : row[target.worker].load(std::memory_order_relaxed);
  }

 private:
  // Relaxed: a number, nothing is published by it. The messages themselves order what they carry.
  using Count = Atomic<std::uint64_t>;

  Count& place(heddle_peer target) {
    Atomic<Count*>& row = rows_[target.rank];
    Count* known = row.load(std::memory_order_acquire);
    if (known == nullptr) {
      auto fresh = std::make_unique<Count[]>(workers_);
      // Release: its zeros. Partners: the acquire loads here, in grant() and in used(). Who comes
      // second uses the first's.
      if (row.compare_exchange_strong(known, fresh.get(), std::memory_order_acq_rel, std::memory_order_acquire)) {
        known = fresh.release();
      }
    }
    return known[target.worker];
  }

  std::vector<Atomic<Count*>> rows_;
  const std::uint32_t workers_;
  const std::uint64_t window_;
  const bool one_thread_;
};
using UserCredits = BasicUserCredits<>;

}  // namespace heddle::protocol
