// Tests of the joint transport alone: which transport reaches which rank, cards of ranks that
// differ, memory for one rank, and polls that leave FAR out. The conformance suite checks that two
// transports as one keep the contract.
#include "transport/joint/joint.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/test_support.hpp"
#include "bootstrap/common.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "transport/joint/parts.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::joint::joint_test {
namespace {

using Overrides = base::Config::Overrides;

struct Rank {
  base::Environment environment;
  base::SystemClock clock;
  std::unique_ptr<bootstrap::Bootstrap> bootstrap;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<TransportWorker> worker;

  Rank(bootstrap::inproc::ThreadJob& job, std::uint32_t rank, const std::string& name, const Overrides& overrides) {
    environment.config = *base::Config::read(overrides);
    environment.log = base::Log(base::Level::error, rank);
    environment.clock = &clock;
    bootstrap = std::move(*bootstrap::inproc::open(job, rank));
    auto opened = transport::open(name, *bootstrap, environment);
    EXPECT_TRUE(opened.ok()) << base::last_message();
    transport = std::move(*opened);
    worker = std::move(*transport->open_worker(0));
  }
};

const Overrides kPairs = {{"HEDDLE_NODE_RANKS", "2"}};

// Ranks 0 and 1 are one node, 2 and 3 the other.
class FourRanks : public testing::Test {
 protected:
  explicit FourRanks(const std::string& name = "loopback,loopback-messages") : job(4) {
    for (std::uint32_t rank = 0; rank < 4; ++rank) ranks.push_back(std::make_unique<Rank>(job, rank, name, kPairs));
  }
  bootstrap::inproc::ThreadJob job;
  std::vector<std::unique_ptr<Rank>> ranks;
};

TEST_F(FourRanks, EachIsReachedByTheTransportOfItsNode) {
  const std::string near = "loopback";
  const std::string far = "loopback-messages";
  for (std::uint32_t from = 0; from < 4; ++from) {
    for (std::uint32_t to = 0; to < 4; ++to) {
      EXPECT_EQ(ranks[from]->transport->way_to(to), from / 2 == to / 2 ? near : far) << from << " to " << to;
    }
  }
  EXPECT_STREQ(ranks[0]->transport->capabilities().name, "loopback,loopback-messages");
  EXPECT_TRUE(ranks[0]->transport->common_words().empty());
}

TEST_F(FourRanks, MemoryTakesTheCommandsOfItsWay) {
  auto local = *ranks[1]->transport->allocate(64);
  const auto near = ranks[0]->transport->import(1, local.key);
  const auto far = ranks[2]->transport->import(1, local.key);
  const auto own = ranks[1]->transport->import(1, local.key);
  ASSERT_TRUE(near.ok() && far.ok() && own.ok()) << base::last_message();
  EXPECT_NE(near->opcodes & bit(Opcode::put), 0U);
  EXPECT_NE(own->opcodes & bit(Opcode::put), 0U);
  EXPECT_EQ(far->opcodes & bit(Opcode::put), 0U);
  ranks[1]->transport->free(local);
}

TEST_F(FourRanks, MemoryForOneRankIsForThatRankOnly) {
  std::array<std::byte, 64> memory{};
  for (const std::uint32_t friend_rank : {0U, 3U}) {
    auto local = *ranks[1]->transport->register_for(friend_rank, memory.data(), memory.size());
    const std::uint32_t stranger = 3 - friend_rank;
    EXPECT_TRUE(ranks[friend_rank]->transport->import(1, local.key).ok()) << base::last_message();
    EXPECT_EQ(ranks[stranger]->transport->import(1, local.key).status(), HEDDLE_ERR_PROTOCOL);
    ranks[1]->transport->deregister(local);
    EXPECT_FALSE(ranks[friend_rank]->transport->import(1, local.key).ok());
  }
}

// A batch that alternates between the two; the mailbox of a far rank, which takes 64, ends it.
TEST_F(FourRanks, ABatchIsAcceptedFromItsFront) {
  std::vector<Command> batch(200);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    batch[i].rank = i % 20 == 0 ? 1 : 2;
    batch[i].immediate = static_cast<std::uint32_t>(i);
    batch[i].token = i + 1;
  }
  const std::size_t accepted = ranks[0]->worker->post(batch);
  ASSERT_GT(accepted, 60U);
  ASSERT_LT(accepted, 80U);
  for (std::size_t i = 0; i < batch.size(); ++i) EXPECT_EQ(batch[i].done, i < accepted) << i;
  std::size_t arrived = 0;
  for (const std::uint32_t rank : {1U, 2U}) {
    std::array<Completion, 128> events;
    std::uint32_t last = 0;
    for (int poll = 0; poll < 2; ++poll) {
      const std::size_t count = ranks[rank]->worker->poll(events);
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(batch[events[i].immediate].rank, rank);
        EXPECT_TRUE(events[i].immediate >= last);
        last = events[i].immediate;
      }
      arrived += count;
    }
  }
  EXPECT_EQ(arrived, accepted);
}

// Posts a message until it is accepted: the first one to a peer connects to it, which takes more
// than one call.
void send(Rank& from, std::uint32_t to, std::uint32_t immediate) {
  Command command;
  command.rank = to;
  command.immediate = immediate;
  const test::Deadline deadline;
  while (from.worker->post({&command, 1}) == 0) ASSERT_FALSE(deadline.over());
}

// Most polls leave FAR out while it is silent; no thread sleeps over a message that arrives by it.
TEST_F(FourRanks, NobodySleepsBeforeBothWerePolled) {
  std::array<Completion, 1> event;
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 1000; ++i) static_cast<void>(ranks[0]->worker->poll(event));
    send(*ranks[2], 0, 7);
    std::size_t got = 0;
    for (const test::Deadline deadline; got == 0;) {
      ASSERT_FALSE(deadline.over());
      got = ranks[0]->worker->poll(event);
      if (got == 0) {
        ASSERT_FALSE(ranks[0]->worker->arm());
      }
    }
    while (!ranks[0]->worker->arm()) ASSERT_EQ(ranks[0]->worker->poll(event), 0U);
    const std::uint32_t seen = ranks[0]->transport->bell();
    send(*ranks[round % 2 == 0 ? 1 : 3], 0, 8);
    EXPECT_NE(ranks[0]->transport->bell(), seen) << "one bell for both";
    EXPECT_FALSE(ranks[0]->worker->armed());
    EXPECT_TRUE(ranks[0]->worker->has_arrivals());
    for (const test::Deadline deadline; ranks[0]->worker->poll(event) == 0;) ASSERT_FALSE(deadline.over());
  }
}

// A thread that sleeps after a number of polls that find nothing, as executors do, is kept awake
// once at most.
TEST_F(FourRanks, SleepingIsNotPutOffForLong) {
  std::array<Completion, 1> event;
  for (int i = 0; i < 1000; ++i) static_cast<void>(ranks[0]->worker->poll(event));
  const auto after_polls = [&] {
    for (int i = 0; i < 201; ++i) EXPECT_EQ(ranks[0]->worker->poll(event), 0U);
    return ranks[0]->worker->arm();
  };
  EXPECT_TRUE(after_polls() || after_polls());
}

// However much arrives from one of the two, the other is polled as well.
TEST_F(FourRanks, NeitherOfTheTwoIsStarved) {
  std::array<Completion, 1> event;
  std::size_t from_far = 0;
  std::size_t from_near = 0;
  for (int round = 0; round < 20; ++round) {
    send(*ranks[1], 0, 1);
    send(*ranks[2], 0, 2);
  }
  for (int round = 0; round < 2000; ++round) {
    ASSERT_EQ(ranks[0]->worker->poll(event), 1U);
    (event[0].rank == 1 ? from_near : from_far) += 1;
    send(*ranks[event[0].rank], 0, 3);
  }
  EXPECT_GT(from_near, 900U);
  EXPECT_GT(from_far, 900U);
}

// Polls leave FAR out for a while, but one of the next ones finds the message.
TEST_F(FourRanks, AMessageFromFarIsFoundAfterALongSilence) {
  std::array<Completion, 4> events;
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(ranks[0]->worker->poll(events), 0U);
  send(*ranks[3], 0, 7);
  std::size_t polls = 0;
  while (ranks[0]->worker->poll(events) == 0) ASSERT_LT(++polls, 300U);
  EXPECT_EQ(events[0].rank, 3U);
}

// One of the two, controlled by the test; it records what it is given.
class Stub final : public TransportWorker {
 public:
  [[nodiscard]] std::size_t post(std::span<Command> batch) override {
    batches.push_back(batch.size());
    if (out_of_memory) throw std::bad_alloc();
    return batch.size();
  }
  [[nodiscard]] std::size_t poll(std::span<Completion>) override { return 0; }
  void peer_failed(std::uint32_t) override {}

  std::vector<std::size_t> batches;
  bool out_of_memory = false;
};

// Ranks 0 and 1 are near, 2 and 3 far.
class TwoStubs : public testing::Test {
 protected:
  TwoStubs() {
    auto first = std::make_unique<Stub>();
    auto second = std::make_unique<Stub>();
    near = first.get();
    far = second.get();
    worker = std::make_unique<Port>(
        std::array<std::unique_ptr<TransportWorker>, 2>{std::move(first), std::move(second)}, ways, 1000, clock);
  }
  std::size_t post(const std::vector<std::uint32_t>& ranks) {
    std::vector<Command> batch(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) batch[i].rank = ranks[i];
    return worker->post(batch);
  }

  const std::array<std::uint8_t, 4> ways = {0, 0, 1, 1};
  base::SystemClock clock;
  Stub* near;
  Stub* far;
  std::unique_ptr<Port> worker;
};

TEST_F(TwoStubs, NeighboursForOneTransportArePostedTogether) {
  EXPECT_EQ(post({2, 3, 2, 0, 1, 2, 2}), 7U);
  EXPECT_EQ(far->batches, (std::vector<std::size_t>{3, 2}));
  EXPECT_EQ(near->batches, (std::vector<std::size_t>{2}));
}

TEST_F(TwoStubs, WhatWasAcceptedIsToldThoughMemoryRunsOut) {
  near->out_of_memory = true;
  EXPECT_EQ(post({2, 3, 0, 2}), 2U);
  EXPECT_THROW(static_cast<void>(post({0, 2})), std::bad_alloc);
  near->out_of_memory = false;
  far->out_of_memory = true;
  EXPECT_EQ(post({1, 2}), 1U);
}

TEST(Joint, HasCommonWordsWhereAllRanksAreNear) {
  bootstrap::inproc::ThreadJob job(2);
  Rank first(job, 0, "shm,loopback", {});
  Rank second(job, 1, "shm,loopback", {});
  while (second.transport->common_words().empty()) sched_yield();
  EXPECT_EQ(second.transport->common_words().size(), 2U);
  EXPECT_TRUE(second.transport->direct_to(0));
}

void expect_strangers(const std::string& one, const Overrides& of_one, const std::string& other,
                      const Overrides& of_other, const char* word) {
  bootstrap::inproc::ThreadJob job(2);
  Rank first(job, 0, one, of_one);
  Rank second(job, 1, other, of_other);
  auto local = *second.transport->allocate(64);
  const auto memory = first.transport->import(1, local.key);
  ASSERT_FALSE(memory.ok()) << one << " and " << other;
  EXPECT_NE(std::strstr(base::last_message(), word), nullptr) << base::last_message();
}

TEST(Joint, RanksWithOtherSettingsDoNotMeet) {
  Command message;
  for (const char* other : {"loopback,loopback-messages", "loopback-messages,loopback", "loopback"}) {
    bootstrap::inproc::ThreadJob job(2);
    Rank first(job, 0, "loopback,loopback", {});
    Rank second(job, 1, other, {});
    message.rank = 1;
    ASSERT_EQ(first.worker->post({&message, 1}), 1U);
    std::array<Completion, 1> event;
    std::size_t count = 0;
    for (int i = 0; i < 1000 && count == 0; ++i) count = first.worker->poll(event);
    ASSERT_EQ(count, 1U) << other;
    EXPECT_EQ(event[0].status, HEDDLE_ERR_CONFIG) << other;
  }
  expect_strangers("loopback,loopback", kPairs, "loopback,loopback", {}, "HEDDLE_NODE_RANKS");
}

TEST(Joint, RefusesATransportThatDoesNotReachOthers) {
  bootstrap::inproc::ThreadJob job(1);
  base::Environment environment;
  environment.config = *base::Config::read({});
  auto alone = std::move(*bootstrap::inproc::open(job, 0));
  for (const char* name : {"loopback,shm", "shm,shm"}) {
    EXPECT_EQ(transport::open(name, *alone, environment).status(), HEDDLE_ERR_CONFIG) << name;
    EXPECT_NE(std::strstr(base::last_message(), "own node"), nullptr) << base::last_message();
  }
  for (const char* name : {"shm,", ",shm", ",", "", "shm,pigeon", "pigeon,shm", "shm,ucx,utofu", "fault+shm,"}) {
    EXPECT_EQ(transport::open(name, *alone, environment).status(), HEDDLE_ERR_CONFIG) << name;
    EXPECT_NE(std::strstr(base::last_message(), "there is no transport"), nullptr) << base::last_message();
  }
}

}  // namespace
}  // namespace heddle::transport::joint::joint_test
