// Large puts and gets over both adapters of a rank.
#include <infiniband/verbs.h>

#include <algorithm>
#include <vector>

#include "transport/test/verbs_fixtures.hpp"

namespace heddle::transport::verbs::verbs_stripes_test {
namespace {

TEST_F(VerbsStripes, LongTransfersTakeTwoRequests) {
  open(two(), 2);
  connect(2);
  for (const std::uint32_t worker : {0U, 1U}) {
    for (const Opcode opcode : {Opcode::put, Opcode::get}) {
      EXPECT_EQ(requests_of(opcode, kAbove, worker), 1U);
      for (const std::uint64_t bytes : {kAbove + 1, kAbove + 4095, std::uint64_t{700'001}, kRegion - 8})
        EXPECT_EQ(requests_of(opcode, bytes, worker), 2U) << bytes;
    }
  }
}

TEST_F(VerbsStripes, OneAdapterSplitsNothing) {
  open(setting({{"HEDDLE_NET_DEVICES", "idle0"}, {"HEDDLE_VERBS_STRIPE_BYTES", std::to_string(kAbove)}}));
  connect();
  EXPECT_EQ(requests_of(Opcode::put, kRegion - 8), 1U);
}

// More transfers than may be under way to one peer, and in all more than can be split at a time.
TEST_F(VerbsStripes, ManyAtATimeEndOnceEach) {
  open(two());
  connect();
  std::vector<std::byte> local = pattern(3, kAbove + 8);
  for (int round = 0; round < 20; ++round) {
    std::vector<Token> tokens;
    for (int i = 0; i < 40; ++i) {
      Token token = 0;
      ASSERT_TRUE(world_->until(
          [&] { return (token = world_->port(0).post_one(transfer(Opcode::put, memory_, &local))) != 0; }));
      tokens.push_back(token);
    }
    ASSERT_TRUE(world_->until([&] { return world_->port(0).outstanding() == 0; }));
    for (const Token token : tokens) EXPECT_EQ(world_->port(0).status(token), HEDDLE_DONE);
  }
}

TEST_F(VerbsStripes, ACutNetworkEndsBothHalves) {
  open(two());
  connect();
  std::vector<std::byte> local = pattern(3, kAbove + 8);
  idle_->holds = true;
  const Token token = post(&local);
  EXPECT_FALSE(world_->port(0).done(token));
  idle_->cut = true;
  release();
  ASSERT_TRUE(world_->until([&] { return world_->port(0).outstanding() == 0; }));
  EXPECT_EQ(world_->port(0).status(token), HEDDLE_ERR_PEER_FAILED);
}

TEST_F(VerbsStripes, ADeathEndsBothHalves) {
  open(two());
  connect();
  std::vector<std::byte> local = pattern(3, kAbove + 8);
  idle_->holds = true;
  const Token token = post(&local);
  world_->fail(1);
  ASSERT_TRUE(test::within_time([&] { return world_->port(0).done(token); }, [&] { world_->port(0).poll(); }));
  EXPECT_EQ(world_->port(0).status(token), HEDDLE_ERR_PEER_FAILED);
}

// While two workers connect, the adapters can make only 0, 1, 2, … more objects. If only the second
// pair is missing, transfers go by the first pair alone.
TEST_F(VerbsStripes, NoSecondPairIsNoFault) {
  std::vector<std::uint64_t> requests;
  for (std::uint64_t left = 0; left < 6; ++left) {
    open(two());
    idle_->objects_left = left;
    Token token = 0;
    static_cast<void>(world_->until([&] { return (token = world_->port(0).post_one(message_to(1, 0, {}))) != 0; }));
    for (int i = 0; i < 100; ++i) world_->pump();
    idle_->objects_left = UINT64_MAX;
    ASSERT_TRUE(world_->until([&] { return world_->port(0).outstanding() == 0; })) << left;
    requests.push_back(requests_of(Opcode::get, kAbove + 8));
    TearDown();
  }
  std::ranges::sort(requests);
  EXPECT_EQ(requests.front(), 1U) << "the second pair is never missing";
  EXPECT_EQ(requests.back(), 2U);
}

// After a rank's other adapter has failed, its transfers go whole, by the worker's own adapter.
TEST_F(VerbsStripes, TheOwnAdapterGoesOn) {
  open(two());
  connect();
  EXPECT_EQ(requests_of(Opcode::put, kAbove + 8), 2U);
  fail_other();
  for (const Opcode opcode : {Opcode::put, Opcode::get}) EXPECT_EQ(requests_of(opcode, kAbove + 8), 1U);
}

// Memory that the other adapter does not register goes by the own one.
TEST_F(VerbsStripes, AnAdapterThatFailsWhileATransferIsPosted) {
  open(two());
  connect();
  EXPECT_TRUE(tell_event_(1, IBV_EVENT_DEVICE_FATAL));
  EXPECT_EQ(requests_of(Opcode::put, kAbove + 8), 1U);
}

}  // namespace
}  // namespace heddle::transport::verbs::verbs_stripes_test
