// Tagged messages that find no room at their receiver, in every sharing mode.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>

#include "api/test_job.hpp"

namespace heddle::test::tagged_room_test {
namespace {

constexpr std::int64_t kLong = 120'000'000'000;
constexpr std::size_t kBytes = 4096;

std::vector<std::byte> message(std::size_t number) {
  std::vector<std::byte> data(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) data[i] = static_cast<std::byte>(i * 29 + number * 13 + (i >> 8));
  return data;
}

// Sends until there is no credit for one more: a worker that is busy says AGAIN too, but not for so
// many turns.
void fill(Worker& worker, std::deque<std::vector<std::byte>>* sent) {
  for (int turns = 0; turns < 1000;) {
    sent->push_back(message(sent->size()));
    const Status status = worker.try_send({1, 0}, 1, sent->back());
    ASSERT_GE(status, 0) << heddle_last_error();
    if (status != HEDDLE_AGAIN) {
      turns = 0;
      continue;
    }
    sent->pop_back();
    turn(worker);
    ++turns;
  }
}

// A message counts its length and 176 bytes, in 64s: 15 of them leave room for no other, but for
// offers.
TEST(TaggedRoom, WhatFindsNoRoomForLongIsOfferedAndKeepsItsPlace) {
  const Variables small(std::vector<std::pair<const char*, const char*>>{{"HEDDLE_TAG_CREDIT_BYTES", "64K"}});
  static std::atomic<int> told;
  told = 0;
  Job(2, "shm").run([](Context& context, Worker& worker) {
    context.register_am(9, [](const heddle_am_arrival*, void*) { ++told; }, nullptr);
    context.barrier(worker);
    constexpr std::size_t kKept = 15;
    constexpr std::size_t kOffered = 3;
    if (context.rank() == 0) {
      std::deque<std::vector<std::byte>> sent;
      fill(worker, &sent);
      ASSERT_EQ(sent.size(), kKept);
      for (std::size_t i = 0; i < kOffered; ++i) {
        sent.push_back(message(sent.size()));
        ASSERT_EQ(worker.send({1, 0}, 1, sent.back()), HEDDLE_POSTED) << heddle_last_error();
      }
      const std::vector<std::byte> one_more = message(0);
      for (int i = 0; i < 100; ++i) {
        ASSERT_EQ(worker.try_send({1, 0}, 1, one_more), HEDDLE_AGAIN) << "heddle_try_send does not offer it";
        turn(worker);
      }
      const std::uint64_t value = 1;
      // now the other begins to receive
      ASSERT_GE(worker.am({1, 0}, {9, 0, nullptr, &value, 8}), 0);
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE) << heddle_last_error();
      EXPECT_EQ(worker.stats().sends, kKept + kOffered);
    } else {
      while (told == 0) turn(worker);
      for (std::size_t i = 0; i < kKept + kOffered; ++i) {
        std::vector<std::byte> data(kBytes);
        heddle_receive receive{};
        ASSERT_GE(worker.recv({{0, 0}, 1, UINT64_MAX}, data, &receive), 0) << heddle_last_error();
        ASSERT_EQ(worker.wait(receive, kLong), HEDDLE_DONE) << heddle_last_error();
        ASSERT_EQ(data, message(i)) << "message " << i;
      }
    }
    context.barrier(worker);
  });
}

// As MPI's programs do: both send everything, then both receive.
void sends_before_it_receives(Context& context, Worker& worker) {
  constexpr std::size_t kMessages = 150;  // ten times what there is credit for
  const std::uint32_t other = 1 - context.rank();
  std::vector<std::vector<std::byte>> sent;
  for (std::size_t i = 0; i < kMessages; ++i) sent.push_back(message(i));
  for (const std::vector<std::byte>& data : sent) {
    ASSERT_GE(worker.send({other, 0}, 1, data), 0) << heddle_last_error();
  }
  for (std::size_t i = 0; i < kMessages; ++i) {
    std::vector<std::byte> data(kBytes);
    heddle_receive receive{};
    ASSERT_GE(worker.recv({{other, 0}, 1, UINT64_MAX}, data, &receive), 0) << heddle_last_error();
    ASSERT_EQ(worker.wait(receive, kLong), HEDDLE_DONE) << heddle_last_error();
    ASSERT_EQ(data, message(i)) << "message " << i;
  }
  ASSERT_EQ(worker.quiet(), HEDDLE_DONE) << heddle_last_error();
  // The credit is back: short messages, which are never offered, have it all.
  std::vector<std::byte> word(8);
  for (std::size_t i = 0; i < 128; ++i) {
    ASSERT_GE(worker.send({other, 0}, 2, word), 0) << heddle_last_error();
    heddle_receive receive{};
    ASSERT_GE(worker.recv({{other, 0}, 2, UINT64_MAX}, word, &receive), 0) << heddle_last_error();
    ASSERT_EQ(worker.wait(receive, kLong), HEDDLE_DONE) << heddle_last_error();
  }
  context.barrier(worker);
}

TEST(TaggedRoom, TwoRanksThatBothSendBeforeTheyReceive) {
  const Variables small(std::vector<std::pair<const char*, const char*>>{{"HEDDLE_TAG_CREDIT_BYTES", "64K"}});
  Job(2, "shm").run(sends_before_it_receives);
}

// Offers overtake the copied messages before them, for which there was credit: all are kept.
TEST(TaggedRoom, TheSameWhereMessagesOvertakeEachOther) {
  const Variables small(std::vector<std::pair<const char*, const char*>>{
      {"HEDDLE_TAG_CREDIT_BYTES", "64K"}, {"HEDDLE_SHM_DIRECT", "0"}, {"HEDDLE_FAULT", "delay=5,reorder=1"}});
  for (int times = 0; times < 5; ++times) Job(2, "fault+shm").run(sends_before_it_receives);
}

}  // namespace
}  // namespace heddle::test::tagged_room_test
