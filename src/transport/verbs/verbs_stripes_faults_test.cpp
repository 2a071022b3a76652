// Transfers over both adapters of a rank: what networks, adapters and peers do to one half.
#include <array>
#include <functional>

#include "base/random.hpp"
#include "transport/test/verbs_fixtures.hpp"

namespace heddle::transport::verbs::verbs_stripes_faults_test {
namespace {

constexpr std::uint32_t kOwn = 1;    // the adapter of worker 0, as a bit
constexpr std::uint32_t kOther = 2;  // the other one
constexpr std::uint32_t kBoth = kOwn | kOther;

class VerbsStripesFaults : public VerbsStripes {
 protected:
  // A put whose halves that go by these adapters do not end.
  Token hold(std::uint32_t adapters, std::vector<std::byte>* local, Opcode opcode = Opcode::put) {
    idle_->concerned = adapters;
    idle_->holds = true;
    Token token = 0;
    EXPECT_TRUE(
        test::within_time([&] { return (token = world_->port(0).post_one(transfer(opcode, memory_, local))) != 0; }));
    for (int i = 0; i < 20; ++i) world_->port(0).poll();
    EXPECT_FALSE(world_->port(0).done(token)) << adapters;
    return token;
  }
  void release_all() {
    release();
    idle_->concerned = ~0U;
  }
  [[nodiscard]] bool ends(Token token) {
    return test::within_time([&] { return world_->port(0).done(token); }, [&] { world_->port(0).poll(); });
  }
  void end_world() {
    release_all();
    TearDown();
    EXPECT_EQ(idle_->objects, 0U);
    EXPECT_EQ(idle_->pairs, 0U);
    EXPECT_EQ(idle_->registered, 0U);
  }
};

// A death, a network that is cut, the own adapter, the other one; while one half is under way, or
// both.
TEST_F(VerbsStripesFaults, WhatEndsAHalfEndsTheTransfer) {
  const std::vector<std::function<void()>> ends_it = {
      [&] { world_->fail(1); },
      [&] {
        idle_->cut = true;
        idle_->holds = false;
        go_on_();
      },
      [&] { EXPECT_TRUE(tell_event_(0, IBV_EVENT_DEVICE_FATAL)); },
      [&] { EXPECT_TRUE(tell_event_(1, IBV_EVENT_DEVICE_FATAL)); },
  };
  for (const Opcode opcode : {Opcode::put, Opcode::get}) {
    for (const std::uint32_t held : {kOwn, kOther, kBoth}) {
      for (std::size_t i = 0; i < ends_it.size(); ++i) {
        SCOPED_TRACE(testing::Message() << held << " " << i);
        open(two({{"HEDDLE_NETWORK_TIMEOUT", "0"}}));
        connect();
        std::vector<std::byte> local = pattern(3, kAbove + 8);
        const Token token = hold(held, &local, opcode);
        ends_it[i]();
        const bool is_spared = i == 3 && held == kOwn;  // what went by that adapter has ended
        if (is_spared) release_all();
        ASSERT_TRUE(ends(token));
        EXPECT_EQ(world_->port(0).status(token), is_spared ? HEDDLE_DONE : HEDDLE_ERR_PEER_FAILED);
        EXPECT_EQ(world_->port(0).outstanding(), 0U);
        idle_->cut = false;
        end_world();
      }
    }
  }
}

// A port that closes gives up halves that do not end.
TEST_F(VerbsStripesFaults, ClosingGivesUpHalves) {
  for (const std::uint32_t held : {kOwn, kOther, kBoth}) {
    SCOPED_TRACE(held);
    open(two());
    connect();
    std::vector<std::byte> local = pattern(3, kAbove + 8);
    ASSERT_NE(hold(held, &local), 0U);
    const std::uint64_t pairs = idle_->pairs;
    world_->close_port(0, 0);
    EXPECT_EQ(idle_->pairs, pairs - 2);
    end_world();
  }
}

// The worker at the other end is closed in haste.
TEST_F(VerbsStripesFaults, ATargetThatClosesEndsHalves) {
  for (const std::uint32_t held : {kOwn, kOther, kBoth}) {
    SCOPED_TRACE(held);
    open(two(), 2);
    connect();
    auto back = world_->transport(0).allocate(kRegion);
    ASSERT_TRUE(back.ok());
    auto there = world_->transport(1).import(0, back->key);
    ASSERT_TRUE(there.ok());
    std::vector<std::byte> theirs = pattern(4, kAbove + 8);
    std::vector<std::byte> local = pattern(3, kAbove + 8);
    const Token token = hold(held, &local);
    Token their_token = 0;
    ASSERT_TRUE(test::within_time(
        [&] { return (their_token = world_->port(1).post_one(transfer(Opcode::put, *there, &theirs))) != 0; }));
    world_->close_port(1, 0);
    ASSERT_TRUE(ends(token));
    EXPECT_EQ(world_->port(0).status(token), HEDDLE_ERR_PEER_FAILED);
    EXPECT_EQ(world_->transport(0).lost(1), 0U);
    release_all();
    EXPECT_EQ(world_->run(world_->port(0), message_to(1, 1, pattern(1, 8))), HEDDLE_DONE);
    EXPECT_EQ(requests_of(Opcode::put, kAbove + 8, 1), 2U);
    world_->transport(1).release(*there);
    world_->transport(0).free(*back);
    end_world();
  }
}

// Drivers may leave the completions of pairs that were destroyed in the queue.
TEST_F(VerbsStripesFaults, CompletionsOfDestroyedPairsAreTakenOut) {
  constexpr std::uint32_t kRanks = 20;
  idle_->keeps_completions = true;
  world_ = std::make_unique<World>(two(), kRanks, 1);
  std::vector<LocalMemory> targets(kRanks);
  std::vector<RemoteMemory> memories(kRanks);
  for (std::uint32_t rank = 1; rank < kRanks; ++rank) {
    targets[rank] = *world_->transport(rank).allocate(kRegion);
    memories[rank] = *world_->transport(0).import(rank, targets[rank].key);
    ASSERT_EQ(world_->run(world_->port(0), message_to(rank, 0, pattern(1, 8))), HEDDLE_DONE);
  }
  std::vector<std::byte> local = pattern(3, kAbove + 8);
  for (std::uint32_t rank = 1; rank < kRanks - 1; ++rank) {
    std::vector<Token> tokens;
    idle_->concerned = rank % 3 + 1;
    idle_->holds = rank % 4 != 0;
    for (int i = 0; i < 16; ++i) {
      Token token = 0;
      ASSERT_TRUE(test::within_time(
          [&] { return (token = world_->port(0).post_one(transfer(Opcode::put, memories[rank], &local))) != 0; }));
      tokens.push_back(token);
    }
    world_->fail(rank);
    ASSERT_TRUE(world_->until([&] { return world_->port(0).outstanding() == 0; }));
    release_all();
    for (int i = 0; i < 16; ++i)
      EXPECT_EQ(world_->run(world_->port(0), transfer(Opcode::put, memories[kRanks - 1], &local)), HEDDLE_DONE);
  }
  for (std::uint32_t rank = 1; rank < kRanks; ++rank) {
    world_->transport(0).release(memories[rank]);
    world_->transport(rank).free(targets[rank]);
  }
  world_.reset();
  EXPECT_EQ(idle_->objects, 0U);
}

// The other adapter fails: new workers of the own one open, and so does memory for them.
TEST_F(VerbsStripesFaults, AFailedOtherAdapterHindersNothingNew) {
  open(two(), 2);
  connect();
  fail_other();
  ASSERT_NO_THROW(world_->open_port(0));  // worker 2
  std::vector<std::byte> local = pattern(3, kAbove + 8);
  EXPECT_EQ(world_->run(world_->port(0, 2), transfer(Opcode::put, memory_, &local)), HEDDLE_DONE);
  auto target = world_->transport(0).allocate(kRegion);
  ASSERT_TRUE(target.ok()) << base::last_message();
  auto memory = world_->transport(1).import(0, target->key);
  ASSERT_TRUE(memory.ok()) << base::last_message();
  EXPECT_EQ(world_->run(world_->port(1), transfer(Opcode::put, *memory, &local)), HEDDLE_DONE);
  EXPECT_TRUE(std::ranges::equal(local, std::span(static_cast<std::byte*>(target->address), local.size())));
  world_->transport(1).release(*memory);
  world_->transport(0).free(*target);
}

// In the middle of a handshake, or behind it.
TEST_F(VerbsStripesFaults, AnAdapterThatFailsInAHandshake) {
  constexpr std::uint64_t kPairs = 4;  // without the second ones
  for (const std::uint32_t which : {1U, 3U}) {
    for (const std::uint32_t fails : {1U, 2U, 3U, 4U, 5U, 6U, 7U}) {
      SCOPED_TRACE(testing::Message() << which << " " << fails);
      open(two({{"HEDDLE_NETWORK_TIMEOUT", "0"}}));
      idle_->fail_connects = fails;
      ASSERT_TRUE(send_alone(world_->port(0), message_to(1, 0, pattern(1, 8))));
      ASSERT_TRUE(world_->until([&] { return idle_->fail_connects == 0; }));
      EXPECT_TRUE(tell_event_(which, IBV_EVENT_DEVICE_FATAL));
      ASSERT_TRUE(world_->until([&] { return world_->port(0).outstanding() == 0; }));
      ASSERT_TRUE(world_->until([&] { return idle_->pairs == kPairs; }));
      EXPECT_EQ(requests_of(Opcode::put, kAbove + 8), 1U);
      EXPECT_EQ(world_->transport(0).lost(1) + world_->transport(1).lost(0), 0U);
      idle_->fail_connects = 0;
      end_world();
    }
  }
}

// The other adapter takes less at a time.
TEST_F(VerbsStripesFaults, TheOtherAdapterTakesLess) {
  idle_->most_bytes_of_idle1 = 100'000;
  open(two(), 2);
  connect(2);
  for (const std::uint64_t bytes : {kAbove + 1, std::uint64_t{200'000}, std::uint64_t{204'801}, kRegion - 8})
    EXPECT_EQ(requests_of(Opcode::put, bytes), 2U) << bytes;
}

// Registrations run out: leases are given back.
TEST_F(VerbsStripesFaults, RegistrationsRunOut) {
  for (const char* kept : {"1", "0"}) {
    open(two({{"HEDDLE_REG_CACHE", kept}}));
    connect();
    std::vector<std::byte> local = pattern(3, kRegion / 2);
    const std::uint64_t before = idle_->registered;
    for (std::uint64_t more = 0; more < kRegion; more += kRegion / 16) {
      idle_->most_registered = before + more;
      static_cast<void>(world_->run(world_->port(0), transfer(Opcode::put, memory_, &local)));
    }
    idle_->most_registered = UINT64_MAX;
    for (std::uint64_t left = 0; left < 4; ++left) {
      std::vector<std::byte> another = pattern(3, kRegion / 2);
      idle_->objects_left = left;
      static_cast<void>(world_->run(world_->port(0), transfer(Opcode::put, memory_, &another)));
      idle_->objects_left = UINT64_MAX;
    }
    EXPECT_EQ(requests_of(Opcode::put, kRegion - 8), 2U);
    end_world();
  }
}

// Anything at any time: transfers of any length between all workers, halves that are held, and at
// the end a rank or an adapter that fails.
class VerbsStripesSoak : public VerbsStripesFaults {
 protected:
  static constexpr std::uint32_t kRanks = 3;
  static constexpr std::uint32_t kWorkers = 3;
  static constexpr std::uint64_t kMostBytes = 200'000;

  void open_all(const char* keeps) {
    // peers whose adapter for notes has failed do not answer
    world_ = std::make_unique<World>(
        two({{"HEDDLE_VERBS_STRIPE_BYTES", "8K"}, {"HEDDLE_REG_CACHE", keeps}, {"HEDDLE_NETWORK_TIMEOUT", "1s"}}),
        kRanks, kWorkers);
    for (std::uint32_t owner = 0; owner < kRanks; ++owner) {
      targets_[owner] = *world_->transport(owner).allocate(kRegion);
      for (std::uint32_t user = 0; user < kRanks; ++user)
        memories_[user][owner] = *world_->transport(user).import(owner, targets_[owner].key);
    }
  }
  void close_all() {
    for (std::uint32_t user = 0; user < kRanks; ++user) {
      for (const RemoteMemory& memory : memories_[user]) world_->transport(user).release(memory);
    }
    for (std::uint32_t owner = 0; owner < kRanks; ++owner) world_->transport(owner).free(targets_[owner]);
    world_.reset();
  }
  std::uint32_t any(std::uint64_t below) { return static_cast<std::uint32_t>(random_.below(below)); }
  void act() {
    const std::uint32_t rank = any(kRanks);
    conformance::Port& port = world_->port(rank, any(kWorkers));
    const std::uint32_t what = any(16);
    if (what == 0) {
      idle_->concerned = any(4);
      idle_->holds = true;
    } else if (what < 3) {
      release_all();
    } else if (what < 8) {
      Command command =
          transfer(any(2) != 0 ? Opcode::put : Opcode::get, memories_[rank][any(kRanks)], &buffers_[any(8)]);
      command.bytes = 1 + any(kMostBytes);
      command.offset = any(kRegion - kMostBytes);
      command.worker = any(kWorkers);
      command.wants_source_free = any(2) != 0;
      static_cast<void>(port.post_one(command));
    } else if (what == 8) {
      static_cast<void>(port.send(message_to(any(kRanks), any(kWorkers), pattern(1, any(3000)))));
    } else {
      port.poll();
    }
  }

  base::Random random_{7};
  std::array<LocalMemory, kRanks> targets_;
  std::array<std::array<RemoteMemory, kRanks>, kRanks> memories_;
  std::array<std::vector<std::byte>, 8> buffers_;
};

TEST_F(VerbsStripesSoak, EachTransferEndsOnce) {
  for (std::vector<std::byte>& buffer : buffers_) buffer = pattern(any(100), kMostBytes);
  for (std::uint32_t round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    idle_->keeps_completions = round % 2 != 0;
    open_all(round % 3 == 0 ? "0" : "1");
    const int steps = conformance::scaled(3000);
    for (int step = 0; step < steps; ++step) act();
    if (round % 4 == 0) world_->fail(2);
    if (round % 4 == 1) tell_event_(5, IBV_EVENT_DEVICE_FATAL);  // rank 2's second adapter
    if (round % 4 == 2) tell_event_(4, IBV_EVENT_DEVICE_FATAL);  // its first one
    for (int step = 0; step < steps / 4; ++step) act();
    release_all();
    const auto all_ended = [&] {
      for (std::uint32_t at = 0; at < 2 * kWorkers; ++at) {
        if (world_->port(at / kWorkers, at % kWorkers).outstanding() != 0) return false;
      }
      return true;
    };
    EXPECT_TRUE(world_->until(all_ended));
    close_all();
    EXPECT_EQ(idle_->objects + idle_->registered, 0U);
  }
}

}  // namespace
}  // namespace heddle::transport::verbs::verbs_stripes_faults_test
