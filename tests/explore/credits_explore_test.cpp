// src/protocol: the credit of senders (SendCredit: a model beside the code; UserCredits: the code
// itself), and the handshake by which a helper that goes to sleep and a thread that leaves
// something under way see each other (worker/gate.cpp, must_call_helpers(), and
// worker/helpers.cpp, sleep()): a model beside the code.
#include <gtest/gtest.h>

#include <array>

#include "expect.hpp"
#include "protocol/credits.hpp"

namespace heddle::explore::credits_explore_test {
namespace {

constexpr Options kBounded{.weak = false, .preemptions = 3};

// ---- SendCredit: reserve<true>(), give_back<true>(), learn() ------------------------------------

enum class CreditBug { none, adds_without_looking_back, forgets_to_give_back, learns_blindly };

// Senders with one charge each share a window of one; the receiver frees the arrived messages and
// tells the sender, twice.
template <std::uint32_t kSenders, CreditBug kBug = CreditBug::none>
struct SendCreditModel final : Model {
  static constexpr std::uint64_t kCharge = 4;
  static constexpr std::uint64_t kWindow = 4;

  Atomic<std::uint64_t> sent{0};
  Atomic<std::uint64_t> freed{0};
  Atomic<std::uint64_t> arrived{0};  // charges at the receiver: the wire
  std::uint64_t given_back = 0;

  [[nodiscard]] std::uint32_t threads() const override { return kSenders + 1; }

  bool reserve() {
    const std::uint64_t known = freed.load(std::memory_order_relaxed);
    if (kBug == CreditBug::adds_without_looking_back) {
      if (sent.load(std::memory_order_relaxed) + kCharge - known > kWindow) return false;
      sent.fetch_add(kCharge, std::memory_order_relaxed);
      return true;
    }
    if (sent.fetch_add(kCharge, std::memory_order_relaxed) + kCharge - known <= kWindow) return true;
    if (kBug != CreditBug::forgets_to_give_back) sent.fetch_sub(kCharge, std::memory_order_relaxed);
    return false;
  }
  bool learn(std::uint64_t told) {
    const std::uint64_t before = freed.load(std::memory_order_relaxed);
    const std::uint64_t gain = told - before;
    if (kBug != CreditBug::learns_blindly) {
      if (gain > ~std::uint64_t{0} / 2) return true;
      if (gain > sent.load(std::memory_order_relaxed) - before) return false;
    }
    freed.store(told, std::memory_order_relaxed);
    return true;
  }

  void run(std::uint32_t thread) override {
    if (thread < kSenders) {
      if (!reserve()) return;
      const std::uint64_t before = arrived.fetch_add(kCharge);
      check(before + kCharge - freed.load(std::memory_order_relaxed) <= kWindow, "never more than a window is out");
      return;
    }
    // One message is received; its news comes twice, and old news after it.
    std::uint64_t here = 0;
    while ((here = arrived.load()) == 0) pause();
    check(learn(kCharge), "what was sent can be freed");
    check(learn(kCharge) && learn(0), "news may be repeated, and overtaken");
    check(!learn(100 * kCharge), "what was never sent cannot");
  }
  void finish() override {
    check(sent.load() == arrived.load(), "who had no room has given back what it had taken");
    check(freed.load() == kCharge, "what is told late is no news");
  }
};

TEST(SendCredit, HoldsInAllSchedules) {
  expect_holds<SendCreditModel<1>>("credit of tagged messages, 1 sender", kOrdered);
  expect_holds<SendCreditModel<2>>("credit of tagged messages, 2 senders", kBounded);
}

TEST(SendCredit, PlantedBugsAreFound) {
  expect_finds<SendCreditModel<2, CreditBug::adds_without_looking_back>>("two find the same room", kBounded,
                                                                         "never more than a window is out");
  expect_finds<SendCreditModel<2, CreditBug::forgets_to_give_back>>("keeps what it had no room for", kBounded,
                                                                    "given back");
  expect_finds<SendCreditModel<1, CreditBug::learns_blindly>>("believes whatever it is told", kOrdered, "not so");
}

// ---- UserCredits --------------------------------------------------------------------------------

// Threads take a half window each from a window of one and a half, at the first message to the
// rank; one of them gives its own back, and the receiver grants one.
template <template <class> class A, std::uint32_t kTakers>
struct UserCreditsModel final : Model {
  static constexpr std::uint64_t kCharge = 4;
  static constexpr std::uint64_t kWindow = 8;
  static constexpr heddle_peer kTarget{0, 0};

  protocol::BasicUserCredits<A> credits{1, 1, kWindow, false};
  std::array<bool, kMostThreads> has{};

  [[nodiscard]] std::uint32_t threads() const override { return kTakers; }
  void run(std::uint32_t thread) override {
    has[thread] = credits.take(kTarget, kCharge);
    if (thread != 0 || !has[0]) return;
    check(!credits.grant(kTarget, kWindow + kCharge), "more than a window is not granted");
    check(credits.grant(kTarget, kCharge), "what was taken is granted");
    has[0] = false;
  }
  void finish() override {
    std::uint64_t used = 0;
    for (const bool one : has) used += one ? kCharge : 0;
    check(credits.used(kTarget) == used && used <= kWindow, "used is what was taken and not granted");
  }
};

TEST(UserCredits, HoldInAllSchedules) {
  expect_holds<UserCreditsModel<Atomic, 2>>("credit of USER messages, 2 threads", kOrdered);
  expect_holds<UserCreditsModel<Atomic, 3>>("credit of USER messages, 3 threads", kBounded);
}

TEST(UserCredits, PlantedBugsAreFound) {
  expect_finds<UserCreditsModel<TornSwap, 2>>("a compare-and-swap that is none", kBounded, "used is what was taken");
}

// ---- the gate and the helpers -------------------------------------------------------------------

enum class SleepBug { none, no_barrier, looks_first, does_not_ring };

// A thread enters, counts itself in, leaves something under way, and looks whether a helper sleeps;
// a helper says that it sleeps, lets the barrier pass, and looks whether anybody has entered since
// its last visit.
template <SleepBug kBug>
struct SleepModel final : Model {
  Atomic<std::uint64_t> entries{0};
  Atomic<std::uint32_t> asleep{0};
  Atomic<std::uint32_t> rings{0};
  bool served = false;

  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override {
    if (thread == 0) {
      const bool early = kBug == SleepBug::looks_first && asleep.load(std::memory_order_relaxed) != 0;
      entries.store(entries.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      const bool call = kBug == SleepBug::looks_first ? early : asleep.load(std::memory_order_relaxed) != 0;
      if (!call || asleep.exchange(0, std::memory_order_relaxed) == 0) return;
      if (kBug != SleepBug::does_not_ring) rings.fetch_add(1);
      return;
    }
    // A visit sees the present state; here nothing has happened before the first.
    while (!served) {
      const std::uint32_t seen = rings.load();
      asleep.store(1, std::memory_order_relaxed);
      if (kBug != SleepBug::no_barrier) barrier();
      if (entries.load(std::memory_order_relaxed) == 0) {
        while (rings.load() == seen) pause();
      }
      asleep.store(0, std::memory_order_relaxed);
      served = entries.load(std::memory_order_relaxed) != 0;
      if (!served) pause();
    }
  }
  void finish() override { check(served, "the helper has come"); }
};

TEST(HelpersSleep, HoldsInAllSchedules) {
  expect_holds<SleepModel<SleepBug::none>>("gate and helpers", kOrdered);
}

TEST(HelpersSleep, PlantedBugsAreFound) {
  expect_finds<SleepModel<SleepBug::no_barrier>>("no membarrier before the second look", kOrdered, "waits for ever");
  expect_finds<SleepModel<SleepBug::looks_first>>("looks before it is counted in", kOrdered, "waits for ever");
  expect_finds<SleepModel<SleepBug::does_not_ring>>("does not ring", kOrdered, "waits for ever");
}

}  // namespace
}  // namespace heddle::explore::credits_explore_test
