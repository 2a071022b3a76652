// The parts of completion queues.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include <lcw.hpp>

namespace heddle::for_lcw {

// A bounded queue for one thread at a time. It begins at its start again whenever it is empty, so a
// program with few operations outstanding uses few lines.
class OwnBuffer {
 public:
  static constexpr std::uint32_t kSlots = 128;

  // False: full.
  bool push(const ::lcw::request_t& request) {
    if (end_ == kSlots) return false;
    requests_[end_++] = request;
    return true;
  }
  // False: empty.
  bool pop(::lcw::request_t* request) {
    if (begin_ == end_) return false;
    *request = requests_[begin_++];
    if (begin_ == end_) begin_ = end_ = 0;
    return true;
  }

 private:
  std::uint32_t begin_ = 0;
  std::uint32_t end_ = 0;
  std::array<::lcw::request_t, kSlots> requests_{};
};

// A queue that any number of threads fill and empty. Slots in a ring, each with the turn at which
// it may be filled or emptied: one read-modify-write to push, one to pop, none to see that it is
// empty. Elements that do not fit are kept under a lock, in order, and so are all later ones until
// those are taken. So nothing is lost, and no element is overtaken by a later one.
//
// Slot i has turn p when the push number p (p mod kSlots = i) may fill it, p + 1 when the pop
// number p may empty it. The release store of a turn makes the request, or the slot's emptiness,
// visible to the acquire load of it.
class SharedRing {
 public:
  // A few times the number of operations that programs have outstanding, and small enough to stay
  // in the cache.
  static constexpr std::uint64_t kSlots = 1024;

  SharedRing();
  void push(const ::lcw::request_t& request) {
    if (spilled_.load(std::memory_order_relaxed) != 0 || !push_ring(request)) spill(request);
  }
  // False: there is none.
  bool pop(::lcw::request_t* request) {
    return pop_ring(request) || (spilled_.load(std::memory_order_relaxed) != 0 && pop_spilled(request));
  }
  // As pop(), while no other thread pops.
  bool pop_alone(::lcw::request_t* request) {
    const std::uint64_t number = pops_.load(std::memory_order_relaxed);
    Slot& slot = slots_[number % kSlots];
    if (slot.turn.load(std::memory_order_acquire) == number + 1) {
      pops_.store(number + 1, std::memory_order_relaxed);
      take(slot, number, request);
      return true;
    }
    return spilled_.load(std::memory_order_relaxed) != 0 && pop_spilled(request);
  }

 private:
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> turn{0};
    ::lcw::request_t request{};
  };
  static_assert(sizeof(Slot) == 64, "a request and its turn share one line");

  bool push_ring(const ::lcw::request_t& request);
  bool pop_ring(::lcw::request_t* request);
  static void take(Slot& slot, std::uint64_t number, ::lcw::request_t* request) {
    *request = slot.request;
    slot.turn.store(number + kSlots, std::memory_order_release);
  }
  [[gnu::cold]] void spill(const ::lcw::request_t& request);
  [[gnu::cold]] bool pop_spilled(::lcw::request_t* request);

  const std::unique_ptr<Slot[]> slots_;
  std::atomic<std::uint64_t> spilled_{0};  // how many; written under the lock
  std::mutex mutex_;
  std::deque<::lcw::request_t> spill_;
  alignas(64) std::atomic<std::uint64_t> pushes_{0};
  alignas(64) std::atomic<std::uint64_t> pops_{0};
};

inline bool SharedRing::push_ring(const ::lcw::request_t& request) {
  std::uint64_t number = pushes_.load(std::memory_order_relaxed);
  while (true) {
    Slot& slot = slots_[number % kSlots];
    const auto ahead = static_cast<std::int64_t>(slot.turn.load(std::memory_order_acquire) - number);
    if (ahead < 0) return false;  // full
    if (ahead > 0) {
      number = pushes_.load(std::memory_order_relaxed);
    } else if (pushes_.compare_exchange_weak(number, number + 1, std::memory_order_relaxed)) {
      slot.request = request;
      slot.turn.store(number + 1, std::memory_order_release);
      return true;
    }
  }
}

inline bool SharedRing::pop_ring(::lcw::request_t* request) {
  std::uint64_t number = pops_.load(std::memory_order_relaxed);
  while (true) {
    Slot& slot = slots_[number % kSlots];
    const auto ahead = static_cast<std::int64_t>(slot.turn.load(std::memory_order_acquire) - (number + 1));
    if (ahead < 0) return false;  // empty, or still being filled
    if (ahead > 0) {
      number = pops_.load(std::memory_order_relaxed);
    } else if (pops_.compare_exchange_weak(number, number + 1, std::memory_order_relaxed)) {
      take(slot, number, request);
      return true;
    }
  }
}

}  // namespace heddle::for_lcw
