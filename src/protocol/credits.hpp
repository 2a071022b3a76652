// Limits how much of a receiver's memory a sender may fill with messages that nobody has received
// yet. Each pair of workers has one window; both sides count the same charge for the same message
// (wire/messages.hpp).
//
// sender     sent: charges of all messages on their way or arrived; freed: what the receiver
//            reported as free again. sent - freed <= window. Messages of one kind may be given a
//            larger window than those of another: then the latter wait until less than theirs is
//            used.
// receiver   freed: charges of messages received or dropped. The receiver reports it when half a
//            window has become free since its last report. So a sender that waits for room gets it
//            once everything is received, provided that no message takes more than half a window.
//
// The numbers only grow. A report may therefore be repeated, be overtaken by another, or be lost if
// a later one arrives.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace heddle::engine {

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

// The sender's side towards one worker. Zeroed memory is a valid initial state.
//
// Any thread may call reserve<true>() and give_back<true>(); <false>: only the one thread that
// sends. Only one thread at a time may call learn(). Any thread may read used(), for a report. All
// accesses are relaxed: the numbers only count room, they publish no other data.
struct SendCredit {
  alignas(std::atomic_ref<std::uint64_t>::required_alignment) std::uint64_t sent;
  alignas(std::atomic_ref<std::uint64_t>::required_alignment) std::uint64_t freed;
  std::uint64_t sequence;  // number of the next message; not used here
  void* view;              // of the worker's board, if the worker has shown one; not used here

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
  // True: the caller should report `freed` to the sender, and then set `told` to it.
  [[nodiscard]] bool free(std::uint64_t charge, std::uint64_t window) {
    freed += charge;
    return freed - told >= window / 2;
  }
};

}  // namespace heddle::engine
