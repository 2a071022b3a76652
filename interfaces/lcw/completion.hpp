// LCW's completion objects: a queue that any number of threads fill and poll, or a handler.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <lcw.hpp>
#include <memory>
#include <mutex>

namespace heddle::for_lcw {

class PollerBias {
 public:
  static constexpr std::uint64_t kOwnerships = 8;

  // Without membarrier there is never an owner.
  PollerBias();

  // The calling thread inside, if it is the owner.
  class Visit {
   public:
    explicit Visit(PollerBias* bias) : mark_(bias->enter()) {}
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    ~Visit() {
      if (mark_ != nullptr) mark_->store(0, std::memory_order_release);  // to the load in evict()
    }
    [[nodiscard]] bool inside() const { return mark_ != nullptr; }

   private:
    std::atomic<std::uint32_t>* const mark_;
  };

  // The calling thread becomes the owner; `hand_over` runs once nobody is inside, if there was one
  // before. False: there is no owner any more.
  template <typename HandOver>
  bool claim(HandOver hand_over) {
    if (owner_.load(std::memory_order_acquire) == kShared) return false;
    const std::lock_guard lock(mutex_);
    const std::uint64_t owner = owner_.load(std::memory_order_relaxed);
    if (owner == kShared) return false;
    if (owner != kNone) {
      evict(owner);
      hand_over();
    }
    const bool one_more = begun_ < kOwnerships;
    owner_.store(one_more ? me() | begun_++ : kShared, std::memory_order_release);
    return one_more;
  }

 private:
  // Values of owner_: these, or the owner's identity, an address of 64-byte alignment, and in its
  // low bits the number of the ownership.
  static constexpr std::uint64_t kNone = 1;
  static constexpr std::uint64_t kShared = 2;
  static constexpr std::uint64_t kNumber = 63;
  static_assert(kOwnerships <= kNumber + 1);

  struct alignas(64) Identity {
    char place;
  };
  static thread_local Identity t_identity [[gnu::tls_model("initial-exec")]];
  static std::uint64_t me() { return reinterpret_cast<std::uintptr_t>(&t_identity); }

  std::atomic<std::uint32_t>* enter() {
    const std::uint64_t owner = owner_.load(std::memory_order_relaxed);
    if ((owner & ~kNumber) != me()) return nullptr;
    std::atomic<std::uint32_t>* mark = &marks_[owner & kNumber];
    mark->store(1, std::memory_order_relaxed);
    // The processor's part of this fence is the membarrier in evict().
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (owner_.load(std::memory_order_relaxed) == owner) return mark;
    mark->store(0, std::memory_order_release);
    return nullptr;
  }
  void evict(std::uint64_t owner);

  alignas(64) std::atomic<std::uint64_t> owner_;
  std::array<std::atomic<std::uint32_t>, kOwnerships> marks_{};
  std::uint64_t begun_ = 0;  // under the lock
  std::mutex mutex_;
};

// The parts of completion queues.

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

// The object that LCW's comp_t points to. There are two kinds, told apart without a virtual call.
class CompletionObject {
 public:
  CompletionObject(const CompletionObject&) = delete;
  CompletionObject& operator=(const CompletionObject&) = delete;
  // Null for a queue.
  [[nodiscard]] ::lcw::handler_t handler() const { return handler_; }
  static CompletionObject* of(::lcw::comp_t comp) { return reinterpret_cast<CompletionObject*>(comp); }
  [[nodiscard]] ::lcw::comp_t comp() { return reinterpret_cast<::lcw::comp_t>(this); }

 protected:
  explicit CompletionObject(::lcw::handler_t function) : handler_(function) {}
  ~CompletionObject() = default;

 private:
  ::lcw::handler_t handler_;
};

class CompletionHandler final : public CompletionObject {
 public:
  explicit CompletionHandler(::lcw::handler_t function) : CompletionObject(function) {}
};

// Unbounded. While only one thread polls it, that thread's own completions go through a separate
// buffer, and those of other threads are taken out without a read-modify-write. A locked
// instruction would wait until the stores that made a message visible, or took one, have reached
// the other core.
class RequestQueue final : public CompletionObject {
 public:
  RequestQueue() : CompletionObject(nullptr) {}

  void push(const ::lcw::request_t& request) {
    if (const PollerBias::Visit visit(&bias_); visit.inside()) {
      if (own_.push(request)) return;
    }
    shared_.push(request);
  }
  // False: there is none.
  [[nodiscard]] bool pop(::lcw::request_t* request) {
    if (const PollerBias::Visit visit(&bias_); visit.inside()) {
      return own_.pop(request) || shared_.pop_alone(request);
    }
    return pop_as_another(request);
  }
  static RequestQueue* of(::lcw::comp_t comp) { return static_cast<RequestQueue*>(CompletionObject::of(comp)); }

 private:
  // For a thread that is not the owner: it becomes the owner, or from now on all threads share the
  // queue.
  bool pop_as_another(::lcw::request_t* request);

  PollerBias bias_;
  OwnBuffer own_;      // the owner's
  SharedRing shared_;  // any thread pushes; the owner pops, or any thread once there is no owner
};

}  // namespace heddle::for_lcw
