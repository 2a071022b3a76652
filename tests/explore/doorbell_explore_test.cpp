// tofu/emulator: the doorbell of an engine, with two threads that make work for it.
#include <gtest/gtest.h>

#include "expect.hpp"
#include "tofu/emulator/doorbell.hpp"

namespace heddle::explore::doorbell_explore_test {
namespace {

// As in the kernel: a wake-up wakes only a thread that sleeps here; `gate` is its own.
struct KernelFutex {
  static inline Atomic<std::uint32_t>* gate = nullptr;
  static void wait(Atomic<std::uint32_t>* word, std::uint32_t expected, std::int64_t) {
    const std::uint32_t before = gate->load();
    if (word->load(std::memory_order_seq_cst) != expected) return;
    while (gate->load() == before) pause();
  }
  static void wake_all(Atomic<std::uint32_t>*) { gate->fetch_add(1); }
};

enum class Bug { none, publishes_late, does_not_look };

// Makers set bits in one word, as sources do when they have filled a ring; the engine takes them
// all.
template <Bug kBug, std::uint32_t kMakers>
struct DoorbellModel final : Model {
  Atomic<std::uint32_t> gate;
  tofu_emulator::DoorbellWord<Atomic> word;
  tofu_emulator::Doorbell<Atomic, KernelFutex> bell{&word};
  Atomic<std::uint32_t> filled;

  DoorbellModel() { KernelFutex::gate = &gate; }
  [[nodiscard]] std::uint32_t threads() const override { return kMakers + 1; }
  void run(std::uint32_t thread) override {
    if (thread < kMakers) {
      if (kBug == Bug::publishes_late) {
        filled.store(filled.load(std::memory_order_relaxed) | 1U << thread, std::memory_order_relaxed);
      } else {
        filled.fetch_or(1U << thread, std::memory_order_seq_cst);
      }
      bell.ring();
      return;
    }
    for (std::uint32_t seen = 0; seen != (1U << kMakers) - 1;) {
      seen |= filled.exchange(0, std::memory_order_seq_cst);
      if (seen == (1U << kMakers) - 1) return;
      bell.sleep([&] { return kBug != Bug::does_not_look && filled.load(std::memory_order_seq_cst) != 0; }, -1);
    }
  }
};

TEST(Doorbell, HoldsInAllSchedules) {
  expect_holds<DoorbellModel<Bug::none, 1>>("doorbell, 1 maker", kOrdered);
  expect_holds<DoorbellModel<Bug::none, 2>>("doorbell, 2 makers", Options{.preemptions = 2});
}

TEST(Doorbell, PlantedBugsAreFound) {
  expect_finds<DoorbellModel<Bug::publishes_late, 1>>("relaxed publication", kOrdered, "waits for ever");
  expect_finds<DoorbellModel<Bug::does_not_look, 1>>("no second look", kOrdered, "waits for ever");
}

}  // namespace
}  // namespace heddle::explore::doorbell_explore_test
