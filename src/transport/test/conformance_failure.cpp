// The conformance suite: peers that die, workers and ranks that close while others send to them.
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include "base/test_support.hpp"
#include "transport/test/conformance.hpp"

namespace heddle::transport::conformance {
namespace {

constexpr std::uint32_t kVictim = 2;

// Commands of every kind that the memory takes, towards a rank.
std::vector<Command> one_of_each(const RemoteMemory& memory, std::vector<std::byte>& buffer, std::uint64_t bytes) {
  // The message is not in memory that a get or another atomic may be writing now.
  static const std::vector<std::byte> letter(16);
  // Results may come when the caller has gone on: each has a word of its own, since ranks are
  // threads.
  static std::array<std::uint64_t, 4096> results;
  static std::atomic<std::size_t> used{0};
  std::vector<Command> commands;
  commands.push_back(message_to(memory.rank, 0, letter));
  for (const Opcode opcode : {Opcode::put, Opcode::get, Opcode::atomic}) {
    if ((memory.opcodes & bit(opcode)) == 0) continue;
    Command command;
    command.opcode = opcode;
    command.rank = memory.rank;
    command.remote = &memory;
    command.local =
        opcode == Opcode::atomic ? static_cast<void*>(&results[used.fetch_add(1) % results.size()]) : buffer.data();
    command.bytes = opcode == Opcode::atomic ? 8 : bytes;
    command.atomic_op = HEDDLE_ADD64;
    commands.push_back(command);
  }
  return commands;
}

TEST_P(Conformance, CommandsToADeadPeerCompleteWithPeerFailed) {
  World world(GetParam(), 3);
  std::vector<std::byte> region(kVictim * 4096);
  std::vector<std::byte> buffer(4096);
  auto local = world.transport(kVictim).register_memory(region.data(), region.size());
  ASSERT_TRUE(local.ok());
  auto memory = world.transport(0).import(kVictim, local->key);
  ASSERT_TRUE(memory.ok()) << base::last_message();
  const std::vector<std::byte> payload(100);
  ASSERT_NE(world.must_post(world.port(0), message_to(kVictim, 0, payload)), 0U);
  ASSERT_TRUE(world.quiet());

  world.fail(kVictim);
  for (int round = 0; round < 50; ++round) {
    for (const Command& command : one_of_each(*memory, buffer, 4096)) {
      ASSERT_EQ(world.run(world.port(0), command), HEDDLE_ERR_PEER_FAILED) << static_cast<int>(command.opcode);
    }
    // Rank 1 never sent anything to the victim before it died.
    ASSERT_EQ(world.run(world.port(1), message_to(kVictim, 1, payload)), HEDDLE_ERR_PEER_FAILED);
    // Messages between the living ranks go on.
    ASSERT_EQ(world.run(world.port(0), message_to(1, 0, payload)), HEDDLE_DONE);
    ASSERT_EQ(world.run(world.port(1), message_to(0, 0, payload)), HEDDLE_DONE);
  }
  ASSERT_TRUE(world.until([&] { return world.port(0).arrivals.size() >= 50 && world.port(1).arrivals.size() >= 50; }));
  world.transport(0).release(*memory);
}

// Commands that are under way when the peer dies complete, well or with an error, although the peer
// does nothing.
TEST_P(Conformance, OutstandingCommandsToADyingPeerComplete) {
  constexpr std::uint64_t kBytes = 300'000;
  std::vector<std::byte> region(kBytes);
  std::vector<std::vector<std::byte>> buffers(16, std::vector<std::byte>(kBytes));
  World world(GetParam(), 3);
  auto local = world.transport(kVictim).register_memory(region.data(), region.size());
  ASSERT_TRUE(local.ok());
  auto memory = world.transport(0).import(kVictim, local->key);
  ASSERT_TRUE(memory.ok()) << base::last_message();
  Port& port = world.port(0);
  std::vector<Token> tokens;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    for (const Command& command : one_of_each(*memory, buffers[i], kBytes)) {
      // the victim does not poll, so not all may be accepted
      for (int attempt = 0; attempt < 20; ++attempt) {
        const Token token = port.post_one(command);
        port.poll();
        if (token == 0) continue;
        tokens.push_back(token);
        break;
      }
    }
  }
  ASSERT_FALSE(tokens.empty());
  world.fail(kVictim);
  const Deadline deadline;
  while (port.outstanding() > 0 && !deadline.over()) {
    port.poll();
    world.port(1).poll();
  }
  ASSERT_EQ(port.outstanding(), 0U);
  for (const Token token : tokens) {
    EXPECT_TRUE(port.status(token) == HEDDLE_DONE || port.status(token) == HEDDLE_ERR_PEER_FAILED)
        << heddle_status_name(port.status(token));
  }
  // Nothing writes to the victim's memory any more.
  std::fill(region.begin(), region.end(), std::byte{0x77});
  for (int i = 0; i < 100; ++i) port.poll();
  // Only UCX's shared memory cannot be disconnected from a peer that lives, as this one does
  // (transport/ucx/README.md).
  const std::string name = name_of(GetParam());
  const bool untouched = std::all_of(region.begin(), region.end(), [](std::byte b) { return b == std::byte{0x77}; });
  EXPECT_TRUE(untouched || name == "ucx_posix" || name == "ucx_sysv");
  world.transport(0).release(*memory);
}

// The same for short messages that are posted together: some are on their way, some wait, and some
// are refused.
TEST_P(Conformance, ShortMessagesPostedTogetherToADyingPeerComplete) {
  World world(GetParam(), 3);
  Port& port = world.port(0);
  std::vector<std::byte> text = pattern(3, 40);
  ASSERT_NE(world.must_post(port, message_to(kVictim, 0, text)), 0U);  // now they are connected
  ASSERT_TRUE(world.quiet());
  constexpr std::size_t kMost = 24;
  std::size_t accepted = 0;
  for (int round = 0; round < 100; ++round) {
    if (round == 60) world.fail(kVictim);
    std::vector<Command> batch(kMost, message_to(kVictim, 0, text));
    for (std::size_t i = 0; i < kMost; ++i) batch[i].bytes = 8 * (i % 6);
    if (round % 4 == 3) batch[kMost / 2].rank = 1;  // one in the middle goes to another rank
    accepted += port.post(batch);
    port.poll();
    if (round % 8 == 0) world.port(1).poll();
  }
  ASSERT_GT(accepted, kMost);
  const Deadline deadline;
  while (port.outstanding() > 0 && !deadline.over()) {
    port.poll();
    world.port(1).poll();
  }
  EXPECT_EQ(port.outstanding(), 0U);
  ASSERT_EQ(world.run(port, message_to(kVictim, 0, text)), HEDDLE_ERR_PEER_FAILED);
  ASSERT_EQ(world.run(port, message_to(1, 0, text)), HEDDLE_DONE);
}

// A message that arrives from a rank that died is whole and as it was sent.
TEST_P(Conformance, MessagesOfADeadPeerAreWholeOrMissing) {
  World world(GetParam(), 3);
  std::vector<std::vector<std::byte>> data;
  for (std::uint64_t i = 0; i < 20; ++i) data.push_back(pattern(i, 100));
  std::size_t sent = 0;
  for (int attempt = 0; attempt < 2000 && sent < data.size(); ++attempt) {
    if (world.port(kVictim).send(message_to(0, 0, data[sent], static_cast<std::uint32_t>(sent)))) ++sent;
    world.port(kVictim).poll();
  }
  ASSERT_GT(sent, 0U);
  world.fail(kVictim);
  world.close(kVictim);
  for (int i = 0; i < 200; ++i) world.port(0).poll();
  EXPECT_LE(world.port(0).arrivals.size(), sent);
  for (const Arrival& arrival : world.port(0).arrivals) {
    ASSERT_EQ(arrival.rank, kVictim);
    ASSERT_LT(arrival.immediate, data.size());
    ASSERT_EQ(arrival.data, data[arrival.immediate]);
  }
  ASSERT_EQ(world.run(world.port(0), message_to(1, 0, data[0])), HEDDLE_DONE);
}

// A worker that was closed takes no more messages; its senders are not blocked for ever, and other
// workers get their messages.
TEST_P(Conformance, AClosedWorkerDoesNotHoldUpItsSenders) {
  World world(GetParam(), 2, 2);
  const auto data = pattern(1, 500);
  for (int i = 0; i < 5; ++i) ASSERT_NE(world.must_post(world.port(0), message_to(1, 0, data)), 0U);
  world.close_port(1, 0);
  const std::size_t more = world.capabilities().memory_per_peer / 500 + 50;
  for (std::size_t i = 0; i < more; ++i) ASSERT_NE(world.must_post(world.port(0), message_to(1, 0, data)), 0U) << i;
  ASSERT_NE(world.must_post(world.port(0), message_to(1, 1, data)), 0U);
  ASSERT_TRUE(world.until([&] { return world.port(1, 1).arrivals.size() == 1; }));
  EXPECT_EQ(world.port(1, 1).arrivals[0].data, data);
  ASSERT_TRUE(world.quiet());
}

// An accepted message arrives although its sender closes at once, without another poll.
TEST_P(Conformance, AcceptedMessagesOutliveTheirSender) {
  if (GetParam().transport.starts_with("fault+")) GTEST_SKIP() << "what the decorator holds back is not posted yet";
  World world(GetParam(), 2, 2);
  std::vector<std::vector<std::byte>> data;
  for (std::uint64_t i = 0; i < 8; ++i) data.push_back(pattern(i, 60));
  std::size_t accepted = 0;
  if (world.capabilities().copies_messages) {  // at once, or when a helper has left the port
    ASSERT_NE(world.must_post(world.port(0, 1), message_to(1, 0, data[0], 0)), 0U);
    accepted = 1;
  }
  for (std::size_t i = accepted; i < data.size(); ++i) {
    if (world.port(0, 1).post_one(message_to(1, 0, data[i], static_cast<std::uint32_t>(i))) != 0) ++accepted;
  }
  world.close_port(0, 1);
  ASSERT_TRUE(world.until([&] { return world.port(1).arrivals.size() >= accepted; }));
  for (const Arrival& arrival : world.port(1).arrivals) {
    ASSERT_LT(arrival.immediate, data.size());
    EXPECT_EQ(arrival.data, data[arrival.immediate]);
  }
}

// Ranks close in every order with commands under way; the sanitizers check that this is safe.
TEST_P(Conformance, ClosingWithTrafficIsSafe) {
  std::vector<std::uint32_t> order = {0, 1, 2};
  int orders = base::few_if_sanitized(2, 6);
  do {
    std::vector<std::byte> region(200'000);
    std::vector<std::byte> buffer(200'000);
    World world(GetParam(), 3);
    std::vector<RemoteMemory> memories(3);
    for (std::uint32_t r = 0; r < 3; ++r) {
      auto local = world.transport(r).register_memory(region.data(), region.size());
      ASSERT_TRUE(local.ok());
      auto memory = world.transport((r + 1) % 3).import(r, local->key);
      ASSERT_TRUE(memory.ok()) << base::last_message();
      memories[r] = *memory;
    }
    for (int i = 0; i < 30; ++i) {
      for (std::uint32_t r = 0; r < 3; ++r) {
        auto commands = one_of_each(memories[r], buffer, buffer.size());
        world.port((r + 1) % 3).post(commands);
        if (i % 5 == 0) world.port(r).poll();
      }
    }
    for (const std::uint32_t rank : order) {
      world.close_port(rank, 0);
      world.pump();
    }
    for (const std::uint32_t rank : order) {
      world.transport(rank).release(memories[(rank + 2) % 3]);
      world.close(rank);
    }
  } while (--orders > 0 && std::next_permutation(order.begin(), order.end()));
}

// A rank dies while threads of the others exchange messages with it and with each other.
TEST_P(Conformance, ThreadsSurviveADeath) {
  constexpr std::uint32_t kLiving = 2;
  World world(GetParam(), 3);
  const auto data = pattern(3, 120);
  std::atomic<bool> dead{false};
  std::atomic<std::uint32_t> finished{0};
  const auto living = [&](std::uint32_t rank) {
    Port& port = world.port(rank);
    const std::uint32_t friend_rank = 1 - rank;
    const Deadline deadline;
    bool told = false;
    std::uint32_t refused_by_death = 0;
    while (refused_by_death < 20 && !deadline.over()) {
      if (dead.load() && !told) {
        port.worker().peer_failed(kVictim);
        told = true;
      }
      const Token token = port.post_one(message_to(kVictim, 0, data));
      static_cast<void>(port.post_one(message_to(friend_rank, 0, data)));
      if (port.poll() == 0) sched_yield();
      if (told && token != 0) {
        while (!port.done(token) && !deadline.over()) port.poll();
        ASSERT_EQ(port.status(token), HEDDLE_ERR_PEER_FAILED);
        ++refused_by_death;
      }
    }
    EXPECT_EQ(refused_by_death, 20U);
    // An accepted message may wait for its receiver: so each thread polls until no thread has
    // anything under way.
    bool quiet = false;
    while (finished.load() < kLiving && !deadline.over()) {
      if (!quiet && port.outstanding() == 0) {
        quiet = true;
        finished.fetch_add(1);
      }
      if (port.poll() == 0) sched_yield();
    }
    EXPECT_EQ(port.outstanding(), 0U);
  };
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < kLiving; ++r) threads.emplace_back(living, r);
  for (int i = 0; i < scaled(2000); ++i) {
    static_cast<void>(world.port(kVictim).post_one(message_to(static_cast<std::uint32_t>(i) % 2, 0, data)));
    world.port(kVictim).poll();
  }
  world.declare_dead(kVictim);
  dead.store(true);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace heddle::transport::conformance
