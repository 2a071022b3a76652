// The verbs transport over the idle libibverbs: what networks, adapters and peers do to it.
#include <optional>

#include "transport/test/verbs_fixtures.hpp"

namespace heddle::transport::verbs::verbs_faults_test {
namespace {

TEST_F(Verbs, LostAndDoubledDatagramsDoNoHarm) {
  idle_->lose_every = 3;
  idle_->twice_every = 4;
  World world(setting(), 4, 2);
  for (std::uint32_t to = 0; to < 4; ++to) {
    for (std::uint32_t from = 0; from < 4; ++from) {
      ASSERT_TRUE(world.must_send(world.port(from, from % 2), message_to(to, to % 2, pattern(from, 100))));
    }
  }
  for (std::uint32_t to = 0; to < 4; ++to) {
    EXPECT_TRUE(world.until([&] { return world.port(to, to % 2).arrivals.size() == 4; })) << to;
  }
}

// With and without completions of before.
TEST_F(Verbs, ABrokenPairForDatagramsIsSetUpAgain) {
  for (const bool keeps : {false, true}) {
    idle_->keeps_completions = keeps;
    World world(setting(), 3, 2);
    ASSERT_EQ(world.run(world.port(0), message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
    for (int round = 0; round < 4; ++round) {
      break_datagrams_();
      for (std::uint32_t from = 0; from < 2; ++from) {
        ASSERT_TRUE(world.must_send(world.port(from, round % 2), message_to(2, round / 2, pattern(from, 100))));
      }
    }
    EXPECT_TRUE(
        world.until([&] { return world.port(2, 0).arrivals.size() == 4 && world.port(2, 1).arrivals.size() == 4; }));
    EXPECT_TRUE(world.quiet());
    for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(world.transport(rank).lost(2), 0U) << rank;
  }
}

TEST_F(Verbs, APairForDatagramsThatCannotBeRepairedEndsWhatWaits) {
  World world(setting({{"HEDDLE_NETWORK_TIMEOUT", "0"}}), 3);
  ASSERT_EQ(world.run(world.port(0), message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
  idle_->refuses_resets = true;
  break_datagrams_();
  EXPECT_EQ(world.run(world.port(0), message_to(2, 0, pattern(1, 8))), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(world.run(world.port(0), message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
}

// The route to a rank is not known at once.
TEST_F(Verbs, ARouteThatIsNotKnownYetIsLookedForAgain) {
  idle_->fail_routes = 5;
  idle_->fail_connects = 3;
  World world(setting(), 2);
  EXPECT_EQ(world.run(world.port(0), message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
  EXPECT_TRUE(world.until([&] { return world.port(1).arrivals.size() == 1; }));
  EXPECT_EQ(idle_->fail_routes + idle_->fail_connects, 0U);
}

TEST_F(Verbs, ARouteThatIsNotFoundIsAnError) {
  idle_->fail_routes = UINT32_MAX;
  World world(setting({{"HEDDLE_NETWORK_TIMEOUT", "1s"}}), 2);
  EXPECT_EQ(world.run(world.port(0), message_to(1, 0, pattern(1, 8))), HEDDLE_ERR_CONFIG);
}

// If the kernel does not copy registered pages at a fork, the child lacks them. So no other data
// may be in the pages of the transport's own memory.
TEST_F(Verbs, AForkTakesNothingElseFromTheChild) {
  const std::uint64_t unaligned = idle_->unaligned;
  World world(setting(), 2);
  ASSERT_EQ(world.run(world.port(0), message_to(1, 0, pattern(1, 2000))), HEDDLE_DONE);
  EXPECT_EQ(idle_->unaligned, unaligned);
  EXPECT_TRUE(idle_->fork_safe);
}

// Not all drivers take the completions of a pair out of the queue when it is destroyed.
TEST_F(Verbs, CompletionsOfDestroyedPairsTakeNoRoom) {
  constexpr std::uint32_t kLost = 32;  // ranks
  constexpr std::uint32_t kRanks = kLost + 9;
  World world(setting({{"HEDDLE_WORKER_OPERATIONS", "4096"}}), kRanks);
  const std::vector<std::byte> payload = pattern(1, 8);
  const auto send_many = [&](std::uint32_t rank) {
    for (int i = 0; i < 62; ++i) {
      if (!test::within_time([&] { return world.port(0).send(message_to(rank, 0, payload)); })) return false;
    }
    return true;
  };
  for (std::uint32_t rank = 1; rank < kRanks; ++rank)
    ASSERT_EQ(world.run(world.port(0), message_to(rank, 0, payload)), HEDDLE_DONE);
  idle_->keeps_completions = idle_->holds = true;
  for (std::uint32_t rank = 1; rank <= kLost; ++rank) ASSERT_TRUE(send_many(rank));
  for (std::uint32_t rank = 1; rank <= kLost; ++rank) world.fail(rank);
  ASSERT_TRUE(world.quiet());
  release();
  for (std::uint32_t rank = kLost + 1; rank < kRanks; ++rank) ASSERT_TRUE(send_many(rank));
  EXPECT_TRUE(world.quiet());
  for (std::uint32_t rank = kLost + 1; rank < kRanks; ++rank)
    EXPECT_TRUE(world.until([&] { return world.port(rank).arrivals.size() == 63; })) << rank;
}

TEST_F(Verbs, ForgedDatagramsAreIgnored) {
  World world(setting(), 2);
  const std::vector<std::byte> garbage = pattern(7, 400);
  int placed = 0;
  for (std::uint32_t pair = 0; pair < 16; ++pair) {
    for (const std::uint32_t bytes : {0U, 1U, 23U, 24U, 56U, 400U})
      placed += forge_(pair, garbage.data(), bytes) ? 1 : 0;
  }
  EXPECT_EQ(placed, 2 * 6);
  ASSERT_TRUE(world.must_send(world.port(0), message_to(1, 0, pattern(1, 100))));
  EXPECT_TRUE(world.until([&] { return world.port(1).arrivals.size() == 1; }));
}

// A whole window is taken. The message that exceeds it is not taken, nor are messages that come
// behind it.
TEST_F(Verbs, ASenderThatExceedsItsCreditIsDisconnected) {
  constexpr std::uint32_t kWindow = 8192;
  World world(setting({{"HEDDLE_NETWORK_WINDOW_BYTES", "8K"}}), 2);
  conformance::Port& receiver = world.port(1);
  ASSERT_EQ(world.run(world.port(0), message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
  ASSERT_TRUE(world.until([&] { return receiver.arrivals.size() == 1; }));
  std::uint32_t pair = 0;  // the receiver's
  for (std::uint32_t number = 2; number < 16 && pair == 0; ++number) {
    if (!forge_message_(number, 8)) continue;
    world.pump();
    if (receiver.arrivals.size() == 2) pair = number;
  }
  ASSERT_NE(pair, 0U);
  for (const std::uint32_t bytes : {4096U, kWindow - 4096 - 16}) ASSERT_TRUE(forge_message_(pair, bytes));
  receiver.poll(64);
  EXPECT_EQ(receiver.arrivals.size(), 4U);
  EXPECT_EQ(receiver.worker().counters().malformed, 0U);
  EXPECT_EQ(world.transport(1).lost(0), 0U);
  receiver.poll(64);  // consumes, and tells
  for (const std::uint32_t bytes : {4096U, 4088U, 16U, 8U, 8U}) ASSERT_TRUE(forge_message_(pair, bytes));
  receiver.poll(64);
  EXPECT_EQ(receiver.arrivals.size(), 6U);
  EXPECT_EQ(receiver.worker().counters().malformed, 1U);
  EXPECT_NE(world.transport(1).lost(0), 0U);
  EXPECT_FALSE(forge_message_(pair, 8));
  EXPECT_TRUE(world.until([&] { return world.transport(0).lost(1) != 0; }));
  EXPECT_EQ(world.run(world.port(0), message_to(1, 0, pattern(1, 8))), HEDDLE_ERR_PEER_FAILED);
}

TEST_F(Verbs, MemoryThatCannotBeRegisteredIsWaitedFor) {
  World world(setting(), 2);
  idle_->most_registered = idle_->registered + 100;
  ASSERT_TRUE(send_alone(world.port(0), message_to(1, 0, pattern(1, 100))));
  pump_for(world, std::chrono::milliseconds(100));
  EXPECT_TRUE(world.port(1).arrivals.empty());
  idle_->most_registered = UINT64_MAX;
  EXPECT_TRUE(world.until([&] { return world.port(1).arrivals.size() == 1; }));
}

// Why there is no transport, and what to do.
TEST_F(Verbs, AMissingAdapterIsExplained) {
  const auto why = [&](const std::string& device, std::uint32_t adapters) -> std::string {
    idle_->adapters = adapters;
    try {
      const World world(setting({{"HEDDLE_NET_DEVICES", device}}), 1);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const std::string none = why("", 0);
  EXPECT_TRUE(has(none, "no RDMA adapter;") && has(none, "HEDDLE_TRANSPORTS=shm,ucx") && has(none, "kernel module"))
      << none;
  const std::string down = why("", 0b100);
  EXPECT_TRUE(has(down, "idle2:1 (1: DOWN)") && has(down, "HEDDLE_TRANSPORTS=shm,ucx")) << down;
  const std::string other = why("mlx5_0", 0b1111);
  EXPECT_TRUE(has(other, "\"mlx5_0\"") && has(other, "up: idle0:1, idle3:1, idle1:1") &&
              has(other, "idle2:1 (1: DOWN)"))
      << other;
  EXPECT_EQ(why("idle1", 0b1111), "");
  EXPECT_EQ(why("idle0:1", 0b1111), "");
}

TEST_F(Verbs, AGidIndexIsANumberThatThereCanBe) {
  for (const char* index : {"-1", "256", "99999999999", "3x", "x"}) {
    EXPECT_THROW(World(setting({{"HEDDLE_VERBS_GID_INDEX", index}}), 1), std::runtime_error) << index;
  }
  EXPECT_NO_THROW(World(setting({{"HEDDLE_VERBS_GID_INDEX", "0"}}), 1));
}

TEST_F(Verbs, AnAdapterWithTooFewEntriesIsRefused) {
  idle_->most_receives = 32;
  EXPECT_THROW(World(setting(), 1), std::runtime_error);
}

TEST_F(Verbs, WhatIsUnderWayFailsWithItsPeer) {
  World world(setting(), 2);
  Memory memory(world);
  ASSERT_EQ(world.run(world.port(0), memory.put()), HEDDLE_DONE);
  idle_->holds = true;
  std::vector<Token> tokens;
  for (const std::uint64_t bytes : {8, 4096, 8, 4096})
    tokens.push_back(world.must_post(world.port(0), memory.put(bytes)));
  ASSERT_TRUE(send_alone(world.port(0), message_to(1, 0, pattern(1, 2000))));
  pump_for(world, std::chrono::milliseconds(20));
  for (const Token token : tokens) EXPECT_FALSE(world.port(0).done(token));
  world.fail(1);
  ASSERT_TRUE(world.quiet());
  for (const Token token : tokens) EXPECT_EQ(world.port(0).status(token), HEDDLE_ERR_PEER_FAILED);
  release();
}

// A port that closes gives its transfers up if they do not end, and no more than these.
TEST_F(Verbs, ClosingEndsOnlyThePairsOfTransfers) {
  World world(setting(), 3);
  Memory memory(world);
  ASSERT_EQ(world.run(world.port(0), memory.put()), HEDDLE_DONE);
  ASSERT_EQ(world.run(world.port(0), message_to(2, 0, pattern(1, 8))), HEDDLE_DONE);
  ASSERT_TRUE(world.until([&] { return world.port(2).arrivals.size() == 1; }));
  const std::uint64_t pairs = idle_->pairs;
  idle_->holds = true;
  ASSERT_NE(world.must_post(world.port(0), memory.put()), 0U);
  ASSERT_TRUE(send_alone(world.port(0), message_to(2, 0, pattern(1, 8))));
  world.close_port(0, 0);
  EXPECT_EQ(idle_->pairs, pairs - 1);
  release();
  EXPECT_TRUE(world.until([&] { return world.port(2).arrivals.size() == 2; }));
}

// A worker that was closed and has given transfers up is no lost rank.
TEST_F(Verbs, AWorkerThatClosesInHasteIsNoLostRank) {
  World world(setting(), 2, 2);
  Memory memory(world);
  ASSERT_EQ(world.run(world.port(0), memory.put()), HEDDLE_DONE);
  ASSERT_EQ(world.run(world.port(0), message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
  idle_->holds = true;
  ASSERT_NE(world.must_post(world.port(0), memory.put()), 0U);
  ASSERT_TRUE(world.port(1).send(message_to(0, 0, pattern(2, 8))));
  world.close_port(0, 0);
  pump_for(world, std::chrono::milliseconds(20));
  release();
  ASSERT_TRUE(world.quiet());
  EXPECT_EQ(world.run(world.port(1), message_to(0, 0, pattern(3, 8))), HEDDLE_DONE);
  EXPECT_EQ(world.run(world.port(1), message_to(0, 1, pattern(4, 8))), HEDDLE_DONE);
  EXPECT_TRUE(world.until([&] { return world.port(1).arrivals.size() == 1; }));
  EXPECT_EQ(world.transport(1).lost(0), 0U);
}

// Its peer knows that it was closed when the requests to it fail, and was not told of its end.
TEST_F(Verbs, AClosedWorkerThatAnswersNoMoreIsNoLostRank) {
  World world(setting(), 2, 2);
  Memory memory(world);
  conformance::Port& port = world.port(0);
  ASSERT_EQ(world.run(port, memory.put()), HEDDLE_DONE);
  ASSERT_EQ(world.run(port, message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
  idle_->holds = true;
  const Token put = world.must_post(port, memory.put());
  const Token message = world.must_post(port, message_to(1, 0, pattern(2, 2000)));
  ASSERT_TRUE(put != 0 && message != 0);
  world.close_port(1, 0);
  ASSERT_TRUE(world.until([&] { return port.worker().closed({1, 0}); }));
  ASSERT_FALSE(port.done(put) || port.done(message));
  idle_->cut = true;
  release();
  idle_->cut = false;
  ASSERT_TRUE(world.until([&] { return port.done(put) && port.done(message); }));
  EXPECT_EQ(port.status(put), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(port.status(message), HEDDLE_DONE) << "messages to a closed worker are lost";
  EXPECT_EQ(world.run(port, message_to(1, 0, pattern(3, 8))), HEDDLE_DONE);
  EXPECT_EQ(world.run(port, memory.put()), HEDDLE_ERR_PEER_FAILED);
  EXPECT_TRUE(port.worker().closed({1, 0}));
  EXPECT_EQ(world.run(port, message_to(1, 1, pattern(4, 8))), HEDDLE_DONE) << "its other worker goes on";
  EXPECT_EQ(world.transport(0).lost(1), 0U);
  EXPECT_TRUE(world.quiet());
}

TEST_F(Verbs, AClosedWorkerThatIsDisconnectedIsNoLostRank) {
  World world(setting(), 2, 2);
  Memory memory(world);
  conformance::Port& port = world.port(0);
  ASSERT_EQ(world.run(port, memory.put()), HEDDLE_DONE);
  ASSERT_EQ(world.run(port, message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
  idle_->holds = true;
  const Token put = world.must_post(port, memory.put());
  const Token message = world.must_post(port, message_to(1, 0, pattern(2, 2000)));
  ASSERT_TRUE(put != 0 && message != 0);
  world.close_port(1, 0);
  ASSERT_TRUE(world.until([&] { return port.worker().closed({1, 0}); }));
  for (std::uint32_t pair = 2; pair < 16; ++pair) static_cast<void>(forge_message_(pair, 1U << 20));
  ASSERT_TRUE(world.until([&] { return port.done(put) && port.done(message); }));
  EXPECT_EQ(port.worker().counters().malformed, 1U);
  EXPECT_EQ(port.status(put), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(port.status(message), HEDDLE_DONE);
  release();
  EXPECT_EQ(world.run(port, message_to(1, 0, pattern(3, 8))), HEDDLE_DONE);
  EXPECT_EQ(world.run(port, message_to(1, 1, pattern(4, 8))), HEDDLE_DONE) << "its other worker goes on";
  EXPECT_EQ(world.transport(0).lost(1), 0U);
  EXPECT_TRUE(world.quiet());
}

// The adapter of the other end reports nothing to its rank, and that rank sends nothing.
TEST_F(Verbs, AnEndIsToldToThePeer) {
  World world(setting(), 2);
  {
    Memory memory(world);
    ASSERT_EQ(world.run(world.port(0), memory.put()), HEDDLE_DONE);
  }
  std::optional<Memory> memory(std::in_place, world);
  const Command put = memory->put();
  const RemoteMemory gone = *put.remote;
  Command late = put;
  late.remote = &gone;
  std::vector<std::byte> data = pattern(6, 8);
  late.local = data.data();
  memory.reset();
  EXPECT_EQ(world.run(world.port(0), late), HEDDLE_ERR_PEER_FAILED);
  EXPECT_TRUE(world.until([&] { return world.transport(1).lost(0) != 0; }));
  EXPECT_EQ(world.run(world.port(1), message_to(0, 0, pattern(1, 8))), HEDDLE_ERR_PEER_FAILED);
}

// Only the adapter sees the cut, by its own sends.
TEST_F(Verbs, WhoOnlyReceivesLearnsThatTheNetworkIsCut) {
  World world(setting({{"HEDDLE_NETWORK_TIMEOUT", "1s"}}), 2);
  ASSERT_EQ(world.run(world.port(0), message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
  ASSERT_TRUE(world.until([&] { return world.port(1).arrivals.size() == 1; }));
  idle_->cut = true;
  const test::Deadline deadline;
  while (world.transport(1).lost(0) == 0 && !deadline.over()) world.port(1).poll();
  EXPECT_NE(world.transport(1).lost(0), 0U);
}

// It sleeps until something wakes it, and is not polled before.
TEST_F(Verbs, WhoSleepsLearnsThatTheNetworkIsCut) {
  World world(setting({{"HEDDLE_NETWORK_TIMEOUT", "1s"}}), 2);
  ASSERT_EQ(world.run(world.port(0), message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
  ASSERT_TRUE(world.until([&] { return world.port(1).arrivals.size() == 1; }));
  ASSERT_TRUE(world.until([&] { return world.port(1).worker().arm(); }));
  idle_->cut = true;
  const test::Deadline deadline;
  while (world.transport(1).lost(0) == 0 && !deadline.over()) {
    if (world.port(1).worker().has_arrivals()) world.port(1).poll();
    if (world.port(1).worker().has_arrivals()) static_cast<void>(world.port(1).worker().arm());
  }
  EXPECT_NE(world.transport(1).lost(0), 0U);
}

// A peer that was heard is not asked; a silent peer is asked once in a round.
TEST_F(Verbs, SilentPeersAreAskedByEmptyWrites) {
  World world(setting({{"HEDDLE_NETWORK_TIMEOUT", "1s"}}), 2);
  ASSERT_EQ(world.run(world.port(0), message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
  ASSERT_TRUE(world.until([&] { return world.port(1).arrivals.size() == 1; }));
  const std::uint64_t requests = idle_->requests;
  const std::uint64_t signalled = idle_->signalled;
  ASSERT_TRUE(world.until([&] { return idle_->requests - requests >= 6; }));
  EXPECT_EQ(idle_->requests - requests, idle_->signalled - signalled);
  EXPECT_EQ(world.transport(0).lost(1), 0U);
  EXPECT_EQ(world.transport(1).lost(0), 0U);
}

// The other worker finds no memory to connect.
TEST_F(Verbs, AHandshakeThatTakesTooLongEnds) {
  World world(setting({{"HEDDLE_NETWORK_TIMEOUT", "1s"}}), 3);
  ASSERT_EQ(world.run(world.port(0), message_to(2, 0, pattern(1, 8))), HEDDLE_DONE);
  idle_->most_registered = idle_->registered.load();
  ASSERT_TRUE(send_alone(world.port(0), message_to(1, 0, pattern(1, 8))));
  EXPECT_EQ(world.run(world.port(0), message_to(1, 0, pattern(1, 8))), HEDDLE_ERR_PEER_FAILED);
  EXPECT_TRUE(world.until([&] { return world.transport(1).lost(0) != 0; }));
  idle_->most_registered = UINT64_MAX;
  EXPECT_EQ(world.run(world.port(1), message_to(0, 0, pattern(1, 8))), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(world.transport(0).lost(2), 0U);
}

}  // namespace
}  // namespace heddle::transport::verbs::verbs_faults_test
