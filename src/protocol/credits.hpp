// How much of a receiver's memory a sender may fill with messages that nobody has received yet. One
// window for each pair of workers; both sides count the same charge for the same message
// (wire/tagged.hpp).
//
//   sender     sent: charges of all messages on their way or arrived; freed: what the receiver said
//              has become free again. sent - freed <= window
//   receiver   freed: charges of messages received or dropped. It tells the sender when half a
//              window has become free since it last did; so a sender that waits for a message's
//              room gets it when everything is received, if no message takes more than half of the
//              window.
//
// The numbers only grow, so that what is told may be repeated, lost while a later one arrives, or
// overtake.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace heddle::protocol {

// Zeroed memory that costs nothing until it is touched: there is an entry for every worker that a
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

// The sender's side towards one worker. Zeroed memory is a fresh one.
//
// Any thread reserves and gives back, one thread at a time learns what was freed. Relaxed
// throughout: nothing is read on the strength of these numbers, only room is counted.
struct SendCredit {
  alignas(std::atomic_ref<std::uint64_t>::required_alignment) std::uint64_t sent;
  alignas(std::atomic_ref<std::uint64_t>::required_alignment) std::uint64_t freed;
  std::uint64_t sequence;  // number of the next message; not touched here
  void* view;              // of the worker's board, if it has shown one; not touched here

  // kShared: several threads may be here. False: no room now.
  template <bool kShared>
  bool reserve(std::uint64_t charge, std::uint64_t window) {
    const std::uint64_t known = std::atomic_ref(freed).load(std::memory_order_relaxed);
    if constexpr (!kShared) {
      if (sent + charge - known > window) return false;
      sent += charge;
      return true;
    } else {
      const std::atomic_ref all(sent);
      // A reservation that fails is visible for a moment: another may then fail that would have had
      // room, and tries again.
      if (all.fetch_add(charge, std::memory_order_relaxed) + charge - known <= window) return true;
      all.fetch_sub(charge, std::memory_order_relaxed);
      return false;
    }
  }
  template <bool kShared>
  void give_back(std::uint64_t charge) {
    if constexpr (!kShared) {
      sent -= charge;
    } else {
      std::atomic_ref(sent).fetch_sub(charge, std::memory_order_relaxed);
    }
  }
  // The receiver's word. False: impossible.
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

// The receiver's side towards one worker; one thread. Zeroed memory is a fresh one.
struct ReceiveCredit {
  std::uint64_t held;  // charges of what is kept
  std::uint64_t freed;
  std::uint64_t told;

  [[nodiscard]] bool hold(std::uint64_t charge, std::uint64_t window) {
    if (charge > window - held) return false;
    held += charge;
    return true;
  }
  // True: the sender should be told, and then told is freed.
  [[nodiscard]] bool free(std::uint64_t charge, std::uint64_t window) {
    freed += charge;
    return freed - told >= window / 2;
  }
};

}  // namespace heddle::protocol
