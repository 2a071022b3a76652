// The room for commands, and how it is shut while too many completions are kept.
#include "transport/network/port.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace heddle::transport::network::completions_test {
namespace {

constexpr std::uint32_t kSlots = 4;

TEST(Room, IsTakenAndGiven) {
  Room room(kSlots);
  EXPECT_EQ(room.taken(), 0U);
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    ASSERT_TRUE(room.has(1)) << i;
    room.take();
  }
  EXPECT_FALSE(room.has(1));
  EXPECT_EQ(room.taken(), kSlots);
  room.give(3);
  EXPECT_TRUE(room.has(3));
  EXPECT_FALSE(room.has(4));
  EXPECT_EQ(room.taken(), 1U);
}

TEST(Room, CountsWhileItIsShut) {
  Room room(kSlots);
  room.take();
  room.take();
  room.shut(true);
  room.shut(true);
  EXPECT_FALSE(room.has(1));
  EXPECT_EQ(room.taken(), 2U);
  room.give(1);
  EXPECT_FALSE(room.has(1));
  EXPECT_EQ(room.taken(), 1U);
  room.shut(false);
  room.shut(false);
  EXPECT_TRUE(room.has(kSlots - 1));
  EXPECT_FALSE(room.has(kSlots));
}

// While too many refusals are kept, nothing more is accepted; a poll that takes some opens the
// room again.
TEST(Completions, RefusalsShutTheRoom) {
  Completions completions(kSlots);
  std::uint64_t refused = 0;
  for (Command command; completions.reject(command, HEDDLE_ERR_RANGE); ++refused) {
    ASSERT_LT(refused, 100'000U);
    command.token = refused;
  }
  EXPECT_GT(refused, 0U);
  EXPECT_FALSE(completions.transfers().has(1));
  EXPECT_FALSE(completions.messages().has(1));
  std::array<Completion, 1> one;
  completions.begin(one);
  EXPECT_EQ(completions.end(), 1U);
  EXPECT_EQ(one[0].status, HEDDLE_ERR_RANGE);
  EXPECT_TRUE(completions.transfers().has(kSlots));
  EXPECT_TRUE(completions.messages().has(kSlots));
}

// Completions that do not fit into the records of a poll, or that end outside of one, come later,
// in order.
TEST(Completions, KeepWhatDoesNotFit) {
  Completions completions(kSlots);
  std::array<Completion, 3> records;
  completions.begin(records);
  completions.done(7, HEDDLE_DONE, 1);
  completions.source_free(8);
  completions.done(8, HEDDLE_ERR_PEER_FAILED, 2);
  EXPECT_FALSE(completions.has_room());
  completions.done(10, HEDDLE_ERR_PEER_FAILED, 2);
  ASSERT_EQ(completions.end(), 3U);
  EXPECT_EQ(records[0].token, 7U);
  EXPECT_EQ(records[1].event, Event::source_free);
  EXPECT_EQ(records[2].token, 8U);
  EXPECT_EQ(records[2].ends(), 2U);
  completions.source_free(9);
  EXPECT_FALSE(completions.empty());
  completions.begin(records);
  ASSERT_EQ(completions.end(), 3U);
  EXPECT_EQ(records[1].token, 10U);
  EXPECT_EQ(records[1].status, HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(records[1].event, Event::done);
  EXPECT_EQ(records[2].token, 9U);
  EXPECT_EQ(records[2].event, Event::source_free);
  EXPECT_TRUE(completions.empty());
  EXPECT_FALSE(completions.has_room());
}

// Ends of one kind that follow each other are one record, but not across polls.
TEST(Completions, CountEndsOfOneToken) {
  Completions completions(kSlots);
  std::array<Completion, 4> records;
  completions.begin(records);
  completions.done(7, HEDDLE_DONE, 1);
  completions.done(7, HEDDLE_DONE, 1);
  completions.done(7, HEDDLE_DONE, 3);
  completions.done(7, HEDDLE_ERR_PEER_FAILED, 1);
  completions.done(8, HEDDLE_DONE, 1);
  ASSERT_EQ(completions.end(), 3U);
  EXPECT_EQ(records[0].event, Event::several);
  EXPECT_EQ(records[0].ends(), 5U);
  EXPECT_EQ(records[1].ends(), 1U);
  EXPECT_EQ(records[2].ends(), 1U);
  completions.done(8, HEDDLE_DONE, 1);
  EXPECT_EQ(records[2].ends(), 1U);
  completions.begin(records);
  completions.done(8, HEDDLE_DONE, 1);
  ASSERT_EQ(completions.end(), 1U);
  EXPECT_EQ(records[0].ends(), 2U);
}

}  // namespace
}  // namespace heddle::transport::network::completions_test
