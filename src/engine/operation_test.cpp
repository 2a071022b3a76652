#include "engine/operations.hpp"

#include <gtest/gtest.h>

#include <set>

#include "engine/handles.hpp"

namespace heddle::engine::operation_test {
namespace {

TEST(OperationPool, GivesEachSlotOnceAndKnowsStaleTokens) {
  OperationPool pool(3);
  const transport::Token announced = pool.next_token(Role::reply);
  Operation* first = pool.take();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(pool.token(*first, Role::reply), announced);
  EXPECT_EQ(OperationPool::role(announced), Role::reply);
  EXPECT_EQ(pool.find(announced), first);
  const std::set<Operation*> all = {first, pool.take(), pool.take()};
  EXPECT_EQ(all.size(), 3U);
  EXPECT_EQ(pool.take(), nullptr);
  EXPECT_TRUE(pool.empty());
  pool.give_back(first);
  EXPECT_EQ(pool.find(announced), nullptr) << "ended";
  EXPECT_EQ(pool.take(), first);
  EXPECT_EQ(pool.find(announced), nullptr) << "the slot serves another operation now";
  EXPECT_EQ(pool.find(~transport::Token{0}), nullptr);
  EXPECT_EQ(pool.find(3), nullptr) << "no such slot";
}

TEST(OperationPool, APlainOperationHasNothingOfTheOneBefore) {
  OperationPool pool(1);
  Operation* before = pool.take();
  ASSERT_NE(before, nullptr);
  const transport::Token stale = pool.token(*before, Role::command);
  before->fail(HEDDLE_ERR_RANGE, 3);
  before->fired = before->charged = before->seen_closed = before->signal_due = true;
  struct Owner final : OperationOwner {
  } owner;
  before->owner = &owner;
  before->served = before->unfreed = 2;
  before->completion.when = HEDDLE_WHEN_LOCAL;
  pool.give_back(before);

  const transport::Token announced = pool.next_token(Role::command);
  Operation* plain = &pool.take_plain(nullptr, nullptr);
  EXPECT_EQ(plain, before);
  EXPECT_EQ(pool.token(*plain, Role::command), announced);
  EXPECT_EQ(pool.find(announced), plain);
  EXPECT_EQ(pool.find(stale), nullptr);
  EXPECT_TRUE(pool.empty());
  EXPECT_TRUE(plain->ends_next()) << "posted, and one command on its way";
  EXPECT_TRUE(plain->posted);
  EXPECT_EQ(plain->unfinished, 1U);
  EXPECT_EQ(plain->status, HEDDLE_DONE);
  EXPECT_EQ(plain->owner, nullptr);
  EXPECT_FALSE(plain->charged || plain->seen_closed || plain->signal_due || plain->marked);
  EXPECT_EQ(plain->served, 0U);
  plain->unfreed = 1;
  EXPECT_FALSE(plain->ends_next()) << "its source is still in use";
}

TEST(Pieces, WalkBlocksInPortions) {
  std::byte memory[100];
  RemoteRegion region;
  Pieces pieces(memory, &region, 1000, {10, 3, 20, 50});
  Piece piece;
  ASSERT_TRUE(pieces.peek(&piece));
  EXPECT_EQ(piece.local, memory);
  EXPECT_EQ(piece.offset, 1000U);
  EXPECT_EQ(piece.bytes, 10U);
  pieces.advance(4);
  ASSERT_TRUE(pieces.peek(&piece));
  EXPECT_EQ(piece.local, memory + 4);
  EXPECT_EQ(piece.offset, 1004U);
  EXPECT_EQ(piece.bytes, 6U);
  pieces.advance(6);
  ASSERT_TRUE(pieces.peek(&piece));
  EXPECT_EQ(piece.local, memory + 20);
  EXPECT_EQ(piece.offset, 1050U);
  pieces.advance(10);
  pieces.advance(10);
  EXPECT_FALSE(pieces.peek(&piece));
}

TEST(Pieces, SkipEmptySegmentsAndNoticeClosedRegions) {
  std::byte memory[100];
  RemoteRegion region;
  const std::uint64_t id = open_handle(RemoteRegion::kType, &region);
  const heddle_segment segments[] = {{memory, 0, {{id}, 0}}, {memory, 5, {{id}, 7}}, {memory, 0, {{id}, 0}}};
  Pieces pieces(segments, 3);
  Piece piece;
  ASSERT_TRUE(pieces.peek(&piece));
  EXPECT_EQ(piece.remote, &region);
  EXPECT_EQ(piece.offset, 7U);
  close_handle(id);
  ASSERT_TRUE(pieces.peek(&piece));
  EXPECT_EQ(piece.remote, nullptr);
  pieces.advance(5);
  EXPECT_FALSE(pieces.peek(&piece));
}

TEST(Handles, AreTypedAndNeverUsedTwice) {
  RemoteRegion region;
  const std::uint64_t first = open_handle(RemoteRegion::kType, &region);
  EXPECT_EQ(find_handle<RemoteRegion>(first), &region);
  EXPECT_EQ(find_handle<Region>(first), nullptr);
  close_handle(first);
  EXPECT_EQ(find_handle<RemoteRegion>(first), nullptr);
  const std::uint64_t second = open_handle(RemoteRegion::kType, &region);
  EXPECT_NE(first, second);
  close_handle(first);  // stale: closes nothing
  EXPECT_EQ(find_handle<RemoteRegion>(second), &region);
  close_handle(second);
  EXPECT_EQ(find_handle<RemoteRegion>(0), nullptr);
}

}  // namespace
}  // namespace heddle::engine::operation_test
