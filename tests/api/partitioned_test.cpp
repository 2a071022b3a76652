// Partitioned send and receive against a sequential reference: every transport, both sides cut
// differently, several threads that mark parts in any order, again and again.
#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <optional>
#include <random>

#include "api/test_job.hpp"

namespace heddle::test::partitioned_test {
namespace {

constexpr std::uint64_t kTag = 7;

std::byte value_at(std::uint64_t run, std::uint64_t tag, std::uint64_t i) {
  return static_cast<std::byte>((run * 31 + tag * 17 + i * 3 + (i >> 8U)) & 0xffU);
}

void fill(std::span<std::byte> part, std::uint64_t run, std::uint64_t tag, std::uint64_t first) {
  for (std::uint64_t i = 0; i < part.size(); ++i) part[i] = value_at(run, tag, first + i);
}

bool is_filled(std::span<const std::byte> part, std::uint64_t run, std::uint64_t tag, std::uint64_t first) {
  for (std::uint64_t i = 0; i < part.size(); ++i) {
    if (part[i] != value_at(run, tag, first + i)) return false;
  }
  return true;
}

// Bytes of the program's own, or of a region.
class Memory {
 public:
  Memory(const Context& context, std::uint64_t bytes, bool allocated) : own_(allocated ? 0 : bytes) {
    if (allocated && bytes > 0) {
      region_ = context.alloc(bytes);
      bytes_ = region_.memory<std::byte>().first(bytes);
    } else {
      own_.resize(bytes);
      bytes_ = own_;
    }
  }
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> own_;
  Region region_;
  std::span<std::byte> bytes_;
};

struct Cut {
  std::uint32_t send;
  std::uint32_t receive;
  std::uint64_t total;
  bool allocated;
};

const std::vector<Cut>& cuts() {
  static const std::vector<Cut> all = {{1, 1, 8, true},          {1, 64, 64 * 64, false}, {64, 1, 64 * 640, true},
                                       {6, 4, 12 * 100, true},   {4, 6, 12 * 101, false}, {64, 64, 64 * 8, false},
                                       {7, 5, 35 * 1000, true},  {3, 2, 600'000, false},  {16, 5, 0, true},
                                       {64, 48, 192 * 333, true}};
  return all;
}

// Fewer bytes than the receiver has room for.
struct Shorter {
  std::uint32_t send;
  std::uint32_t receive;
  std::uint64_t sent;
  std::uint64_t room;
  bool allocated;
};

class PartitionedTransports : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(On, PartitionedTransports, testing::ValuesIn(all_settings()), name_of);

// One side after the other by the order of `marks`; the receiver looks at each of its parts.
void send_runs(const PartitionedSend& send, std::span<std::byte> data, const Cut& cut, std::uint32_t runs,
               std::uint64_t tag) {
  std::mt19937_64 random(cut.send * 1000 + cut.receive);
  std::vector<std::uint32_t> order(cut.send);
  std::iota(order.begin(), order.end(), 0);
  const std::uint64_t bytes = cut.total / cut.send;
  for (std::uint32_t run = 1; run <= runs; ++run) {
    std::ranges::shuffle(order, random);
    ASSERT_EQ(send.start(), HEDDLE_DONE) << heddle_last_error();
    for (const std::uint32_t part : order) {
      fill(data.subspan(part * bytes, bytes), run, tag, part * bytes);
      ASSERT_EQ(send.ready(part), HEDDLE_DONE) << heddle_last_error();
    }
    ASSERT_EQ(send.wait(), HEDDLE_DONE) << heddle_last_error();
  }
}

void receive_runs(const PartitionedReceive& receive, std::span<std::byte> data, const Cut& cut, std::uint32_t runs,
                  std::uint64_t tag) {
  const std::uint64_t bytes = cut.total / cut.receive;
  for (std::uint32_t run = 1; run <= runs; ++run) {
    ASSERT_EQ(receive.start(), HEDDLE_DONE) << heddle_last_error();
    if (run % 2 == 1) {
      std::vector<bool> seen(cut.receive);
      std::uint32_t left = cut.receive;
      ASSERT_TRUE(within_time([&] { return left == 0; },
                              [&] {
                                for (std::uint32_t part = 0; part < cut.receive; ++part) {
                                  if (seen[part]) continue;
                                  const Status status = receive.arrived(part);
                                  if (status == HEDDLE_AGAIN) continue;
                                  ASSERT_EQ(status, HEDDLE_DONE) << heddle_last_error();
                                  ASSERT_TRUE(is_filled(data.subspan(part * bytes, bytes), run, tag, part * bytes))
                                      << "part " << part << " of run " << run;
                                  seen[part] = true;
                                  --left;
                                }
                              }));
    }
    ASSERT_EQ(receive.wait(), HEDDLE_DONE) << heddle_last_error();
    ASSERT_TRUE(is_filled(data, run, tag, 0)) << "run " << run;
  }
}

// The sent bytes lie at the beginning, a part is there when its bytes are, and the rest is
// unchanged.
void receive_shorter(const PartitionedReceive& receive, std::span<std::byte> data, const Shorter& cut,
                     std::uint64_t tag) {
  const std::uint64_t bytes = cut.room / cut.receive;
  for (std::uint32_t run = 1; run <= 3; ++run) {
    std::ranges::fill(data, std::byte{0x5a});
    ASSERT_EQ(receive.start(), HEDDLE_DONE) << heddle_last_error();
    std::vector<bool> seen(cut.receive);
    std::uint32_t left = cut.receive;
    const auto look = [&] {
      for (std::uint32_t part = 0; part < cut.receive; ++part) {
        if (seen[part]) continue;
        const Status status = receive.arrived(part);
        if (status == HEDDLE_AGAIN) continue;
        ASSERT_EQ(status, HEDDLE_DONE) << heddle_last_error();
        const std::uint64_t from = std::min(part * bytes, cut.sent);
        const std::uint64_t here = std::min(bytes, cut.sent - from);
        ASSERT_TRUE(is_filled(data.subspan(from, here), run, tag, from)) << "part " << part << " of run " << run;
        seen[part] = true;
        --left;
      }
    };
    ASSERT_TRUE(within_time([&] { return left == 0; }, look));
    ASSERT_EQ(receive.wait(), HEDDLE_DONE) << heddle_last_error();
    std::uint64_t came = 0;
    ASSERT_EQ(heddle_partitioned_bytes(receive.handle(), &came), HEDDLE_DONE);
    ASSERT_EQ(came, cut.sent);
    ASSERT_TRUE(is_filled(data.first(cut.sent), run, tag, 0)) << "run " << run;
    ASSERT_TRUE(std::ranges::all_of(data.subspan(cut.sent), [](std::byte one) { return one == std::byte{0x5a}; }));
  }
}

TEST_P(PartitionedTransports, LargerReceives) {
  const Variables variables(GetParam().variables);
  const Job job(2, GetParam().transport);
  job.run([&](Context& context, Worker& worker) {
    const Shorter cuts[] = {{1, 1, 8, 64, true},
                            {4, 4, 4 * 96, 4 * 128, false},
                            {6, 4, 6 * 200, 4 * 1000, true},
                            {3, 8, 3 * 64, 8 * 8000, false},
                            {2, 5, 0, 5 * 64, true}};
    std::uint64_t tag = 0;
    for (const Shorter& cut : cuts) {
      SCOPED_TRACE(testing::Message() << cut.sent << " bytes in " << cut.send << " parts to " << cut.receive);
      const Memory memory(context, cut.room, cut.allocated);
      ++tag;
      if (context.rank() == 0) {
        const std::span<std::byte> data = memory.bytes().first(cut.sent);
        const PartitionedSend send(worker, std::span<const std::byte>(data), cut.send, {1, 0}, tag);
        send_runs(send, data, {cut.send, cut.send, cut.sent, cut.allocated}, 3, tag);
        std::uint64_t bytes = 1;
        EXPECT_EQ(heddle_partitioned_bytes(send.handle(), &bytes), HEDDLE_DONE);
        EXPECT_EQ(bytes, cut.sent);
        EXPECT_EQ(heddle_partitioned_bytes(send.handle(), nullptr), HEDDLE_ERR_ARGUMENT);
      } else {
        const PartitionedReceive receive(worker, memory.bytes(), cut.receive, {0, 0}, tag);
        receive_shorter(receive, memory.bytes(), cut, tag);
      }
      if (testing::Test::HasFatalFailure()) return;
      context.barrier(worker);  // the memory goes
    }
  });
}

TEST_P(PartitionedTransports, EveryCut) {
  const Variables variables(GetParam().variables);
  const Job job(2, GetParam().transport);
  job.run([&](Context& context, Worker& worker) {
    std::uint64_t tag = 0;
    for (const Cut& cut : cuts()) {
      SCOPED_TRACE(testing::Message() << cut.send << " parts to " << cut.receive << " of " << cut.total << " bytes");
      const Memory memory(context, cut.total, cut.allocated);
      ++tag;
      if (context.rank() == 0) {
        const PartitionedSend send(worker, std::span<const std::byte>(memory.bytes()), cut.send, {1, 0}, tag);
        send_runs(send, memory.bytes(), cut, 5, tag);
      } else {
        const PartitionedReceive receive(worker, memory.bytes(), cut.receive, {0, 0}, tag);
        receive_runs(receive, memory.bytes(), cut, 5, tag);
      }
      if (testing::Test::HasFatalFailure()) return;
      context.barrier(worker);  // the memory goes
    }
  });
}

// Both ways at once on one worker, and with oneself.
TEST_P(PartitionedTransports, BothWaysAndToOneself) {
  const Variables variables(GetParam().variables);
  const Job job(2, GetParam().transport);
  job.run([&](Context& context, Worker& worker) {
    constexpr std::uint32_t kParts = 5;
    constexpr std::uint64_t kBytes = 40;
    for (const std::uint32_t peer : {context.rank(), 1 - context.rank()}) {
      std::vector<std::byte> out(kParts * kBytes);
      const Memory in(context, out.size(), true);
      const PartitionedSend send(worker, std::span<const std::byte>(out), kParts, {peer, 0}, kTag);
      const PartitionedReceive receive(worker, in.bytes(), 2, {peer, 0}, kTag);
      for (std::uint64_t run = 1; run <= 20; ++run) {
        ASSERT_EQ(receive.start(), HEDDLE_DONE) << heddle_last_error();
        ASSERT_EQ(send.start(), HEDDLE_DONE) << heddle_last_error();
        fill(out, run, kTag, 0);
        ASSERT_EQ(send.ready(0, kParts - 1), HEDDLE_DONE) << heddle_last_error();
        ASSERT_EQ(receive.wait(), HEDDLE_DONE) << heddle_last_error();
        ASSERT_EQ(send.wait(), HEDDLE_DONE) << heddle_last_error();
        ASSERT_TRUE(is_filled(in.bytes(), run, kTag, 0)) << "run " << run;
      }
      context.barrier(worker);
    }
  });
}

// The send is offered before there is a receive, marked before that is started, and the other way
// round; equal tags match in order.
TEST_P(PartitionedTransports, WhoeverIsFirst) {
  const Variables variables(GetParam().variables);
  const Job job(2, GetParam().transport);
  job.run([&](Context& context, Worker& worker) {
    constexpr std::uint32_t kPairs = 12;
    constexpr std::uint32_t kParts = 3;
    constexpr std::uint64_t kBytes = 24;
    for (const bool sender_first : {true, false}) {
      std::vector<std::vector<std::byte>> data(kPairs, std::vector<std::byte>(kParts * kBytes));
      std::vector<PartitionedSend> sends;
      std::vector<PartitionedReceive> receives;
      if (context.rank() == 1 && sender_first) context.barrier(worker);
      if (context.rank() == 0 && !sender_first) context.barrier(worker);
      for (std::uint32_t pair = 0; pair < kPairs; ++pair) {
        if (context.rank() == 0) {
          sends.emplace_back(worker, std::span<const std::byte>(data[pair]), kParts, heddle_peer{1, 0}, pair % 2);
          ASSERT_EQ(sends.back().start(), HEDDLE_DONE);
          fill(data[pair], 1, pair, 0);
          ASSERT_EQ(sends.back().ready(0, kParts - 1), HEDDLE_DONE) << heddle_last_error();
        } else {
          receives.emplace_back(worker, std::span(data[pair]), kParts, heddle_peer{0, 0}, pair % 2);
          ASSERT_EQ(receives.back().start(), HEDDLE_DONE);
        }
      }
      if (context.rank() == 0 && sender_first) context.barrier(worker);
      if (context.rank() == 1 && !sender_first) context.barrier(worker);
      for (const PartitionedSend& send : sends) ASSERT_EQ(send.wait(), HEDDLE_DONE) << heddle_last_error();
      for (const PartitionedReceive& receive : receives) ASSERT_EQ(receive.wait(), HEDDLE_DONE) << heddle_last_error();
      for (std::uint32_t pair = 0; pair < receives.size(); ++pair) {
        EXPECT_TRUE(is_filled(data[pair], 1, pair, 0)) << pair;
      }
      context.barrier(worker);
    }
  });
}

// ---- several threads that mark ------------------------------------------------------------------

struct Threads {
  const char* name;
  const char* transport;
  heddle_sharing sharing;
  const char* progress;
};

std::ostream& operator<<(std::ostream& out, const Threads& threads) {
  return out << threads.name;
}

class PartitionedThreads : public testing::TestWithParam<Threads> {};
INSTANTIATE_TEST_SUITE_P(
    In, PartitionedThreads,
    testing::Values(Threads{"shared_shm", "shm", HEDDLE_SHARING_SHARED, "none"},
                    Threads{"shared_messages", "loopback-messages", HEDDLE_SHARING_SHARED, "none"},
                    Threads{"shared_helped", "loopback-messages", HEDDLE_SHARING_SHARED, "dedicated:1"},
                    Threads{"offload_messages", "loopback-messages", HEDDLE_SHARING_OFFLOAD, "none"},
                    Threads{"offload_shm", "shm", HEDDLE_SHARING_OFFLOAD, "none"},
                    Threads{"delegate_messages", "loopback-messages", HEDDLE_SHARING_DELEGATE, "none"},
                    Threads{"exclusive_helped", "loopback-messages", HEDDLE_SHARING_EXCLUSIVE, "dedicated:1"}),
    [](const auto& row) { return row.param.name; });

// Threads that mark parts from `next`, until there are none.
void mark_parts(const PartitionedSend& send, std::span<std::byte> data, std::span<const std::uint32_t> order,
                std::atomic<std::uint32_t>& next, std::uint64_t run) {
  const std::uint64_t bytes = data.size() / order.size();
  for (std::uint32_t i = next.fetch_add(1); i < order.size(); i = next.fetch_add(1)) {
    const std::uint64_t part = order[i];
    fill(data.subspan(part * bytes, bytes), run, kTag, part * bytes);
    EXPECT_EQ(send.ready(static_cast<std::uint32_t>(part)), HEDDLE_DONE) << heddle_last_error();
  }
}

TEST_P(PartitionedThreads, MarkInAnyOrder) {
  constexpr std::uint32_t kSendParts = 48;
  constexpr std::uint32_t kReceiveParts = 32;
  constexpr std::uint64_t kTotal = 96 * 64;
  constexpr std::uint64_t kRuns = 30;
  const bool one_thread = GetParam().sharing == HEDDLE_SHARING_EXCLUSIVE;
  const std::uint32_t threads = one_thread ? 1 : 3;
  const std::vector<std::pair<const char*, const char*>> set = {{"HEDDLE_PROGRESS", GetParam().progress}};
  const Variables variables(set);
  const Job job(2, GetParam().transport);
  job.run([&](Context& context, Worker& first) {
    Worker worker = context.open_worker(GetParam().sharing);
    context.barrier(first);
    const Memory memory(context, kTotal, true);
    const std::span<std::byte> data = memory.bytes();
    std::vector<std::uint32_t> order(kSendParts);
    std::iota(order.begin(), order.end(), 0);
    std::mt19937_64 random(5);
    const bool sends = context.rank() == 0;
    std::optional<PartitionedSend> send;
    std::optional<PartitionedReceive> receive;
    if (sends) {
      send.emplace(worker, std::span<const std::byte>(data), kSendParts, heddle_peer{1, 1}, kTag);
    } else {
      receive.emplace(worker, data, kReceiveParts, heddle_peer{0, 1}, kTag);
    }
    for (std::uint64_t run = 1; run <= kRuns; ++run) {
      std::ranges::shuffle(order, random);
      std::atomic<std::uint32_t> next{0};
      ASSERT_EQ(sends ? send->start() : receive->start(), HEDDLE_DONE) << heddle_last_error();
      // Receiving threads look each for their own parts; sending ones take the next in the order.
      const auto body = [&](std::uint32_t thread) {
        if (sends) return mark_parts(*send, data, order, next, run);
        constexpr std::uint64_t kBytes = kTotal / kReceiveParts;
        for (std::uint32_t part = thread; part < kReceiveParts; part += threads) {
          EXPECT_TRUE(within_time([&] { return receive->arrived(part) == HEDDLE_DONE; })) << heddle_last_error();
          EXPECT_TRUE(is_filled(data.subspan(part * kBytes, kBytes), run, kTag, part * kBytes)) << part;
        }
      };
      std::vector<std::thread> others;
      for (std::uint32_t thread = 1; thread < threads; ++thread) others.emplace_back(body, thread);
      body(0);
      for (std::thread& other : others) other.join();
      ASSERT_EQ(sends ? send->wait() : receive->wait(), HEDDLE_DONE) << heddle_last_error();
    }
    send.reset();
    receive.reset();
    context.barrier(first);
  });
}

}  // namespace
}  // namespace heddle::test::partitioned_test
