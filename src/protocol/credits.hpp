// Credit: how much of a receiver's memory a sender may fill with tagged messages that no receive
// has matched (Credits), and with messages of class USER (UserCredits).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "heddle/heddle.h"
#include "wire/packet.hpp"

namespace heddle::protocol {

// Zeroed memory that costs nothing until it is touched. It has an entry for every worker that a
// peer could have.
template <class T>
class LazyArray {
 public:
  explicit LazyArray(std::size_t count) : items_(static_cast<T*>(std::calloc(count, sizeof(T)))) {
    static_assert(std::is_trivially_destructible_v<T> && std::is_trivially_copyable_v<T>);
    if (items_ == nullptr) throw std::bad_alloc();
  }
  T& operator[](std::size_t index) { return items_.get()[index]; }

 private:
  struct Free {
    void operator()(T* items) const { std::free(items); }
  };
  std::unique_ptr<T, Free> items_;
};

// Limits how much of a receiver's memory a sender may fill with messages that nobody has received
// yet. Each pair of workers has one window; both sides count the same charge for the same message
// (wire/messages.hpp).
//
// sender     sent: charges of all messages on their way or arrived; freed: what the receiver
//            reported as free again. sent - freed <= window. Messages of one kind may be given a
//            larger window than those of another: then the latter wait until less than theirs is
//            used.
// receiver   freed: charges of messages received or dropped. The receiver reports it when an eighth
//            of a window has become free since its last report: a sender of long messages that
//            heard of half a window only would wait, or offer. So a sender that waits for room
//            gets it once everything is received, if no message takes more than half a window.
//
// The numbers only grow. A report may therefore be repeated, be overtaken by another, or be lost if
// a later one arrives.

// The sender's side towards one worker. Zeroed memory is a valid initial state.
//
// Any thread may call reserve<true>() and give_back<true>(); <false>: only the one thread that
// sends. Only one thread at a time may call learn(). Any thread may read used(), for a report. All
// accesses are relaxed: the numbers only count room, they publish no other data.
struct SendCredit {
  alignas(std::atomic_ref<std::uint64_t>::required_alignment) std::uint64_t sent;
  alignas(std::atomic_ref<std::uint64_t>::required_alignment) std::uint64_t freed;
  std::uint64_t sequence;  // number of the next message; not used here
  void* pipe;              // to the worker, once a long message has gone there; not used here

  // kShared: several threads may call this at once. False: no room now.
  template <bool kShared>
  bool reserve(std::uint64_t charge, std::uint64_t window) {
    const std::uint64_t known = std::atomic_ref(freed).load(std::memory_order_relaxed);
    const std::atomic_ref all(sent);
    if constexpr (!kShared) {
      const std::uint64_t then = sent + charge;
      if (then - known > window) return false;
      all.store(then, std::memory_order_relaxed);
      return true;
    } else {
      // A failed reservation is visible for a moment. Meanwhile another thread's reservation may
      // fail although it has room; that thread tries again.
      if (all.fetch_add(charge, std::memory_order_relaxed) + charge - known <= window) return true;
      all.fetch_sub(charge, std::memory_order_relaxed);
      return false;
    }
  }
  template <bool kShared>
  void give_back(std::uint64_t charge) {
    const std::atomic_ref all(sent);
    if constexpr (!kShared) {
      all.store(sent - charge, std::memory_order_relaxed);
    } else {
      all.fetch_sub(charge, std::memory_order_relaxed);
    }
  }
  [[nodiscard]] std::uint64_t used() {
    return std::atomic_ref(sent).load(std::memory_order_relaxed) -
           std::atomic_ref(freed).load(std::memory_order_relaxed);
  }
  // Takes over what the receiver reports. False: the report cannot be true.
  bool learn(std::uint64_t told) {
    const std::atomic_ref known(freed);
    const std::uint64_t before = known.load(std::memory_order_relaxed);
    const std::uint64_t gain = told - before;
    if (gain > ~std::uint64_t{0} / 2) return true;  // older than what is known
    if (gain > std::atomic_ref(sent).load(std::memory_order_relaxed) - before) return false;
    known.store(told, std::memory_order_relaxed);
    return true;
  }
};

// The receiver's side towards one worker; one thread. Zeroed memory is a valid initial state.
struct ReceiveCredit {
  std::uint64_t held;  // charges of the messages that are kept
  std::uint64_t freed;
  std::uint64_t told;

  [[nodiscard]] bool hold(std::uint64_t charge, std::uint64_t window) {
    if (held + charge > window) return false;
    held += charge;
    return true;
  }
  static constexpr std::uint64_t kReports = 8;  // in a window

  // True: the caller should report `freed` to the sender, and then set `told` to it.
  [[nodiscard]] bool free(std::uint64_t charge, std::uint64_t window) {
    freed += charge;
    return freed - told >= window / kReports;
  }
};

// What one message is charged. Both sides calculate it in the same way, so it is part of the
// protocol. The minimum is the memory that a stored message takes.
constexpr std::uint64_t credit_charge(std::uint32_t header_bytes, std::uint64_t payload_bytes, std::uint64_t window) {
  constexpr std::uint64_t kRecord = 192;
  constexpr std::uint64_t kLeastPayload = 256;
  const std::uint64_t all = kRecord + wire::pad8(header_bytes) + std::max(payload_bytes, kLeastPayload);
  return std::min(all, window / 2);
}

// Limits the bytes that one worker may have on their way to, or waiting in, each worker of its
// peers, for messages of class USER. The receiver stores such messages until one of its threads
// runs their handlers. The receiver grants credit back for what it has handled. So its store is
// bounded by the window times the number of workers that send to it, and a sender without credit
// gets AGAIN. Other traffic of either worker does not wait for a full store. See
// docs/decisions/0012.
//
// Invariants
//   used = what was taken and neither given back nor granted: 0 … window. One message never counts
//   more than half a window, and the receiver grants whenever half a window is handled. So a sender
//   that waits for the credit of one message waits only for handlers.
// Rows are allocated at the first message to a rank.
//
// The sender's side. Any thread may call take() and give_back(), unless the object was made with
// one_thread.
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

  // False: no credit now, nothing happened. Throws std::bad_alloc at the first message to a rank.
  // The target must be valid.
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

  // Returns the credit of a message that did not leave, or that the target has rejected.
  void give_back(heddle_peer target, std::uint64_t charge) { static_cast<void>(grant(target, charge)); }

  // Returns the credit that the target grants for what it has handled. False: more than was taken,
  // or from a rank to which nothing was sent; nothing happened.
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

  // Any thread; the value may be out of date when it returns.
  [[nodiscard]] std::uint64_t used(heddle_peer target) const {
    const Count* row = rows_[target.rank].load(std::memory_order_acquire);
    return row == nullptr ? 0 : row[target.worker].load(std::memory_order_relaxed);
  }

 private:
  // Relaxed: a number that publishes nothing. The messages themselves order what they carry.
  using Count = Atomic<std::uint64_t>;

  Count& place(heddle_peer target) {
    Atomic<Count*>& row = rows_[target.rank];
    Count* known = row.load(std::memory_order_acquire);
    if (known == nullptr) {
      auto fresh = std::make_unique<Count[]>(workers_);
      // Release: the zeros of the row. Partners: the acquire loads here, in grant() and in used().
      // A thread that loses the race uses the winner's row.
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
