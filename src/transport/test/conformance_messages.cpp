// The conformance suite: capabilities, messages, back-pressure.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <thread>

#include "transport/test/conformance.hpp"

namespace heddle::transport::conformance {
namespace {

std::vector<std::byte> numbered(std::uint64_t number, std::size_t bytes) {
  std::vector<std::byte> data = pattern(number, std::max<std::size_t>(bytes, 8));
  std::memcpy(data.data(), &number, 8);
  return data;
}

std::uint64_t number_of(const Arrival& arrival) {
  std::uint64_t number = ~std::uint64_t{0};
  if (arrival.data.size() >= 8) std::memcpy(&number, arrival.data.data(), 8);
  return number;
}

// Numbers 0 … n-1 from one source, each once and intact; in order if the transport says so.
void expect_numbers(const std::vector<Arrival>& arrivals, std::size_t n, bool ordered, std::size_t bytes) {
  ASSERT_EQ(arrivals.size(), n);
  std::vector<bool> seen(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t number = number_of(arrivals[i]);
    ASSERT_LT(number, n);
    ASSERT_FALSE(seen[number]) << "message " << number << " came twice";
    seen[number] = true;
    ASSERT_EQ(arrivals[i].data, numbered(number, bytes));
    if (ordered) {
      ASSERT_EQ(number, i) << "out of order";
    }
  }
}

TEST_P(Conformance, CapabilitiesAreConsistent) {
  World world(GetParam(), 2);
  const Capabilities& can = world.capabilities();
  EXPECT_EQ(GetParam().transport, can.name);
  EXPECT_NE(can.opcodes & bit(Opcode::message), 0U);
  EXPECT_EQ(can.opcodes >> static_cast<unsigned>(Opcode::kCount), 0U);
  EXPECT_GE(can.max_message, 2 * kMaxHeaderBytes);
  EXPECT_EQ(can.max_workers, World::kMaxWorkers);
  EXPECT_GT(can.memory_per_peer, 0U);
  if ((can.opcodes & (bit(Opcode::put) | bit(Opcode::get))) != 0) {
    EXPECT_GT(can.max_transfer, 0U);
  }
}

TEST_P(Conformance, WorkersAreOpenedOnceAndWithinTheLimit) {
  World world(GetParam(), 1);
  EXPECT_LT(world.transport(0).open_worker(0).status(), 0);
  EXPECT_LT(world.transport(0).open_worker(World::kMaxWorkers).status(), 0);
  EXPECT_TRUE(world.transport(0).open_worker(World::kMaxWorkers - 1).ok());
}

TEST_P(Conformance, EmptyCallsDoNothing) {
  World world(GetParam(), 1);
  EXPECT_EQ(world.port(0).worker().post({}), 0U);
  EXPECT_EQ(world.port(0).worker().poll({}), 0U);
  EXPECT_EQ(world.port(0).poll(1), 0U);
}

TEST_P(Conformance, MessagesArriveExactlyAsSent) {
  World world(GetParam(), 2);
  Port& from = world.port(0);
  Port& to = world.port(1);
  const std::uint32_t max = world.capabilities().max_message;
  std::uint32_t immediate = 0xFFFFFFF0U;
  for (const std::uint32_t header_bytes : {0U, 1U, 7U, 8U, 63U, 64U, 65U, kMaxHeaderBytes}) {
    const std::uint32_t room = (header_bytes + 7U) & ~7U;
    for (const std::uint32_t bytes : {0U, 1U, 7U, 8U, 9U, 63U, 64U, 65U, max - room}) {
      const auto header = pattern(immediate, header_bytes);
      const auto payload = pattern(immediate + 1, bytes);
      Command command = message_to(1, 0, payload, ++immediate);
      command.header = header.data();
      command.header_bytes = header_bytes;
      to.arrivals.clear();
      ASSERT_TRUE(world.must_send(from, command));
      ASSERT_TRUE(world.until([&] { return !to.arrivals.empty() && from.outstanding() == 0; }));
      const Arrival& arrival = to.arrivals.at(0);
      ASSERT_EQ(arrival.data.size(), room + bytes);
      EXPECT_TRUE(std::equal(header.begin(), header.end(), arrival.data.begin()));
      EXPECT_TRUE(std::equal(payload.begin(), payload.end(), arrival.data.begin() + room));
      EXPECT_EQ(arrival.immediate, immediate);
      EXPECT_EQ(arrival.rank, 0U);
      EXPECT_EQ(arrival.worker, 0U);
    }
  }
}

// The caller may reuse the header when post() returns.
TEST_P(Conformance, HeadersAreCopiedByPost) {
  World world(GetParam(), 2);
  const std::vector<std::byte> none;
  for (std::uint64_t i = 0; i < 200; ++i) {
    std::vector<std::byte> header = numbered(i, 40);
    Command command = message_to(1, 0, none);
    command.header = header.data();
    command.header_bytes = 40;
    ASSERT_NE(world.must_post(world.port(0), command), 0U);
    std::fill(header.begin(), header.end(), std::byte{0xEE});
  }
  ASSERT_TRUE(world.until([&] { return world.port(1).arrivals.size() >= 200; }));
  expect_numbers(world.port(1).arrivals, 200, world.capabilities().ordered_messages, 40);
}

TEST_P(Conformance, ARankSendsToItself) {
  World world(GetParam(), 1, 2);
  for (std::uint64_t i = 0; i < 100; ++i) {
    const auto data = numbered(i, 24);
    for (const std::uint32_t worker : {0U, 1U}) {
      const Token token = world.must_post(world.port(0), message_to(0, worker, data));
      ASSERT_TRUE(world.until([&] { return world.port(0).done(token); }));
    }
  }
  for (const std::uint32_t worker : {0U, 1U}) {
    ASSERT_TRUE(world.until([&] { return world.port(0, worker).arrivals.size() >= 100; }));
    expect_numbers(world.port(0, worker).arrivals, 100, world.capabilities().ordered_messages, 24);
  }
}

TEST_P(Conformance, ManyToOneAndOneToMany) {
  constexpr std::uint32_t kRanks = 4;
  constexpr std::uint32_t kWorkers = 2;
  constexpr std::uint64_t kEach = 120;
  World world(GetParam(), kRanks, kWorkers);
  std::vector<std::vector<std::byte>> data;
  for (std::uint64_t i = 0; i < kEach; ++i) data.push_back(numbered(i, 8 + i));
  for (std::uint64_t i = 0; i < kEach; ++i) {
    for (std::uint32_t r = 1; r < kRanks; ++r) {
      for (std::uint32_t w = 0; w < kWorkers; ++w) {
        ASSERT_TRUE(world.must_send(world.port(r, w), message_to(0, 0, data[i], r * 10 + w)));
        ASSERT_TRUE(world.must_send(world.port(0, 1), message_to(r, w, data[i], r * 10 + w)));
      }
    }
  }
  ASSERT_TRUE(world.quiet());
  Port& root = world.port(0);
  ASSERT_TRUE(world.until([&] { return root.arrivals.size() >= (kRanks - 1) * kWorkers * kEach; }));
  std::map<std::uint32_t, std::vector<Arrival>> by_source;
  for (const Arrival& arrival : root.arrivals) {
    EXPECT_EQ(arrival.immediate, arrival.rank * 10 + arrival.worker);
    by_source[arrival.immediate].push_back(arrival);
  }
  ASSERT_EQ(by_source.size(), (kRanks - 1) * kWorkers);
  const auto check = [&](const std::vector<Arrival>& arrivals) {
    ASSERT_EQ(arrivals.size(), kEach);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < kEach; ++i) {
      const std::uint64_t number = number_of(arrivals[i]);
      ASSERT_LT(number, kEach);
      ASSERT_EQ(arrivals[i].data, data[number]);
      if (world.capabilities().ordered_messages) {
        ASSERT_EQ(number, i);
      }
      sum += number;
    }
    EXPECT_EQ(sum, kEach * (kEach - 1) / 2);
  };
  for (const auto& [source, arrivals] : by_source) check(arrivals);
  for (std::uint32_t r = 1; r < kRanks; ++r) {
    for (std::uint32_t w = 0; w < kWorkers; ++w) {
      ASSERT_TRUE(world.until([&] { return world.port(r, w).arrivals.size() >= kEach; }));
      check(world.port(r, w).arrivals);
      EXPECT_EQ(world.port(r, w).arrivals[0].rank, 0U);
      EXPECT_EQ(world.port(r, w).arrivals[0].worker, 1U);
    }
  }
}

TEST_P(Conformance, MessagesWaitForAWorkerThatIsOpenedLater) {
  World world(GetParam(), 2);
  std::vector<std::vector<std::byte>> data;
  for (std::uint64_t i = 0; i < 10; ++i) data.push_back(numbered(i, 100));
  for (const auto& payload : data) ASSERT_NE(world.must_post(world.port(0), message_to(1, 2, payload)), 0U);
  world.open_port(1);
  Port& late = world.open_port(1);
  ASSERT_TRUE(world.until([&] { return late.arrivals.size() >= data.size(); }));
  expect_numbers(late.arrivals, data.size(), world.capabilities().ordered_messages, 100);
  ASSERT_TRUE(world.quiet());
}

TEST_P(Conformance, MessagesThatWaitForAWorkerAreToldOf) {
  World world(GetParam(), 2);
  TransportWorker& from = world.port(0).worker();
  std::array<TransportWorker::Unopened, 4> found{};
  const auto payload = numbered(1, 100);
  ASSERT_NE(world.must_post(world.port(0), message_to(1, 0, payload)), 0U);
  ASSERT_TRUE(world.until([&] { return world.port(1).arrivals.size() == 1; }));
  EXPECT_EQ(from.unopened(found), 0U) << "that worker is open";
  for (int i = 0; i < 3; ++i) ASSERT_NE(world.must_post(world.port(0), message_to(1, 2, payload)), 0U);
  // A decorator may hold them for a while.
  ASSERT_TRUE(world.until([&] { return from.unopened(found) == 1 && found[0].messages == 3; }));
  EXPECT_EQ(found[0].target.rank, 1U);
  EXPECT_EQ(found[0].target.worker, 2U);
  EXPECT_EQ(from.unopened({}), 0U);
  world.open_port(1);
  Port& late = world.open_port(1);
  EXPECT_TRUE(world.until([&] { return late.arrivals.size() == 3 && from.unopened(found) == 0; }));
  EXPECT_TRUE(world.quiet());
}

// Nobody receives: the transport must stop accepting before it exceeds its stated memory, and lose
// nothing.
TEST_P(Conformance, BackPressureIsBoundedAndLosesNothing) {
  constexpr std::size_t kBytes = 200;
  constexpr std::size_t kBatch = 16;
  World world(GetParam(), 2);
  Port& from = world.port(0);
  const std::size_t bound = world.capabilities().memory_per_peer / 8 + 10'000;
  std::vector<std::vector<std::byte>> data;
  for (std::uint64_t i = 0; i < bound + kBatch; ++i) data.push_back(numbered(i, kBytes));
  std::size_t accepted = 0;
  int refusals = 0;
  while (refusals < 500 && accepted < bound) {
    std::vector<Command> batch;
    for (std::size_t i = 0; i < kBatch; ++i) batch.push_back(message_to(1, 0, data[accepted + i]));
    const std::size_t n = from.post(batch);
    accepted += n;
    refusals = n == 0 ? refusals + 1 : 0;
    from.poll();
  }
  ASSERT_GT(accepted, 0U);
  ASSERT_LT(accepted, bound) << "it never refuses";
  ASSERT_TRUE(world.until([&] { return world.port(1).arrivals.size() >= accepted; }));
  ASSERT_TRUE(world.quiet());
  const auto more = numbered(accepted, kBytes);
  ASSERT_NE(world.must_post(from, message_to(1, 0, more)), 0U);
  ASSERT_TRUE(world.until([&] { return world.port(1).arrivals.size() >= accepted + 1; }));
  expect_numbers(world.port(1).arrivals, accepted + 1, world.capabilities().ordered_messages, kBytes);
}

// The data of a poll stays while the sender goes on sending.
TEST_P(Conformance, MessageDataStaysUntilTheNextPoll) {
  World world(GetParam(), 2);
  std::vector<std::vector<std::byte>> data;
  for (std::uint64_t i = 0; i < 3000; ++i) data.push_back(numbered(i, 8 + i % 300));
  std::size_t sent = 0;
  const Deadline deadline;
  base::Random random(5);
  while (world.port(1).arrivals.size() < data.size() && !deadline.over()) {
    for (int i = 0; i < 20 && sent < data.size(); ++i) {
      if (world.port(0).send(message_to(1, 0, data[sent]))) ++sent;
    }
    world.port(0).poll();
    world.port(1).poll(1 + random.below(12));
  }
  ASSERT_EQ(world.port(1).arrivals.size(), data.size());
  for (const Arrival& arrival : world.port(1).arrivals) {
    ASSERT_LT(number_of(arrival), data.size());
    ASSERT_EQ(arrival.data, data[number_of(arrival)]);
  }
}

// Each rank is a thread, and each sends to all.
TEST_P(Conformance, ThreadsSendToEachOther) {
  constexpr std::uint32_t kRanks = 3;
  const auto each = static_cast<std::uint64_t>(scaled(1200));
  World world(GetParam(), kRanks);
  std::atomic<std::uint32_t> finished{0};
  const auto body = [&](std::uint32_t rank) {
    Port& port = world.port(rank);
    base::Random random(rank);
    std::vector<std::vector<std::byte>> data;
    for (std::uint64_t i = 0; i < each; ++i) data.push_back(numbered(i, 8 + (i * 37) % 250));
    std::vector<std::uint64_t> next(kRanks, 0);
    const Deadline deadline;
    bool told = false;
    while (finished.load() < kRanks && !deadline.over()) {
      const auto to = static_cast<std::uint32_t>(random.below(kRanks));
      if (next[to] < each) {
        if (port.send(message_to(to, 0, data[next[to]]))) ++next[to];
      }
      if (port.poll(1 + random.below(16)) == 0) sched_yield();
      if (!told && port.arrivals.size() == each * kRanks && port.outstanding() == 0 &&
          std::all_of(next.begin(), next.end(), [&](std::uint64_t n) { return n == each; })) {
        told = true;
        finished.fetch_add(1);
      }
    }
    EXPECT_TRUE(told) << "rank " << rank << " has " << port.arrivals.size() << " of " << each * kRanks;
    std::map<std::uint32_t, std::uint64_t> expected;
    for (const Arrival& arrival : port.arrivals) {
      const std::uint64_t number = number_of(arrival);
      ASSERT_LT(number, each);
      ASSERT_EQ(arrival.data, data[number]);
      if (world.capabilities().ordered_messages) {
        ASSERT_EQ(number, expected[arrival.rank]);
      }
      ++expected[arrival.rank];
    }
    for (std::uint32_t r = 0; r < kRanks; ++r) EXPECT_EQ(expected[r], each);
  };
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < kRanks; ++r) threads.emplace_back(body, r);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace heddle::transport::conformance
