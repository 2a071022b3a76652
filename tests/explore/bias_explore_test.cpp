// src/queue: an owner that others take over from, until all share; the code itself, over the
// explorer's atomics, with its membarrier as barrier().
#include <gtest/gtest.h>

#include "expect.hpp"
#include "queue/handover.hpp"
#include "queue/locks.hpp"

namespace heddle::explore::bias_explore_test {
namespace {

enum class Bug { none, no_barrier };

template <Bug kBug>
struct ModelSystem {
  static constexpr std::uint32_t kSpins = 0;
  static constexpr std::uint32_t kUrgentLooks = 1;
  static void light() {}
  [[nodiscard]] static bool heavy() {
    if (kBug != Bug::no_barrier) barrier();
    return true;
  }
  static void relax() {}
  template <class Word>
  static void wait(Word* word, std::uint32_t expected, std::uint32_t, std::uint32_t) {
    while (word->load(std::memory_order_relaxed) == expected) pause();
  }
  template <class Word>
  static void wake(Word*) {}
};

struct Shape {
  std::uint32_t users;
  std::uint32_t rounds;   // of each
  std::uint32_t helpers;  // one look each
  std::uint32_t owners = 2;
  bool urgent = true;
  std::uint32_t shares = 9;  // a thread that takes over in this round of its own shares it
};

// As AutoGate: a thread tries as its owner, else takes over, else by the lock.
template <template <class> class A, Bug kBug, Shape kShape>
struct BiasModel final : Model {
  using Bias = queue::Bias<A, ModelSystem<kBug>, kShape.owners>;
  Bias bias{true};
  queue::TryLock<A> lock;
  Plain<std::uint32_t> guarded;
  std::array<std::uint32_t, kMostThreads> done{};
  std::array<char, kMostThreads> marks{};

  BiasModel() {
    guarded.name("guarded");
    check(bias.take_over(&marks[0], false, 1, true), "nobody is there");
  }
  [[nodiscard]] std::uint32_t threads() const override { return kShape.users + kShape.helpers; }
  void use(std::uint32_t thread) {
    guarded.store(guarded.load() + 1);
    ++done[thread];
  }
  bool by_own(std::uint32_t thread) {
    typename Bias::Place* const place = bias.enter(&marks[thread]);
    if (place == nullptr) return false;
    use(thread);
    Bias::leave(place);
    return true;
  }
  bool by_lock(std::uint32_t thread) {
    if (!lock.try_lock()) return false;
    use(thread);
    lock.unlock();
    return true;
  }
  void help(std::uint32_t thread) {
    if (bias.shared()) {
      static_cast<void>(by_lock(thread));
    } else if (typename Bias::Place* const place = bias.claim(thread + 1, false); place != nullptr) {
      use(thread);
      Bias::give_back(place);
    }
  }
  void run(std::uint32_t thread) override {
    if (thread >= kShape.users) return help(thread);
    for (std::uint32_t i = 0; i < kShape.rounds; ++i) {
      step();
      if (by_own(thread)) continue;
      if (!bias.take_over(&marks[thread], i >= kShape.shares, thread + 1, kShape.urgent) || by_own(thread)) continue;
      if (bias.shared()) static_cast<void>(by_lock(thread));
    }
  }
  void finish() override {
    std::uint32_t all = 0;
    for (const std::uint32_t count : done) all += count;
    check(guarded.load() == all, "nothing is lost");
    check(!bias.looks_inside(), "everybody has left");
  }
};

// Planted: a thread that enters sees on its second look the value of the first.
template <class T>
class OldCurrent : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  T load(std::memory_order order) const {
    T& seen = seen_[Engine::current().running() % kMostThreads];
    if (!std::is_pointer_v<T> || order != std::memory_order_relaxed) seen = Atomic<T>::load(order);
    return seen;
  }

 private:
  mutable std::array<T, kMostThreads> seen_{};
};

constexpr Options kBounded{.weak = true, .preemptions = 1};
constexpr Options kFewer{.weak = false, .preemptions = 2};
constexpr Options kFew{.weak = false, .preemptions = 3};

TEST(Bias, OneIsInsideInAllSchedules) {
  expect_holds<BiasModel<Atomic, Bug::none, Shape{2, 1, 0, 2, false}>>("bias, not urgent", kOrdered);
  expect_holds<BiasModel<Atomic, Bug::none, Shape{2, 1, 0, 1}>>("bias, two threads, then shared", kOrdered);
  expect_holds<BiasModel<Atomic, Bug::none, Shape{2, 1, 0}>>("bias, two threads once", kOrdered);
  expect_holds<BiasModel<Atomic, Bug::none, Shape{2, 2, 0}>>("bias, two threads twice", kFew);
  expect_holds<BiasModel<Atomic, Bug::none, Shape{3, 1, 0}>>("bias, three threads", kFew);
  expect_holds<BiasModel<Atomic, Bug::none, Shape{2, 3, 0}>>("bias, two threads to and fro", kFew);
  expect_holds<BiasModel<Atomic, Bug::none, Shape{2, 2, 0, 2, true, 1}>>("bias, to and fro, then shared", kFew);
  expect_holds<BiasModel<Atomic, Bug::none, Shape{2, 1, 1}>>("bias, two threads and a helper", kFew);
  expect_holds<BiasModel<Atomic, Bug::none, Shape{2, 2, 1}>>("bias, to and fro and a helper", kFewer);
  expect_holds<BiasModel<Atomic, Bug::none, Shape{2, 1, 1, 1}>>("bias, a helper, then shared", kFew);
}

TEST(Bias, PlantedBugsAreFound) {
  expect_finds<BiasModel<Atomic, Bug::no_barrier, Shape{2, 2, 0}>>("no membarrier", kBounded, "race");
  expect_finds<BiasModel<RelaxedStores, Bug::none, Shape{2, 2, 0}>>("leaving without release", kBounded, "race");
  expect_finds<BiasModel<RelaxedLoads, Bug::none, Shape{2, 2, 0}>>("looking without acquire", kBounded, "race");
  expect_finds<BiasModel<OldCurrent, Bug::none, Shape{2, 2, 0}>>("no second look", kFew, "race");
}

}  // namespace
}  // namespace heddle::explore::bias_explore_test
