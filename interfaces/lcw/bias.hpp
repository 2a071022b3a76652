// Lets one thread, the owner, use something without read-modify-writes until another thread comes.
//The owner marks with plain stores that it is inside. Another thread takes the ownership away,
//executes a barrier in all threads of the process (membarrier), and waits until the owner is
//outside. After the barrier, either the owner has seen that it is no longer the owner, or the other
//thread has seen the mark. Each ownership has its own mark, so marks that a former owner still
//writes have no effect. After kOwnerships ownerships there is never an owner again.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace heddle::for_lcw {

class Bias {
 public:
  static constexpr std::uint64_t kOwnerships = 8;

  // Without membarrier there is never an owner.
  Bias();

  // The calling thread inside, if it is the owner.
  class Visit {
   public:
    explicit Visit(Bias* bias) : mark_(bias->enter()) {}
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

}  // namespace heddle::for_lcw
