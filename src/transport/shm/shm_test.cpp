// The transport's messages and regions; the ranks are objects of this process. Processes that die:
// shm_death_test.cpp.
#include "transport/shm/shm.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "transport/shm/device.hpp"
#include "transport/test/shm_job.hpp"

namespace heddle::transport::shm::shm_test {
namespace {

// Decisions 0008 and 0055.
TEST(Pace, BurstsAreAnsweredAtOnceStreamsRest) {
  IncomingRing ring;
  for (int burst = 0; burst < 100; ++burst) {
    ring.pace(16);
    EXPECT_EQ(ring.rest, 0U) << "a burst of 16 with pauses between must not rest";
    for (int i = 0; i < 16; ++i) ring.pace(0);
  }
  ring.pace(16);
  ring.pace(16);
  EXPECT_EQ(ring.rest, IncomingRing::kLeastRest);
  ring.rest = 0;
  // the count is bounded: the end of a stream is noticed after 2 * kStream polls
  ring.pace(1'000'000);
  for (std::uint32_t i = 0; i < 2 * IncomingRing::kStream; ++i) ring.pace(0);
  ring.rest = 0;
  ring.pace(1);
  EXPECT_EQ(ring.rest, 0U);
}

TEST(Pace, AStreamRestsForAsLongAsALookTakes) {
  IncomingRing ring;
  const auto rest_after = [&](std::uint64_t look_ns) {
    for (int i = 0; i < 40; ++i) ring.looked(look_ns);
    ring.pace(IncomingRing::kStream);
    return ring.rest;
  };
  EXPECT_EQ(rest_after(20), IncomingRing::kLeastRest);
  EXPECT_NEAR(rest_after(16 * IncomingRing::kPollNs), 16, 1);
  EXPECT_EQ(rest_after(1'000'000'000), IncomingRing::kMostRest) << "bounded, whatever the clock says";
  EXPECT_EQ(rest_after(0), IncomingRing::kLeastRest) << "and forgotten";
}

TEST(Shm, RestingRingDeliversItsLastRecord) {
  TestCards cards;
  TestRank a(cards, 0, 2);
  TestRank b(cards, 1, 2);
  std::uint32_t sent = 0;
  std::uint32_t received = 0;
  const std::uint64_t payload = 1;
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 20; ++i) {
      Command command;
      command.rank = 1;
      command.immediate = sent++;
      command.local = const_cast<std::uint64_t*>(&payload);
      command.bytes = 8;
      ASSERT_EQ(a.worker->post({&command, 1}), 1U);
    }
    for (const auto& got : b.poll(32)) EXPECT_EQ(got.completion.immediate, received++);
  }
  // The remaining messages come after at most one rest.
  for (std::uint32_t i = 0; i < IncomingRing::kMostRest; ++i) {
    for (const auto& got : b.poll(sent)) EXPECT_EQ(got.completion.immediate, received++);
  }
  for (const auto& got : b.poll(sent)) EXPECT_EQ(got.completion.immediate, received++);
  EXPECT_EQ(received, sent);
}

// More rings than are hot, so that one poll may look at a ring twice; messages that may lie beside
// the tails; and senders that go on meanwhile.
TEST(Shm, MessagesOfManyRingsAreWholeWhileTheirSendersGoOn) {
  constexpr std::uint32_t kSenders = 12;
  constexpr std::uint32_t kEach = 20'000;
  TestCards cards;
  std::vector<std::unique_ptr<TestRank>> ranks;
  for (std::uint32_t i = 0; i <= kSenders; ++i) ranks.push_back(std::make_unique<TestRank>(cards, i, kSenders + 1));
  TestRank& target = *ranks[kSenders];
  std::thread senders([&] {
    for (std::uint32_t n = 0; n < kEach; ++n) {
      for (std::uint32_t from = 0; from < kSenders; ++from) {
        const std::uint64_t payload = std::uint64_t{from} << 32 | n;
        Command command;
        command.rank = kSenders;
        command.immediate = n;
        command.inlined = true;
        command.bytes = sizeof payload;
        std::memcpy(command.packet, &payload, sizeof payload);
        while (ranks[from]->worker->post({&command, 1}) == 0) std::this_thread::yield();
        static_cast<void>(ranks[from]->poll(1));  // so the next one has a copy
      }
    }
  });
  std::vector<std::uint32_t> next(kSenders, 0);
  std::array<Completion, 64> got;
  std::uint32_t wrong = 0;
  for (std::uint32_t all = 0; all < kSenders * kEach;) {
    const std::size_t count = target.worker->poll(got);
    for (const Completion& one : std::span(got).first(count)) {
      if (one.event != Event::message) continue;
      std::uint64_t payload = 0;
      std::memcpy(&payload, one.data, sizeof payload);
      const bool whole = one.bytes == sizeof payload && payload == (std::uint64_t{one.rank} << 32 | one.immediate);
      if (!whole || one.immediate != next[one.rank]++) ++wrong;
      ++all;
    }
  }
  senders.join();
  EXPECT_EQ(wrong, 0U);
}

TEST(Shm, MessageArrivesWithHeaderPayloadAndSource) {
  TestCards cards;
  TestRank a(cards, 0, 2);
  TestRank b(cards, 1, 2);
  const auto header = bytes_of(1, 12);
  const auto payload = bytes_of(2, 33);
  Command command;
  command.rank = 1;
  command.immediate = 77;
  command.header = header.data();
  command.header_bytes = 12;
  command.local = const_cast<std::byte*>(payload.data());
  command.bytes = payload.size();
  ASSERT_EQ(a.worker->post({&command, 1}), 1U);
  EXPECT_TRUE(command.done);
  const auto got = b.poll();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].completion.event, Event::message);
  EXPECT_EQ(got[0].completion.rank, 0U);
  EXPECT_EQ(got[0].completion.worker, 0U);
  EXPECT_EQ(got[0].completion.immediate, 77U);
  ASSERT_EQ(got[0].data.size(), 16U + 33U);
  EXPECT_EQ(std::memcmp(got[0].data.data(), header.data(), 12), 0);
  EXPECT_EQ(std::memcmp(got[0].data.data() + 16, payload.data(), 33), 0);
  EXPECT_TRUE(b.poll().empty());
}

TEST(Shm, MessagesToOneself) {
  TestCards cards;
  TestRank a(cards, 0, 1);
  ASSERT_TRUE(a.send(0, bytes_of(1, 8), 5));
  const auto got = a.poll();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].completion.immediate, 5U);
}

TEST(Shm, FullRingIsNotAcceptedAndGoesOnAfterAPoll) {
  TestCards cards;
  TestRank a(cards, 0, 2, {{"HEDDLE_SHM_RING_BYTES", "4K"}});
  TestRank b(cards, 1, 2, {{"HEDDLE_SHM_RING_BYTES", "4K"}});
  std::uint32_t sent = 0;
  std::uint32_t received = 0;
  const auto payload = bytes_of(3, 100);
  for (int round = 0; round < 50; ++round) {
    while (a.send(1, payload, sent)) ++sent;
    ASSERT_GT(sent, received);
    for (int i = 0; i < 3; ++i) {
      for (const auto& got : b.poll()) {
        ASSERT_EQ(got.completion.immediate, received++);
        ASSERT_EQ(got.data, payload);
      }
    }
  }
  EXPECT_GT(received, 400U);  // several laps
}

TEST(Shm, MessagesWaitForAWorkerThatOpensLater) {
  TestCards cards;
  TestRank a(cards, 0, 2);
  TestRank b(cards, 1, 2);
  ASSERT_TRUE(a.send(1, bytes_of(1, 8), 9, 3));
  auto late = std::move(*b.transport->open_worker(3));
  std::vector<Completion> events(4);
  ASSERT_EQ(late->poll(events), 1U);
  EXPECT_EQ(events[0].immediate, 9U);
}

TEST(Shm, MessagesToAClosedWorkerAreDroppedAndNeverBlock) {
  TestCards cards;
  TestRank a(cards, 0, 2, {{"HEDDLE_SHM_RING_BYTES", "4K"}});
  TestRank b(cards, 1, 2, {{"HEDDLE_SHM_RING_BYTES", "4K"}});
  ASSERT_TRUE(a.send(1, bytes_of(1, 8)));
  b.worker.reset();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(a.send(1, bytes_of(1, 64)));
  EXPECT_FALSE(b.transport->open_worker(0).ok()) << "numbers are not reused";
}

TEST(Shm, WrongCommandsCompleteWithErrors) {
  TestCards cards;
  TestRank a(cards, 0, 2);
  TestRank b(cards, 1, 2);
  const auto check = [&a](Command command, base::Status expected) {
    command.token = 55;
    ASSERT_EQ(a.worker->post({&command, 1}), 1U);
    ASSERT_FALSE(command.done);
    const auto got = a.poll();
    ASSERT_EQ(got.size(), 1U);
    EXPECT_EQ(got[0].completion.token, 55U);
    EXPECT_EQ(got[0].completion.status, expected);
    EXPECT_EQ(got[0].completion.event, Event::done);
  };
  Command command;
  command.rank = 2;
  check(command, HEDDLE_ERR_RANK);
  command.rank = 1;
  command.worker = 64;
  check(command, HEDDLE_ERR_RANK);
  command.worker = 0;
  command.bytes = a.transport->capabilities().max_message + 1;
  check(command, HEDDLE_ERR_SIZE);
  command.bytes = ~std::uint64_t{0};
  check(command, HEDDLE_ERR_SIZE);
  command.bytes = 8;
  command.opcode = Opcode::atomic;
  check(command, HEDDLE_ERR_UNSUPPORTED);
  command.opcode = Opcode::put;
  check(command, HEDDLE_ERR_ARGUMENT);  // without remote memory
}

TEST(Shm, LargestMessagePasses) {
  TestCards cards;
  TestRank a(cards, 0, 2);
  TestRank b(cards, 1, 2);
  const auto payload = bytes_of(4, a.transport->capabilities().max_message);
  EXPECT_GE(payload.size(), 8000U);
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(a.send(1, payload));
    const auto got = b.poll();
    ASSERT_EQ(got.size(), 1U);
    ASSERT_EQ(got[0].data, payload);
    EXPECT_TRUE(b.poll().empty());
  }
}

// More senders than there are hot rings: messages of all of them arrive.
TEST(Shm, ManySendersAreServedFairly) {
  constexpr std::uint32_t kSenders = 40;
  TestCards cards;
  std::vector<std::unique_ptr<TestRank>> ranks;
  for (std::uint32_t r = 0; r <= kSenders; ++r) ranks.push_back(std::make_unique<TestRank>(cards, r, kSenders + 1));
  std::vector<std::uint32_t> received(kSenders + 1);
  for (std::uint32_t round = 0; round < 5; ++round) {
    for (std::uint32_t r = 1; r <= kSenders; ++r) {
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(ranks[r]->send(0, bytes_of(r, 8), r));
    }
    std::size_t total = 0;
    for (int poll = 0; poll < 60; ++poll) {
      for (const auto& got : ranks[0]->poll(4)) {
        ++received[got.completion.rank];
        ++total;
      }
    }
    ASSERT_EQ(total, 3 * kSenders);
  }
  for (std::uint32_t r = 1; r <= kSenders; ++r) EXPECT_EQ(received[r], 15U);
}

// 64 ranks of 4 workers, each rank's worker 0 sending to every worker of the job: it starts at once
// and stays small.
TEST(Shm, JobOf64RanksStaysSmall) {
  constexpr std::uint32_t kRanks = 64;
  constexpr std::uint32_t kWorkers = 4;
  TestCards cards;
  std::vector<std::unique_ptr<TestRank>> ranks;
  std::vector<std::vector<std::unique_ptr<TransportWorker>>> others(kRanks);
  for (std::uint32_t r = 0; r < kRanks; ++r) {
    ranks.push_back(std::make_unique<TestRank>(cards, r, kRanks));
    for (std::uint32_t w = 1; w < kWorkers; ++w) others[r].push_back(std::move(*ranks[r]->transport->open_worker(w)));
  }
  for (std::uint32_t r = 0; r < kRanks; ++r) {
    for (std::uint32_t to = 0; to < kRanks * kWorkers; ++to) {
      ASSERT_TRUE(ranks[r]->send(to / kWorkers, bytes_of(r, 8), r, to % kWorkers));
    }
  }
  std::vector<Completion> events(16);
  const auto drain = [&events](TransportWorker& worker) {
    std::size_t got = 0;
    for (int i = 0; i < 100; ++i) got += worker.poll(events);
    return got;
  };
  for (std::uint32_t r = 0; r < kRanks; ++r) {
    ASSERT_EQ(drain(*ranks[r]->worker), kRanks);
    for (const auto& worker : others[r]) ASSERT_EQ(drain(*worker), kRanks);
  }
  std::uint64_t memory = 0;
  for (const auto& [rank, card] : cards.cards) {
    struct stat status{};
    ASSERT_EQ(fstat(card.fd, &status), 0);
    memory += static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  // 16384 rings of one touched page each, and the control parts. All workers sending to all would
  // be four times this.
  EXPECT_LT(memory, std::uint64_t{128} << 20);
}

TEST(Shm, AllocatedRegionsAreTheSameMemory) {
  TestCards cards;
  TestRank a(cards, 0, 2);
  TestRank b(cards, 1, 2);
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{100000}, std::uint64_t{70} << 20}) {
    const auto region = b.transport->allocate(bytes);
    ASSERT_TRUE(region.ok()) << base::last_message();
    auto* own = static_cast<std::byte*>(region->address);
    EXPECT_EQ(own[bytes - 1], std::byte{0});
    const auto remote = a.transport->import(1, region->key);
    ASSERT_TRUE(remote.ok()) << base::last_message();
    ASSERT_NE(remote->direct, nullptr);
    EXPECT_NE(remote->direct, own);
    remote->direct[bytes - 1] = std::byte{42};
    EXPECT_EQ(own[bytes - 1], std::byte{42});
    const auto mine = b.transport->import(1, region->key);
    ASSERT_TRUE(mine.ok());
    EXPECT_EQ(mine->direct, own);
    a.transport->release(*remote);
    b.transport->free(*region);
    EXPECT_FALSE(b.transport->import(1, region->key).ok()) << "released";
    const auto again = b.transport->allocate(bytes);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(static_cast<std::byte*>(again->address)[bytes - 1], std::byte{0}) << "reused memory is zeroed";
    b.transport->free(*again);
  }
}

TEST(Shm, TenThousandRegionsAreFewMappings) {
  const auto maps = [] {
    FILE* file = std::fopen("/proc/self/maps", "r");
    int lines = 0;
    for (char line[512]; std::fgets(line, sizeof line, file) != nullptr;) {
      lines += std::strstr(line, "memfd:heddle") != nullptr ? 1 : 0;
    }
    std::fclose(file);
    return lines;
  };
  TestCards cards;
  TestRank a(cards, 0, 2);
  TestRank b(cards, 1, 2);
  const int before = maps();
  std::vector<LocalMemory> regions;
  for (int i = 0; i < 10000; ++i) {
    const auto region = b.transport->allocate(64);
    ASSERT_TRUE(region.ok());
    const auto remote = a.transport->import(1, region->key);
    ASSERT_TRUE(remote.ok());
    ASSERT_NE(remote->direct, nullptr);
    *reinterpret_cast<int*>(remote->direct) = i;
    regions.push_back(*region);
  }
  EXPECT_GT(maps() - before, 0);
  EXPECT_LT(maps() - before, 10);
  for (int i = 0; i < 10000; ++i) ASSERT_EQ(*static_cast<int*>(regions[static_cast<std::size_t>(i)].address), i);
}

TEST(Shm, AbsurdRegionSizesAreRefused) {
  TestCards cards;
  TestRank a(cards, 0, 1);
  EXPECT_EQ(a.transport->allocate(std::uint64_t{1} << 60).status(), HEDDLE_ERR_NO_MEMORY);
  EXPECT_EQ(a.transport->allocate(~std::uint64_t{0}).status(), HEDDLE_ERR_NO_MEMORY);
  EXPECT_EQ(a.transport->allocate(0).status(), HEDDLE_ERR_ARGUMENT);
  EXPECT_EQ(a.transport->register_memory(nullptr, 8).status(), HEDDLE_ERR_ARGUMENT);
}

TEST(Shm, HostileKeysAreRefused) {
  TestCards cards;
  TestRank a(cards, 0, 2);
  TestRank b(cards, 1, 2);
  const auto region = b.transport->allocate(4096);
  ASSERT_TRUE(region.ok());
  EXPECT_EQ(a.transport->import(2, region->key).status(), HEDDLE_ERR_RANK);
  base::Random random(5);
  for (int i = 0; i < 20000; ++i) {
    MemoryKey key = region->key.front();
    const std::uint64_t changes = 1 + random.below(6);
    for (std::uint64_t c = 0; c < changes; ++c) {
      key.bytes[random.below(key.bytes.size())] ^= static_cast<std::byte>(1 + random.below(255));
    }
    if (key.bytes == region->key.front().bytes) continue;
    ASSERT_EQ(a.transport->import(1, key).status(), HEDDLE_ERR_PROTOCOL);
  }
}

TEST(Shm, DisagreeingSettingsAreRefusedByName) {
  TestCards cards;
  TestRank a(cards, 0, 2);
  TestRank b(cards, 1, 2, {{"HEDDLE_SHM_RING_BYTES", "64K"}});
  const auto region = b.transport->allocate(8);
  EXPECT_EQ(a.transport->import(1, region->key).status(), HEDDLE_ERR_VERSION);
  EXPECT_NE(std::string(base::last_message()).find("HEDDLE_SHM_RING_BYTES"), std::string::npos);
  EXPECT_NE(std::string(base::last_message()).find("65536"), std::string::npos);
  EXPECT_NE(std::string(base::last_message()).find("135168"), std::string::npos);
  TestRank c(cards, 1, 2, {{"HEDDLE_MAX_WORKERS", "7"}});
  EXPECT_EQ(a.transport->import(1, region->key).status(), HEDDLE_ERR_VERSION);
  EXPECT_NE(std::string(base::last_message()).find("HEDDLE_MAX_WORKERS"), std::string::npos);
  for (const char* window : {"HEDDLE_TAG_CREDIT_BYTES", "HEDDLE_AM_USER_BYTES"}) {
    TestRank other(cards, 1, 2, {{window, "321K"}});
    EXPECT_EQ(a.transport->import(1, region->key).status(), HEDDLE_ERR_VERSION);
    EXPECT_NE(std::string(base::last_message()).find(window), std::string::npos);
    EXPECT_NE(std::string(base::last_message()).find("328704"), std::string::npos);
  }
  TestRank d(cards, 0, 1, {{"HEDDLE_SHM_BOUNCE", "chunk=64K,pool=32K"}});
  EXPECT_EQ(d.status, HEDDLE_ERR_CONFIG);
  EXPECT_NE(std::string(base::last_message()).find("HEDDLE_SHM_BOUNCE: pool"), std::string::npos);
}

TEST(Shm, PeerFailureCompletesPostsAndDeliversWhatArrived) {
  TestCards cards;
  TestRank a(cards, 0, 2);
  TestRank b(cards, 1, 2);
  ASSERT_TRUE(a.send(1, bytes_of(1, 8)));
  ASSERT_TRUE(b.send(0, bytes_of(1, 8), 31));
  ASSERT_TRUE(b.send(0, bytes_of(1, 8), 32));
  EXPECT_EQ(a.poll(1).size(), 1U);
  a.worker->peer_failed(1);
  Command command;
  command.rank = 1;
  command.token = 9;
  ASSERT_EQ(a.worker->post({&command, 1}), 1U);
  EXPECT_FALSE(command.done);
  bool failed = false;
  bool arrived = false;
  for (int i = 0; i < 4; ++i) {
    for (const auto& got : a.poll()) {
      failed |= got.completion.event == Event::done && got.completion.token == 9 &&
                got.completion.status == HEDDLE_ERR_PEER_FAILED;
      arrived |= got.completion.event == Event::message && got.completion.immediate == 32;
    }
  }
  EXPECT_TRUE(failed);
  EXPECT_TRUE(arrived);
  ASSERT_TRUE(b.send(0, bytes_of(1, 8), 33));
  EXPECT_TRUE(a.poll().empty()) << "the ring was dropped";
}

// A poll that had no room for all that it knew of leaves the rest to the next one, which must not
// take its end for that of the ring.
TEST(Shm, WhatAPeerHasSentBeforeItsDeathArrivesWhole) {
  TestCards cards;
  TestRank a(cards, 0, 2);
  TestRank b(cards, 1, 2);
  const auto send = [&](std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) ASSERT_TRUE(b.send(0, bytes_of(1, 8), i));
  };
  send(40);
  std::size_t got = a.poll(32).size();
  EXPECT_EQ(got, 32U);
  send(20);
  a.worker->peer_failed(1);
  for (int i = 0; i < 8; ++i) got += a.poll(32).size();
  EXPECT_EQ(got, 60U);
}

// Two ranks on two threads, both directions, random sizes; with ThreadSanitizer.
TEST(Shm, ThreadsExchangeMessages) {
  TestCards cards;
  TestRank ranks[2] = {{cards, 0, 2, {{"HEDDLE_SHM_RING_BYTES", "8K"}}},
                       {cards, 1, 2, {{"HEDDLE_SHM_RING_BYTES", "8K"}}}};
  constexpr std::uint32_t kMessages = 20000;
  const auto run = [&ranks](std::uint32_t me) {
    base::Random random(me);
    base::Random expected(1 - me);
    const auto limit = ranks[me].transport->capabilities().max_message;
    std::uint32_t sent = 0;
    std::uint32_t received = 0;
    std::vector<std::byte> next = bytes_of(0, random.below(limit / (1 + random.below(40))));
    while (sent < kMessages || received < kMessages) {
      if (sent < kMessages && ranks[me].send(1 - me, next, sent)) {
        ++sent;
        next = bytes_of(sent, random.below(limit / (1 + random.below(40))));
      }
      const auto events = ranks[me].poll();
      if (events.empty()) std::this_thread::yield();
      for (const auto& got : events) {
        ASSERT_EQ(got.completion.immediate, received);
        const std::uint64_t divisor = 1 + expected.below(40);
        ASSERT_EQ(got.data, bytes_of(received, expected.below(limit / divisor)));
        ++received;
      }
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
}

}  // namespace
}  // namespace heddle::transport::shm::shm_test
