#include "protocol/tasks.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

namespace heddle::protocol::tasks_test {
namespace {

constexpr std::uint64_t kWindow = 4096;
constexpr std::uint64_t kSmall = 448;  // what a small message counts

wire::ActiveMessage message(const std::uint64_t& value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  return {3, sizeof value, bytes, bytes, sizeof value};
}

std::uint64_t value_of(Tasks::Task* task) {
  std::uint64_t header = 0;
  std::uint64_t payload = 1;
  std::memcpy(&header, task->header.data(), sizeof header);
  std::memcpy(&payload, task->payload(), sizeof payload);
  EXPECT_EQ(header, payload);
  EXPECT_EQ(task->handler, HEDDLE_AM_USER + 3U);
  return payload;
}

TEST(Tasks, AreTakenInTheOrderOfTheirArrivalAndTheirBlocksUsedAgain) {
  Tasks tasks({2, 1, kWindow, 0}, true);
  for (std::uint64_t round = 0; round < 100; ++round) {
    for (std::uint64_t i = 0; i < 4; ++i) {
      const std::uint64_t value = round * 4 + i;
      ASSERT_EQ(tasks.store({1, 0}, message(value)), Tasks::Stored::yes);
    }
    EXPECT_EQ(tasks.stored(), 4U);
    for (std::uint64_t i = 0; i < 4; ++i) {
      Tasks::Task* task = tasks.take();
      ASSERT_NE(task, nullptr);
      EXPECT_EQ(value_of(task), round * 4 + i);
      Tasks::Source* source = task->source;
      if (!tasks.end(task, true)) continue;
      const std::uint64_t due = tasks.due(*source);
      EXPECT_GE(due, kWindow / 2);
      Tasks::granted(source, due);
      EXPECT_EQ(tasks.due(*source), 0U);
    }
    EXPECT_EQ(tasks.take(), nullptr);
  }
  EXPECT_EQ(tasks.ran(), 400U);
}

TEST(Tasks, ASourceThatExceedsItsWindowIsRefusedAndOthersAreNot) {
  Tasks tasks({2, 2, kWindow, 0}, false);
  const std::uint64_t value = 5;
  const std::uint64_t header_charge = kSmall + 8;
  for (std::uint64_t held = 0; held + header_charge <= kWindow; held += header_charge) {
    ASSERT_EQ(tasks.store({1, 0}, message(value)), Tasks::Stored::yes);
  }
  EXPECT_EQ(tasks.store({1, 0}, message(value)), Tasks::Stored::exceeds);
  EXPECT_EQ(tasks.store({1, 1}, message(value)), Tasks::Stored::yes);
  EXPECT_NE(tasks.store({2, 0}, message(value)), Tasks::Stored::yes) << "no such rank";
  EXPECT_NE(tasks.store({1, 2}, message(value)), Tasks::Stored::yes) << "no such worker";
  // Handled is not enough: only what was granted may be sent again.
  Tasks::Task* task = tasks.take();
  Tasks::Source* source = task->source;
  EXPECT_FALSE(tasks.end(task, true)) << "less than half a window";
  EXPECT_EQ(tasks.store({1, 0}, message(value)), Tasks::Stored::exceeds);
  Tasks::granted(source, header_charge);
  EXPECT_EQ(tasks.store({1, 0}, message(value)), Tasks::Stored::yes);
}

// The credit of a dropped message that could not be granted at once is granted with the rest, and
// counts against the window until then.
TEST(Tasks, WhatIsOwedToASourceIsGrantedWithWhatItIsDueNext) {
  Tasks tasks({2, 2, kWindow, 0}, false);
  EXPECT_FALSE(tasks.owe({2, 0}, 1)) << "no such rank";
  EXPECT_TRUE(tasks.owe({1, 1}, kWindow / 2 - 1));
  const std::uint64_t value = 5;
  const std::uint64_t header_charge = kSmall + 8;
  std::uint64_t stored = 0;
  while (tasks.store({1, 1}, message(value)) == Tasks::Stored::yes) ++stored;
  EXPECT_EQ(stored, (kWindow / 2 + 1) / header_charge);
  EXPECT_FALSE(tasks.owe({1, 1}, kWindow)) << "more than the window";
  Tasks::Source* source = tasks.source({1, 1});
  EXPECT_EQ(tasks.due(*source), 0U);
  EXPECT_TRUE(tasks.end(tasks.take(), true));
  EXPECT_EQ(tasks.due(*source), kWindow / 2 - 1 + header_charge);
  std::uint64_t all = 0;
  tasks.each_source([&](heddle_peer peer, Tasks::Source* from) {
    EXPECT_EQ(peer.rank, 1U);
    const std::uint64_t due = tasks.due(*from);
    Tasks::granted(from, due);
    all += due;
  });
  EXPECT_EQ(all, kWindow / 2 - 1 + header_charge);
  EXPECT_EQ(source->held, (stored - 1) * header_charge);
}

TEST(Tasks, LargePayloadsAreBoundedTogether) {
  Tasks tasks({2, 4, kWindow, 10'000}, false);
  const auto large = [](std::uint64_t bytes) {
    Reassembly::Message whole;
    whole.total_bytes = bytes;
    whole.handler = HEDDLE_AM_USER + 3;
    whole.payload = std::make_unique<std::byte[]>(bytes);
    return whole;
  };
  auto first = large(6000);
  const std::byte* where = first.payload.get();
  ASSERT_EQ(tasks.store({1, 0}, &first, Tasks::Room::asked), Tasks::Stored::yes);
  auto second = large(4001);
  EXPECT_EQ(tasks.store({1, 1}, &second, Tasks::Room::asked), Tasks::Stored::no_memory);
  EXPECT_NE(second.payload, nullptr) << "what is refused stays the caller's";
  auto third = large(4000);
  EXPECT_EQ(tasks.store({1, 2}, &third, Tasks::Room::asked), Tasks::Stored::yes);
  Tasks::Task* task = tasks.take();
  EXPECT_EQ(task->payload(), where) << "not copied";
  EXPECT_EQ(task->charge, kWindow / 2);
  EXPECT_TRUE(tasks.end(task, true));
  EXPECT_EQ(tasks.store({1, 3}, &second, Tasks::Room::asked), Tasks::Stored::yes);
}

// The sender of a payload within its window was promised that it is stored; after reserve() there
// is room.
TEST(Tasks, AFullStoreTakesWhatItHasPromised) {
  Tasks tasks({2, 4, kWindow, 10'000}, false);
  const auto large = [](std::uint64_t bytes) {
    Reassembly::Message whole;
    whole.total_bytes = bytes;
    whole.handler = HEDDLE_AM_USER + 3;
    whole.payload = std::make_unique<std::byte[]>(bytes);
    return whole;
  };
  ASSERT_TRUE(tasks.reserve(10'000));
  auto beyond = large(kWindow / 2 + 1);
  EXPECT_EQ(tasks.store({1, 0}, &beyond, Tasks::Room::asked), Tasks::Stored::no_memory);
  auto within = large(kWindow / 2 - 192);
  EXPECT_EQ(tasks.store({1, 1}, &within, Tasks::Room::asked), Tasks::Stored::yes);
  auto fetched = large(10'000);
  EXPECT_EQ(tasks.store({1, 2}, &fetched, Tasks::Room::reserved), Tasks::Stored::yes);
  EXPECT_FALSE(tasks.reserve(1));
  while (Tasks::Task* task = tasks.take()) static_cast<void>(tasks.end(task, true));
  EXPECT_TRUE(tasks.reserve(10'000)) << "each payload was counted once and given back once";
  EXPECT_FALSE(tasks.reserve(1));
}

// One thread puts in and grants, three take out: each message is taken once, and the credit granted
// is the credit handled.
TEST(Tasks, ThreadsTakeEachMessageOnce) {
  constexpr std::uint64_t kMessages = 20'000;
  Tasks tasks({2, 1, kWindow, 0}, false);
  std::atomic<std::uint64_t> sum{0};
  std::atomic<std::uint64_t> ended{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (ended.load() < kMessages) {
        Tasks::Task* task = tasks.take();
        if (task == nullptr) {
          std::this_thread::yield();
          continue;
        }
        sum += value_of(task);
        static_cast<void>(tasks.end(task, true));
        ++ended;
      }
    });
  }
  Tasks::Source* source = nullptr;
  for (std::uint64_t value = 0; value < kMessages;) {
    const std::uint64_t due = source == nullptr ? 0 : tasks.due(*source);
    if (due > 0) Tasks::granted(source, due);
    switch (tasks.store({1, 0}, message(value))) {
      case Tasks::Stored::yes:
        ++value;
        break;
      case Tasks::Stored::exceeds:
        std::this_thread::yield();
        break;
      case Tasks::Stored::no_memory:
        FAIL();
    }
    if (source == nullptr) source = tasks.source({1, 0});
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum.load(), kMessages * (kMessages - 1) / 2);
  EXPECT_EQ(tasks.ran(), kMessages);
  EXPECT_EQ(tasks.stored(), 0U);
}

}  // namespace
}  // namespace heddle::protocol::tasks_test
