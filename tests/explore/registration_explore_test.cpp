// src/memory: memory is unmapped while a cache looks up its registration; the log itself, with a
// simulated kernel.
#include <gtest/gtest.h>

#include <cstdint>

#include "expect.hpp"
#include "memory/unmap_watch.hpp"

namespace heddle::explore::registration_explore_test {
namespace {

using memory::Gone;

// Planted: the generation is not made odd before the unmapping thread goes on; only a later event
// count tells.
template <class Log>
struct LateLog : Log {
  static constexpr bool kAnnounced = false;
};
template <class Log>
struct AnnouncedLog : Log {
  static constexpr bool kAnnounced = true;
};

// Three threads: the program unmaps memory and maps something else at the same address, which is
// then used by the thread that owns the cache; the watch plays the kernel's event. `pages`: the
// pages at the address: 1 the old, 2 the new.
template <class Log>
struct LookupModel final : Model {
  LookupModel() { log.open(); }
  Log log;
  Atomic<std::uint32_t> event{0};  // 0: none; 1: waits to be read, and holds the program; 2: read
  Atomic<std::uint32_t> pages{1};

  [[nodiscard]] std::uint32_t threads() const override { return 3; }
  void run(std::uint32_t self) override {
    if (self == 0) return program();
    if (self == 1) return watch();
    cache();
  }
  // munmap() and mmap()
  void program() {
    event.store(1, std::memory_order_release);
    while (event.load(std::memory_order_acquire) != 2) pause();
    pages.store(2, std::memory_order_release);
  }
  void watch() {
    while (event.load(std::memory_order_acquire) != 1) pause();
    if constexpr (Log::kAnnounced) log.begin();
    event.store(2, std::memory_order_release);  // read()
    if constexpr (!Log::kAnnounced) log.begin();
    log.add({100, 101});
    log.end();
  }
  // Its kept registration, from before the other threads began, is of page 1.
  void cache() {
    const std::uint64_t seen = 2;
    // the program hands the address over
    const std::uint32_t now = pages.load(std::memory_order_acquire);
    std::uint64_t generation = log.generation();
    if (generation == seen) {
      check(now == 1, "what is used has not gone");
      return;
    }
    while (!Log::stable(generation)) {
      pause();
      generation = log.generation();
    }
    for (std::uint64_t n = Log::event_of(seen); n != Log::event_of(generation); ++n) {
      Gone gone{};
      const auto read = log.read(n, &gone);
      check(read == Log::Read::event && gone.begin == 100 && gone.end == 101, "the event is read as it was written");
    }
    check(now == 1 || generation != seen, "who has the new address learns that the old has gone");
  }
};

// A reader that is slow: the log has room for two events, the writer writes four. Event n is [10 n,
// 10 n + 1).
template <class Log>
struct OverrunModel final : Model {
  OverrunModel() { log.open(); }
  Log log;
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t self) override {
    if (self == 0) {
      for (std::uint64_t n = 0; n < 4; ++n) {
        log.begin();
        log.add({10 * n, 10 * n + 1});
        log.end();
      }
      return;
    }
    const std::uint64_t generation = log.generation();
    const std::uint64_t end = Log::event_of(generation - generation % 2);
    for (std::uint64_t n = 0; n != end; ++n) {
      Gone gone{};
      if (log.read(n, &gone) == Log::Read::lost) return;  // it takes it that everything has gone
      check(gone.begin == 10 * n && gone.end == 10 * n + 1, "an event that is read is whole, and the right one");
    }
  }
};

// Planted: a second look, the only relaxed one, that says again what the first has said.
template <class T>
class Hasty : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  T load(std::memory_order order) const {
    if (order != std::memory_order_relaxed) seen_ = Atomic<T>::load(order);
    return seen_;
  }

 private:
  mutable T seen_{};  // by the reader
};

template <template <class> class A>
using SmallLog = memory::InvalidationLog<A, 2, 1>;

TEST(InvalidationLog, NobodyUsesWhatHasGone) {
  expect_holds<LookupModel<AnnouncedLog<SmallLog<Atomic>>>>("memory goes during a look-up", kOrdered);
}

TEST(InvalidationLog, WhoIsOverrunKnows) {
  expect_holds<OverrunModel<SmallLog<Atomic>>>("a log that laps its reader", kOrdered);
}

TEST(InvalidationLog, PlantedBugsAreFound) {
  expect_finds<LookupModel<LateLog<SmallLog<Atomic>>>>("announced after the event was read", kOrdered, "has not gone");
  expect_finds<LookupModel<AnnouncedLog<SmallLog<RelaxedStores>>>>("relaxed stores", kOrdered,
                                                                   "read as it was written");
  expect_finds<OverrunModel<SmallLog<RelaxedStores>>>("relaxed stores, lapped", kOrdered, "the right one");
  expect_finds<OverrunModel<SmallLog<Hasty>>>("no second look", kOrdered, "the right one");
}

}  // namespace
}  // namespace heddle::explore::registration_explore_test
