// Which way transfers on memory that is not mapped take, by a target that the test plays.
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/test_support.hpp"
#include "transport/shm/transfer.hpp"
#include "transport/test/shm_job.hpp"

namespace heddle::transport::shm::transfer_way_test {
namespace {

using Settings = TestRank::Settings;

// The initiator alone, its ring read by the test, and time that the test moves.
struct Scripted {
  explicit Scripted(Settings settings = {}, bool warm = true)
      : bootstrap_a(cards, 0, 2), bootstrap_b(cards, 1, 2), backlog(64, 2 * Transfers::kMost), target(kBytes) {
    settings["HEDDLE_SHM_BOUNCE"] = "pool=256K";  // 16 chunks
    environment.config = *base::Config::read(settings);
    environment.log = base::Log(base::Level::error, 0);
    environment.clock = &clock;
    clock.advance_ns(1'000'000'000);
    b = std::move(*Device::create(bootstrap_b, environment));
    a = std::move(*Device::create(bootstrap_a, environment));
    transfers = std::make_unique<Transfers>(*a, 0, backlog);
    to.peer = *a->peer(1);
    const auto memory = a->open_ring(0, *to.peer, 0);
    auto* control = reinterpret_cast<queue::RingControl<>*>(*memory);
    const std::uint32_t capacity = a->layout().ring_capacity;
    to.ring = queue::RecordProducer<>(control, *memory + sizeof *control, capacity);
    ring = queue::RecordConsumer<>(control, *memory + sizeof *control, capacity);
    to.bell = a->bell_pull(*to.peer, 0);
    to.entry = &to.peer->control.worker(0);
    static_cast<void>(to.entry->attention.take());
    remote.rank = 1;
    remote.bytes = target.size();
    remote.handle = {reinterpret_cast<std::uintptr_t>(target.data()), 1, 0, 0};
    // Uses all chunks once, since the time of a first use is no measure.
    for (int i = 0; warm && i < 2; ++i) EXPECT_EQ(put(1000), 8U);
  }
  ~Scripted() { transfers.reset(); }
  Scripted(const Scripted&) = delete;
  Scripted& operator=(const Scripted&) = delete;

  Command command() {
    Command command;
    command.opcode = Opcode::put;
    command.rank = 1;
    command.local = source.data();
    command.bytes = source.size();
    command.remote = &remote;
    command.token = 1;
    return command;
  }
  // True: it was copied at once.
  bool start() {
    Command one = command();
    EXPECT_TRUE(transfers->start(one, to));
    return one.done;
  }
  bool accepts() {
    Command one = command();
    return transfers->start(one, to);
  }
  // The initiator looks; how many transfers have ended.
  std::size_t look() {
    static_cast<void>(transfers->advance());
    std::vector<Completion> out(8);
    out.resize(backlog.drain(out));
    for (const Completion& completion : out) EXPECT_EQ(completion.status, HEDDLE_DONE);
    return out.size();
  }
  std::atomic<std::uint64_t>& word(const TransferRequest& request) const {
    return a->bounce().view().word(request.chunk);
  }
  // The target takes the next chunk that was not taken back. False: there is none.
  bool take(TransferRequest* request) {
    queue::Record record;
    while (ring.take(&record) == queue::Take::record) {
      std::memcpy(request, record.data, sizeof *request);
      ring.release();
      std::uint64_t expected = chunk_word(request->generation, ChunkState::requested);
      if (word(*request).compare_exchange_strong(expected, chunk_word(request->generation, ChunkState::taken))) {
        return true;
      }
    }
    return false;
  }
  void finish(const TransferRequest& request) {
    std::memcpy(target.data() + request.offset, a->bounce().view().data(request.chunk), request.bytes);
    ++chunks;
    word(request).store(chunk_word(request.generation, ChunkState::done));
  }
  // Sets the bytes of all later puts.
  void resize(std::size_t bytes) {
    source.resize(bytes);
    target.resize(bytes);
    remote.bytes = bytes;
    remote.handle[0] = reinterpret_cast<std::uintptr_t>(target.data());
  }
  // By words, for there are many.
  void change_source() {
    std::uint64_t word = 0;
    for (std::size_t at = 0; at + sizeof word <= source.size(); at += sizeof word) {
      std::memcpy(&word, &source[at], sizeof word);
      word = word * 5 + 3;
      std::memcpy(&source[at], &word, sizeof word);
    }
  }
  // Makes a put. The target takes `ns` for each chunk, but a microsecond for each of the first
  // `quick` chunks. While the target copies a chunk, the initiator looks all the time. Returns how
  // many chunks went through bounce space.
  std::size_t put(std::uint64_t ns, std::size_t quick = 0) {
    chunks = 0;
    std::fill(target.begin(), target.end(), std::byte{0});
    change_source();
    if (!start()) {
      TransferRequest request;
      std::size_t ended = 0;
      for (int rounds = 0; ended == 0 && rounds < 10000; ++rounds) {
        const bool taken = take(&request);
        const std::uint64_t takes = chunks < quick ? 1000 : ns;
        for (std::uint64_t spent = 0; taken && spent < takes; spent += 500) {
          clock.advance_ns(500);
          ended += look();
        }
        if (taken) finish(request);
        ended += look();
      }
      EXPECT_EQ(ended, 1U);
    }
    EXPECT_EQ(source, target);
    return chunks;
  }

  static constexpr std::size_t kBytes = 128 << 10;  // 8 chunks

  base::ManualClock clock;
  TestCards cards;
  TestBootstrap bootstrap_a;
  TestBootstrap bootstrap_b;
  base::Environment environment;
  std::unique_ptr<Device> a;
  std::unique_ptr<Device> b;
  Backlog backlog;
  std::unique_ptr<Transfers> transfers;
  OutgoingRing to;
  queue::RecordConsumer<> ring;
  RemoteMemory remote;
  std::vector<std::byte> source = bytes_of(1, kBytes);
  std::vector<std::byte> target;
  std::size_t chunks = 0;
};

class WayOfTransfer : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::kernel_copies()) GTEST_SKIP() << test::kNoKernelCopy;
  }
};

TEST_F(WayOfTransfer, QuickTargetGetsAllThroughBounceSpace) {
  Scripted job;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(job.put(1000), 8U) << i;
}

// It is there: the kernel does not take anything over, and no transfer tries whether it would be
// faster.
TEST_F(WayOfTransfer, SlowTargetGetsAllThroughBounceSpace) {
  Scripted job;
  for (int i = 0; i < 300; ++i) ASSERT_EQ(job.put(15'000), 8U) << i;
}

TEST_F(WayOfTransfer, TargetThatDoesNotPollIsLeftToTheKernelUntilItDoes) {
  Scripted job;
  EXPECT_EQ(job.put(1000), 8U);
  ASSERT_FALSE(job.start());
  EXPECT_EQ(job.look(), 0U);
  std::size_t ended = 0;
  for (int i = 0; i < 100 && ended == 0; ++i) {
    job.clock.advance_ns(1000);
    ended = job.look();
  }
  EXPECT_EQ(ended, 1U);
  EXPECT_FALSE(job.to.entry->attention.polls());
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(job.start()) << "nobody asks it";
  static_cast<void>(job.to.entry->attention.take());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(job.start());
  EXPECT_EQ(job.put(1000), 8U);
}

// All chunks are lent to others: that says nothing of the target.
TEST_F(WayOfTransfer, WithoutAChunkTheKernelCopiesAndTheTargetIsAskedTheNextTime) {
  Scripted job;
  std::vector<std::uint32_t> lent(1);
  while (job.a->bounce().lend(&lent.back())) lent.push_back(0);
  lent.pop_back();
  ASSERT_EQ(lent.size(), 16U);
  ASSERT_FALSE(job.start());
  EXPECT_EQ(job.look(), 0U);
  job.clock.advance_ns(100'000);
  std::size_t ended = 0;
  for (int i = 0; i < 3; ++i) ended += job.look();
  EXPECT_EQ(ended, 1U);
  EXPECT_EQ(job.source, job.target) << "by the kernel";
  EXPECT_TRUE(job.to.entry->attention.polls());
  for (const std::uint32_t chunk : lent) job.a->bounce().give_back(chunk);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(job.put(1000), 8U);
}

// A short chunk waits 2 us for its target, but longer where its pages have to be made and mapped.
TEST_F(WayOfTransfer, ShortOnesWaitShortlyButForNewPages) {
  Scripted job(Settings{}, false);
  job.source.resize(1000);
  TransferRequest request;
  for (int chunk = 0; chunk < 16; ++chunk) {
    ASSERT_FALSE(job.start());
    job.clock.advance_ns(3000);
    ASSERT_EQ(job.look(), 0U) << chunk;
    ASSERT_TRUE(job.take(&request));
    job.finish(request);
    ASSERT_EQ(job.look(), 1U);
  }
  EXPECT_TRUE(job.to.entry->attention.polls());
  ASSERT_FALSE(job.start());
  job.clock.advance_ns(3000);
  std::size_t ended = 0;
  for (int i = 0; i < 2; ++i) ended += job.look();
  EXPECT_EQ(ended, 1U) << "by the kernel";
  EXPECT_FALSE(job.to.entry->attention.polls());
  EXPECT_FALSE(job.take(&request)) << "it was taken back";
}

// Pages of a chunk that is used for the first time take the target many times as long as the copy:
// that says nothing of the next use, and each trial takes another new chunk.
TEST_F(WayOfTransfer, NewPagesTellNothingOfTheTarget) {
  Scripted job(Settings{}, false);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(job.put(50'000), 8U) << "all 16 chunks are used for the first time";
  for (int i = 0; i < 100; ++i) ASSERT_EQ(job.put(1000), 8U) << i;
}

// The kernel takes 97 us for 1 MiB: a target that comes 8 us late is worth waiting for.
TEST_F(WayOfTransfer, LongOnesWaitForATenthOfTheKernelsTime) {
  Scripted job;
  job.resize(std::size_t{1} << 20);
  ASSERT_FALSE(job.start());
  for (int i = 0; i < 8; ++i) {
    job.clock.advance_ns(1000);
    ASSERT_EQ(job.look(), 0U);
  }
  TransferRequest request;
  EXPECT_TRUE(job.take(&request)) << "it is still the target's";
  job.finish(request);
  for (int i = 0; i < 12; ++i) {
    job.clock.advance_ns(1000);
    static_cast<void>(job.look());
  }
  EXPECT_FALSE(job.take(&request)) << "the kernel has copied the rest";
}

constexpr std::size_t kLong = std::size_t{4} << 20;

TEST_F(WayOfTransfer, LongTransferToAQuickTargetGoesThroughBounceSpaceAsAWhole) {
  Scripted job;
  job.resize(kLong);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(job.put(1000), kLong / (16 << 10)) << i;
}

TEST_F(WayOfTransfer, ChunksThatComeBackAreWaitedFor) {
  Scripted job;
  for (int i = 0; i < 4; ++i) ASSERT_FALSE(job.start());
  std::size_t ended = 0;
  TransferRequest request;
  job.chunks = 0;
  for (int rounds = 0; ended < 4 && rounds < 1000; ++rounds) {
    ended += job.look();
    if (!job.take(&request)) continue;
    job.clock.advance_ns(1000);
    job.finish(request);
  }
  EXPECT_EQ(ended, 4U);
  EXPECT_EQ(job.chunks, 4U * 8) << "through the 16 chunks that there are";
  EXPECT_TRUE(job.to.entry->attention.polls());
}

// It has lost its core in the middle of a chunk: the rest does not wait for it, and it is avoided.
TEST_F(WayOfTransfer, TargetThatLosesItsCoreWithAChunkIsAvoided) {
  Scripted job;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(job.put(1000), 8U);
  EXPECT_EQ(job.put(4'000'000), 1U);
  int avoided = 0;
  while (job.put(1000) == 0) ASSERT_LT(++avoided, 1000);
  EXPECT_GE(avoided, 64);
}

// This thread was away, so what it finds afterwards says nothing about the target.
TEST_F(WayOfTransfer, OwnAbsenceMeasuresNothing) {
  Scripted job;
  for (int i = 0; i < 20; ++i) {
    job.chunks = 0;
    ASSERT_FALSE(job.start()) << i;
    TransferRequest request;
    std::size_t ended = 0;
    for (int rounds = 0; ended == 0 && rounds < 100; ++rounds) {
      while (job.take(&request)) job.finish(request);
      job.clock.advance_ns(50'000);
      ended = job.look();
    }
    ASSERT_EQ(ended, 1U);
    ASSERT_EQ(job.chunks, 8U);
  }
}

// Bounce space is the only way left then.
TEST_F(WayOfTransfer, WhatTheKernelDoesNotFinishEndsThroughBounceSpace) {
  Scripted job;
  job.resize(kLong);
  for (std::size_t i = 0; i < kLong; ++i) job.source[i] = static_cast<std::byte>(1 + i % 251);
  std::fill(job.target.begin(), job.target.end(), std::byte{0});
  bool filters = true;
  // The filter of calls is this thread's.
  std::thread([&] {
    ASSERT_FALSE(job.start());
    const std::size_t step = std::size_t{1} << 20;  // of the kernel
    for (int looks = 0; job.target[step - 1] != job.source[step - 1]; ++looks) {
      ASSERT_LT(looks, 10000) << "the target does not poll, and the kernel copies";
      job.clock.advance_ns(1000);
      ASSERT_EQ(job.look(), 0U);
    }
    ASSERT_NE(job.target[2 * step - 1], job.source[2 * step - 1]);
    filters = test::forbid_call(__NR_process_vm_writev, EPERM);
    static_cast<void>(job.to.entry->attention.take());
    std::size_t ended = 0;
    TransferRequest request;
    for (int rounds = 0; filters && ended == 0 && rounds < 10000; ++rounds) {
      ended += job.look();
      if (job.take(&request)) job.finish(request);
      job.clock.advance_ns(1000);
    }
    EXPECT_EQ(ended, filters ? 1U : 0U);
  }).join();
  if (!filters) GTEST_SKIP() << test::kNoFilters;
  EXPECT_EQ(job.source, job.target);
  EXPECT_EQ(job.to.peer->cma.load(), Cma::forbidden);
}

TEST_F(WayOfTransfer, WithoutTheKernelTheSlowTargetGetsAll) {
  Scripted job(Settings{{"HEDDLE_SHM_CMA", "0"}});
  for (int i = 0; i < 10; ++i) ASSERT_EQ(job.put(15000), 8U);
  ASSERT_EQ(job.put(4'000'000), 8U);
}

}  // namespace
}  // namespace heddle::transport::shm::transfer_way_test
