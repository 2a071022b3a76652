// The conformance suite: sleeping until something arrives. A lost wake-up shows as a wait that
// lasts its full time.
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/fence.hpp"
#include "base/test_support.hpp"
#include "transport/test/conformance.hpp"

namespace heddle::transport::conformance {
namespace {

constexpr std::int64_t kLongNs = 120'000'000'000;
constexpr auto kTooLong = test::kFaultTime;

// A thread that receives for one port as the contract says: once asleep, it polls only after a
// wake-up.
class Sleeper {
 public:
  Sleeper(Transport& transport, Port& port) : transport_(transport), port_(port) {}

  // Until done() is true; it is asked after every poll.
  template <class Done>
  void run(Done done) {
    thread_.store(test::this_thread());
    while (true) {
      const std::uint32_t seen = transport_.bell();
      const std::size_t got = port_.poll();
      if (done()) return;
      if (got != 0 || !port_.worker().arm()) continue;
      transport_.settle();
      if (port_.worker().has_arrivals()) continue;
      const auto start = std::chrono::steady_clock::now();
      asleep_.store(true);
      transport_.wait(seen, kLongNs, queue::place(port_.index()));
      asleep_.store(false);
      sleeps_.fetch_add(1);
      if (std::chrono::steady_clock::now() - start > kTooLong) {
        ADD_FAILURE() << "a wake-up was lost";
        return;
      }
    }
  }
  [[nodiscard]] int sleeps() const { return sleeps_.load(); }
  // Waits until it sleeps in the kernel, or has done so since. Only where it is certain to fall
  // asleep.
  [[nodiscard]] bool await_asleep() const {
    const int before = sleeps_.load();
    return test::within_time(
        [&] { return sleeps_.load() != before || (asleep_.load() && test::sleeps_in_kernel(thread_.load())); });
  }

 private:
  Transport& transport_;
  Port& port_;
  std::atomic<pid_t> thread_{0};
  std::atomic<int> sleeps_{0};
  std::atomic<bool> asleep_{false};
};

// Polls until all commands of the port are done. False: not in time.
bool finish(Port& port) {
  const Deadline deadline;
  while (port.outstanding() != 0) {
    if (deadline.over()) return false;
    port.poll();
  }
  return true;
}

bool send(Port& port, const Command& command) {
  const Deadline deadline;
  while (!port.send(command)) {
    if (deadline.over()) return false;
    port.poll();
  }
  return finish(port);
}

TEST_P(Conformance, EveryMessageWakesASleeper) {
  World world(GetParam(), 2);
  if (world.capabilities().sleeping == Sleeping::impossible) GTEST_SKIP() << "it cannot sleep";
  const auto messages = static_cast<std::size_t>(scaled(4000));
  Sleeper sleeper(world.transport(1), world.port(1));
  std::thread receiver([&] { sleeper.run([&] { return world.port(1).arrivals.size() >= messages; }); });
  base::Random random(4711);
  const std::vector<std::byte> payload(40);
  for (std::size_t i = 0; i < messages; ++i) {
    // The pauses: none, any moment at which the receiver falls asleep, and long after that. The
    // receiver sleeps once at least, however busy the processors are.
    const std::uint64_t pause = i == 0 ? 4 : random.below(8);
    if (pause < 4) {
      for (std::uint64_t spin = random.below(std::uint64_t{50} << (3 * pause)); spin > 0; --spin) base::light_fence();
    } else if (pause == 4 && i % 16 == 0) {
      EXPECT_TRUE(sleeper.await_asleep());
    }
    if (!send(world.port(0), message_to(1, 0, payload, 5))) {
      ADD_FAILURE() << "message " << i << " was not taken";
      break;
    }
  }
  receiver.join();
  EXPECT_EQ(world.port(1).arrivals.size(), messages);
  EXPECT_GT(sleeper.sleeps(), 0);
}

// The messages come through many rings, more than one poll of the shm transport looks at, and
// several at once.
TEST_P(Conformance, AnyOfManySendersWakesASleeper) {
  constexpr std::uint32_t kRanks = 5;
  World world(GetParam(), kRanks, 4);
  if (world.capabilities().sleeping == Sleeping::impossible) GTEST_SKIP() << "it cannot sleep";
  const int rounds = scaled(40);
  const std::size_t expected = std::size_t{kRanks - 1} * 4 * static_cast<std::size_t>(rounds);
  Sleeper sleeper(world.transport(0), world.port(0));
  std::thread receiver([&] { sleeper.run([&] { return world.port(0).arrivals.size() >= expected; }); });
  std::vector<std::thread> senders;
  for (std::uint32_t rank = 1; rank < kRanks; ++rank) {
    senders.emplace_back([&, rank] {
      base::Random random(rank);
      const std::vector<std::byte> payload(8 * rank);
      for (int i = 0; i < rounds; ++i) {
        for (std::uint32_t w = 0; w < 4; ++w) EXPECT_TRUE(send(world.port(rank, w), message_to(0, 0, payload)));
        // It is certain to sleep as long as messages of this rank are missing.
        if (i + 1 < rounds && random.below(4) == 0) {
          EXPECT_TRUE(sleeper.await_asleep());
        }
      }
    });
  }
  for (std::thread& sender : senders) sender.join();
  receiver.join();
  EXPECT_EQ(world.port(0).arrivals.size(), expected);
}

TEST_P(Conformance, TransfersAreServedByASleeper) {
  World world(GetParam(), 2);
  if (world.capabilities().sleeping == Sleeping::impossible) GTEST_SKIP() << "it cannot sleep";
  std::vector<std::byte> region(200'000);
  auto local = world.transport(1).register_memory(region.data(), region.size());
  ASSERT_TRUE(local.ok());
  auto memory = world.transport(0).import(1, local->key);
  ASSERT_TRUE(memory.ok()) << base::last_message();
  if ((memory->opcodes & bit(Opcode::put)) == 0) GTEST_SKIP() << "it has no puts";
  std::atomic<bool> stop{false};
  Sleeper sleeper(world.transport(1), world.port(1));
  std::thread receiver([&] { sleeper.run([&] { return stop.load(); }); });
  for (std::uint64_t round = 0; round < 20; ++round) {
    if (round % 4 == 0) {
      EXPECT_TRUE(sleeper.await_asleep());
    }
    std::vector<std::byte> data = pattern(round, region.size());
    std::vector<std::byte> back(region.size());
    // Read back with a get: ThreadSanitizer does not know that two mappings of a segment are one
    // memory.
    for (const Opcode opcode : {Opcode::put, Opcode::get}) {
      Command command;
      command.opcode = opcode;
      command.rank = 1;
      command.remote = &*memory;
      command.local = opcode == Opcode::put ? data.data() : back.data();
      command.bytes = data.size();
      const Deadline deadline;
      Token token = 0;
      while ((token = world.port(0).post_one(command)) == 0 && !deadline.over()) world.port(0).poll();
      ASSERT_NE(token, 0U);
      ASSERT_TRUE(finish(world.port(0))) << "it never ended";
      ASSERT_EQ(world.port(0).status(token), HEDDLE_DONE);
    }
    ASSERT_TRUE(data == back) << "round " << round;
  }
  EXPECT_TRUE(sleeper.await_asleep());
  stop.store(true);
  world.transport(1).ring();
  receiver.join();
  world.transport(0).release(*memory);
  world.transport(1).deregister(*local);
}

TEST_P(Conformance, ADeathWakesASleeper) {
  World world(GetParam(), 3);
  if (world.capabilities().sleeping == Sleeping::impossible) GTEST_SKIP() << "it cannot sleep";
  std::atomic<bool> stop{false};
  Sleeper sleeper(world.transport(0), world.port(0));
  const std::uint32_t before = world.transport(0).bell();
  std::thread receiver([&] { sleeper.run([&] { return stop.load() && world.transport(0).bell() != before; }); });
  EXPECT_TRUE(sleeper.await_asleep());
  stop.store(true);
  world.declare_dead(2);
  receiver.join();
}

TEST_P(Conformance, WhatIsUnderWayIsNotSleptOver) {
  World world(GetParam(), 2);
  if (world.capabilities().sleeping == Sleeping::impossible) GTEST_SKIP() << "it cannot sleep";
  std::vector<std::byte> region(100'000);
  auto local = world.transport(1).register_memory(region.data(), region.size());
  ASSERT_TRUE(local.ok());
  auto memory = world.transport(0).import(1, local->key);
  ASSERT_TRUE(memory.ok()) << base::last_message();
  std::vector<std::byte> data = pattern(3, region.size());
  for (int round = 0; round < 20; ++round) {
    Command command = message_to(1, 0, data);
    command.bytes = 100;
    if ((memory->opcodes & bit(Opcode::put)) != 0 && round % 2 == 0) {
      command.opcode = Opcode::put;
      command.remote = &*memory;
      command.bytes = data.size();
    }
    ASSERT_NE(world.must_post(world.port(0), command), 0U);
    if (world.port(0).outstanding() != 0) {
      EXPECT_FALSE(world.port(0).worker().arm());
    }
    ASSERT_TRUE(world.quiet());
  }
  world.transport(0).release(*memory);
  world.transport(1).deregister(*local);
}

// A word of rank 0, which `giver` stores to and a thread of rank 0 waits for.
class RungWord {
 public:
  RungWord(World& world, std::uint32_t giver, const LocalMemory& memory, std::size_t at)
      : sleeper_(world.transport(0)), giver_(world.transport(giver)), here_(word_of(memory.address, at)) {
    auto remote = giver_.import(0, memory.key);
    EXPECT_TRUE(remote.ok()) << base::last_message();
    remote_ = *remote;
    if (remote_.direct == nullptr) return;
    there_ = word_of(remote_.direct, at);
    bell_ = giver_.stores_bell(0);
  }
  ~RungWord() { giver_.release(remote_); }
  RungWord(const RungWord&) = delete;
  RungWord& operator=(const RungWord&) = delete;

  [[nodiscard]] bool rings() const { return bell_.has_value(); }
  void store(std::uint64_t value) {
    there_->store(value, std::memory_order_release);
    bell_->published();
  }
  // Sleeps until the word has the value. False: a wake-up was lost.
  bool await(std::uint64_t value) {
    while (here_->load(std::memory_order_acquire) != value) {
      const std::uint32_t seen = sleeper_.bell();
      EXPECT_TRUE(sleeper_.arm_stores());
      sleeper_.settle();
      if (here_->load(std::memory_order_acquire) == value) break;
      const auto start = std::chrono::steady_clock::now();
      sleeper_.wait(seen, kLongNs, queue::kStoresPlace);
      if (std::chrono::steady_clock::now() - start > kTooLong) return false;
    }
    return true;
  }

 private:
  static std::atomic<std::uint64_t>* word_of(void* base, std::size_t at) {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(static_cast<std::byte*>(base) + at);
  }

  Transport& sleeper_;
  Transport& giver_;
  RemoteMemory remote_;
  std::atomic<std::uint64_t>* here_;
  std::atomic<std::uint64_t>* there_ = nullptr;
  std::optional<queue::BellPull> bell_;
};

// Two threads of one rank sleep at the same time, each for a word of its own.
TEST_P(Conformance, StoresWakeThoseWhoSleepForThem) {
  constexpr std::uint32_t kGivers = 2;
  constexpr std::size_t kApart = 128;
  World world(GetParam(), kGivers + 1);
  if (!world.transport(0).arm_stores()) GTEST_SKIP() << "skipped: this transport's stores ring nobody";
  auto memory = world.transport(0).allocate(kGivers * kApart);
  ASSERT_TRUE(memory.ok()) << base::last_message();
  const auto rounds = static_cast<std::uint64_t>(scaled(3000));
  std::vector<std::thread> threads;
  std::array<std::unique_ptr<RungWord>, kGivers> words;
  for (std::uint32_t i = 0; i < kGivers; ++i) words[i] = std::make_unique<RungWord>(world, i + 1, *memory, i * kApart);
  std::array<std::atomic<std::uint64_t>, kGivers> seen{};
  for (std::uint32_t i = 0; i < kGivers; ++i) {
    if (!words[i]->rings()) continue;  // this rank reaches the memory by messages only
    threads.emplace_back([&, i] {
      for (std::uint64_t round = 1; round <= rounds; ++round) {
        const bool came = words[i]->await(round);
        EXPECT_TRUE(came) << "a wake-up was lost";
        seen[i].store(came ? round : rounds);
        if (!came) return;
      }
    });
    threads.emplace_back([&, i] {
      base::Random random(i);
      for (std::uint64_t round = 1; round <= rounds && seen[i].load() + 1 == round; ++round) {
        // any moment at which the sleeper falls asleep, and long after that
        for (std::uint64_t spin = random.below(std::uint64_t{50} << (3 * random.below(5))); spin > 0; --spin)
          base::light_fence();
        words[i]->store(round);
        EXPECT_TRUE(test::within_time([&] { return seen[i].load() >= round; }));
      }
    });
  }
  const bool reached = !threads.empty();
  for (std::thread& thread : threads) thread.join();
  words = {};
  world.transport(0).free(*memory);
  if (!reached) GTEST_SKIP() << "skipped: no rank reaches this one's memory by stores";
}

TEST_P(Conformance, AWaitEndsInTime) {
  World world(GetParam(), 1);
  if (world.capabilities().sleeping == Sleeping::impossible) GTEST_SKIP() << "it cannot sleep";
  Transport& transport = world.transport(0);
  const std::uint32_t seen = transport.bell();
  const auto start = std::chrono::steady_clock::now();
  transport.wait(seen, 30'000'000, queue::kEveryPlace);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(25));
  transport.ring();
  transport.wait(seen, kLongNs, queue::place(3));  // the bell has rung since
  EXPECT_LT(std::chrono::steady_clock::now() - start, kTooLong);
}

}  // namespace
}  // namespace heddle::transport::conformance
