// Small puts and gets on memory that is not mapped: by message while the target polls, by the
// kernel otherwise, and the change from one to the other.
#include "transport/shm/small.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/random.hpp"
#include "base/test_support.hpp"
#include "transport/test/shm_job.hpp"

namespace heddle::transport::shm::small_test {
namespace {

using Settings = TestRank::Settings;

constexpr std::uint64_t kLong = 10'000;  // ns, more than the patience
constexpr int kManyPolls = 64;           // looks, as a thread that waits does them

// Rank 0 acts on memory that rank 1 has registered. Time stands still unless the test moves it.
struct Pair {
  explicit Pair(const Settings& settings = {}) : a(cards, 0, 2, settings), b(cards, 1, 2, settings) {
    a.environment.clock = &clock;
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i);
    local = *b.transport->register_memory(memory.data(), memory.size());
    remote = *a.transport->import(1, local.key);
  }
  // Both know each other, and rank 1 polls.
  void meet() {
    std::byte byte{};
    EXPECT_EQ(run(Opcode::get, 0, {&byte, 1}, true), HEDDLE_DONE);
    static_cast<void>(b.poll());
  }

  Command start(Opcode opcode, std::uint64_t offset, std::span<std::byte> data, Token token = 77) {
    Command command;
    command.token = token;
    EXPECT_TRUE(a.transfer(opcode, remote, offset, data, &command));
    return command;
  }
  // The completions that come in `polls` polls of the initiator.
  std::vector<Completion> ends(int polls = kManyPolls) {
    std::vector<Completion> out;
    for (int i = 0; i < polls; ++i) {
      for (const auto& got : a.poll()) out.push_back(got.completion);
    }
    return out;
  }
  base::Status run(Opcode opcode, std::uint64_t offset, std::span<std::byte> data, bool target_polls) {
    if (start(opcode, offset, data).done) return HEDDLE_DONE;
    for (int i = 0; i < 1000; ++i) {
      if (target_polls) {
        EXPECT_TRUE(b.poll().empty());
      }
      for (const auto& got : a.poll()) {
        EXPECT_EQ(got.completion.token, 77U);
        return got.completion.status;
      }
      clock.advance_ns(1000);
    }
    return HEDDLE_ERR_TIMEOUT;
  }

  base::ManualClock clock;
  TestCards cards;
  TestRank a;
  TestRank b;
  std::vector<std::byte> memory = std::vector<std::byte>(4096);
  LocalMemory local;
  RemoteMemory remote;
};

class Small : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::kernel_copies()) GTEST_SKIP() << test::kNoKernelCopy;
  }
};

TEST_F(Small, ByMessageWhileTheTargetPolls) {
  Pair pair;
  pair.meet();
  for (std::size_t bytes = 1; bytes <= kSmallBytes; ++bytes) {
    const std::uint64_t offset = bytes % 7;
    auto data = bytes_of(bytes, bytes);
    const Command put = pair.start(Opcode::put, offset, data);
    ASSERT_FALSE(put.done) << bytes;
    ASSERT_TRUE(put.source_free);
    ASSERT_TRUE(pair.ends(1).empty()) << "the target has not polled yet";
    EXPECT_TRUE(pair.b.poll().empty());
    ASSERT_EQ(std::memcmp(pair.memory.data() + offset, data.data(), bytes), 0);
    ASSERT_EQ(pair.ends(1).size(), 1U);
    std::vector<std::byte> back(bytes + 1, std::byte{0xDD});
    ASSERT_FALSE(pair.start(Opcode::get, offset, std::span(back).first(bytes)).done);
    EXPECT_TRUE(pair.b.poll().empty());
    ASSERT_EQ(pair.ends(1).size(), 1U);
    ASSERT_EQ(std::memcmp(back.data(), data.data(), bytes), 0);
    ASSERT_EQ(back[bytes], std::byte{0xDD});
  }
  std::vector<std::byte> more(kSmallBytes + 1);
  EXPECT_FALSE(pair.start(Opcode::put, 0, more).done) << "by a chunk";
  EXPECT_TRUE(pair.b.poll().empty());
  EXPECT_EQ(pair.ends(1).size(), 1U);
}

TEST_F(Small, ByTheKernelIfTheTargetHasNeverPolled) {
  Pair pair;
  auto data = bytes_of(1, 8);
  EXPECT_TRUE(pair.start(Opcode::put, 0, data).done);
  EXPECT_EQ(std::memcmp(pair.memory.data(), data.data(), 8), 0);
}

TEST_F(Small, ByTheKernelIfTheTargetIsAboutToSleep) {
  Pair pair;
  pair.meet();
  ASSERT_TRUE(pair.b.worker->arm());
  EXPECT_FALSE(pair.b.worker->has_arrivals());
  auto data = bytes_of(1, 8);
  EXPECT_TRUE(pair.start(Opcode::put, 0, data).done);
  EXPECT_TRUE(pair.b.worker->armed()) << "nobody woke it";
  EXPECT_TRUE(pair.b.poll().empty());
  EXPECT_FALSE(pair.start(Opcode::put, 0, data).done) << "it polls again";
}

TEST_F(Small, ByTheKernelIfTheTargetIsClosed) {
  Pair pair;
  pair.meet();
  pair.b.worker.reset();
  auto data = bytes_of(1, 8);
  EXPECT_TRUE(pair.start(Opcode::put, 0, data).done);
}

TEST_F(Small, ByTheKernelOnlyWithoutBounceSpace) {
  Pair pair(Settings{{"HEDDLE_SHM_BOUNCE", "pool=0"}});
  pair.meet();
  auto data = bytes_of(1, 8);
  EXPECT_TRUE(pair.start(Opcode::put, 0, data).done);
}

TEST_F(Small, TakenBackFromATargetThatStopsPolling) {
  Pair pair;
  pair.meet();
  const auto data = bytes_of(5, 100);
  auto source = data;
  ASSERT_FALSE(pair.start(Opcode::put, 16, source, 1).done);
  std::fill(source.begin(), source.end(), std::byte{0});  // it was free
  std::vector<std::byte> back(10);
  ASSERT_FALSE(pair.start(Opcode::get, 1000, back, 2).done);
  ASSERT_TRUE(pair.ends().empty()) << "no time has passed";
  pair.clock.advance_ns(kLong);
  const auto ended = pair.ends();
  ASSERT_EQ(ended.size(), 2U);
  for (const Completion& completion : ended) EXPECT_EQ(completion.status, HEDDLE_DONE);
  EXPECT_EQ(std::memcmp(pair.memory.data() + 16, data.data(), data.size()), 0);
  EXPECT_EQ(std::memcmp(pair.memory.data() + 1000, back.data(), back.size()), 0);
  // Requests that were taken back have no effect, although their records are still in the ring.
  std::fill(pair.memory.begin(), pair.memory.end(), std::byte{0x11});
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(pair.b.poll().empty());
  for (const std::byte byte : pair.memory) ASSERT_EQ(byte, std::byte{0x11});
  EXPECT_EQ(pair.b.worker->counters().malformed, 0U);
}

// While the target computes, nobody asks it. Each disappointment makes the initiator ask less
// often, each answer more often.
TEST_F(Small, DisappointmentsCostLittle) {
  Pair pair;
  pair.meet();
  auto data = bytes_of(5, 8);
  int kernel = 0;
  int answered = 0;
  const auto kernel_copies_until_it_asks = [&] {
    int copies = 0;
    while (pair.start(Opcode::put, 0, data).done) ++copies;
    return copies;
  };
  const auto disappoint = [&] {
    EXPECT_TRUE(pair.ends().empty());
    pair.clock.advance_ns(kLong);
    EXPECT_EQ(pair.ends().size(), 1U);
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(pair.start(Opcode::put, 0, data).done) << "it computes";
    EXPECT_TRUE(pair.b.poll().empty());
  };
  EXPECT_EQ(kernel_copies_until_it_asks(), 0);
  for (const int expected : {4, 8, 16, 32, 64, 64}) {
    disappoint();
    kernel = kernel_copies_until_it_asks();
    EXPECT_EQ(kernel, expected);
  }
  for (answered = 0; answered < 30; ++answered) {
    EXPECT_TRUE(pair.b.poll().empty());
    EXPECT_EQ(pair.ends(1).size(), 1U);
    EXPECT_EQ(kernel_copies_until_it_asks(), 0);
  }
  disappoint();
  EXPECT_EQ(kernel_copies_until_it_asks(), 4);
}

TEST_F(Small, AsManyAsThereAreSlotsThenTheKernel) {
  Pair pair;
  pair.meet();
  auto data = bytes_of(2, 8);
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < kSmallSlots; ++i) ASSERT_FALSE(pair.start(Opcode::put, i * 8, data).done);
    EXPECT_TRUE(pair.start(Opcode::put, 4000, data).done);
    std::size_t ended = 0;
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(pair.b.poll().empty());
      ended += pair.ends(1).size();
    }
    EXPECT_EQ(ended, kSmallSlots);
    for (std::uint32_t i = 0; i < kSmallSlots; ++i) {
      ASSERT_EQ(std::memcmp(pair.memory.data() + std::size_t{i} * 8, data.data(), 8), 0);
    }
  }
}

TEST_F(Small, ByTheKernelIfTheRingIsFull) {
  Pair pair;
  pair.meet();
  for (const std::size_t bytes : {200UL, 1UL}) {
    while (pair.a.send(1, bytes_of(1, bytes))) {
    }
  }
  auto data = bytes_of(2, 8);
  EXPECT_TRUE(pair.start(Opcode::put, 0, data).done);
}

TEST_F(Small, DeregisteredRegionIsAnError) {
  Pair pair;
  pair.meet();
  pair.b.transport->deregister(pair.local);
  auto data = bytes_of(1, 8);
  EXPECT_EQ(pair.run(Opcode::put, 0, data, true), HEDDLE_ERR_RANGE);
  EXPECT_EQ(pair.run(Opcode::get, 0, data, true), HEDDLE_ERR_RANGE);
  EXPECT_EQ(pair.memory[1], std::byte{1});
}

TEST_F(Small, PeerFailureEndsThemAndReturnsTheSlots) {
  Pair pair;
  pair.meet();
  auto data = bytes_of(1, 8);
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < kSmallSlots; ++i) ASSERT_FALSE(pair.start(Opcode::put, 0, data).done);
    if (round == 2) break;
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(pair.b.poll().empty());
      static_cast<void>(pair.ends(1));
    }
  }
  pair.a.worker->peer_failed(1);
  const auto ended = pair.ends();
  ASSERT_EQ(ended.size(), kSmallSlots);
  for (const Completion& completion : ended) EXPECT_EQ(completion.status, HEDDLE_ERR_PEER_FAILED);
  std::fill(pair.memory.begin(), pair.memory.end(), std::byte{0x11});
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(pair.b.poll().empty());
  EXPECT_EQ(pair.memory[0], std::byte{0x11}) << "it was taken back from a target that lives";
}

TEST_F(Small, TheTargetServesWhatAClosedInitiatorAskedOrNot) {
  Pair pair;
  pair.meet();
  auto data = bytes_of(1, 8);
  std::vector<std::byte> back(8);
  ASSERT_FALSE(pair.start(Opcode::put, 0, data).done);
  ASSERT_FALSE(pair.start(Opcode::get, 0, back).done);
  pair.a.worker.reset();
  std::fill(pair.memory.begin(), pair.memory.end(), std::byte{0x11});
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(pair.b.poll().empty());
  EXPECT_EQ(pair.memory[0], std::byte{0x11});
}

TEST(SmallWithoutKernel, WaitsForTheTarget) {
  Pair pair(Settings{{"HEDDLE_SHM_CMA", "0"}});
  auto data = bytes_of(3, 8);
  ASSERT_FALSE(pair.start(Opcode::put, 0, data).done);
  for (int i = 0; i < 10; ++i) {
    pair.clock.advance_ns(kLong);
    ASSERT_TRUE(pair.ends().empty());
  }
  EXPECT_TRUE(pair.b.poll().empty());
  ASSERT_EQ(pair.ends(1).size(), 1U);
  EXPECT_EQ(std::memcmp(pair.memory.data(), data.data(), 8), 0);
  ASSERT_FALSE(pair.start(Opcode::put, 0, data).done);
  pair.b.worker.reset();
  EXPECT_TRUE(pair.ends().empty());
  pair.clock.advance_ns(kLong);
  const auto ended = pair.ends();
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended.front().status, HEDDLE_ERR_PEER_FAILED);
}

TEST(SmallWithoutKernel, WakesATargetThatSleeps) {
  Pair pair(Settings{{"HEDDLE_SHM_CMA", "0"}});
  pair.meet();
  ASSERT_TRUE(pair.b.worker->arm());
  auto data = bytes_of(3, 8);
  ASSERT_FALSE(pair.start(Opcode::put, 0, data).done);
  EXPECT_FALSE(pair.b.worker->armed());
  EXPECT_TRUE(pair.b.worker->has_arrivals());
}

// ---- the initiator alone, with a target that the test plays -------------------------------------

struct Scripted {
  Scripted() : bootstrap_a(cards, 0, 2), bootstrap_b(cards, 1, 2), backlog(16, kSmallSlots) {
    environment.config = *base::Config::read({});
    environment.log = base::Log(base::Level::error, 0);
    environment.clock = &clock;
    b = std::move(*Device::create(bootstrap_b, environment));
    a = std::move(*Device::create(bootstrap_a, environment));
    small = std::make_unique<SmallTransfers>(*a, 0, backlog);
    to.peer = *a->peer(1);
    const auto memory_of_ring = a->open_ring(0, *to.peer, 0);
    auto* control = reinterpret_cast<queue::RingControl<>*>(*memory_of_ring);
    to.ring = queue::RecordProducer<>(control, *memory_of_ring + sizeof *control, a->layout().ring_capacity);
    to.bell = a->bell_pull(*to.peer, 0);
    to.entry = &to.peer->control.worker(0);
    remote.rank = 1;
    remote.bytes = memory.size();
    remote.handle = {reinterpret_cast<std::uintptr_t>(memory.data()), 1, 0, 0};
  }
  bool start(Opcode opcode, std::span<std::byte> data) {
    Command command;
    command.opcode = opcode;
    command.rank = 1;
    command.local = data.data();
    command.bytes = data.size();
    command.remote = &remote;
    command.token = ++tokens;
    return small->start(command, to);
  }
  // The slot of the target's view that the n-th operation got: slots are given from the first one.
  SmallSlot& slot(std::uint32_t n) { return (*b->peer(0))->control.slot(0, n); }
  std::vector<Completion> ends() {
    for (int i = 0; i < kManyPolls; ++i) small->advance();
    std::vector<Completion> out(kSmallSlots);
    out.resize(backlog.drain(out));
    return out;
  }

  base::ManualClock clock;
  TestCards cards;
  TestBootstrap bootstrap_a;
  TestBootstrap bootstrap_b;
  base::Environment environment;
  std::unique_ptr<Device> a;
  std::unique_ptr<Device> b;
  Backlog backlog;
  std::unique_ptr<SmallTransfers> small;
  OutgoingRing to;
  RemoteMemory remote;
  Token tokens = 0;
  std::vector<std::byte> memory = std::vector<std::byte>(64, std::byte{9});
};

// The target stops, or dies, at each step that it takes.
TEST_F(Small, TargetThatStopsAtEachStep) {
  auto data = bytes_of(1, 8);
  enum class Step : std::uint8_t { before, taken, ended };
  for (const Step step : {Step::before, Step::taken, Step::ended}) {
    for (const bool dies : {false, true}) {
      Scripted job;
      ASSERT_TRUE(job.start(Opcode::put, data));
      ASSERT_TRUE(job.start(Opcode::put, data));
      SlotWord<>& word = job.slot(0).word;
      const std::uint64_t named = word.idle();
      if (step != Step::before) {
        ASSERT_TRUE(word.take(named));
      }
      if (step == Step::ended) word.end(named, true);
      if (dies) {
        job.small->peer_failed(1);
      } else {
        static_cast<void>(job.ends());  // the clock is read for the first time
        job.clock.advance_ns(kLong);
      }
      const auto ended = job.ends();
      if (dies) {
        ASSERT_EQ(ended.size(), 2U);
        for (const Completion& completion : ended) EXPECT_EQ(completion.status, HEDDLE_ERR_PEER_FAILED);
        EXPECT_TRUE(job.small->idle());
      }
      if (step == Step::before) {
        EXPECT_FALSE(word.take(named)) << "it comes too late";
        EXPECT_TRUE(job.small->idle());
      }
      if (dies) continue;
      if (step == Step::taken) {
        EXPECT_EQ(ended.size(), 1U) << "what is behind is taken back";
        EXPECT_EQ(job.small->under_way(), 1U) << "what it has taken it finishes";
        word.end(named, true);
        EXPECT_EQ(job.ends().size(), 1U);
      } else if (step == Step::ended) {
        EXPECT_EQ(ended.size(), 1U) << "the first one had ended before; the other one is taken back";
      } else {
        EXPECT_EQ(ended.size(), 2U);
      }
      EXPECT_TRUE(job.small->idle());
      EXPECT_FALSE(job.to.entry->attention.polls());
    }
  }
}

// A target that loses its core with one request holds up no other, and is found to do so once.
TEST_F(Small, TargetThatKeepsOneRequestHoldsUpNoOther) {
  Scripted job;
  auto data = bytes_of(1, 8);
  constexpr std::uint32_t kBehind = 5;
  ASSERT_TRUE(job.start(Opcode::put, data));
  SlotWord<>& word = job.slot(0).word;
  const std::uint64_t named = word.idle();
  for (std::uint32_t i = 0; i < kBehind; ++i) ASSERT_TRUE(job.start(Opcode::put, data));
  static_cast<void>(job.ends());
  job.clock.advance_ns(kLong - 1);
  ASSERT_TRUE(word.take(named));
  EXPECT_TRUE(job.ends().empty()) << "it has only just taken it";
  job.clock.advance_ns(kLong);
  const auto behind = job.ends();
  ASSERT_EQ(behind.size(), kBehind);
  for (const Completion& completion : behind) EXPECT_EQ(completion.status, HEDDLE_DONE);
  EXPECT_EQ(std::memcmp(job.memory.data(), data.data(), data.size()), 0) << "by the kernel";
  EXPECT_FALSE(job.to.entry->attention.polls());
  EXPECT_FALSE(job.start(Opcode::put, data));
  for (int i = 0; i < 100; ++i) {
    job.clock.advance_ns(kLong);
    EXPECT_TRUE(job.ends().empty());
  }
  word.end(named, true);
  EXPECT_EQ(job.ends().size(), 1U);
  EXPECT_TRUE(job.small->idle());
  static_cast<void>(job.to.entry->attention.take());
  int kernel = 0;
  while (!job.start(Opcode::put, data)) ++kernel;
  EXPECT_EQ(kernel, 4) << "as after one disappointment";
}

TEST_F(Small, SlotThatADeadTargetHadIsNotUsedAgain) {
  Scripted job;
  auto data = bytes_of(1, 8);
  ASSERT_TRUE(job.start(Opcode::put, data));
  SlotWord<>& word = job.slot(0).word;
  const std::uint64_t named = word.idle();
  ASSERT_TRUE(word.take(named));
  job.small->peer_failed(1);
  std::uint32_t accepted = 0;
  while (job.start(Opcode::put, data)) ++accepted;
  EXPECT_EQ(accepted, kSmallSlots - 1);
  word.end(named, true);  // it lived after all: nobody is harmed
  EXPECT_EQ(job.small->under_way(), accepted);
}

// ---- the target alone ---------------------------------------------------------------------------

TEST_F(Small, HostileRecordsAreRefused) {
  base::Random random(12);
  std::uint64_t closed = 0;
  testing::internal::CaptureStderr();
  for (int round = 0; round < 300; ++round) {
    TestCards cards;
    TestRank b(cards, 1, 2);
    std::vector<std::byte> memory(4096 * 3, std::byte{0x22});
    const auto region = b.transport->register_memory(memory.data() + 4096, 4096);
    TestBootstrap bootstrap(cards, 0, 2);
    base::Environment environment;
    environment.config = *base::Config::read({});
    auto device = Device::create(bootstrap, environment);
    ASSERT_TRUE(device.ok());
    auto memory_of_ring = (*device)->open_ring(0, **(*device)->peer(1), 0);
    auto* control = reinterpret_cast<queue::RingControl<>*>(*memory_of_ring);
    queue::RecordProducer<> ring(control, *memory_of_ring + sizeof *control, (*device)->layout().ring_capacity);
    for (int i = 0; i < 20; ++i) {
      SmallRequest request;
      request.region = random.below(4) == 0 ? random.next() : region->id;
      request.offset = random.below(4) == 0 ? random.next() : random.below(8192);
      request.slot = static_cast<std::uint32_t>(random.below(20) == 0 ? random.next() : random.below(kSmallSlots));
      request.bytes = static_cast<std::uint32_t>(random.below(20) == 0 ? random.next() : 1 + random.below(kSmallBytes));
      request.word = random.below(4) == 0 ? random.next() : 0;
      const bool put = random.below(2) == 0;
      const bool wrong = random.below(20) == 0;
      const std::uint32_t data = put ? std::min(request.bytes, kSmallBytes) : 0;
      const auto bytes = wrong ? static_cast<std::uint32_t>(random.below(200)) : std::uint32_t{sizeof request} + data;
      std::byte* room = ring.begin(put ? kSmallPutType : kSmallGetType, 0, bytes);
      ASSERT_NE(room, nullptr);
      std::memset(room, 0x33, bytes);
      std::memcpy(room, &request, std::min<std::size_t>(bytes, sizeof request));
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

// ---- both at once -------------------------------------------------------------------------------

// Two workers put and get words of their own in one target, which polls, computes and naps.
TEST_F(Small, StressWithATargetThatPollsNowAndThen) {
  TestCards cards;
  TestRank a(cards, 0, 2);
  TestRank b(cards, 1, 2);
  constexpr std::size_t kPart = 2048;
  std::vector<std::byte> memory(2 * kPart);
  const auto region = b.transport->register_memory(memory.data(), memory.size());
  const RemoteMemory remote = *a.transport->import(1, region->key);
  auto second = std::move(*a.transport->open_worker(1));
  std::atomic<bool> stop{false};
  std::thread target([&] {
    base::Random random(3);
    std::vector<Completion> events(16);
    while (!stop.load(std::memory_order_relaxed)) {
      const std::uint64_t polls = 1 + random.below(1000);
      for (std::uint64_t i = 0; i < polls && !stop.load(std::memory_order_relaxed); ++i) {
        if (b.worker->poll(events) == 0 && random.below(8) == 0) std::this_thread::yield();
      }
      if (random.below(2) == 0) static_cast<void>(b.worker->arm());
      for (std::uint64_t i = random.below(20000); i > 0; --i) base::cpu_relax();
    }
  });
  const auto initiate = [&remote](TransportWorker& worker, std::uint64_t part) {
    base::Random random(part + 1);
    std::vector<Completion> events(kSmallSlots);
    std::vector<std::byte> mirror(kPart);
    for (int i = 0; i < 3000; ++i) {
      // Puts to places that do not overlap, all at once; then one get of each.
      std::array<std::array<std::byte, kSmallBytes>, 12> data;
      for (const bool put : {true, false}) {
        std::size_t under_way = 0;
        for (std::size_t k = 0; k < data.size(); ++k) {
          const std::size_t bytes = 1 + (static_cast<std::size_t>(i) * 7 + k * 11) % kSmallBytes;
          if (put) {
            for (std::size_t byte = 0; byte < bytes; ++byte) data[k][byte] = static_cast<std::byte>(random.next());
            std::copy_n(data[k].data(), bytes, mirror.data() + k * 128);
          } else {
            data[k].fill(std::byte{0});
          }
          Command command;
          command.opcode = put ? Opcode::put : Opcode::get;
          command.rank = 1;
          command.remote = &remote;
          command.offset = part * kPart + k * 128;
          command.local = data[k].data();
          command.bytes = bytes;
          ASSERT_EQ(worker.post({&command, 1}), 1U);
          if (!command.done) ++under_way;
          if (put) data[k].fill(std::byte{0xCC});  // its source is free
        }
        while (under_way != 0) {
          const std::size_t n = worker.poll(events);
          for (const Completion& completion : std::span(events).first(n)) ASSERT_EQ(completion.status, HEDDLE_DONE);
          under_way -= n;
          if (n == 0) std::this_thread::yield();
        }
      }
      for (std::size_t k = 0; k < data.size(); ++k) {
        const std::size_t bytes = 1 + (static_cast<std::size_t>(i) * 7 + k * 11) % kSmallBytes;
        ASSERT_EQ(std::memcmp(data[k].data(), mirror.data() + k * 128, bytes), 0) << i << " " << k;
      }
    }
  };
  std::thread other(initiate, std::ref(*second), 1);
  initiate(*a.worker, 0);
  other.join();
  stop = true;
  target.join();
  EXPECT_EQ(b.worker->counters().malformed, 0U);
}

}  // namespace
}  // namespace heddle::transport::shm::small_test
