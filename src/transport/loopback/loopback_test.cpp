// Tests the properties of the loopback transport beyond the contract that the conformance suite
// checks.
#include "transport/loopback/loopback.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "bootstrap/inproc/inproc.hpp"
#include "transport/loopback/node.hpp"

namespace heddle::transport::loopback::loopback_test {
namespace {

// A job of a few ranks with a worker each.
class LoopbackTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kRanks = 2;

  void SetUp() override {
    environment_.config = *base::Config::read({{"HEDDLE_MAX_WORKERS", "2"}});
    environment_.clock = &clock_;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      members_[rank] = std::move(*bootstrap::inproc::open(job_, rank));
      transports_[rank] = std::move(*open(*members_[rank], environment_));
      workers_[rank] = std::move(*transports_[rank]->open_worker(0));
    }
  }

  // Rank 0 posts the command; the status that it completes with.
  base::Status run(Command command) {
    command.token = 77;
    EXPECT_EQ(workers_[0]->post({&command, 1}), 1U);
    Completion completion;
    const std::size_t events = workers_[0]->poll({&completion, 1});
    EXPECT_EQ(events, command.done ? 0U : 1U);
    if (command.done) return HEDDLE_DONE;
    EXPECT_EQ(completion.token, 77U);
    EXPECT_EQ(completion.event, Event::done);
    EXPECT_TRUE(command.source_free);
    return completion.status;
  }

  static Command to_memory(Opcode opcode, const RemoteMemory& memory, std::uint64_t offset, void* local,
                           std::uint64_t bytes) {
    Command command;
    command.opcode = opcode;
    command.rank = memory.rank;
    command.remote = &memory;
    command.offset = offset;
    command.local = local;
    command.bytes = bytes;
    return command;
  }

  base::SystemClock clock_;
  base::Environment environment_;
  bootstrap::inproc::ThreadJob job_{kRanks};
  std::unique_ptr<bootstrap::Bootstrap> members_[kRanks];
  std::unique_ptr<Transport> transports_[kRanks];
  std::unique_ptr<TransportWorker> workers_[kRanks];
};

TEST_F(LoopbackTest, WhatLeavesTheRegionEndsWithRange) {
  std::vector<std::byte> region(100);
  std::vector<std::byte> buffer(200);
  auto local = *transports_[1]->register_memory(region.data(), region.size());
  auto memory = *transports_[0]->import(1, local.key);
  for (const Opcode opcode : {Opcode::put, Opcode::get}) {
    EXPECT_EQ(run(to_memory(opcode, memory, 0, buffer.data(), 100)), HEDDLE_DONE);
    EXPECT_EQ(run(to_memory(opcode, memory, 100, buffer.data(), 0)), HEDDLE_DONE);
    EXPECT_EQ(run(to_memory(opcode, memory, 0, buffer.data(), 101)), HEDDLE_ERR_RANGE);
    EXPECT_EQ(run(to_memory(opcode, memory, 101, buffer.data(), 0)), HEDDLE_ERR_RANGE);
    EXPECT_EQ(run(to_memory(opcode, memory, ~0ULL, buffer.data(), 8)), HEDDLE_ERR_RANGE);
    EXPECT_EQ(run(to_memory(opcode, memory, 8, buffer.data(), ~0ULL)), HEDDLE_ERR_RANGE);
  }
}

TEST_F(LoopbackTest, DeregisteredMemoryIsNotTouched) {
  std::vector<std::byte> region(64);
  std::vector<std::byte> buffer(64, std::byte{1});
  auto local = *transports_[1]->register_memory(region.data(), region.size());
  auto memory = *transports_[0]->import(1, local.key);
  transports_[1]->deregister(local);
  EXPECT_EQ(run(to_memory(Opcode::put, memory, 0, buffer.data(), 64)), HEDDLE_ERR_RANGE);
  EXPECT_EQ(region, std::vector<std::byte>(64));
  EXPECT_EQ(transports_[0]->import(1, local.key).status(), HEDDLE_ERR_PROTOCOL);

  auto second = *transports_[1]->register_memory(region.data(), region.size());
  auto other = *transports_[0]->import(1, second.key);
  workers_[1].reset();
  transports_[1].reset();
  EXPECT_EQ(run(to_memory(Opcode::put, other, 0, buffer.data(), 64)), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(region, std::vector<std::byte>(64));
}

TEST_F(LoopbackTest, AtomicsAreChecked) {
  auto local = *transports_[1]->allocate(64);
  auto memory = *transports_[0]->import(1, local.key);
  Command command = to_memory(Opcode::atomic, memory, 4, nullptr, 8);
  command.atomic_op = HEDDLE_ADD64;
  EXPECT_EQ(run(command), HEDDLE_ERR_ALIGNMENT);
  command.offset = 8;
  EXPECT_EQ(run(command), HEDDLE_DONE);
  command.bytes = 4;
  EXPECT_EQ(run(command), HEDDLE_ERR_SIZE);
  command.atomic_op = 7;
  EXPECT_EQ(run(command), HEDDLE_ERR_ARGUMENT);
  command.atomic_op = 14;
  EXPECT_EQ(run(command), HEDDLE_ERR_ARGUMENT);
  transports_[1]->free(local);
}

TEST_F(LoopbackTest, MessagesToNobodyEndWithAnError) {
  std::vector<std::byte> data(kMaxMessage + 1);
  Command command;
  command.local = data.data();
  command.bytes = 8;
  command.rank = kRanks;
  EXPECT_EQ(run(command), HEDDLE_ERR_RANK);
  command.rank = 1;
  command.worker = 2;
  EXPECT_EQ(run(command), HEDDLE_ERR_RANK);
  command.worker = 0;
  command.bytes = kMaxMessage + 1;
  EXPECT_EQ(run(command), HEDDLE_ERR_SIZE);
  command.bytes = ~0ULL;
  EXPECT_EQ(run(command), HEDDLE_ERR_SIZE);
  command.bytes = kMaxMessage;
  EXPECT_EQ(run(command), HEDDLE_DONE);
}

// Failures that nobody fetches must not grow without limit: posts are refused instead.
TEST_F(LoopbackTest, UnfetchedFailuresAreBounded) {
  std::size_t accepted = 0;
  for (int i = 0; i < 10'000; ++i) {
    Command command;
    command.rank = kRanks;
    accepted += workers_[0]->post({&command, 1});
  }
  EXPECT_LT(accepted, 1000U);
  std::vector<Completion> completions(10'000);
  EXPECT_EQ(workers_[0]->poll(completions), accepted);
}

// The target polls an aligned word with plain atomic loads while it is put; ThreadSanitizer checks
// the data that was put before it.
TEST_F(LoopbackTest, AnAlignedWordIsPutAsOneReleaseStore) {
  auto local = *transports_[1]->allocate(4096);
  auto memory = *transports_[0]->import(1, local.key);
  auto* words = static_cast<std::uint64_t*>(local.address);
  constexpr std::uint64_t kRounds = 2000;
  std::thread reader([&] {
    std::atomic_ref<std::uint64_t> signal(words[1]);
    for (std::uint64_t seen = 0; seen < kRounds;) {
      seen = signal.load(std::memory_order_acquire);
      EXPECT_EQ(seen >> 32, 0U);
      if (seen > 0) {
        EXPECT_EQ(words[2], 42U);
      }
    }
  });
  std::uint64_t data = 42;
  std::uint64_t more[2] = {data, data};
  EXPECT_EQ(run(to_memory(Opcode::put, memory, 16, more, 16)), HEDDLE_DONE);
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    EXPECT_EQ(run(to_memory(Opcode::put, memory, 8, &round, 8)), HEDDLE_DONE);
  }
  reader.join();
  transports_[1]->free(local);
}

TEST_F(LoopbackTest, RanksOfAnotherProcessOrTransportAreRefused) {
  bootstrap::inproc::ThreadJob job(3);
  auto mine = std::move(*bootstrap::inproc::open(job, 0));
  auto foreign = std::move(*bootstrap::inproc::open(job, 1));
  auto other = std::move(*bootstrap::inproc::open(job, 2));
  auto transport = std::move(*open(*mine, environment_));
  auto worker = std::move(*transport->open_worker(0));
  const auto card = mine->fetch(0);
  ASSERT_TRUE(card.ok());
  bootstrap::Card elsewhere{-1, card->pid + 1, card->bytes};
  ASSERT_EQ(foreign->publish(elsewhere), HEDDLE_DONE);
  bootstrap::Card unlike{-1, card->pid, std::vector<std::byte>(17)};
  unlike.object = std::make_shared<int>(3);
  ASSERT_EQ(other->publish(unlike), HEDDLE_DONE);
  for (const std::uint32_t rank : {1U, 2U}) {
    Command command;
    command.rank = rank;
    ASSERT_EQ(worker->post({&command, 1}), 1U);
    Completion completion;
    ASSERT_EQ(worker->poll({&completion, 1}), 1U);
    EXPECT_EQ(completion.status, HEDDLE_ERR_CONFIG);
    EXPECT_NE(std::strstr(base::last_message(), rank == 1 ? "one process" : "HEDDLE_TRANSPORT"), nullptr);
  }
}

TEST(LoopbackMailbox, KeepsOrderAndBound) {
  Mailbox box;
  const auto message = [](std::uint32_t immediate) {
    const std::uint64_t word = 5;
    Command command;
    command.immediate = immediate;
    command.set_message(nullptr, 0, &word, sizeof word);
    return command;
  };
  for (std::uint32_t i = 0; i < kMailboxPackets; ++i) ASSERT_TRUE(box.put(message(i), {3, 4}));
  EXPECT_FALSE(box.put(message(0), {3, 4}));
  ASSERT_TRUE(box.open());
  EXPECT_FALSE(box.open());
  std::vector<Packet> packets;
  box.take(10, &packets);
  ASSERT_EQ(packets.size(), 10U);
  for (std::uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(box.put(message(64 + i), {3, 4}));
  EXPECT_FALSE(box.put(message(0), {3, 4}));
  box.take(1000, &packets);
  ASSERT_EQ(packets.size(), kMailboxPackets + 10);
  for (std::uint32_t i = 0; i < packets.size(); ++i) EXPECT_EQ(packets[i].immediate, i);
  box.close();
  EXPECT_TRUE(box.put(message(0), {3, 4})) << "dropped";
  packets.clear();
  box.take(10, &packets);
  EXPECT_TRUE(packets.empty());
}

TEST(LoopbackKey, BelongsToItsJob) {
  bootstrap::JobSecret secret{1, 2, 3};
  const MemoryKey key = encode_key({3, 99, 4096}, secret);
  const auto name = decode_key(key, secret);
  ASSERT_TRUE(name);
  EXPECT_EQ(name->rank, 3U);
  EXPECT_EQ(name->id, 99U);
  EXPECT_EQ(name->bytes, 4096U);
  secret[15] ^= 1;
  EXPECT_FALSE(decode_key(key, secret));
}

}  // namespace
}  // namespace heddle::transport::loopback::loopback_test
