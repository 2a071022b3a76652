// src/queue: the asymmetric hand-over; the code itself, over the explorer's atomics, with its
// membarrier as barrier().
#include <gtest/gtest.h>

#include "expect.hpp"
#include "queue/handover.hpp"

namespace heddle::explore::handover_explore_test {
namespace {

enum class Bug { none, no_barrier };

// A futex that never wakes by itself: a lost wake-up is a thread that waits for ever.
template <Bug kBug>
struct ModelSystem {
  static constexpr std::uint32_t kSpins = 0;
  static constexpr std::uint32_t kUrgentLooks = 2;
  static void light() {}
  [[nodiscard]] static bool heavy() {
    if (kBug != Bug::no_barrier) barrier();
    return true;
  }
  static void relax() {}
  template <class Word>
  static void wait(Word* word, std::uint32_t expected, std::uint32_t helper, std::uint32_t) {
    check(helper >= 1 && helper <= 3, "it waits for a helper");
    while (word->load(std::memory_order_relaxed) == expected) pause();
  }
  template <class Word>
  static void fetch(Word* word, std::uint32_t expected, std::uint32_t helper, std::int64_t) {
    wait(word, expected, helper, 0);
  }
  template <class Word>
  static void wake(Word*) {}  // the exchange before it lets pause() go on
};

// Planted: the owner sets its bit without making sure that the claim is still there.
template <class T>
class LostBit : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  bool compare_exchange_strong(T& expected, T desired, std::memory_order order, std::memory_order failure) {
    if ((desired & (T{1} << 31)) != 0) {  // the owner's: made of a load and a store
      if (this->load(std::memory_order_acquire) != expected) return false;
      this->store(desired, order);
      return true;
    }
    return Atomic<T>::compare_exchange_strong(expected, desired, order, failure);
  }
};
template <class T>
class RelaxedUpdates : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  T exchange(T value, std::memory_order) { return Atomic<T>::exchange(value, std::memory_order_relaxed); }
};

struct Shape {
  std::uint32_t entries;  // of the owner
  std::uint32_t helpers;
  std::uint32_t claims;  // tries of each helper
};

template <template <class> class A, Bug kBug, Shape kShape>
struct HandoverModel final : Model {
  queue::Handover<A, ModelSystem<kBug>> handover;
  Plain<std::uint32_t> guarded;
  std::array<std::uint32_t, kMostThreads> done{};

  HandoverModel() { guarded.name("guarded"); }
  [[nodiscard]] std::uint32_t threads() const override { return 1 + kShape.helpers; }
  void use(std::uint32_t thread) {
    guarded.store(guarded.load() + 1);
    ++done[thread];
  }
  void run(std::uint32_t thread) override {
    if (thread == 0) {
      for (std::uint32_t i = 0; i < kShape.entries; ++i) {
        step();  // outside: a buffered store is no place where the schedule may change
        handover.enter();
        use(thread);
        handover.leave();
      }
      return;
    }
    for (std::uint32_t i = 0; i < kShape.claims; ++i) {
      if (!handover.try_claim(thread)) continue;
      check(handover.held_by(thread), "it has the claim");
      use(thread);
      handover.release();
    }
  }
  void finish() override {
    std::uint32_t all = 0;
    for (const std::uint32_t count : done) all += count;
    check(guarded.load() == all && done[0] == kShape.entries, "nothing is lost");
    check(!handover.looks_claimed() && !handover.looks_inside(), "everybody has left");
  }
};

// Whether the owner's try_enter() excludes helpers as enter() does, and await_helper() after it
// ends.
template <template <class> class A>
struct TryEnterModel final : Model {
  queue::Handover<A, ModelSystem<Bug::none>> handover;
  Plain<std::uint32_t> guarded;
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override {
    if (thread == 0) {
      for (int i = 0; i < 2; ++i) {
        step();
        if (!handover.try_enter()) {
          handover.await_helper(1);
          continue;
        }
        guarded.store(1);
        handover.leave();
      }
    } else if (handover.try_claim(thread)) {
      guarded.store(2);
      handover.release();
    }
  }
  void finish() override { check(!handover.looks_claimed() && !handover.looks_inside(), "everybody has left"); }
};

// Its urgent helper looks for as long as it takes: if the owner did not step back, both would wait
// for ever.
struct PatientSystem : ModelSystem<Bug::none> {
  static constexpr std::uint32_t kUrgentLooks = ~std::uint32_t{0};
  static void relax() { pause(); }
};

// Thread 1 claims urgently, against an owner that comes and goes; a second helper, which is not
// urgent, may overtake either.
template <template <class> class A, class System, Shape kShape>
struct UrgentModel final : Model {
  queue::Handover<A, System> handover;
  Plain<std::uint32_t> guarded;
  std::array<std::uint32_t, kMostThreads> done{};

  UrgentModel() { guarded.name("guarded"); }
  [[nodiscard]] std::uint32_t threads() const override { return 1 + kShape.helpers; }
  void use(std::uint32_t thread) {
    guarded.store(guarded.load() + 1);
    ++done[thread];
  }
  void run(std::uint32_t thread) override {
    for (std::uint32_t i = 0; thread == 0 && i < kShape.entries; ++i) {
      step();
      handover.enter();
      use(thread);
      handover.leave();
    }
    for (std::uint32_t i = 0; thread != 0 && i < kShape.claims; ++i) {
      if (!(thread == 1 ? handover.try_claim_urgently(thread) : handover.try_claim(thread))) continue;
      check(handover.held_by(thread), "it has the claim");
      use(thread);
      handover.release();
    }
  }
  void finish() override {
    std::uint32_t all = 0;
    for (const std::uint32_t count : done) all += count;
    check(guarded.load() == all && done[0] == kShape.entries, "nothing is lost");
    check(System::kUrgentLooks < 3 || kShape.helpers > 1 || done[1] == kShape.claims, "it is let in");
    check(!handover.looks_claimed() && !handover.looks_inside(), "everybody has left");
  }
};

constexpr Shape kTwice{2, 1, 2};
constexpr Shape kOnce{1, 1, 1};
constexpr Shape kTwoHelpers{1, 2, 1};
constexpr Options kBounded{.weak = true, .preemptions = 3};

TEST(Handover, HoldsInAllSchedules) {
  expect_holds<HandoverModel<Atomic, Bug::none, kOnce>>("hand-over, once each", kOrdered);
  expect_holds<HandoverModel<Atomic, Bug::none, kTwice>>("hand-over, twice each", kOrdered);
  expect_holds<HandoverModel<Atomic, Bug::none, kOnce>>("hand-over, by data", kByData);
  expect_holds<TryEnterModel<Atomic>>("hand-over, try_enter", kOrdered);
}

TEST(Handover, HoldsWithTwoHelpers) {
  expect_holds<HandoverModel<Atomic, Bug::none, kTwoHelpers>>("hand-over, two helpers", kOrdered);
  expect_holds<HandoverModel<Atomic, Bug::none, Shape{2, 2, 1}>>("hand-over, two helpers, owner twice", kBounded);
}

TEST(Handover, AnUrgentHelperIsAloneAndIsLetIn) {
  using Good = ModelSystem<Bug::none>;
  expect_holds<UrgentModel<Atomic, PatientSystem, kTwice>>("urgent hand-over, twice each", kBounded);
  expect_holds<UrgentModel<Atomic, Good, kTwice>>("urgent hand-over, twice each, few looks", kBounded);
  expect_holds<UrgentModel<Atomic, Good, kTwoHelpers>>("urgent hand-over, another helper", kBounded);
  expect_finds<UrgentModel<Atomic, ModelSystem<Bug::no_barrier>, kOnce>>("urgent, no membarrier", kOrdered, "race");
  expect_finds<UrgentModel<RelaxedStores, Good, kTwice>>("urgent, leaving without release", kOrdered, "race");
  expect_finds<UrgentModel<RelaxedLoads, Good, kTwice>>("urgent, looking without acquire", kOrdered, "race");
}

TEST(Handover, PlantedBugsAreFound) {
  expect_finds<HandoverModel<Atomic, Bug::no_barrier, kOnce>>("no membarrier", kOrdered, "race");
  expect_finds<HandoverModel<RelaxedStores, Bug::none, kTwice>>("leaving without release", kOrdered, "race");
  expect_finds<HandoverModel<RelaxedLoads, Bug::none, kTwice>>("looking without acquire", kOrdered, "race");
  expect_finds<HandoverModel<RelaxedUpdates, Bug::none, kOnce>>("giving back without release", kOrdered, "race");
  expect_finds<HandoverModel<LostBit, Bug::none, kOnce>>("the waiting bit set on a claim given back", kOrdered,
                                                         "waits for ever");
  expect_finds<TryEnterModel<LostBit>>("await_helper, the same", kOrdered, "waits for ever");
}

}  // namespace
}  // namespace heddle::explore::handover_explore_test
