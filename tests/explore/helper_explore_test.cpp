// src/queue: the helpers' claim, beside a lock that is tried, as worker/gate.cpp puts them
// together; the code itself.
#include <gtest/gtest.h>

#include <array>

#include "expect.hpp"
#include "queue/locks.hpp"

namespace heddle::explore::helper_explore_test {
namespace {

enum class Bug { none, claims_late, no_wake };

// Only release() wakes a sleeping thread, as the kernel does: `wakes` is its own. A helper that was
// put aside runs on only when it is brought: it waits for `moves`.
struct ClaimSystem {
  static inline Atomic<std::uint32_t>* wakes = nullptr;
  static inline Atomic<std::uint32_t>* moves = nullptr;
  template <class Word>
  static void fetch(Word* word, std::uint32_t expected, std::uint32_t helper, std::int64_t) {
    check(helper >= 1 && helper <= kMostThreads, "it is a helper that is fetched");
    moves->fetch_add(1);
    const std::uint32_t before = wakes->load();
    if (word->load(std::memory_order_seq_cst) != expected) return;
    while (wakes->load() == before) pause();
  }
  template <class Word>
  static void wake(Word*) {
    wakes->fetch_add(1);
  }
};
struct DeafSystem : ClaimSystem {
  template <class Word>
  static void wake(Word*) {}
};

// Threads 1 … are helpers, each put aside once inside; thread 0 wants to be inside once, and waits
// for nobody but a helper.
template <std::uint32_t kHelpers, Bug kBug = Bug::none>
struct ClaimModel final : Model {
  using System = std::conditional_t<kBug == Bug::no_wake, DeafSystem, ClaimSystem>;
  Atomic<std::uint32_t> wakes{0};
  Atomic<std::uint32_t> moves{0};
  queue::HelperClaim<Atomic, System> claim;
  queue::TryLock<Atomic> lock;
  Plain<std::uint32_t> guarded;
  std::array<std::uint32_t, kMostThreads> done{};

  ClaimModel() {
    ClaimSystem::wakes = &wakes;
    ClaimSystem::moves = &moves;
    guarded.name("guarded");
  }
  [[nodiscard]] std::uint32_t threads() const override { return 1 + kHelpers; }
  void use(std::uint32_t thread) {
    guarded.store(guarded.load() + 1);
    ++done[thread];
  }
  void run(std::uint32_t thread) override {
    if (thread == 0) {
      while (!lock.try_lock()) {
        // Nobody is known: look again when something has changed.
        if (!claim.fetch(-1)) pause();
      }
      use(thread);
      lock.unlock();
      moves.fetch_add(1);  // no thread wants its core any more: all go on
      return;
    }
    if (kBug == Bug::claims_late) {
      if (!lock.try_lock()) return;
      while (moves.load() == 0) pause();  // put aside here, and nobody knows whom to fetch
      check(claim.try_claim(thread), "one at a time");
    } else {
      if (!claim.try_claim(thread)) return;
      if (!lock.try_lock()) return claim.release();
      while (moves.load() == 0) pause();
    }
    use(thread);
    lock.unlock();
    claim.release();
  }
  void finish() override {
    std::uint32_t all = 0;
    for (const std::uint32_t count : done) all += count;
    check(guarded.load() == all && done[0] == 1, "nothing is lost");
    check(!claim.claimed(), "everybody has left");
  }
};

// The mutex alone, without helpers: only unlock() wakes a sleeping thread.
struct MutexSystem {
  static constexpr std::uint32_t kStays = 1U << 30;
  static inline Atomic<std::uint32_t>* wakes = nullptr;
  template <class Word>
  static void wait(Word* word, std::uint32_t expected, std::uint32_t, std::uint32_t) {
    const std::uint32_t before = wakes->load();
    if (word->load(std::memory_order_seq_cst) != expected) return;
    while (wakes->load() == before) pause();
  }
  template <class Word>
  static void wake(Word*) {
    wakes->fetch_add(1);
  }
  template <class Word>
  static void fetch(Word*, std::uint32_t, std::uint32_t, std::int64_t) {
    check(false, "there is no helper");
  }
};
// Planted: a thread that unlocks the mutex does not see that another one waits.
template <class T>
class Careless : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  T exchange(T value, std::memory_order order) {
    const T old = Atomic<T>::exchange(value, order);
    return value == 0 && old == 2 ? 1 : old;
  }
};
template <class T>
class NoAcquire : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  T exchange(T value, std::memory_order order) {
    return Atomic<T>::exchange(value, order == std::memory_order_acquire ? std::memory_order_relaxed : order);
  }
};
template <std::uint32_t kThreads, template <class> class A = Atomic>
struct MutexModel final : Model {
  Atomic<std::uint32_t> wakes{0};
  queue::BasicFetchingMutex<A, MutexSystem> mutex;
  Plain<std::uint32_t> guarded;

  MutexModel() {
    MutexSystem::wakes = &wakes;
    guarded.name("guarded");
  }
  [[nodiscard]] std::uint32_t threads() const override { return kThreads; }
  void run(std::uint32_t) override {
    mutex.lock();
    guarded.store(guarded.load() + 1);
    mutex.unlock();
  }
  void finish() override { check(guarded.load() == kThreads, "nothing is lost"); }
};

constexpr Options kBounded{.weak = false, .preemptions = 3};

TEST(HelperClaim, HoldsInAllSchedules) {
  expect_holds<ClaimModel<1>>("helper's claim, 1 helper", kOrdered);
  expect_holds<ClaimModel<2>>("helper's claim, 2 helpers", kBounded);
}

TEST(HelperClaim, PlantedBugsAreFound) {
  expect_finds<ClaimModel<1, Bug::claims_late>>("claims only when it has the lock", kOrdered, "waits for ever");
  expect_finds<ClaimModel<1, Bug::no_wake>>("leaves without waking", kOrdered, "waits for ever");
}

TEST(FetchingMutex, HoldsInAllSchedules) {
  expect_holds<MutexModel<2>>("fetching mutex, 2 threads", kOrdered);
  expect_holds<MutexModel<3>>("fetching mutex, 3 threads", kBounded);
}

TEST(FetchingMutex, PlantedBugsAreFound) {
  expect_finds<MutexModel<2, Careless>>("gives it back without waking", kOrdered, "waits for ever");
  expect_finds<MutexModel<2, NoAcquire>>("takes it without acquire", kOrdered, "race");
}

}  // namespace
}  // namespace heddle::explore::helper_explore_test
