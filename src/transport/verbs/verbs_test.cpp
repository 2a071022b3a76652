// The verbs transport over the idle libibverbs: what networks do to it, and what it asks of them.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/conformance.hpp"
#include "transport/verbs/idle_verbs.hpp"

namespace heddle::transport::verbs {
namespace {

using conformance::message_to;
using conformance::pattern;
using conformance::Setting;
using conformance::World;

Setting setting(base::Config::Overrides more = {}) {
  more.emplace("HEDDLE_VERBS_LIBRARY", HEDDLE_IDLE_VERBS);
  return {"idle", "verbs", std::move(more)};
}

class Verbs : public testing::Test {
 protected:
  Verbs() {
    void* const library = dlopen(HEDDLE_IDLE_VERBS, RTLD_NOW | RTLD_NODELETE);
    if (library == nullptr) throw std::runtime_error(dlerror());
    idle_ = static_cast<IdleVerbs*>(dlsym(library, "idle_verbs"));
    go_on_ = reinterpret_cast<decltype(&idle_verbs_go_on)>(dlsym(library, "idle_verbs_go_on"));
    forge_ = reinterpret_cast<decltype(&idle_verbs_forge)>(dlsym(library, "idle_verbs_forge"));
  }
  ~Verbs() override {
    release();
    idle_->lose_every = idle_->twice_every = 0;
    idle_->most_registered = UINT64_MAX;
    idle_->most_receives = 1024;
    idle_->most_inline = 128;
  }

  void release() {
    idle_->holds = false;
    go_on_();
  }

  IdleVerbs* idle_;
  decltype(&idle_verbs_go_on) go_on_;
  decltype(&idle_verbs_forge) forge_;
};

// Sends although a helper inside the port may be at it, and makes no other port progress meanwhile.
bool send_alone(conformance::Port& port, const Command& command) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!port.send(command)) {
    if (std::chrono::steady_clock::now() > end) return false;
    port.poll();
  }
  return true;
}

// Memory of rank 1 that rank 0 reaches.
class Memory {
 public:
  explicit Memory(World& world) : world_(world) {
    auto target = world.transport(1).allocate(kBytes);
    if (!target) throw std::runtime_error(base::last_message());
    target_ = *target;
    auto memory = world.transport(0).import(1, target_.key);
    if (!memory) throw std::runtime_error(base::last_message());
    memory_ = *memory;
  }
  ~Memory() {
    world_.transport(0).release(memory_);
    world_.transport(1).free(target_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Command put(std::uint64_t bytes = 8) {
    Command command;
    command.opcode = Opcode::put;
    command.rank = 1;
    command.remote = &memory_;
    command.local = data_.data();
    command.bytes = bytes;
    return command;
  }

 private:
  static constexpr std::uint64_t kBytes = 4096;
  World& world_;
  LocalMemory target_;
  RemoteMemory memory_;
  std::vector<std::byte> data_ = pattern(5, kBytes);
};

// Pumps for a while.
void pump_for(World& world, std::chrono::milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < until) world.pump();
}

// A question for a worker that is opened later is acknowledged, though there is no answer yet.
TEST_F(Verbs, AWorkerThatIsOpenedLateIsNotLost) {
  World world(setting({{"HEDDLE_VERBS_TIMEOUT", "1s"}}), 2);
  ASSERT_TRUE(world.must_send(world.port(0), message_to(1, 1, pattern(1, 100))));
  pump_for(world, std::chrono::milliseconds(1500));
  EXPECT_EQ(world.transport(0).lost(1), 0U);
  world.open_port(1);
  EXPECT_TRUE(world.until([&] { return world.port(1, 1).arrivals.size() == 1; }));
}

// The owner of the other worker has armed it, to sleep, and computes instead.
TEST_F(Verbs, AnArmedWorkerIsConnectedTo) {
  World world(setting(), 2);
  Memory memory(world);
  ASSERT_TRUE(world.port(1).poll() == 0 && world.port(1).worker().arm());
  conformance::Port& port = world.port(0);
  Token token = 0;
  const test::Deadline deadline;
  while ((token == 0 || !port.done(token)) && !deadline.over()) {
    if (token == 0) token = port.post_one(memory.put());
    port.poll();
  }
  ASSERT_NE(token, 0U);
  EXPECT_TRUE(port.done(token));
}

// Messages for workers that may never be opened leave some buffers for the others.
TEST_F(Verbs, WaitingMessagesLeaveRoom) {
  World world(setting(), 2);
  const std::vector<std::byte> letter = pattern(1, 100);
  for (std::uint32_t worker = 1; worker < World::kMaxWorkers; ++worker) {
    for (int i = 0; i < 100; ++i) world.port(0).send(message_to(1, worker, letter));
  }
  EXPECT_TRUE(world.must_send(world.port(0), message_to(1, 0, letter)));
  EXPECT_TRUE(world.until([&] { return world.port(1).arrivals.size() == 1; }));
}

// Both connect to each other, and one is closed at once.
TEST_F(Verbs, AMessageOutlivesItsWorkerThatThePeerCalls) {
  for (int round = 0; round < 20; ++round) {
    World world(setting(), 2);
    for (int i = 0; i < round; ++i) world.pump();
    ASSERT_TRUE(send_alone(world.port(0), message_to(1, 0, pattern(1, 100))));
    ASSERT_TRUE(send_alone(world.port(1), message_to(0, 0, pattern(2, 100))));
    for (int i = 0; i < round; ++i) world.port(round % 2 == 0 ? 1 : 0).poll();
    world.close_port(0, 0);
    EXPECT_TRUE(world.until([&] { return world.port(1).arrivals.size() == 1; })) << round;
    EXPECT_TRUE(world.quiet());
  }
}

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

TEST_F(Verbs, MemoryThatCannotBeRegisteredIsWaitedFor) {
  World world(setting(), 2);
  idle_->most_registered = idle_->registered + 100;
  ASSERT_TRUE(send_alone(world.port(0), message_to(1, 0, pattern(1, 100))));
  pump_for(world, std::chrono::milliseconds(100));
  EXPECT_TRUE(world.port(1).arrivals.empty());
  idle_->most_registered = UINT64_MAX;
  EXPECT_TRUE(world.until([&] { return world.port(1).arrivals.size() == 1; }));
}

// The senders may send more than there are entries.
TEST_F(Verbs, ManySendersShareFewEntries) {
  constexpr std::uint32_t kSenders = 8;
  constexpr std::size_t kMessages = 300;
  idle_->most_receives = 64;
  World world(setting(), kSenders + 1);
  std::vector<std::size_t> sent(kSenders + 1);
  std::vector<std::size_t> seen(kSenders + 1);
  const auto over = [&] { return world.port(0).arrivals.size() == kSenders * kMessages; };
  const test::Deadline deadline;
  while (!over() && !deadline.over()) {
    for (std::uint32_t rank = 1; rank <= kSenders; ++rank) {
      const auto number = static_cast<std::uint32_t>(sent[rank]);
      if (sent[rank] < kMessages && world.port(rank).send(message_to(0, 0, pattern(rank, 8), number))) ++sent[rank];
      for (int i = 0; i < 20 && sent[rank] < kMessages; ++i) {
        if (!world.port(rank).send(message_to(0, 0, pattern(rank, 8), static_cast<std::uint32_t>(sent[rank])))) break;
        ++sent[rank];
      }
    }
    world.pump();
  }
  ASSERT_TRUE(over());
  for (const conformance::Arrival& arrival : world.port(0).arrivals)
    EXPECT_EQ(arrival.immediate, seen[arrival.rank]++) << arrival.rank;
  EXPECT_TRUE(world.quiet());
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

// Pairs with room for different lengths in their requests.
TEST_F(Verbs, PairsThatCarryLessDoNotDisturbOthers) {
  World world(setting(), 3);
  Memory memory(world);
  idle_->most_inline = 64;
  ASSERT_EQ(world.run(world.port(0), memory.put()), HEDDLE_DONE);
  idle_->most_inline = 128;
  ASSERT_TRUE(world.must_send(world.port(0), message_to(2, 0, pattern(1, 100))));
  EXPECT_EQ(world.run(world.port(0), memory.put(90)), HEDDLE_DONE);
  EXPECT_TRUE(world.until([&] { return world.port(2).arrivals.size() == 1; }));
}

// Transfers of a batch to one peer leave with one call, and one of them tells of all.
TEST_F(Verbs, ABatchIsOneCall) {
  World world(setting(), 2);
  Memory memory(world);
  ASSERT_EQ(world.run(world.port(0), memory.put()), HEDDLE_DONE);
  std::vector<Command> batch(64, memory.put());
  const std::uint64_t doorbells = idle_->doorbells;
  const std::uint64_t signalled = idle_->signalled;
  ASSERT_EQ(world.port(0).post(batch), batch.size());
  EXPECT_EQ(idle_->doorbells - doorbells, 1U);
  EXPECT_TRUE(world.quiet());
  EXPECT_EQ(idle_->signalled - signalled, 1U);
}

// Few requests are all signalled, of many one in eight; a flush tells of what is left.
TEST_F(Verbs, AStreamSignalsFewRequests) {
  World world(setting(), 2);
  Memory memory(world);
  ASSERT_EQ(world.run(world.port(0), memory.put()), HEDDLE_DONE);
  std::uint64_t requests = idle_->requests;
  std::uint64_t signalled = idle_->signalled;
  for (int i = 0; i < 8; ++i) ASSERT_NE(world.port(0).post_one(memory.put()), 0U);
  EXPECT_TRUE(world.quiet());
  EXPECT_EQ(idle_->requests - requests, 8U);
  EXPECT_EQ(idle_->signalled - signalled, 8U);
  requests = idle_->requests;
  signalled = idle_->signalled;
  for (int i = 0; i < 60; ++i) ASSERT_NE(world.port(0).post_one(memory.put()), 0U);
  EXPECT_TRUE(world.quiet());
  EXPECT_EQ(idle_->requests - requests, 61U);
  EXPECT_EQ(idle_->signalled - signalled, 8U + 6 + 1);
}

// What a worker registers for one more peer that it meets.
TEST_F(Verbs, APeerTakesOneRing) {
  constexpr std::uint32_t kRanks = 33;
  World world(setting(), kRanks);
  const std::uint64_t registered = idle_->registered;
  for (std::uint32_t from = 0; from < kRanks; ++from) {
    for (std::uint32_t to = 0; to < kRanks; ++to) {
      if (from == to) continue;
      ASSERT_TRUE(world.must_send(world.port(from), message_to(to, 0, pattern(1, 8))));
    }
  }
  for (std::uint32_t to = 0; to < kRanks; ++to) {
    ASSERT_TRUE(world.until([&] { return world.port(to).arrivals.size() == kRanks - 1; }));
  }
  ASSERT_TRUE(world.quiet());
  EXPECT_LE((idle_->registered - registered) / (kRanks * (kRanks - 1)), 13U << 10);
}

// A port that closes gives its transfers up if they do not end, and no more than these.
TEST_F(Verbs, ClosingEndsOnlyThePairsOfTransfers) {
  World world(setting(), 3);
  Memory memory(world);
  ASSERT_EQ(world.run(world.port(0), memory.put()), HEDDLE_DONE);
  ASSERT_EQ(world.run(world.port(0), message_to(2, 0, pattern(1, 8))), HEDDLE_DONE);
  ASSERT_TRUE(world.until([&] { return world.port(2).arrivals.size() == 1; }));
  idle_->holds = true;
  ASSERT_NE(world.must_post(world.port(0), memory.put()), 0U);
  ASSERT_TRUE(send_alone(world.port(0), message_to(2, 0, pattern(1, 8))));
  world.close_port(0, 0);
  release();
  EXPECT_TRUE(world.until([&] { return world.port(2).arrivals.size() == 2; }));
}

}  // namespace
}  // namespace heddle::transport::verbs
