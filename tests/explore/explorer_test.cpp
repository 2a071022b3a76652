// The explorer itself: small programs whose outcomes are known.
#include "explorer.hpp"

#include <gtest/gtest.h>

#include <set>

#include "expect.hpp"

namespace heddle::explore::explorer_test {
namespace {

template <std::memory_order kStore, std::memory_order kLoad>
struct Handover final : Model {
  Plain<int> data;
  Atomic<bool> ready;
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override {
    if (thread == 0) {
      data.store(7);
      ready.store(true, kStore);
      return;
    }
    while (!ready.load(kLoad)) pause();
    check(data.load() == 7, "the data is there");
  }
};

TEST(Explorer, AHandoverNeedsReleaseAndAcquire) {
  using Right = Handover<std::memory_order_release, std::memory_order_acquire>;
  using NoRelease = Handover<std::memory_order_relaxed, std::memory_order_acquire>;
  using NoAcquire = Handover<std::memory_order_release, std::memory_order_relaxed>;
  expect_holds<Right>("handover", kOrdered);
  expect_holds<Right>("handover, data delayed", kByData);
  expect_holds<Right>("handover, interleaved", kInterleaved);
  expect_finds<NoRelease>("handover without release", kInterleaved, "race with a write of T0");
  expect_finds<NoRelease>("handover without release, data delayed", kByData, "the data is there");
  expect_finds<NoAcquire>("handover without acquire", kOrdered, "race with a write of T0");
}

// Every outcome that memory allows and none besides, as a set of (what T0 loaded, what T1 loaded).
std::set<int> g_outcomes;

template <std::memory_order kOrder>
struct StoreBuffering final : Model {
  Atomic<int> x;
  Atomic<int> y;
  int seen[2] = {};
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override {
    (thread == 0 ? x : y).store(1, kOrder);
    seen[thread] = (thread == 0 ? y : x).load(kOrder == std::memory_order_seq_cst ? kOrder : std::memory_order_acquire);
  }
  void finish() override { g_outcomes.insert(seen[0] * 10 + seen[1]); }
};

template <class M>
std::set<int> outcomes(const Options& options) {
  g_outcomes.clear();
  EXPECT_TRUE(explore<M>(options).passed());
  return g_outcomes;
}

TEST(Explorer, StoresPassLaterLoadsUnlessSequentiallyConsistent) {
  EXPECT_EQ(outcomes<StoreBuffering<std::memory_order_release>>(kOrdered), (std::set<int>{0, 1, 10, 11}));
  EXPECT_EQ(outcomes<StoreBuffering<std::memory_order_release>>(kInterleaved), (std::set<int>{1, 10, 11}));
  EXPECT_EQ(outcomes<StoreBuffering<std::memory_order_seq_cst>>(kOrdered), (std::set<int>{1, 10, 11}));
}

template <std::memory_order kOrder>
struct TwoStores final : Model {
  Atomic<int> x;
  Atomic<int> y;
  int seen = 0;
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override {
    if (thread == 0) {
      x.store(1, std::memory_order_relaxed);
      y.store(1, kOrder);
      return;
    }
    const int later = y.load(std::memory_order_acquire);
    seen = later * 10 + x.load(std::memory_order_acquire);
  }
  void finish() override { g_outcomes.insert(seen); }
};

TEST(Explorer, StoresPassEachOtherUnlessReleased) {
  EXPECT_EQ(outcomes<TwoStores<std::memory_order_relaxed>>(kOrdered), (std::set<int>{0, 1, 10, 11}));
  EXPECT_EQ(outcomes<TwoStores<std::memory_order_release>>(kOrdered), (std::set<int>{0, 1, 11}));
}

// Three threads of two indivisible steps on one variable: 6! / 2!^3 orders, all of them different.
struct Dependent final : Model {
  Atomic<int> word;
  [[nodiscard]] std::uint32_t threads() const override { return 3; }
  void run(std::uint32_t) override {
    word.fetch_add(1, std::memory_order_relaxed);
    word.fetch_add(1, std::memory_order_relaxed);
  }
  void finish() override { check(word.load() == 6, "nothing is lost"); }
};
// The same on a variable each: one order stands for all.
struct Independent final : Model {
  Atomic<int> words[3];
  [[nodiscard]] std::uint32_t threads() const override { return 3; }
  void run(std::uint32_t thread) override {
    words[thread].fetch_add(1, std::memory_order_relaxed);
    words[thread].fetch_add(1, std::memory_order_relaxed);
  }
};

TEST(Explorer, CountsExactlyTheDifferentSchedules) {
  EXPECT_EQ(explore<Dependent>(kOrdered).schedules, 90U);
  EXPECT_EQ(explore<Independent>(kOrdered).schedules, 1U);
  EXPECT_EQ(explore<Dependent>({.preemptions = 0}).schedules, 6U);
}

TEST(Explorer, SaysWhenNotAllWasSeen) {
  const Outcome outcome = explore<Dependent>({.most_schedules = 10});
  EXPECT_FALSE(outcome.complete);
  EXPECT_FALSE(outcome.passed());
  EXPECT_EQ(outcome.schedules, 10U);
}

struct Lost final : Model {
  Atomic<int> count;
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t) override {
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void finish() override { check(count.load() == 2, "nothing is lost"); }
};
struct Forever final : Model {
  Atomic<int> word;
  [[nodiscard]] std::uint32_t threads() const override { return 1; }
  void run(std::uint32_t) override {
    while (word.load(std::memory_order_acquire) == 0) pause();
  }
};
struct Spinning final : Model {
  Atomic<int> word;
  [[nodiscard]] std::uint32_t threads() const override { return 1; }
  void run(std::uint32_t) override {
    while (word.load(std::memory_order_acquire) == 0) {
    }
  }
};

TEST(Explorer, FindsLostUpdatesAndThreadsThatNeverEnd) {
  expect_finds<Lost>("lost update", kInterleaved, "nothing is lost");
  expect_finds<Lost>("lost update, weak", kOrdered, "nothing is lost");
  expect_finds<Forever>("a wait that nobody ends", kOrdered, "T0 waits for ever");
  expect_finds<Spinning>("a loop without pause()", kOrdered, "does a loop lack pause()?");
}

TEST(Explorer, ReportsTheScheduleAsAList) {
  const Outcome outcome = explore<Handover<std::memory_order_relaxed, std::memory_order_acquire>>(kByData);
  EXPECT_NE(outcome.schedule.find("T0 store location#1 = 1 relaxed\n"), std::string::npos) << outcome.schedule;
  EXPECT_NE(outcome.schedule.find("T0 becomes visible: location#1 = 1\n"), std::string::npos) << outcome.schedule;
  EXPECT_NE(outcome.schedule.find("T1 load location#1 = 1 acquire\n"), std::string::npos) << outcome.schedule;
}

}  // namespace
}  // namespace heddle::explore::explorer_test
