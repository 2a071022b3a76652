// The schedule explorer: runs all interleavings of a few threads over Atomic and Plain, and reports
// the first that fails.
//
//   struct Handover final : explore::Model {
//     explore::Plain<int> data;
//     explore::Atomic<bool> ready;
//     std::uint32_t threads() const override { return 2; }
//     void run(std::uint32_t thread) override {
//       if (thread == 0) {
//         data.store(7);
//         ready.store(true, std::memory_order_release);
//       } else {
//         while (!ready.load(std::memory_order_acquire)) explore::pause();
//         explore::check(data.load() == 7, "the data is there");
//       }
//     }
//   };
//   const explore::Outcome outcome = explore::explore<Handover>({});
//
// Contract for models: threads share nothing but Atomic, Plain and Memory (what else there is
// belongs to one thread, or is written by threads and read in finish()); every loop that waits
// calls pause() and then looks at an Atomic before anything else; nothing depends on time,
// addresses or chance.
//
// Covered: all interleavings, stores that become visible late and out of order (Options::weak),
// missing release and acquire as data races (Options::races), waiting for ever. Not covered: loads
// of two atomics that are reordered with each other, compare_exchange_weak failing for no reason,
// fences.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "engine.hpp"

namespace heddle::explore {

// A std::atomic each operation of which is a place where the schedule may change.
template <class T>
class Atomic {
 public:
  Atomic(T value = T{}) : location_(Engine::current().add_location(encode(value), false)) {}  // NOLINT: as std::atomic
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  void name(const char* text) { Engine::current().name(location_, text); }

  T load(std::memory_order order = std::memory_order_seq_cst) const {
    return decode(Engine::current().load(location_, order));
  }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) {
    Engine::current().store(location_, encode(value), order);
  }
  T exchange(T value, std::memory_order order = std::memory_order_seq_cst) {
    return update(order, [&](T) { return value; });
  }
  T fetch_add(T value, std::memory_order order = std::memory_order_seq_cst) {
    return update(order, [&](T old) { return static_cast<T>(old + value); });
  }
  T fetch_sub(T value, std::memory_order order = std::memory_order_seq_cst) {
    return update(order, [&](T old) { return static_cast<T>(old - value); });
  }
  T fetch_or(T value, std::memory_order order = std::memory_order_seq_cst) {
    return update(order, [&](T old) { return static_cast<T>(old | value); });
  }
  T fetch_and(T value, std::memory_order order = std::memory_order_seq_cst) {
    return update(order, [&](T old) { return static_cast<T>(old & value); });
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order order, std::memory_order failure) {
    bool same = false;
    const std::uint64_t old =
        Engine::current().update(location_, order, failure, [&](std::uint64_t found, std::uint64_t* value) {
          same = found == encode(expected);
          if (same) *value = encode(desired);
          return same;
        });
    expected = decode(old);
    return same;
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst) {
    return compare_exchange_strong(expected, desired, order, on_failure(order));
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst) {
    return compare_exchange_strong(expected, desired, order, on_failure(order));
  }

  static std::uint64_t encode(T value) {
    std::uint64_t word = 0;
    std::memcpy(&word, &value, sizeof value);
    return word;
  }
  static T decode(std::uint64_t word) {
    T value;
    std::memcpy(&value, &word, sizeof value);
    return value;
  }

 private:
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);

  static constexpr std::memory_order on_failure(std::memory_order order) {
    if (order == std::memory_order_acq_rel) return std::memory_order_acquire;
    return order == std::memory_order_release ? std::memory_order_relaxed : order;
  }
  template <class Change>
  T update(std::memory_order order, Change change) {
    return decode(Engine::current().update(location_, order, order, [&](std::uint64_t old, std::uint64_t* value) {
      *value = encode(change(decode(old)));
      return true;
    }));
  }

  std::uint32_t location_;
};

// Shared data that is not atomic: the data that the atomics protect.
template <class T>
class Plain {
 public:
  Plain(T value = T{})  // NOLINT: as T
      : location_(Engine::current().add_location(Atomic<T>::encode(value), true)) {}
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;

  void name(const char* text) { Engine::current().name(location_, text); }
  T load() const { return Atomic<T>::decode(Engine::current().plain_load(location_)); }
  void store(T value) { Engine::current().plain_store(location_, Atomic<T>::encode(value)); }

 private:
  std::uint32_t location_;
};

// Planted bugs, for a template that takes its atomics as a parameter: every store, or every load,
// has lost its order.
template <class T>
class RelaxedStores : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  void store(T value, std::memory_order) { Atomic<T>::store(value, std::memory_order_relaxed); }
};
template <class T>
class RelaxedLoads : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  T load(std::memory_order) const { return Atomic<T>::load(std::memory_order_relaxed); }
};
// A compare-and-swap that is none.
template <class T>
class TornSwap : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  bool compare_exchange_weak(T& expected, T desired, std::memory_order order) {
    const T found = this->load(std::memory_order_relaxed);
    if (Atomic<T>::encode(found) != Atomic<T>::encode(expected)) {
      expected = found;
      return false;
    }
    this->store(desired, order);
    return true;
  }
};

// In a loop that waits: goes on when another thread's store to an Atomic has become visible since
// the last look.
inline void pause() {
  Engine::current().pause();
}
// Anything may happen here.
inline void step() {
  Engine::current().step();
}
// membarrier: every thread passes a full fence. Like the real one it is no release and no acquire.
inline void barrier() {
  Engine::current().barrier();
}
// Ends the execution as failed, with its schedule, unless `good`.
inline void check(bool good, const char* what) {
  if (!good) Engine::current().fail(std::string("not so: ") + what);
}

template <class M>
Outcome explore(const Options& options) {
  return Engine::explore(options, []() -> std::unique_ptr<Model> { return std::make_unique<M>(); });
}

}  // namespace heddle::explore
