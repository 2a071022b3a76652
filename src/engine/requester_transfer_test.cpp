// Operations that the requester makes of several commands, or of requests to the owner: over a
// transport that is played.
#include "engine/requester.hpp"

#include <array>
#include <cstring>
#include <vector>

#include "engine/test_requester.hpp"

namespace heddle::engine::requester_transfer_test {
namespace {

using test::RequesterTest;
using transport::Command;
using transport::Opcode;

// ---- transfers that need several commands -------------------------------------------------------

TEST_F(RequesterTest, WhatIsOneCommandAndWhatIsNot) {
  Remote remote(1);
  Remote messages_only(1, 0);
  Remote near(1);
  near.direct = local.data();
  near.direct_bytes = 100;
  Command command;
  EXPECT_TRUE(small.whole({Kind::put, local.data(), 100, &remote, 9}, &command));
  EXPECT_EQ(command.opcode, Opcode::put);
  EXPECT_EQ(command.rank, 1U);
  EXPECT_EQ(command.worker, 3U);
  EXPECT_EQ(command.local, local.data());
  EXPECT_EQ(command.bytes, 100U);
  EXPECT_EQ(command.offset, 9U);
  EXPECT_EQ(RemoteRegion::of(command.remote), &remote);
  EXPECT_FALSE(small.whole({Kind::put, local.data(), 101, &remote, 9}, &command)) << "longer than the transport's";
  EXPECT_FALSE(small.whole({Kind::get, local.data(), 8, &messages_only, 0}, &command));
  EXPECT_FALSE(small.whole({Kind::get, local.data(), 8, &near, 92}, &command)) << "plain loads do that";
  EXPECT_TRUE(small.whole({Kind::get, local.data(), 8, &near, 93}, &command));
  EXPECT_TRUE(small.fits_one(40, 56));
  EXPECT_TRUE(small.fits_one(33, 56)) << "33 is 40 with its zeros";
  EXPECT_FALSE(small.fits_one(41, 56));
  EXPECT_FALSE(small.fits_one(40, 57));
}

TEST_F(RequesterTest, ALongTransferIsCutAndToldOnce) {
  for (const Kind kind : {Kind::put, Kind::get}) {
    played.posted.clear();
    told = {};
    Remote remote(1);
    ASSERT_EQ(small.try_block({kind, local.data(), 350, &remote, 16}, told.completion()), HEDDLE_POSTED);
    ASSERT_EQ(played.posted.size(), 4U);
    EXPECT_EQ(slots(), 1U);
    for (std::size_t i = 0; i < 4; ++i) {
      const Command& piece = played.posted[i].command;
      EXPECT_EQ(piece.opcode, kind == Kind::put ? Opcode::put : Opcode::get);
      EXPECT_EQ(piece.local, local.data() + 100 * i);
      EXPECT_EQ(piece.offset, 16 + 100 * i);
      EXPECT_EQ(piece.bytes, i == 3 ? 50U : 100U);
      EXPECT_EQ(piece.token, played.posted[0].token);
      EXPECT_EQ(told.times, 0);
      played.complete(piece.token);
      EXPECT_EQ(progress(), 1);
    }
    EXPECT_EQ(told.times, 1);
    EXPECT_EQ(told.status, HEDDLE_DONE);
    expect_nothing_under_way();
  }
}

TEST_F(RequesterTest, TheRestOfATransferWaitsForRoomAndDoneAtOnceIsDone) {
  Remote remote(1);
  played.room = 0;
  EXPECT_EQ(small.try_block({Kind::put, local.data(), 350, &remote, 0}, told.completion()), HEDDLE_AGAIN);
  expect_nothing_under_way();
  EXPECT_FALSE(core.operations.marks().names_remote(&remote));

  for (std::size_t k = 1; k < 4; ++k) {  // every part of the four
    played.posted.clear();
    told = {};
    played.room = k;
    ASSERT_EQ(small.try_block({Kind::put, local.data(), 350, &remote, 0}, told.completion()), HEDDLE_POSTED);
    EXPECT_TRUE(core.operations.marks().names_remote(&remote));
    ASSERT_EQ(core.operations.pending().size(), 1U);
    EXPECT_EQ(progress(), 0) << "still no room";
    EXPECT_EQ(played.posted.size(), k);
    Operation* const operation = core.operations.pending().pop_front();
    core.operations.pending().push_back(operation);
    for (std::size_t room = k + 1; room <= 4; ++room) {
      played.room = room;
      EXPECT_TRUE(small.advance(*operation));
      EXPECT_EQ(played.posted.size(), room);
      EXPECT_EQ(played.posted.back().command.offset, 100 * (room - 1)) << "none twice, none left out";
    }
    EXPECT_TRUE(operation->posted);
    EXPECT_EQ(told.times, 0);
    for (const auto& one : played.posted) played.complete(one.token);
    static_cast<void>(progress());
    EXPECT_EQ(told.times, 1);
    expect_nothing_under_way();
  }

  played.posted.clear();
  told = {};
  played.room = 100;
  played.done_at_once = true;
  EXPECT_EQ(small.try_block({Kind::get, local.data(), 350, &remote, 0}, told.completion()), HEDDLE_DONE);
  EXPECT_EQ(played.posted.size(), 4U);
  EXPECT_EQ(told.times, 0);
  expect_nothing_under_way();
}

TEST_F(RequesterTest, MemoryThatEndsWithinATransferEndsItWithAnError) {
  Remote remote(1);
  played.memory = 0;
  EXPECT_EQ(small.try_block({Kind::put, local.data(), 350, &remote, 0}, told.completion()), HEDDLE_ERR_NO_MEMORY);
  EXPECT_EQ(told.times, 0);
  expect_nothing_under_way();
  played.memory = 2;
  ASSERT_EQ(small.try_block({Kind::put, local.data(), 350, &remote, 0}, told.completion()), HEDDLE_POSTED);
  EXPECT_TRUE(core.operations.pending().empty()) << "nothing more is posted of it";
  played.complete(played.posted[0].token);
  EXPECT_EQ(progress(), 1);
  EXPECT_EQ(told.times, 0);
  played.complete(played.posted[1].token);
  EXPECT_EQ(progress(), 1);
  EXPECT_EQ(told.times, 1);
  EXPECT_EQ(told.status, HEDDLE_ERR_NO_MEMORY);
  expect_nothing_under_way();
}

TEST_F(RequesterTest, AFullPoolRefusesEveryOperation) {
  Remote remote(1);
  fill_slots();
  EXPECT_EQ(small.try_block({Kind::put, local.data(), 350, &remote, 0}, kNoCompletion), HEDDLE_AGAIN);
  EXPECT_EQ(small.try_atomic({HEDDLE_ADD64, &remote, 0, 1, 0, nullptr}, kNoCompletion), HEDDLE_AGAIN);
  EXPECT_EQ(small.try_parts({1, 0}, {1, 0, {}, local.data(), 300}, nullptr, kNoCompletion), HEDDLE_AGAIN);
  EXPECT_EQ(small.try_put_signal(Pieces(BlockTransfer{Kind::put, local.data(), 8, &remote, 0}), 1, &remote, 0,
                                 {{}, 1, HEDDLE_SIGNAL_SET}, kNoCompletion),
            HEDDLE_AGAIN);
  EXPECT_EQ(played.posts, 0U);
}

TEST_F(RequesterTest, DirectMemoryIsReadAndWrittenWithoutTheTransport) {
  std::array<std::byte, 64> theirs{};
  Remote remote(1);
  remote.direct = theirs.data();
  remote.direct_bytes = remote.bytes = sizeof theirs;
  local[0] = std::byte{9};
  EXPECT_EQ(core.requester.try_block({Kind::put, local.data(), 8, &remote, 16}, told.completion()), HEDDLE_DONE);
  EXPECT_EQ(theirs[16], std::byte{9});
  theirs[40] = std::byte{5};
  EXPECT_EQ(core.requester.try_block({Kind::get, local.data() + 1, 1, &remote, 40}, told.completion()), HEDDLE_DONE);
  EXPECT_EQ(local[1], std::byte{5});
  std::uint64_t old = 1;
  EXPECT_EQ(core.requester.try_atomic({HEDDLE_ADD64, &remote, 16, 3, 0, &old}, told.completion()), HEDDLE_DONE);
  EXPECT_EQ(old, 9U);
  EXPECT_EQ(theirs[16], std::byte{12});
  EXPECT_EQ(played.posts, 0U);
  EXPECT_EQ(told.times, 0);
  expect_nothing_under_way();
}

// ---- requests to the owner ----------------------------------------------------------------------

TEST_F(RequesterTest, APutThatTheTransportLacksIsAskedOfTheOwner) {
  Remote remote(1, transport::bit(Opcode::get));
  std::memset(local.data(), 7, 80);
  ASSERT_EQ(small.try_block({Kind::put, local.data(), 70, &remote, 24}, told.completion()), HEDDLE_POSTED);
  // a message of the transport has 96 bytes, the header of a request 64
  ASSERT_EQ(played.posted.size(), 3U);
  std::uint64_t at = 0;
  for (const auto& one : played.posted) {
    EXPECT_EQ(one.opcode, Opcode::message);
    EXPECT_EQ(one.rank, 1U);
    EXPECT_EQ(one.command.worker, 3U) << "the one that serves the region";
    EXPECT_EQ(one.immediate, wire::immediate_of(wire::Kind::request));
    const auto request = wire::decode_request(one.packet);
    ASSERT_TRUE(request.has_value());
    EXPECT_EQ(request->head.kind, wire::RequestKind::put);
    EXPECT_EQ(request->head.region, 77U);
    EXPECT_EQ(request->head.offset, 24 + at);
    EXPECT_EQ(request->payload.front(), std::byte{7});
    at += request->payload.size();
    EXPECT_EQ(OperationPool::role(request->head.token), Role::reply);
  }
  EXPECT_EQ(at, 70U);
  Operation* const operation = core.operations.find(played.posted[0].token);
  ASSERT_NE(operation, nullptr);
  EXPECT_EQ(operation->served, 3U);
  EXPECT_EQ(operation->unfinished, 3U) << "the answers";
  EXPECT_EQ(operation->unfreed, 3U) << "the messages that carry it";
  for (int i = 0; i < 3; ++i) {
    --operation->served;
    core.operations.complete(*operation, HEDDLE_DONE, 1);
  }
  EXPECT_EQ(told.times, 0) << "the source is in use until the carriers have ended";
  complete_all();
  EXPECT_EQ(told.times, 1);
  EXPECT_EQ(told.status, HEDDLE_DONE);
  expect_nothing_under_way();
}

TEST_F(RequesterTest, AGetOfTheOwnerIsOneRequestAtATime) {
  played.free_at_once = played.done_at_once = true;  // the carriers
  Remote remote(1, 0);
  const Pieces two(local.data(), &remote, 0, {200, 2, 300, 400});
  ASSERT_EQ(small.try_transfer(Kind::get, two, 1, told.completion()), HEDDLE_POSTED);
  ASSERT_EQ(played.posted.size(), 1U);
  const auto request = wire::decode_request(played.posted[0].packet);
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->head.kind, wire::RequestKind::get);
  EXPECT_EQ(request->head.bytes, 200U) << "whole: its answers are cut";
  Operation* const operation = core.operations.find(request->head.token);
  ASSERT_NE(operation, nullptr);
  EXPECT_EQ(operation->window, local.data());
  EXPECT_EQ(operation->window_left, 200U);
  EXPECT_EQ(progress(), 0) << "the second waits for the first's answer";
  --operation->served;
  core.operations.complete(*operation, HEDDLE_DONE, 1);
  EXPECT_EQ(progress(), 1);
  ASSERT_EQ(played.posted.size(), 2U);
  EXPECT_EQ(wire::decode_request(played.posted[1].packet)->head.offset, 400U);
  EXPECT_EQ(operation->window, local.data() + 300);
  EXPECT_EQ(told.times, 0);
  --operation->served;
  core.operations.complete(*operation, HEDDLE_DONE, 1);
  EXPECT_EQ(told.times, 1);
  expect_nothing_under_way();
}

// A thread that waits advances its own worker, and perhaps no thread advances the one that serves
// the region.
TEST_F(RequesterTest, MemoryOfThisRankIsAskedOfThisWorker) {
  Remote remote(0, 0);
  std::uint64_t old = 0;
  ASSERT_EQ(core.requester.try_block({Kind::put, local.data(), 8, &remote, 0}, told.completion()), HEDDLE_POSTED);
  ASSERT_EQ(core.requester.try_block({Kind::get, local.data(), 8, &remote, 0}, told.completion()), HEDDLE_POSTED);
  ASSERT_EQ(core.requester.try_atomic({HEDDLE_ADD64, &remote, 8, 3, 4, &old}, told.completion()), HEDDLE_POSTED);
  ASSERT_EQ(played.posted.size(), 3U);
  for (const auto& one : played.posted) {
    EXPECT_EQ(one.command.worker, core.index);
    const auto request = wire::decode_request(one.packet);
    ASSERT_TRUE(request.has_value());
    Operation* const operation = core.operations.find(request->head.token);
    ASSERT_NE(operation, nullptr);
    EXPECT_EQ(operation->served_worker, core.index) << "the answer is this worker's";
    --operation->served;
    core.operations.complete(*operation, HEDDLE_DONE, 0);
  }
  complete_all();
  EXPECT_EQ(told.times, 3);
  expect_nothing_under_way();
}

TEST_F(RequesterTest, ACarrierThatDoesNotArriveEndsTheRequest) {
  Remote remote(1, 0);
  played.room = 0;
  EXPECT_EQ(core.requester.try_block({Kind::get, local.data(), 8, &remote, 0}, told.completion()), HEDDLE_AGAIN);
  expect_nothing_under_way();
  played.room = 1;
  ASSERT_EQ(core.requester.try_block({Kind::get, local.data(), 8, &remote, 0}, told.completion()), HEDDLE_POSTED);
  complete_all(HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(told.times, 1);
  EXPECT_EQ(told.status, HEDDLE_ERR_PEER_FAILED);
  expect_nothing_under_way();
}

// ---- atomics and signals ------------------------------------------------------------------------

TEST_F(RequesterTest, AnAtomicIsACommandOrARequest) {
  Remote native(1, transport::bit(Opcode::atomic));
  std::uint64_t old = 0;
  ASSERT_EQ(core.requester.try_atomic({HEDDLE_ADD64, &native, 8, 3, 4, &old}, told.completion()), HEDDLE_POSTED);
  const Command& command = played.posted.at(0).command;
  EXPECT_EQ(command.opcode, Opcode::atomic);
  EXPECT_EQ(command.local, &old);
  EXPECT_EQ(command.bytes, 8U);
  EXPECT_EQ(command.offset, 8U);
  EXPECT_EQ(command.operand, 3U);
  EXPECT_EQ(command.compare, 4U);
  EXPECT_EQ(command.atomic_op, HEDDLE_ADD64);
  complete_all();
  EXPECT_EQ(told.times, 1);

  Remote asked(1);
  ASSERT_EQ(core.requester.try_atomic({HEDDLE_ADD64, &asked, 8, 3, 4, &old}, told.completion()), HEDDLE_POSTED);
  const auto request = wire::decode_request(played.posted.at(0).packet);
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->head.kind, wire::RequestKind::atomic);
  EXPECT_EQ(request->head.operand, 3U);
  EXPECT_EQ(request->head.compare, 4U);
  Operation* const operation = core.operations.find(request->head.token);
  ASSERT_NE(operation, nullptr);
  EXPECT_EQ(operation->served, 1U);
  complete_all();
  EXPECT_EQ(told.times, 1) << "the answer ends it";
  --operation->served;
  core.operations.complete(*operation, HEDDLE_DONE, 1);
  EXPECT_EQ(told.times, 2);
  played.room = 0;
  EXPECT_EQ(core.requester.try_atomic({HEDDLE_ADD64, &native, 8, 3, 4, &old}, told.completion()), HEDDLE_AGAIN);
  EXPECT_EQ(core.requester.try_atomic({HEDDLE_ADD64, &asked, 8, 3, 4, &old}, told.completion()), HEDDLE_AGAIN);
  expect_nothing_under_way();
}

TEST_F(RequesterTest, ASignalFollowsTheDataAndNotAnError) {
  for (const base::Status data : {HEDDLE_DONE, HEDDLE_ERR_RANGE}) {
    told = {};
    Remote remote(1, kMemory | transport::bit(Opcode::atomic));
    const Pieces pieces(BlockTransfer{Kind::put, local.data(), 64, &remote, 0});
    ASSERT_EQ(core.requester.try_put_signal(pieces, 1, &remote, 128, {{}, 5, HEDDLE_SIGNAL_SET}, told.completion()),
              HEDDLE_POSTED);
    ASSERT_EQ(played.posted.size(), 1U);
    EXPECT_EQ(progress(), 0) << "the data is under way";
    EXPECT_EQ(played.posted.size(), 1U);
    played.complete(played.posted[0].token, data);
    static_cast<void>(progress());
    if (data == HEDDLE_DONE) {
      ASSERT_EQ(played.posted.size(), 2U);
      EXPECT_EQ(played.posted[1].command.opcode, Opcode::atomic);
      EXPECT_EQ(played.posted[1].command.offset, 128U);
      EXPECT_EQ(played.posted[1].command.operand, 5U);
      EXPECT_EQ(played.posted[1].command.atomic_op, HEDDLE_SWAP64);
      EXPECT_EQ(told.times, 0);
      played.complete(played.posted[1].token);
    }
    static_cast<void>(progress());
    EXPECT_EQ(told.times, 1);
    EXPECT_EQ(told.status, data);
    EXPECT_EQ(played.posted.size(), data == HEDDLE_DONE ? 2U : 1U);
    played.posted.clear();
    expect_nothing_under_way();
  }
}

// ---- a long active message ----------------------------------------------------------------------

TEST_F(RequesterTest, ALongMessageGoesInPartsAndEndsByOneAnswer) {
  LongMessage message;
  message.handler = 6;
  message.header_bytes = 3;
  message.header[2] = std::byte{8};
  message.payload = local.data();
  message.payload_bytes = 150;
  for (std::size_t i = 0; i < 150; ++i) local[i] = static_cast<std::byte>(i);
  played.room = 0;
  EXPECT_EQ(small.try_parts({1, 2}, message, nullptr, told.completion()), HEDDLE_AGAIN);
  expect_nothing_under_way();
  played.room = 1;
  ASSERT_EQ(small.try_parts({1, 2}, message, nullptr, told.completion()), HEDDLE_POSTED);
  ASSERT_EQ(core.operations.pending().size(), 1U);
  Operation* const operation = core.operations.pending().pop_front();
  core.operations.pending().push_back(operation);
  played.memory = 1;
  EXPECT_FALSE(small.advance(*operation)) << "the target waits for the rest: it follows when there is memory";
  EXPECT_EQ(operation->status, HEDDLE_DONE);
  played.room = played.memory = 100;
  EXPECT_TRUE(small.advance(*operation));
  std::uint64_t at = 0;
  ASSERT_EQ(played.posted.size(), 3U) << "48 + 56 + 46";
  for (const auto& one : played.posted) {
    EXPECT_LE(one.packet.size(), 96U);
    EXPECT_EQ(one.immediate, wire::immediate_of(wire::Kind::fragment));
    EXPECT_EQ(one.command.worker, 2U);
    const auto part = wire::decode_fragment(one.packet);
    ASSERT_TRUE(part.has_value());
    EXPECT_EQ(part->head.offset, at);
    EXPECT_EQ(part->head.total_bytes, 150U);
    EXPECT_EQ(part->head.handler, 6U);
    EXPECT_EQ(part->head.message, operation->message_number);
    EXPECT_EQ(part->header.size(), at == 0 ? 3U : 0U);
    if (at == 0) {
      EXPECT_EQ(part->header[2], std::byte{8});
    }
    EXPECT_EQ(std::memcmp(part->payload.data(), local.data() + at, part->payload.size()), 0);
    at += part->payload.size();
  }
  EXPECT_EQ(at, 150U);
  EXPECT_EQ(operation->served, 1U) << "one answer for all";
  for (const auto& one : played.posted) played.complete(one.token);
  static_cast<void>(progress());
  EXPECT_EQ(told.times, 0);
  --operation->served;
  core.operations.complete(*operation, HEDDLE_DONE, 1);
  EXPECT_EQ(told.times, 1);
  expect_nothing_under_way();
}

}  // namespace
}  // namespace heddle::engine::requester_transfer_test
