#include "protocol/credits.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace heddle::protocol::credits_test {
namespace {

constexpr std::uint64_t kWindow = 1024;

TEST(Credits, ASenderHasAWindowAndGetsItBack) {
  SendCredit sender{};
  EXPECT_TRUE(sender.reserve<false>(1000, kWindow));
  EXPECT_FALSE(sender.reserve<false>(25, kWindow));
  EXPECT_TRUE(sender.reserve<true>(24, kWindow));
  EXPECT_FALSE(sender.reserve<true>(1, kWindow));
  EXPECT_TRUE(sender.learn(600));
  EXPECT_TRUE(sender.learn(500)) << "what is told late is no news";
  EXPECT_TRUE(sender.reserve<false>(600, kWindow));
  EXPECT_FALSE(sender.reserve<false>(1, kWindow));
  sender.give_back<true>(600);
  EXPECT_TRUE(sender.reserve<true>(600, kWindow));
}

TEST(Credits, AReceiverCannotFreeWhatWasNotSent) {
  SendCredit sender{};
  ASSERT_TRUE(sender.reserve<false>(100, kWindow));
  EXPECT_FALSE(sender.learn(101));
  EXPECT_TRUE(sender.learn(100));
  EXPECT_TRUE(sender.learn(0));
}

TEST(Credits, AReceiverHoldsAtMostAWindowAndTellsEighths) {
  ReceiveCredit receiver{};
  EXPECT_TRUE(receiver.hold(1000, kWindow));
  EXPECT_FALSE(receiver.hold(25, kWindow));
  EXPECT_TRUE(receiver.hold(24, kWindow));
  EXPECT_FALSE(receiver.hold(1, kWindow));
  EXPECT_TRUE(receiver.hold(kWindow, 2 * kWindow)) << "another kind of message has more";
  EXPECT_FALSE(receiver.hold(1, kWindow));
  EXPECT_FALSE(receiver.hold(1, 2 * kWindow));
  EXPECT_FALSE(receiver.free(127, kWindow));
  EXPECT_TRUE(receiver.free(1, kWindow));
  receiver.told = receiver.freed;
  EXPECT_FALSE(receiver.free(100, kWindow));
}

// Several threads reserve, one learns: at no time is more than a window in use, and all credit that
// was given back can be reserved again.
TEST(Credits, ManyThreadsShareOneWindow) {
  SendCredit sender{};
  constexpr std::uint64_t kCharge = 64;
  constexpr int kThreads = 4;
  constexpr int kEach = 20'000;
  std::atomic<std::uint64_t> granted{0};  // charges that were reserved
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int taken = 0; taken < kEach;) {
        if (!sender.reserve<true>(kCharge, kWindow)) {
          std::this_thread::yield();
          continue;
        }
        granted.fetch_add(kCharge);
        ++taken;
      }
    });
  }
  std::uint64_t freed = 0;
  while (freed < kCharge * kThreads * kEach) {
    const std::uint64_t all = granted.load();
    if (all - freed > kWindow) over = true;
    if (all != freed) {
      freed = all;
      ASSERT_TRUE(sender.learn(freed));
    } else {
      std::this_thread::yield();
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(over);
  EXPECT_EQ(sender.sent, freed);
  EXPECT_TRUE(sender.reserve<true>(kWindow, kWindow));
}

// One thread sends, another learns, a third looks for a report. ThreadSanitizer checks that the
// third one may.
TEST(Credits, AReportMayLookWhileTheOneSenderCounts) {
  SendCredit sender{};
  constexpr std::uint64_t kCharge = 64;
  constexpr std::uint64_t kAll = 20'000 * kCharge;
  std::atomic<std::uint64_t> sent{0};
  std::thread sending([&] {
    for (std::uint64_t taken = 0; taken < kAll;) {
      if (!sender.reserve<false>(kCharge, kWindow)) {
        std::this_thread::yield();
        continue;
      }
      if (taken % 3 == 0) {  // refused by the transport, say
        sender.give_back<false>(kCharge);
        ASSERT_TRUE(sender.reserve<false>(kCharge, kWindow));
      }
      sent.store(taken += kCharge);
    }
  });
  std::atomic<bool> over{false};
  std::uint64_t looks = 0;
  std::thread looking([&] {
    for (; !over; ++looks) {
      static_cast<void>(sender.used());
      std::this_thread::yield();
    }
  });
  for (std::uint64_t freed = 0; freed < kAll;) {
    freed = sent.load();
    ASSERT_TRUE(sender.learn(freed));
    std::this_thread::yield();
  }
  sending.join();
  over = true;
  looking.join();
  EXPECT_GT(looks, 0U);
  EXPECT_EQ(sender.used(), 0U);
}

}  // namespace
}  // namespace heddle::protocol::credits_test
