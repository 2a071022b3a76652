// The conformance suite: everything at once, seeded.
#include <algorithm>
#include <cstring>
#include <deque>
#include <set>
#include <stdexcept>

#include "base/test_support.hpp"
#include "transport/test/conformance.hpp"

namespace heddle::transport::conformance {
namespace {

constexpr std::uint32_t kMixRanks = 3;
constexpr std::uint32_t kWorkers = 2;
constexpr std::uint64_t kSlot = 20'000;
constexpr std::uint64_t kSlots = 32;

// One rank's part of the mix: a region where every worker of every rank has slots of its own, each
// used once.
struct Region {
  std::vector<std::byte> bytes = std::vector<std::byte>(kMixRanks * kWorkers * kSlots * kSlot);
  LocalMemory local;
};

class Mix {
 public:
  Mix(const Setting& setting, std::uint64_t seed) : world_(setting, kMixRanks, kWorkers), random_(seed) {
    for (std::uint32_t r = 0; r < kMixRanks; ++r) {
      auto local = world_.transport(r).register_memory(regions_[r].bytes.data(), regions_[r].bytes.size());
      if (!local) throw std::runtime_error(base::last_message());
      regions_[r].local = *local;
    }
    for (std::uint32_t from = 0; from < kMixRanks; ++from) {
      for (std::uint32_t to = 0; to < kMixRanks; ++to) {
        auto memory = world_.transport(from).import(to, regions_[to].local.key);
        if (!memory) throw std::runtime_error(base::last_message());
        memory_[from][to] = *memory;
      }
    }
  }
  ~Mix() {
    for (std::uint32_t from = 0; from < kMixRanks; ++from) {
      for (std::uint32_t to = 0; to < kMixRanks; ++to) world_.transport(from).release(memory_[from][to]);
      world_.transport(from).deregister(regions_[from].local);
    }
  }
  Mix(const Mix&) = delete;
  Mix& operator=(const Mix&) = delete;

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      if (random_.below(3) == 0) {
        some_port().poll(1 + random_.below(20));
      } else {
        post_some();
      }
    }
    ASSERT_TRUE(world_.quiet()) << "some commands never completed";
    ASSERT_TRUE(world_.until([&] { return received() >= sent_.size(); }));
    check();
  }

 private:
  struct Job {
    std::vector<std::byte> buffer;
    std::vector<std::byte> expected;  // get: what must arrive. put: what must be there
    const std::byte* place = nullptr;
  };

  Port& some_port() {
    return world_.port(static_cast<std::uint32_t>(random_.below(kMixRanks)),
                       static_cast<std::uint32_t>(random_.below(kWorkers)));
  }

  std::size_t received() {
    std::size_t n = 0;
    for (std::uint32_t r = 0; r < kMixRanks; ++r) {
      for (std::uint32_t w = 0; w < kWorkers; ++w) n += world_.port(r, w).arrivals.size();
    }
    return n;
  }

  // The offset of the next slot in a peer's region that only this worker uses.
  std::uint64_t place_for(const Port& port, std::uint32_t to) {
    std::uint64_t& next = next_slot_[port.rank()][port.index()][to];
    return ((port.rank() * kWorkers + port.index()) * kSlots + next++) * kSlot;
  }

  Command prepare(const Port& port, Job* job) {
    const auto to = static_cast<std::uint32_t>(random_.below(kMixRanks));
    const RemoteMemory& memory = memory_[port.rank()][to];
    const std::uint64_t choice = random_.below(3);
    const bool room = next_slot_[port.rank()][port.index()][to] < kSlots;
    Command command;
    command.wants_source_free = random_.below(2) == 0;
    command.rank = to;
    if (choice != 0 && room && (memory.opcodes & bit(Opcode::put)) != 0) {
      const std::uint64_t offset = place_for(port, to);
      const std::uint64_t bytes = random_.below(2) == 0 ? random_.below(65) : random_.below(kSlot);
      job->expected = pattern(random_.next(), bytes);
      job->place = regions_[to].bytes.data() + offset;
      command.remote = &memory;
      command.offset = offset;
      command.bytes = bytes;
      const bool get = choice == 1 && (memory.opcodes & bit(Opcode::get)) != 0;
      command.opcode = get ? Opcode::get : Opcode::put;
      command.wants_source_free = command.wants_source_free && !get;
      if (get) std::copy(job->expected.begin(), job->expected.end(), regions_[to].bytes.data() + offset);
      job->buffer = get ? std::vector<std::byte>(bytes) : job->expected;
    } else {
      const std::uint64_t bytes = 8 + random_.below(world_.capabilities().max_message - 8);
      job->buffer = pattern(messages_, bytes);
      std::memcpy(job->buffer.data(), &messages_, 8);
      ++messages_;
      command.worker = static_cast<std::uint32_t>(random_.below(kWorkers));
      command.immediate = static_cast<std::uint32_t>(bytes);
    }
    command.local = job->buffer.data();
    return command;
  }

  void post_some() {
    Port& port = some_port();
    std::deque<Job>& left = left_[port.rank()][port.index()];
    std::deque<Command>& commands = commands_[port.rank()][port.index()];
    while (commands.size() < 1 + random_.below(12)) {
      left.emplace_back();
      commands.push_back(prepare(port, &left.back()));
      if (commands.back().opcode == Opcode::message) commands.back().bytes = left.back().buffer.size();
    }
    std::vector<Command> batch(commands.begin(), commands.end());
    const std::size_t n = port.post(batch);
    for (std::size_t i = 0; i < n; ++i) {
      if (commands.front().opcode == Opcode::message) {
        std::uint64_t number = 0;
        std::memcpy(&number, commands.front().local, 8);
        ASSERT_TRUE(sent_.insert(number).second);
      }
      commands.pop_front();
      jobs_.push_back(std::move(left.front()));
      left.pop_front();
    }
  }

  void check() {
    for (const Job& job : jobs_) {
      if (job.place == nullptr) continue;
      ASSERT_EQ(job.buffer, job.expected) << "a get brought something else";
      ASSERT_TRUE(std::equal(job.expected.begin(), job.expected.end(), job.place)) << "a put left something else";
    }
    std::set<std::uint64_t> got;
    for (std::uint32_t r = 0; r < kMixRanks; ++r) {
      for (std::uint32_t w = 0; w < kWorkers; ++w) {
        for (const Arrival& arrival : world_.port(r, w).arrivals) {
          ASSERT_EQ(arrival.immediate, arrival.data.size());
          std::uint64_t number = 0;
          std::memcpy(&number, arrival.data.data(), 8);
          std::vector<std::byte> expected = pattern(number, arrival.data.size());
          std::memcpy(expected.data(), &number, 8);
          ASSERT_EQ(arrival.data, expected);
          ASSERT_TRUE(got.insert(number).second) << "twice";
        }
      }
    }
    ASSERT_EQ(got, sent_);
  }

  Region regions_[kMixRanks];
  RemoteMemory memory_[kMixRanks][kMixRanks];
  std::deque<Job> jobs_;  // accepted; a deque: buffers are in use
  std::deque<Job> left_[kMixRanks][kWorkers];
  std::deque<Command> commands_[kMixRanks][kWorkers];  // prepared, not accepted yet
  std::uint64_t next_slot_[kMixRanks][kWorkers][kMixRanks]{};
  std::uint64_t messages_ = 0;
  std::set<std::uint64_t> sent_;
  World world_;  // after the memory that its workers may still use
  base::Random random_;
};

TEST_P(Conformance, RandomMixesCompleteExactlyOnce) {
  for (std::uint64_t seed = 1; seed <= static_cast<std::uint64_t>(scaled(8)); ++seed) {
    SCOPED_TRACE(seed);
    Mix mix(GetParam(), seed);
    mix.run(base::few_if_sanitized(150, 600));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace heddle::transport::conformance
