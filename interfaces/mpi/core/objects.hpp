// The memory of objects: of those behind handles (Pool), and of those that each thread has
// (PerThread).
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace heddle::mpi {

// The memory of the objects behind handles. A handle is the address of its object. A pool reserves
// addresses for all the objects that it may ever hold, and never gives them back. So any value that
// a program passes as a handle can be checked without a fault: it lies inside the pool's addresses
// and names an object that is alive, or it is invalid. An object's place in the pool is its number
// as an integer handle.
//
// Threads: take() and give_back() lock; find() does not: the program does not free a handle while
// another thread uses it.
template <class T, std::uint32_t kMost>
class ObjectPool {
 public:
  constexpr ObjectPool() = default;
  ObjectPool(const ObjectPool&) = delete;
  ObjectPool& operator=(const ObjectPool&) = delete;

  // A new object; null: no memory, or kMost are alive.
  template <class... Arguments>
  T* take(Arguments&&... arguments) {
    const std::scoped_lock lock(mutex_);
    Slot* const slot = free_ != nullptr ? std::exchange(free_, free_->next) : fresh();
    if (slot == nullptr) return nullptr;
    T* const object = ::new (static_cast<void*>(slot->bytes)) T(std::forward<Arguments>(arguments)...);
    slot->live.store(1, std::memory_order_release);
    return object;
  }
  void give_back(T* object) {
    Slot* const slot = slot_of(object);
    {
      const std::scoped_lock lock(mutex_);  // nobody visits it any more: each()
      slot->live.store(0, std::memory_order_release);
    }
    object->~T();
    const std::scoped_lock lock(mutex_);
    slot->next = free_;
    free_ = slot;
  }

  // The object of a handle; null: it is none of this pool.
  template <class Handle>
  [[nodiscard]] T* find(Handle handle) const {
    const auto address = reinterpret_cast<std::uintptr_t>(handle);
    const std::uintptr_t offset = address - reinterpret_cast<std::uintptr_t>(base_);
    if (offset >= used_.load(std::memory_order_acquire) * sizeof(Slot) || offset % sizeof(Slot) != 0) return nullptr;
    Slot* const slot = base_ + offset / sizeof(Slot);
    return slot->live.load(std::memory_order_acquire) != 0 ? object_of(slot) : nullptr;
  }
  // Its number, from 0.
  [[nodiscard]] std::uint32_t number(const T* object) const {
    return static_cast<std::uint32_t>(reinterpret_cast<const Slot*>(object) - base_);
  }
  // The object of a number; null: there is none.
  [[nodiscard]] T* at(std::uint32_t number) const {
    return number < used_.load(std::memory_order_acquire) ? find(base_ + number) : nullptr;
  }
  // Calls visit(object) for all that are alive, while none is taken or given back.
  template <class Visit>
  void each(Visit&& visit) {
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = 0; i < used_.load(std::memory_order_relaxed); ++i)
      if (base_[i].live.load(std::memory_order_acquire) != 0) visit(*object_of(base_ + i));
  }

 private:
  // Its size is a power of two: find() divides by it.
  struct alignas(std::bit_ceil(sizeof(T) + 2 * sizeof(void*))) Slot {
    alignas(T) std::byte bytes[sizeof(T)];  // first: the object's address is the slot's
    std::atomic<std::uint32_t> live;        // release when the object is there, acquire in find()
    Slot* next;
  };
  static constexpr std::size_t kStep = std::size_t{1} << 18;  // bytes made accessible at a time
  static_assert(alignof(Slot) <= 4096, "a mapping begins with a page");

  static T* object_of(Slot* slot) { return std::launder(reinterpret_cast<T*>(slot->bytes)); }
  static Slot* slot_of(T* object) { return reinterpret_cast<Slot*>(object); }

  Slot* fresh() {
    constexpr std::size_t kBytes = (sizeof(Slot) * kMost + kStep - 1) / kStep * kStep;
    if (base_ == nullptr) {
      void* const made = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (made == MAP_FAILED) return nullptr;
      base_ = static_cast<Slot*>(made);
    }
    const std::size_t used = used_.load(std::memory_order_relaxed);
    if (used == kMost) return nullptr;
    if ((used + 1) * sizeof(Slot) > accessible_) {
      if (::mprotect(reinterpret_cast<std::byte*>(base_) + accessible_, kStep, PROT_READ | PROT_WRITE) != 0)
        return nullptr;
      accessible_ += kStep;
    }
    used_.store(used + 1, std::memory_order_release);
    return base_ + used;
  }

  std::mutex mutex_;  // guards what follows
  Slot* free_ = nullptr;
  std::size_t accessible_ = 0;
  Slot* base_ = nullptr;  // written once, before the first handle is known to anybody
  // Number of slots that were ever used. Release by fresh(), acquire in find().
  std::atomic<std::size_t> used_{0};
};

// An object of each thread, made on the heap when it is first asked for. The library's thread-local
// segment must stay small: one initial-exec variable makes all of it static, and dlopen() finds
// about 1.6 KiB for all libraries of a program that were not linked with it (Python's modules).

// One object of type T a thread; all members are static.
template <class T>
class PerThread {
 public:
  // Null: this thread has none yet.
  static T* find() { return t_object; }
  // Null: no memory, or the thread has ended and only runs destructors.
  static T* get() {
    if (t_object == nullptr && !t_gone) {
      t_object = new (std::nothrow) T;
      t_owner.begin();
    }
    return t_object;
  }

 private:
  struct Owner {
    ~Owner() {
      delete t_object;
      t_object = nullptr;
      t_gone = true;
    }
    void begin() {}  // so that it is there
  };

  static constinit inline thread_local T* t_object = nullptr;
  static constinit inline thread_local bool t_gone = false;
  static inline thread_local Owner t_owner;
};

}  // namespace heddle::mpi
