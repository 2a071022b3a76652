// The verbs transport over the idle libibverbs: connections, what it asks of the adapter, which
// adapters it uses.
#include "transport/test/verbs_fixtures.hpp"

namespace heddle::transport::verbs::verbs_test {
namespace {

// A question for a worker that is opened later is acknowledged, though there is no answer yet.
TEST_F(Verbs, AWorkerThatIsOpenedLateIsNotLost) {
  World world(setting({{"HEDDLE_NETWORK_TIMEOUT", "1s"}}), 2);
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

// The same of two workers of one rank, whose notes go through no adapter.
TEST_F(Verbs, AnArmedWorkerOfTheSameRankIsConnectedTo) {
  World world(setting(), 1, 2);
  ASSERT_TRUE(world.port(0, 1).poll() == 0 && world.port(0, 1).worker().arm());
  conformance::Port& port = world.port(0, 0);
  Token token = 0;
  const test::Deadline deadline;
  while ((token == 0 || !port.done(token)) && !deadline.over()) {
    if (token == 0) token = port.post_one(message_to(0, 1, pattern(1, 8)));
    port.poll();
  }
  ASSERT_NE(token, 0U);
  ASSERT_TRUE(port.done(token));
  EXPECT_EQ(port.status(token), HEDDLE_DONE);
}

// Messages for workers that may never be opened leave some buffers for the others.
TEST_F(Verbs, WaitingMessagesLeaveRoom) {
  World world(setting(), 2);
  const std::vector<std::byte> payload = pattern(1, 100);
  for (std::uint32_t worker = 1; worker < World::kMaxWorkers; ++worker) {
    for (int i = 0; i < 100; ++i) world.port(0).send(message_to(1, worker, payload));
  }
  EXPECT_TRUE(world.must_send(world.port(0), message_to(1, 0, payload)));
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
  ASSERT_TRUE(post_all(world.port(0), batch));
  EXPECT_EQ(idle_->doorbells - doorbells, 1U);
  EXPECT_TRUE(world.quiet());
  EXPECT_EQ(idle_->signalled - signalled, 1U);
}

// A few requests are all signalled; of many, one in eight is. A flush reports the rest. No request
// ends meanwhile, whichever thread makes progress.
TEST_F(Verbs, AStreamSignalsFewRequests) {
  World world(setting(), 2);
  Memory memory(world);
  ASSERT_EQ(world.run(world.port(0), memory.put()), HEDDLE_DONE);
  std::uint64_t requests = idle_->requests;
  std::uint64_t signalled = idle_->signalled;
  const auto post = [&](int count) {
    idle_->holds = true;
    for (int i = 0; i < count; ++i) {
      Command put = memory.put();
      ASSERT_TRUE(post_all(world.port(0), {&put, 1}));
    }
    release();
  };
  post(8);
  EXPECT_TRUE(world.quiet());
  EXPECT_EQ(idle_->requests - requests, 8U);
  EXPECT_EQ(idle_->signalled - signalled, 8U);
  requests = idle_->requests;
  signalled = idle_->signalled;
  post(60);
  EXPECT_TRUE(world.quiet());
  EXPECT_EQ(idle_->requests - requests, 61U);
  EXPECT_EQ(idle_->signalled - signalled, 8U + 6 + 1);
}

// Each worker uses its adapter's keys, and each region is registered with both.
TEST_F(Verbs, WorkersTakeTurnsOnAdapters) {
  World world(setting({{"HEDDLE_NET_DEVICES", "auto"}}), 2, 3);
  EXPECT_NE(world.transport(0).describe().find("idle0:1 and idle3:1"), std::string::npos)
      << world.transport(0).describe();
  Memory memory(world);
  for (std::uint32_t from = 0; from < 3; ++from) {
    for (std::uint32_t to = 0; to < 3; ++to) {
      for (const Opcode opcode : {Opcode::put, Opcode::get}) {
        Command command = memory.put(opcode == Opcode::put ? 8 : 4096);
        command.opcode = opcode;
        command.worker = to;
        ASSERT_EQ(world.run(world.port(0, from), command), HEDDLE_DONE) << from << ' ' << to;
      }
      ASSERT_EQ(world.run(world.port(0, from), message_to(1, to, pattern(from, 100))), HEDDLE_DONE);
    }
  }
  for (std::uint32_t to = 0; to < 3; ++to)
    EXPECT_TRUE(world.until([&] { return world.port(1, to).arrivals.size() == 3; })) << to;
}

TEST_F(Verbs, AdaptersAreChosenBySettings) {
  const auto said = [&](base::Config::Overrides more) -> std::string {
    try {
      World world(setting(std::move(more)), 1);
      return world.transport(0).describe();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(said({}), "(idle0:1, "));
  EXPECT_TRUE(has(said({{"HEDDLE_NET_DEVICES", "idle1"}}), "(idle1:1, "));
  EXPECT_TRUE(has(said({{"HEDDLE_NET_DEVICES", "idle1:1,idle0"}}), "(idle1:1 and idle0:1, "));
  EXPECT_TRUE(has(said({{"HEDDLE_NET_DEVICES", "idle1,mlx5_0"}}), "\"mlx5_0\" names no RDMA port that is up"));
  for (const char* wrong : {"idle0,idle0", "idle0,idle1,idle3", "idle0,"}) {
    const std::string why = said({{"HEDDLE_NET_DEVICES", wrong}});
    EXPECT_TRUE(has(why, "up to 2 different adapters")) << wrong << ": " << why;
  }
  idle_->adapters = 0b0011;
  EXPECT_TRUE(has(said({{"HEDDLE_NET_DEVICES", "auto"}}), "(idle0:1, "));
}

// Verbs needs connections, datagrams, shared receive queues and writes with immediate data.
TEST_F(Verbs, AdaptersThatLackSomethingAreLeftOut) {
  const auto said = [&](std::uint32_t adapters, base::Config::Overrides more = {}) -> std::string {
    idle_->adapters = adapters;
    try {
      World world(setting(std::move(more)), 2);
      EXPECT_EQ(world.run(world.port(0), message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
      return world.transport(0).describe();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const auto names_all = [&](const std::string& text) {
    return has(text, "idle4 (iWARP") && has(text, "idle5 (neither InfiniBand nor RoCE") &&
           has(text, "idle6:1 (it has no shared receive queues)");
  };
  // These are nearer than idle1.
  const std::string other = said(0b1110010);
  EXPECT_TRUE(has(other, "(idle1:1, ") && names_all(other)) << other;
  EXPECT_FALSE(has(said(0b1111), "left out")) << said(0b1111);
  const std::string both = said(0b1111001, {{"HEDDLE_NET_DEVICES", "auto"}});
  EXPECT_TRUE(has(both, "(idle0:1 and idle3:1, ") && !has(both, "idle6")) << both;
  const std::string one = said(0b1110001, {{"HEDDLE_NET_DEVICES", "auto"}});
  EXPECT_TRUE(has(one, "(idle0:1, ") && names_all(one)) << one;
  const std::string none = said(0b1110000);
  EXPECT_TRUE(names_all(none) && has(none, "HEDDLE_TRANSPORTS=shm,ucx")) << none;
  const std::string down = said(0b1110100);
  EXPECT_TRUE(names_all(down) && has(down, "idle2:1 (1: DOWN)")) << down;
  for (const char* name : {"idle4", "idle5:1", "idle6"}) {
    const std::string why = said(0b1110001, {{"HEDDLE_NET_DEVICES", name}});
    EXPECT_TRUE(has(why, "names no RDMA port") && has(why, "idle4 (iWARP") && has(why, "up: idle0:1")) << why;
  }
}

// The memory that a worker registers for one more peer that it meets.
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

}  // namespace
}  // namespace heddle::transport::verbs::verbs_test
