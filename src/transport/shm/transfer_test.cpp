// Puts and gets on memory that is not mapped: through the kernel, through bounce space, and
// changing from one to the other.
#include "transport/shm/transfer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/random.hpp"
#include "base/test_support.hpp"
#include "transport/test/shm_job.hpp"

namespace heddle::transport::shm::transfer_test {
namespace {

using Settings = TestRank::Settings;

const Settings kBounceOnly{{"HEDDLE_SHM_CMA", "0"}, {"HEDDLE_SHM_BOUNCE", "chunk=4K"}};
const Settings kImpatient{{"HEDDLE_SHM_BOUNCE", "chunk=4K,patience=0ns"}};

// Rank 0 acts on memory that rank 1 has registered.
struct Pair {
  explicit Pair(const Settings& settings, std::size_t bytes = 1 << 20)
      : a(cards, 0, 2, settings), b(cards, 1, 2, settings), target(bytes) {
    local = *b.transport->register_memory(target.data(), target.size());
    auto imported = a.transport->import(1, local.key);
    EXPECT_TRUE(imported.ok()) << base::last_message();
    remote = *imported;
    EXPECT_TRUE(b.poll().empty());  // else nothing but the kernel is tried
  }

  // Polls both ranks (or only the initiator) until the command ends; returns its status.
  base::Status run(Opcode opcode, std::uint64_t offset, std::span<std::byte> data, bool target_polls = true) {
    Command command;
    command.token = 77;
    if (!a.transfer(opcode, remote, offset, data, &command)) return HEDDLE_AGAIN;
    if (command.done) return HEDDLE_DONE;
    for (int i = 0; i < 1000000; ++i) {
      if (target_polls) {
        EXPECT_TRUE(b.poll().empty());
      }
      for (const auto& got : a.poll()) {
        EXPECT_EQ(got.completion.token, 77U);
        if (got.completion.event == Event::done) return got.completion.status;
      }
    }
    return HEDDLE_ERR_TIMEOUT;
  }

  TestCards cards;
  TestRank a;
  TestRank b;
  std::vector<std::byte> target;
  LocalMemory local;
  RemoteMemory remote;
};

void put_and_get_back(Pair& pair) {
  EXPECT_EQ(pair.remote.direct, nullptr);
  for (const std::size_t bytes : {1UL, 8UL, 4095UL, 4096UL, 4097UL, 65536UL, 1000013UL}) {
    const std::uint64_t offset = bytes % 97;
    auto data = bytes_of(bytes, bytes);
    std::fill(pair.target.begin(), pair.target.end(), std::byte{0xEE});
    ASSERT_EQ(pair.run(Opcode::put, offset, data), HEDDLE_DONE) << base::last_message();
    ASSERT_EQ(std::memcmp(pair.target.data() + offset, data.data(), bytes), 0) << bytes;
    ASSERT_EQ(pair.target[offset + bytes], std::byte{0xEE});
    if (offset > 0) {
      ASSERT_EQ(pair.target[offset - 1], std::byte{0xEE});
    }
    std::vector<std::byte> back(bytes + 1, std::byte{0xDD});
    ASSERT_EQ(pair.run(Opcode::get, offset, std::span(back).first(bytes)), HEDDLE_DONE) << base::last_message();
    ASSERT_EQ(std::memcmp(back.data(), data.data(), bytes), 0) << bytes;
    ASSERT_EQ(back[bytes], std::byte{0xDD});
  }
}

TEST(Transfer, ThroughTheKernel) {
  if (!test::kernel_copies()) GTEST_SKIP() << test::kNoKernelCopy;
  Pair pair(Settings{{"HEDDLE_SHM_BOUNCE", "pool=0"}});
  put_and_get_back(pair);
}

TEST(Transfer, ThroughBounceSpace) {
  Pair pair(kBounceOnly);
  put_and_get_back(pair);
}

TEST(Transfer, ThroughAPoolOfTwoChunks) {
  Settings settings = kBounceOnly;
  settings["HEDDLE_SHM_BOUNCE"] = "chunk=4K,pool=8K";
  Pair pair(settings);
  put_and_get_back(pair);
}

// Looks of an initiator whose target serves all that it was asked for before each of them.
struct Looks {
  std::size_t all = 0;
  std::size_t in_vain = 0;  // reported nothing
};

Looks looks_at(Pair& pair, Opcode opcode, std::span<std::byte> data) {
  Looks looks;
  std::vector<Completion> events(16);
  Command command;
  command.token = 77;
  EXPECT_TRUE(pair.a.transfer(opcode, pair.remote, 0, data, &command));
  EXPECT_FALSE(command.done);
  for (bool done = false; !done && looks.all < 10'000; ++looks.all) {
    while (pair.b.worker->poll(events) != 0) continue;
    const std::size_t n = pair.a.worker->poll(events);
    if (n == 0) ++looks.in_vain;
    for (const Completion& event : std::span(events).first(n)) done = done || event.ends() != 0;
  }
  return looks;
}

// A thread that waits for a transfer sleeps after looks that reported nothing.
TEST(Transfer, EachLookThatMovesAPartReportsIt) {
  Pair pair(kBounceOnly);
  auto data = bytes_of(3, pair.target.size());
  for (const Opcode opcode : {Opcode::put, Opcode::get}) {
    const Looks looks = looks_at(pair, opcode, data);
    EXPECT_GT(looks.all, 1U);
    EXPECT_EQ(looks.in_vain, 0U) << "of " << looks.all;
  }
  EXPECT_EQ(data, pair.target);
}

// However short the chunks are.
TEST(Transfer, ALookMovesManyChunks) {
  Pair pair(kBounceOnly);
  auto data = bytes_of(3, pair.target.size());
  const std::size_t enough = pair.target.size() / Transfers::kLook + 3;
  for (const Opcode opcode : {Opcode::put, Opcode::get}) EXPECT_LE(looks_at(pair, opcode, data).all, enough);
  EXPECT_EQ(data, pair.target);
}

TEST(Transfer, TargetThatNeverLooksIsPassedOver) {
  if (!test::kernel_copies()) GTEST_SKIP() << test::kNoKernelCopy;
  Pair pair(kImpatient);
  for (int i = 0; i < 20; ++i) {
    auto data = bytes_of(static_cast<std::uint64_t>(i), 600000);
    ASSERT_EQ(pair.run(Opcode::put, 5, data, false), HEDDLE_DONE) << base::last_message();
    ASSERT_EQ(std::memcmp(pair.target.data() + 5, data.data(), data.size()), 0);
    std::vector<std::byte> back(data.size());
    ASSERT_EQ(pair.run(Opcode::get, 5, back, false), HEDDLE_DONE);
    ASSERT_EQ(back, data);
  }
  // The requests that were taken back are still in the ring: they must have no effect.
  std::fill(pair.target.begin(), pair.target.end(), std::byte{0x11});
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(pair.b.poll().empty());
  for (const std::byte b : pair.target) ASSERT_EQ(b, std::byte{0x11});
  EXPECT_EQ(pair.b.worker->counters().malformed, 0U);
}

// Once source_free was reported, the source may change; the target must get what was there before.
TEST(Transfer, FreedSourceIsNotReadAgain) {
  if (!test::kernel_copies()) GTEST_SKIP() << test::kNoKernelCopy;
  Pair pair(kImpatient);
  const auto data = bytes_of(3, 60000);
  auto source = data;
  Command command;
  command.token = 5;
  command.wants_source_free = true;
  ASSERT_TRUE(pair.a.transfer(Opcode::put, pair.remote, 0, source, &command));
  bool freed = command.source_free || command.done;
  bool done = command.done;
  EXPECT_FALSE(done);
  int frees = freed ? 1 : 0;
  if (freed) std::fill(source.begin(), source.end(), std::byte{0});
  for (int i = 0; i < 100000 && !done; ++i) {
    for (const auto& got : pair.a.poll()) {
      EXPECT_EQ(got.completion.status, HEDDLE_DONE);
      EXPECT_EQ(got.completion.token, 5U);
      if (got.completion.event == Event::source_free) {
        ++frees;
        std::fill(source.begin(), source.end(), std::byte{0});
      }
      done |= got.completion.event == Event::done;
    }
  }
  EXPECT_TRUE(done);
  EXPECT_EQ(frees, 1);
  EXPECT_EQ(std::memcmp(pair.target.data(), data.data(), data.size()), 0);
}

TEST(Transfer, TargetThatNeverLooksIsPassedOverThoughItsRingIsFull) {
  if (!test::kernel_copies()) GTEST_SKIP() << test::kNoKernelCopy;
  Settings settings = kImpatient;
  settings["HEDDLE_SHM_BOUNCE"] = "chunk=4K,patience=1ms";
  Pair pair(settings);
  for (const std::size_t bytes : {200UL, 1UL}) {  // until not even the smallest record fits
    std::size_t sent = 0;
    while (pair.a.send(1, bytes_of(1, bytes))) ASSERT_LT(++sent, 100'000U);
  }
  std::copy_n(bytes_of(5, pair.target.size()).data(), pair.target.size(), pair.target.data());
  std::vector<std::byte> back(100'000);
  ASSERT_EQ(pair.run(Opcode::get, 7, back, false), HEDDLE_DONE) << base::last_message();
  EXPECT_EQ(std::memcmp(back.data(), pair.target.data() + 7, back.size()), 0);
}

TEST(Transfer, FreedSourceOfAPutThatIsWhollyInChunks) {
  if (!test::kernel_copies()) GTEST_SKIP() << test::kNoKernelCopy;
  Settings settings = kImpatient;
  settings["HEDDLE_SHM_BOUNCE"] = "chunk=4K,patience=1ms";
  Pair pair(settings);
  const auto data = bytes_of(4, 9000);  // three chunks, all fed by the post
  auto source = data;
  Command command;
  command.token = 6;
  command.wants_source_free = true;
  ASSERT_TRUE(pair.a.transfer(Opcode::put, pair.remote, 0, source, &command));
  ASSERT_FALSE(command.done);
  ASSERT_TRUE(command.source_free);
  std::fill(source.begin(), source.end(), std::byte{0});
  bool done = false;
  while (!done) {
    for (const auto& got : pair.a.poll()) done |= got.completion.event == Event::done;
  }
  EXPECT_EQ(std::memcmp(pair.target.data(), data.data(), data.size()), 0) << "copied by the kernel from the chunks";
}

TEST(Transfer, AllocatedRegionsAreCommandsWhenDirectIsOff) {
  TestCards cards;
  const Settings settings{{"HEDDLE_SHM_DIRECT", "0"}};
  TestRank a(cards, 0, 2, settings);
  TestRank b(cards, 1, 2, settings);
  EXPECT_FALSE(a.transport->capabilities().direct);
  const auto region = b.transport->allocate(100);
  const auto remote = a.transport->import(1, region->key);
  ASSERT_TRUE(remote.ok());
  EXPECT_EQ(remote->direct, nullptr);
  EXPECT_EQ(remote->opcodes, bit(Opcode::put) | bit(Opcode::get));
  if (!test::kernel_copies()) GTEST_SKIP() << test::kNoKernelCopy;
  auto data = bytes_of(1, 100);
  Command command;
  ASSERT_TRUE(a.transfer(Opcode::put, *remote, 0, data, &command));
  EXPECT_TRUE(command.done);
  EXPECT_EQ(std::memcmp(region->address, data.data(), 100), 0);
}

TEST(Transfer, DeregisteredRegionIsAnError) {
  Pair pair(kBounceOnly);
  pair.b.transport->deregister(pair.local);
  auto data = bytes_of(1, 20000);
  EXPECT_EQ(pair.run(Opcode::put, 0, data), HEDDLE_ERR_RANGE);
  EXPECT_EQ(pair.run(Opcode::get, 0, data), HEDDLE_ERR_RANGE);
}

TEST(Transfer, NothingAllowedSaysWhatToAllow) {
  Pair pair(Settings{{"HEDDLE_SHM_CMA", "0"}, {"HEDDLE_SHM_BOUNCE", "pool=0"}});
  auto data = bytes_of(1, 8);
  EXPECT_EQ(pair.run(Opcode::put, 0, data), HEDDLE_ERR_UNSUPPORTED);
  EXPECT_NE(std::string(base::last_message()).find("HEDDLE_SHM_CMA"), std::string::npos);
}

TEST(Transfer, ZeroBytesAndLeavingTheRegion) {
  Pair pair(kBounceOnly);
  auto data = bytes_of(1, 8);
  EXPECT_EQ(pair.run(Opcode::put, 0, {}), HEDDLE_DONE);
  EXPECT_EQ(pair.run(Opcode::put, pair.target.size() - 7, data), HEDDLE_ERR_RANGE);
  EXPECT_EQ(pair.run(Opcode::get, ~std::uint64_t{0}, data), HEDDLE_ERR_RANGE);
}

TEST(Transfer, MoreThanFitAreNotAcceptedAndThenAre) {
  Pair pair(kBounceOnly);
  auto data = bytes_of(9, 30000);
  std::size_t accepted = 0;
  while (pair.a.transfer(Opcode::put, pair.remote, 0, data)) ASSERT_LT(++accepted, 1000U);
  EXPECT_EQ(accepted, Transfers::kMost);
  std::size_t finished = 0;
  for (int i = 0; i < 100000 && finished < accepted; ++i) {
    EXPECT_TRUE(pair.b.poll().empty());
    for (const auto& got : pair.a.poll(3)) {
      EXPECT_EQ(got.completion.status, HEDDLE_DONE);
      ++finished;
    }
  }
  EXPECT_EQ(finished, accepted);
  EXPECT_EQ(pair.run(Opcode::put, 0, data), HEDDLE_DONE);
}

// All chunks come back from a peer that has failed: a transfer to another peer then has the whole
// pool.
TEST(Transfer, PeerFailureEndsTransfersAndReturnsChunks) {
  Settings settings = kBounceOnly;
  settings["HEDDLE_SHM_BOUNCE"] = "chunk=4K,pool=16K";
  TestCards cards;
  TestRank a(cards, 0, 3, settings);
  TestRank b(cards, 1, 3, settings);
  TestRank c(cards, 2, 3, settings);
  std::vector<std::byte> memory(50000);
  const auto of_b = b.transport->register_memory(memory.data(), memory.size());
  const auto of_c = c.transport->register_memory(memory.data(), memory.size());
  const auto to_b = a.transport->import(1, of_b->key);
  const auto to_c = a.transport->import(2, of_c->key);
  auto data = bytes_of(1, 50000);
  for (int round = 0; round < 3; ++round) {
    Command command;
    command.token = 8;
    ASSERT_TRUE(a.transfer(Opcode::put, round == 0 ? *to_b : *to_c, 0, data, &command));
    ASSERT_FALSE(command.done);
    if (round == 0) a.worker->peer_failed(1);
    std::size_t finished = 0;
    for (int i = 0; i < 1000 && finished == 0; ++i) {
      EXPECT_TRUE(c.poll().empty());
      for (const auto& got : a.poll()) {
        EXPECT_EQ(got.completion.status, round == 0 ? HEDDLE_ERR_PEER_FAILED : HEDDLE_DONE);
        ++finished;
      }
    }
    ASSERT_EQ(finished, 1U);
  }
  Command command;
  command.token = 9;
  ASSERT_TRUE(a.transfer(Opcode::put, *to_b, 0, data, &command));
  ASSERT_EQ(a.poll().at(0).completion.status, HEDDLE_ERR_PEER_FAILED);
}

// Random bytes in the ring, in each type of record: the target counts them and closes the ring,
// does not crash, and writes nothing outside its regions.
TEST(Transfer, HostileRecordsAreRefused) {
  base::Random random(11);
  std::uint64_t closed = 0;
  testing::internal::CaptureStderr();
  for (int round = 0; round < 300; ++round) {
    TestCards cards;
    TestRank b(cards, 1, 2, kBounceOnly);
    std::vector<std::byte> memory(4096 * 3, std::byte{0x22});
    const auto region = b.transport->register_memory(memory.data() + 4096, 4096);
    TestBootstrap bootstrap(cards, 0, 2);
    base::Environment environment;
    environment.config = *base::Config::read(kBounceOnly);
    auto device = Device::create(bootstrap, environment);
    ASSERT_TRUE(device.ok());
    ASSERT_EQ((*device)->bounce().prepare((*device)->segment(), (*device)->control().header()), HEDDLE_DONE);
    auto memory_of_ring = (*device)->open_ring(0, **(*device)->peer(1), 0);
    auto* control = reinterpret_cast<queue::RingControl<>*>(*memory_of_ring);
    queue::RecordProducer<> ring(control, *memory_of_ring + sizeof *control, (*device)->layout().ring_capacity);
    for (int i = 0; i < 20; ++i) {
      TransferRequest request;
      request.region = random.below(4) == 0 ? random.next() : region->id;
      request.offset = random.below(4) == 0 ? random.next() : random.below(8192);
      request.chunk = static_cast<std::uint32_t>(random.below(20) == 0 ? random.next() : random.below(4));
      request.bytes = static_cast<std::uint32_t>(random.below(20) == 0 ? random.next() : 1 + random.below(4096));
      request.generation = 1;
      if (request.chunk < 4) {
        (*device)->bounce().view().word(request.chunk).store(chunk_word(1, ChunkState::requested));
      }
      const auto type = static_cast<std::uint8_t>(random.below(20) == 0 ? random.below(256) : 3 + random.below(2));
      std::byte* room = ring.begin(type, 0, sizeof request);
      ASSERT_NE(room, nullptr);
      std::memcpy(room, &request, sizeof request);
    }
    ring.publish();
    for (int i = 0; i < 20; ++i) static_cast<void>(b.poll());
    for (std::size_t i = 0; i < 4096; ++i) ASSERT_EQ(memory[i], std::byte{0x22});
    for (std::size_t i = 8192; i < memory.size(); ++i) ASSERT_EQ(memory[i], std::byte{0x22});
    EXPECT_LE(b.worker->counters().malformed, 1U) << "a malformed ring is closed";
    closed += b.worker->counters().malformed;
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_GT(closed, 100U);
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), static_cast<long>(closed)) << "each is reported once";
}

// Two workers of one rank share the pool for transfers to one target, which serves on its own
// thread; each worker uses its own part of the region.
TEST(Transfer, WorkersShareThePool) {
  Settings settings = kBounceOnly;
  settings["HEDDLE_SHM_BOUNCE"] = "chunk=4K,pool=64K";
  Pair pair(settings);
  auto second = std::move(*pair.a.transport->open_worker(1));
  std::atomic<bool> stop{false};
  std::thread target([&] {
    std::vector<Completion> events(16);
    while (!stop.load(std::memory_order_relaxed)) {
      if (pair.b.worker->poll(events) == 0) std::this_thread::yield();
    }
  });
  const auto run = [&pair](TransportWorker& worker, std::uint64_t base_offset) {
    base::Random random(base_offset + 1);
    std::vector<Completion> events(4);
    std::vector<std::byte> back;
    for (int i = 0; i < 200; ++i) {
      const std::size_t bytes = 1 + random.below(100000);
      auto data = bytes_of(random.next(), bytes);
      back.assign(bytes, std::byte{0});
      for (const bool put : {true, false}) {
        Command command;
        command.opcode = put ? Opcode::put : Opcode::get;
        command.rank = 1;
        command.remote = &pair.remote;
        command.token = 1;
        command.offset = base_offset;
        command.local = put ? data.data() : back.data();
        command.bytes = bytes;
        ASSERT_EQ(worker.post({&command, 1}), 1U);
        while (!command.done) {
          const std::size_t n = worker.poll(events);
          if (n == 0) std::this_thread::yield();
          for (const Completion& event : std::span(events).first(n)) {
            ASSERT_EQ(event.status, HEDDLE_DONE);
            command.done = command.done || event.ends() != 0;
          }
        }
      }
      ASSERT_EQ(back, data);
    }
  };
  std::thread other(run, std::ref(*second), 500000);
  run(*pair.a.worker, 0);
  other.join();
  stop = true;
  target.join();
}

}  // namespace
}  // namespace heddle::transport::shm::transfer_test
