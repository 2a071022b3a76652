// The commands that the requester hands to the transport one by one, and its results, over a
// transport that is played.
#include "engine/requester.hpp"

#include <array>
#include <string>

#include "engine/test_requester.hpp"

namespace heddle::engine::requester_test {
namespace {

using test::RequesterTest;
using transport::Command;

// ---- one command: a message, a put, a get -------------------------------------------------------

class OneCommand : public RequesterTest, public testing::WithParamInterface<Kind> {
 protected:
  // A command of this kind, to rank 1.
  [[nodiscard]] Command make() { return GetParam() == Kind::message ? message() : transfer(GetParam(), remote); }
  base::Status post(const CallersCompletion& completion) {
    Command command = make();
    return core.requester.post(command, completion);
  }
  Remote remote{1};
};
INSTANTIATE_TEST_SUITE_P(Kinds, OneCommand, testing::Values(Kind::message, Kind::put, Kind::get), [](const auto& of) {
  return of.param == Kind::message ? "message" : of.param == Kind::put ? "put" : "get";
});

TEST_P(OneCommand, IsDoneAtOnceWithoutASlotAndWithoutACompletion) {
  played.done_at_once = true;
  EXPECT_EQ(post(told.completion()), HEDDLE_DONE);
  EXPECT_EQ(post(kNoCompletion), HEDDLE_DONE);
  EXPECT_EQ(played.posted.size(), 2U);
  EXPECT_EQ(told.times, 0) << "DONE: no completion follows";
  expect_nothing_under_way();
}

TEST_P(OneCommand, TakesASlotOnlyWhereSomebodyIsTold) {
  EXPECT_EQ(post(kNoCompletion), HEDDLE_POSTED);
  EXPECT_EQ(slots(), 0U);
  EXPECT_EQ(core.operations.under_way_to(1), 1U);
  EXPECT_EQ(core.operations.marks().names_remote(&remote), GetParam() != Kind::message);
  complete_all();
  EXPECT_FALSE(core.operations.marks().names_remote(&remote));

  EXPECT_EQ(post(told.completion()), HEDDLE_POSTED);
  EXPECT_EQ(slots(), 1U);
  EXPECT_EQ(core.operations.under_way_to(1), 1U);
  EXPECT_EQ(core.operations.marks().names_remote(&remote), GetParam() != Kind::message);
  const Operation* const operation = core.operations.find(played.posted[0].token);
  ASSERT_NE(operation, nullptr) << "the token is the slot's";
  EXPECT_EQ(operation->kind, GetParam());
  EXPECT_EQ(told.times, 0);
  complete_all();
  EXPECT_EQ(told.times, 1);
  EXPECT_EQ(told.status, HEDDLE_DONE);
  EXPECT_FALSE(core.operations.marks().names_remote(&remote));
  expect_nothing_under_way();
}

TEST_P(OneCommand, ACounterIsSomebody) {
  auto opened = objects.open_counter(0, false);
  ASSERT_TRUE(opened.ok());
  OperationCounter& counter = **opened;
  EXPECT_EQ(post({nullptr, nullptr, &counter, HEDDLE_WHEN_REMOTE}), HEDDLE_POSTED);
  EXPECT_EQ(slots(), 1U);
  EXPECT_TRUE(core.operations.marks().names_counter(&counter));
  complete_all();
  EXPECT_EQ(counter.value(), 1U);
  EXPECT_FALSE(core.operations.marks().names_counter(&counter));
}

TEST_P(OneCommand, AgainLeavesNothingBehind) {
  played.room = 0;
  const transport::Token next = core.operations.next_token();
  EXPECT_EQ(post(kNoCompletion), HEDDLE_AGAIN);
  EXPECT_EQ(post(told.completion()), HEDDLE_AGAIN);
  EXPECT_EQ(played.posts, 2U);
  EXPECT_EQ(core.operations.next_token(), next);
  EXPECT_FALSE(core.operations.marks().names_remote(&remote));
  expect_nothing_under_way();
  EXPECT_EQ(core.operations.quiet(), HEDDLE_DONE);
  EXPECT_EQ(told.times, 0);
  played.room = 1;
  EXPECT_EQ(post(told.completion()), HEDDLE_POSTED);
  EXPECT_EQ(played.posted[0].token, next);
}

TEST_P(OneCommand, AFullPoolIsAgainBeforeTheTransportIsAsked) {
  fill_slots();
  EXPECT_EQ(post(told.completion()), HEDDLE_AGAIN);
  EXPECT_EQ(played.posts, 0U);
  EXPECT_EQ(post(kNoCompletion), HEDDLE_POSTED) << "it needs no slot";
  EXPECT_EQ(told.times, 0);
}

TEST_P(OneCommand, ExhaustedMemoryIsAnErrorAndNothingElse) {
  played.memory = 0;
  EXPECT_EQ(post(told.completion()), HEDDLE_ERR_NO_MEMORY);
  EXPECT_EQ(post(kNoCompletion), HEDDLE_ERR_NO_MEMORY);
  EXPECT_EQ(told.times, 0) << "the error was returned";
  expect_nothing_under_way();
  EXPECT_EQ(core.operations.quiet(), HEDDLE_DONE) << "and is told once";
  played.memory = 10;
  EXPECT_EQ(post(told.completion()), HEDDLE_POSTED);
}

TEST_P(OneCommand, AnErrorOnTheWayIsTold) {
  ASSERT_EQ(post(told.completion()), HEDDLE_POSTED);
  complete_all(HEDDLE_ERR_RANGE);
  EXPECT_EQ(told.times, 1);
  EXPECT_EQ(told.status, HEDDLE_ERR_RANGE);
  EXPECT_EQ(core.operations.quiet(), HEDDLE_DONE);
  ASSERT_EQ(post(kNoCompletion), HEDDLE_POSTED);
  complete_all(HEDDLE_ERR_RANGE);
  EXPECT_EQ(core.operations.quiet(), HEDDLE_ERR_RANGE);
  expect_nothing_under_way();
}

TEST_P(OneCommand, LocalCompletionIsTheSourcesAndAGetHasNone) {
  const bool source = GetParam() != Kind::get;
  ASSERT_EQ(post(told.completion(HEDDLE_WHEN_LOCAL)), HEDDLE_POSTED);
  EXPECT_EQ(played.posted[0].command.wants_source_free, source);
  if (source) {
    played.free_source(played.posted[0].token);
    EXPECT_EQ(progress(), 1);
  }
  EXPECT_EQ(told.times, source ? 1 : 0);
  EXPECT_EQ(slots(), 1U) << "it has not ended";
  complete_all();
  EXPECT_EQ(told.times, 1);
  expect_nothing_under_way();
}

TEST_P(OneCommand, ASourceThatIsFreeAtOnceIsToldByTheNextProgress) {
  if (GetParam() == Kind::get) return;
  played.free_at_once = true;
  ASSERT_EQ(post(told.completion(HEDDLE_WHEN_LOCAL)), HEDDLE_POSTED);
  EXPECT_EQ(told.times, 0) << "not inside the call";
  static_cast<void>(progress());
  EXPECT_EQ(told.times, 1);
  complete_all();
  EXPECT_EQ(told.times, 1);
  expect_nothing_under_way();
}

// ---- memory that cannot be reached any more -----------------------------------------------------

TEST_F(RequesterTest, AReleasedRegionIsRefusedByItsHandle) {
  for (const Kind kind : {Kind::put, Kind::get}) {
    Remote remote(1);
    Command command = transfer(kind, remote);
    EXPECT_TRUE(Requester::prepare(command));
    remote.closed = true;
    EXPECT_FALSE(Requester::prepare(command));
    EXPECT_EQ(core.requester.post(command, told.completion()), HEDDLE_ERR_HANDLE);
    EXPECT_EQ(core.requester.post(command, kNoCompletion), HEDDLE_ERR_HANDLE);
    EXPECT_EQ(core.requester.try_block({kind, local.data(), 64, &remote, 0}, told.completion()), HEDDLE_ERR_HANDLE);
    EXPECT_EQ(core.requester.try_atomic({HEDDLE_ADD64, &remote, 0, 1, 0, nullptr}, told.completion()),
              HEDDLE_ERR_HANDLE);
  }
  EXPECT_EQ(played.posts, 0U);
  EXPECT_EQ(told.times, 0);
  expect_nothing_under_way();
}

TEST_F(RequesterTest, ADeadOwnerIsRefusedByItsRank) {
  for (const Kind kind : {Kind::put, Kind::get}) {
    Remote remote(2);
    Command command = transfer(kind, remote);
    remote.barred = RemoteRegion::Barred::failed;
    EXPECT_FALSE(Requester::prepare(command));
    EXPECT_EQ(core.requester.post(command, told.completion()), HEDDLE_ERR_PEER_FAILED);
    EXPECT_NE(std::string(base::last_message()).find("rank 2"), std::string::npos) << base::last_message();
    EXPECT_EQ(core.requester.post(command, kNoCompletion), HEDDLE_ERR_PEER_FAILED);
    EXPECT_EQ(core.requester.try_atomic({HEDDLE_ADD64, &remote, 0, 1, 0, nullptr}, told.completion()),
              HEDDLE_ERR_PEER_FAILED);
  }
  EXPECT_EQ(played.posts, 0U);
  EXPECT_EQ(told.times, 0);
  expect_nothing_under_way();
}

TEST_F(RequesterTest, WhatWasPostedBeforeTheReleaseEndsAndTheRestDoesNotFollow) {
  Remote remote(1);
  played.room = 2;
  ASSERT_EQ(small.try_block({Kind::put, local.data(), 350, &remote, 0}, told.completion()), HEDDLE_POSTED);
  ASSERT_EQ(played.posted.size(), 2U);
  remote.closed = true;
  played.room = 100;
  static_cast<void>(progress());
  EXPECT_EQ(played.posted.size(), 2U);
  EXPECT_EQ(told.times, 0) << "two commands still read the source";
  complete_all();
  EXPECT_EQ(told.times, 1);
  EXPECT_EQ(told.status, HEDDLE_ERR_HANDLE);
  expect_nothing_under_way();
}

// ---- several at once ----------------------------------------------------------------------------

TEST_F(RequesterTest, OfSeveralAsManyAreCountedAsWerePosted) {
  Remote remote(2);
  for (std::size_t room = 0; room <= 4; ++room) {
    played.posted.clear();
    played.room = room;
    std::array<Command, 4> batch{message(), transfer(Kind::put, remote), message(), transfer(Kind::get, remote)};
    for (Command& command : batch) ASSERT_TRUE(Requester::prepare(command));
    EXPECT_EQ(core.requester.post(batch), room);
    EXPECT_EQ(core.operations.under_way(), room);
    EXPECT_EQ(core.operations.under_way_to(1), (room + 1) / 2);
    EXPECT_EQ(core.operations.under_way_to(2), room / 2);
    EXPECT_EQ(core.operations.marks().names_remote(&remote), room >= 2);
    EXPECT_EQ(slots(), 0U);
    complete_all();
    EXPECT_FALSE(core.operations.marks().names_remote(&remote));
    expect_nothing_under_way();
  }
}

TEST_F(RequesterTest, OfSeveralThoseThatAreDoneAreNotCounted) {
  played.done_at_once = true;
  std::array<Command, 2> batch{message(), message()};
  for (Command& command : batch) ASSERT_TRUE(Requester::prepare(command));
  EXPECT_EQ(core.requester.post(batch), 2U);
  expect_nothing_under_way();
  played.memory = 2;
  batch = {message(), message()};
  for (Command& command : batch) ASSERT_TRUE(Requester::prepare(command));
  EXPECT_EQ(core.requester.post(batch), 0U) << "who posts the next one alone is told why";
  expect_nothing_under_way();
}

}  // namespace
}  // namespace heddle::engine::requester_test
