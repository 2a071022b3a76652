// The conformance suite: regions, keys, puts, gets, atomics.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "base/test_support.hpp"
#include "transport/test/conformance.hpp"

namespace heddle::transport::conformance {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// A region of a rank, allocated or of the caller's memory; freed or deregistered with this object.
class Target {
 public:
  Target(Transport& transport, std::uint64_t bytes, bool allocated) : transport_(transport), allocated_(allocated) {
    if (!allocated) own_.resize(bytes);
    auto memory = allocated ? transport.allocate(bytes) : transport.register_memory(own_.data(), bytes);
    if (!memory) throw std::runtime_error(base::last_message());
    local_ = *memory;
  }
  ~Target() { allocated_ ? transport_.free(local_) : transport_.deregister(local_); }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  [[nodiscard]] const LocalMemory& local() const { return local_; }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(local_.address); }

 private:
  Transport& transport_;
  const bool allocated_;
  std::vector<std::byte> own_;
  LocalMemory local_;
};

Command transfer(Opcode opcode, const RemoteMemory& remote, std::uint64_t offset, void* local, std::uint64_t bytes) {
  Command command;
  command.opcode = opcode;
  command.rank = remote.rank;
  command.remote = &remote;
  command.offset = offset;
  command.local = local;
  command.bytes = bytes;
  return command;
}

bool accepts(const RemoteMemory& memory, Opcode opcode) {
  return (memory.opcodes & bit(opcode)) != 0;
}

TEST_P(Conformance, RegionsAreWhatTheySay) {
  World world(GetParam(), 2);
  for (const bool allocated : {true, false}) {
    Target target(world.transport(1), 10'000, allocated);
    ASSERT_NE(target.data(), nullptr);
    EXPECT_EQ(target.local().bytes, 10'000U);
    if (allocated) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(target.data()) % static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)),
                0U);
      EXPECT_TRUE(std::all_of(target.data(), target.data() + 10'000, [](std::byte b) { return b == std::byte{0}; }));
    }
    for (const std::uint32_t rank : {0U, 1U}) {  // a peer's region, and the own
      auto memory = world.transport(rank).import(1, target.local().key);
      ASSERT_TRUE(memory.ok()) << base::last_message();
      EXPECT_EQ(memory->rank, 1U);
      EXPECT_EQ(memory->bytes, 10'000U);
      EXPECT_EQ(memory->opcodes & ~world.capabilities().opcodes, 0U);
      const bool direct = world.capabilities().direct && world.transport(rank).direct_to(1);
      if (memory->direct != nullptr && rank == 0) {
        EXPECT_TRUE(direct && allocated);
      }
      if (rank == 0 && allocated && direct) {
        EXPECT_NE(memory->direct, nullptr);
      }
      world.transport(rank).release(*memory);
    }
  }
  EXPECT_LT(world.transport(0).register_memory(nullptr, 8).status(), 0);
}

// Memory is zeroed when it is allocated again, and many regions are allocated and freed.
TEST_P(Conformance, RegionsComeAndGo) {
  World world(GetParam(), 2);
  for (int round = 0; round < scaled(200); ++round) {
    Target target(world.transport(1), 5000, true);
    Target other(world.transport(1), 9000, true);
    ASSERT_TRUE(std::all_of(target.data(), target.data() + 5000, [](std::byte b) { return b == std::byte{0}; }));
    auto memory = world.transport(0).import(1, target.local().key);
    ASSERT_TRUE(memory.ok()) << base::last_message();
    std::memset(target.data(), 0x5A, 5000);
    if (memory->direct != nullptr) {
      ASSERT_EQ(memory->direct[4999], std::byte{0x5A});
      memory->direct[0] = std::byte{7};
      ASSERT_EQ(target.data()[0], std::byte{7});
    }
    world.transport(0).release(*memory);
  }
}

TEST_P(Conformance, PutsAndGetsMoveExactlyTheirBytes) {
  World world(GetParam(), 2);
  const std::uint64_t region = kMiB + 4096;
  for (const bool allocated : {true, false}) {
    Target target(world.transport(1), region, allocated);
    auto memory = world.transport(0).import(1, target.local().key);
    ASSERT_TRUE(memory.ok()) << base::last_message();
    const std::vector<std::uint64_t> all = {0, 1, 3, 4, 7, 8, 9, 63, 64, 65, 4095, 4097, 65'536, 100'003, 1U << 20};
    const std::vector<std::uint64_t> few = {0, 9, 4097, 100'003};
    for (const std::uint64_t bytes : base::few_if_sanitized(few, all)) {
      for (const std::uint64_t offset : {0ULL, 1ULL, 8ULL, 1021ULL}) {
        std::memset(target.data(), 0x11, region);
        auto source = pattern(bytes + offset, bytes + 1);
        if (accepts(*memory, Opcode::put)) {
          Command put = transfer(Opcode::put, *memory, offset, source.data(), bytes);
          put.wants_source_free = true;
          ASSERT_EQ(world.run(world.port(0), put), HEDDLE_DONE) << bytes << " at " << offset;
        } else if (memory->direct != nullptr) {
          std::memcpy(memory->direct + offset, source.data(), bytes);
        } else {
          std::memcpy(target.data() + offset, source.data(), bytes);
        }
        ASSERT_EQ(std::memcmp(target.data() + offset, source.data(), bytes), 0) << bytes << " at " << offset;
        if (offset > 0) {
          ASSERT_EQ(target.data()[offset - 1], std::byte{0x11});
        }
        ASSERT_EQ(target.data()[offset + bytes], std::byte{0x11});
        if (!accepts(*memory, Opcode::get)) continue;
        std::vector<std::byte> destination(bytes + 2, std::byte{0x22});
        const Command get = transfer(Opcode::get, *memory, offset, destination.data() + 1, bytes);
        ASSERT_EQ(world.run(world.port(0), get), HEDDLE_DONE);
        ASSERT_EQ(std::memcmp(destination.data() + 1, source.data(), bytes), 0) << bytes << " at " << offset;
        ASSERT_EQ(destination.front(), std::byte{0x22});
        ASSERT_EQ(destination.back(), std::byte{0x22});
      }
    }
    world.transport(0).release(*memory);
  }
}

// Every operation on a word, in both widths, with and without a result.
TEST_P(Conformance, AtomicsDoWhatTheySay) {
  World world(GetParam(), 2);
  struct Step {
    std::uint8_t op;
    std::uint64_t operand;
    std::uint64_t compare;
    std::uint64_t after;
  };
  constexpr std::uint64_t kStart = 0xF0F0'F0F0'1234'5678ULL;
  const std::vector<Step> steps = {{HEDDLE_ADD64, 5, 0, kStart + 5},
                                   {HEDDLE_AND64, 0xFF00, 0, kStart & 0xFF00},
                                   {HEDDLE_OR64, 0xFF, 0, kStart | 0xFF},
                                   {HEDDLE_XOR64, ~0ULL, 0, ~kStart},
                                   {HEDDLE_SWAP64, 42, 0, 42},
                                   {HEDDLE_COMPARE_SWAP64, 43, kStart, 43},
                                   {HEDDLE_COMPARE_SWAP64, 43, kStart + 1, kStart}};
  for (const bool allocated : {true, false}) {
    Target target(world.transport(1), 64, allocated);
    auto memory = world.transport(0).import(1, target.local().key);
    ASSERT_TRUE(memory.ok()) << base::last_message();
    const bool offered = (world.capabilities().opcodes & bit(Opcode::atomic)) != 0;
    // Two transports as one: other ranks' memory may accept more operations.
    const bool joint = GetParam().transport.find(',') != std::string::npos;
    if (joint) {
      ASSERT_LE(accepts(*memory, Opcode::atomic), offered);
    } else {
      ASSERT_EQ(accepts(*memory, Opcode::atomic), offered && memory->direct == nullptr);
    }
    if (!accepts(*memory, Opcode::atomic)) continue;
    for (const Step& step : steps) {
      for (const std::uint64_t bytes : {8ULL, 4ULL}) {
        for (const bool with_result : {true, false}) {
          std::memcpy(target.data() + 8, &kStart, 8);
          std::uint64_t result = ~kStart;
          Command command = transfer(Opcode::atomic, *memory, 8, with_result ? &result : nullptr, bytes);
          command.atomic_op = static_cast<std::uint8_t>(bytes == 8 ? step.op : step.op - HEDDLE_ADD64);
          command.operand = step.operand;
          command.compare = step.compare;
          ASSERT_EQ(world.run(world.port(0), command), HEDDLE_DONE);
          std::uint64_t after = 0;
          std::memcpy(&after, target.data() + 8, 8);
          constexpr std::uint64_t kHigh = ~0ULL << 32;
          const std::uint64_t expected32 = (kStart & kHigh) | (step.after & ~kHigh);
          EXPECT_EQ(after, bytes == 8 ? step.after : expected32) << unsigned{command.atomic_op};
          if (!with_result) continue;
          EXPECT_EQ(result, bytes == 8 ? kStart : ((~kStart & kHigh) | (kStart & ~kHigh)));
        }
      }
    }
    world.transport(0).release(*memory);
  }
}

// Posts the command, and polls until it is done. Any thread that has the port.
void run_alone(Port& port, const Deadline& deadline, const Command& command) {
  Token token = 0;
  while ((token = port.post_one(command)) == 0 && !deadline.over()) port.poll();
  while (token != 0 && !port.done(token) && !deadline.over()) {
    if (port.poll() == 0) sched_yield();
  }
  ASSERT_TRUE(token != 0 && port.done(token)) << "not done in time";
  ASSERT_EQ(port.status(token), HEDDLE_DONE);
}

// The work of one of many threads. Each has its own part of the target.
struct Transferring {
  Port& port;
  const RemoteMemory& memory;
  const RemoteMemory& word;  // of all threads
  std::uint64_t begin;       // of its part of the target
  const Deadline& deadline;

  // Puts the bytes of that seed into its part, and gets them back.
  void put_and_get(std::uint64_t seed, std::uint64_t length) const {
    if (!accepts(memory, Opcode::put) || !accepts(memory, Opcode::get)) return;
    auto source = pattern(seed, length);
    std::vector<std::byte> back(length);
    run_alone(port, deadline, transfer(Opcode::put, memory, begin + 64, source.data(), length));
    run_alone(port, deadline, transfer(Opcode::get, memory, begin + 64, back.data(), length));
    ASSERT_EQ(back, source);
  }
  // Adds to the word of all. Returns what was added.
  [[nodiscard]] std::uint64_t add(std::uint64_t number) const {
    if (!accepts(word, Opcode::atomic)) return 0;
    Command command = transfer(Opcode::atomic, word, 0, nullptr, 8);
    command.atomic_op = HEDDLE_ADD64;
    command.operand = number;
    run_alone(port, deadline, command);
    return number;
  }
};

// Threads of several ranks and workers transfer at once; each has its own part of the target, and
// all add to one word.
TEST_P(Conformance, TransfersOfManyThreadsDoNotDisturbEachOther) {
  constexpr std::uint32_t kRanks = 3;
  constexpr std::uint32_t kWorkers = 2;
  constexpr std::uint64_t kPart = 40'000;
  const auto rounds = static_cast<std::uint64_t>(scaled(40));
  World world(GetParam(), kRanks, kWorkers);
  Target target(world.transport(0), kRanks * kWorkers * kPart + 8, false);
  Target shared(world.transport(0), 8, true);
  std::atomic<std::uint32_t> finished{0};
  std::atomic<std::uint64_t> added{0};
  const auto body = [&](std::uint32_t rank, std::uint32_t worker) {
    Port& port = world.port(rank, worker);
    auto memory = world.transport(rank).import(0, target.local().key);
    auto word = world.transport(rank).import(0, shared.local().key);
    ASSERT_TRUE(memory.ok() && word.ok()) << base::last_message();
    const Deadline deadline;
    const std::uint32_t number = rank * kWorkers + worker;
    const Transferring thread{port, *memory, *word, number * kPart, deadline};
    base::Random random(number);
    for (std::uint64_t round = 0; round < rounds && !testing::Test::HasFatalFailure(); ++round) {
      thread.put_and_get(round * 100 + rank, random.below(kPart - 64));
      added.fetch_add(thread.add(round + 1));
    }
    finished.fetch_add(1);
    while (finished.load() < kRanks * kWorkers && !deadline.over()) {
      if (port.poll() == 0) sched_yield();
    }
    world.transport(rank).release(*memory);
    world.transport(rank).release(*word);
  };
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < kRanks; ++r) {
    for (std::uint32_t w = 0; w < kWorkers; ++w) threads.emplace_back(body, r, w);
  }
  for (std::thread& thread : threads) thread.join();
  std::uint64_t sum = 0;
  std::memcpy(&sum, shared.data(), 8);
  EXPECT_EQ(sum, added.load());
}

TEST_P(Conformance, KeysThatAreNoneAreRefused) {
  World world(GetParam(), 2);
  Transport& here = world.transport(0);
  base::Random random(99);
  for (const bool allocated : {true, false}) {
    Target target(world.transport(1), 4096, allocated);
    const MemoryKey good = world.transport(1).key_for(0, target.local().key);
    for (std::size_t bit_number = 0; bit_number < kKeyBytes * 8; ++bit_number) {
      MemoryKey key = good;
      key.bytes[bit_number / 8] ^= static_cast<std::byte>(1U << bit_number % 8);
      const auto memory = here.import(1, key);
      ASSERT_FALSE(memory.ok()) << "bit " << bit_number << " of the key does not matter";
      ASSERT_EQ(memory.status(), HEDDLE_ERR_PROTOCOL);
    }
    for (std::size_t length = 0; length < kKeyBytes; ++length) {
      MemoryKey key;
      std::copy_n(good.bytes.begin(), length, key.bytes.begin());
      if (key.bytes == good.bytes) continue;  // it ends in zeros
      ASSERT_FALSE(here.import(1, key).ok()) << "cut after " << length;
    }
  }
  for (int i = 0; i < 2000; ++i) {
    MemoryKey key;
    for (std::byte& byte : key.bytes) byte = static_cast<std::byte>(random.next());
    ASSERT_EQ(here.import(1, key).status(), HEDDLE_ERR_PROTOCOL);
    ASSERT_EQ(here.import(0, key).status(), HEDDLE_ERR_PROTOCOL);
  }
  Target target(world.transport(1), 4096, true);
  EXPECT_EQ(here.import(2, target.local().key).status(), HEDDLE_ERR_RANK);
}

}  // namespace
}  // namespace heddle::transport::conformance
