// src/engine: the notifier of a worker's descriptor; the code itself, with the explorer's
// barrier().
#include <gtest/gtest.h>

#include <array>

#include "engine/core.hpp"
#include "expect.hpp"

namespace heddle::explore::notifier_explore_test {
namespace {

enum class Bug { none, no_barrier, looks_before_arming };

// One thread moves a worker and another one waits for that, as Descriptor::arm() and its program
// do. Two threads may move it: each has a count of its own.
template <Bug kBug, std::uint32_t kMovers, std::uint32_t kMoves>
struct NotifierModel final : Model {
  struct Word {
    Atomic<std::uint32_t>* told = nullptr;
    void tell() const { told->fetch_add(1); }
  };
  Atomic<std::uint32_t> told;
  engine::Notifier<Atomic, Word> notifier;
  std::array<Atomic<std::uint32_t>, kMovers> moves;

  NotifierModel() { notifier.open({&told}); }
  [[nodiscard]] std::uint32_t threads() const override { return kMovers + 1; }
  void run(std::uint32_t thread) override { thread < kMovers ? move(thread) : wait(); }
  void move(std::uint32_t self) {
    for (std::uint32_t i = 1; i <= kMoves; ++i) {
      step();
      moves[self].store(i, std::memory_order_release);
      notifier.tell();
    }
  }
  std::uint32_t moved() {
    std::uint32_t all = 0;
    for (auto& count : moves) all += count.load(std::memory_order_acquire);
    return all;
  }
  void wait() {
    std::uint32_t seen = 0;
    std::uint32_t armings = 0;
    std::uint32_t in_time = 0;  // disarmed before a thread would have told
    while (seen < kMovers * kMoves) {
      const std::uint32_t before = told.load();
      std::uint32_t now = moved();
      notifier.arm();
      ++armings;
      if (kBug != Bug::no_barrier) barrier();
      if (kBug != Bug::looks_before_arming) now = moved();
      if (now != seen) {
        in_time += notifier.disarm() ? 1 : 0;
        seen = now;
        continue;
      }
      while (told.load() == before) pause();
    }
    check(told.load() + in_time <= armings, "at most one tells for each arming");
  }
};

constexpr Options kBounded{.preemptions = 2};

TEST(Notifier, HoldsInAllSchedules) {
  expect_holds<NotifierModel<Bug::none, 1, 1>>("1 mover", kOrdered);
  expect_holds<NotifierModel<Bug::none, 1, 2>>("1 mover of 2", kBounded);
  expect_holds<NotifierModel<Bug::none, 2, 1>>("2 movers", kBounded);
}

TEST(Notifier, PlantedBugsAreFound) {
  expect_finds<NotifierModel<Bug::no_barrier, 1, 1>>("no membarrier", kOrdered, "waits for ever");
  expect_finds<NotifierModel<Bug::looks_before_arming, 1, 1>>("looks before arming", kOrdered, "waits for ever");
}

}  // namespace
}  // namespace heddle::explore::notifier_explore_test
