// All algorithms, run by threads on memory of one process, against what the operation says; and who may advance a queue.
#include "collective/session_queue.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "base/random.hpp"
#include "base/test_waits.hpp"
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
namespace {

void add_bytes(void* inout, const void* in, std::uint64_t bytes, const void* /*argument*/) {
  auto* to = static_cast<std::uint8_t*>(inout);
  const auto* from = static_cast<const std::uint8_t*>(in);
  for (std::uint64_t i = 0; i < bytes; ++i) to[i] = static_cast<std::uint8_t>(to[i] + from[i]);
}

// The memory and the queues of all ranks of one operation.
struct World {
  Request request;
  std::vector<std::array<std::vector<std::byte>, 3>> bytes;
  std::vector<std::vector<CounterWord>> counters;
  std::vector<RankMemory> ranks;
  std::vector<Schedule> schedules;
  std::vector<std::unique_ptr<SessionQueue>> queues;

  World(const Algorithm& algorithm, const Request& asked) : request(asked), bytes(asked.ranks), counters(asked.ranks) {
    for (request.rank = 0; request.rank < request.ranks; ++request.rank) {
      const Rank rank = request.rank;
      schedules.push_back(algorithm.schedule(request));
      bytes[rank][0].resize(send_bytes(request, rank));
      bytes[rank][1].resize(receive_bytes(request, rank));
      bytes[rank][2].resize(schedules[rank].scratch_bytes);
      counters[rank] = std::vector<CounterWord>(schedules[rank].counters.size());
      SessionQueue::prepare(schedules[rank], counters[rank].data());
      ranks.push_back({{bytes[rank][0].data(), bytes[rank][1].data(), bytes[rank][2].data()}, counters[rank].data()});
    }
    for (const Schedule& schedule : schedules)
      queues.push_back(std::make_unique<SessionQueue>(schedule, ranks, Reduction{add_bytes, nullptr}));
  }

  static std::byte given(std::uint64_t run, Rank rank, std::uint64_t i) {
    return static_cast<std::byte>((run * 31 + rank * 7 + i * 3 + (i >> 8U)) & 0xffU);
  }
  void fill(Rank rank, std::uint64_t run) {
    for (std::uint64_t i = 0; i < bytes[rank][0].size(); ++i) bytes[rank][0][i] = given(run, rank, i);
    const bool gives = request.operation == Operation::broadcast && rank == request.root;
    for (std::uint64_t i = 0; i < bytes[rank][1].size(); ++i)
      bytes[rank][1][i] = gives ? given(run, rank, i) : std::byte{0xee};
  }
  [[nodiscard]] std::byte sum(std::uint64_t run, Rank last, std::uint64_t i) const {
    unsigned all = 0;
    for (Rank rank = 0; rank <= last; ++rank) all += static_cast<unsigned>(given(run, rank, i));
    return static_cast<std::byte>(all & 0xffU);
  }
  [[nodiscard]] std::byte expected(Rank rank, std::uint64_t run, std::uint64_t i) const {
    const std::uint64_t n = request.bytes;
    switch (request.operation) {
      case Operation::broadcast:
        return given(run, request.root, i);
      case Operation::reduce:
      case Operation::allreduce:
        return sum(run, request.ranks - 1, i);
      case Operation::reduce_scatter:
        return sum(run, request.ranks - 1, rank * n + i);
      case Operation::scan:
        return sum(run, rank, i);
      case Operation::gather:
      case Operation::allgather:
        return given(run, static_cast<Rank>(i / n), i % n);
      case Operation::scatter:
        return given(run, request.root, rank * n + i);
      case Operation::alltoall:
        return given(run, static_cast<Rank>(i / n), rank * n + i % n);
      case Operation::barrier:
      case Operation::kCount:
        break;
    }
    return {};
  }
  void verify(Rank rank, std::uint64_t run) const {
    for (std::uint64_t i = 0; i < bytes[rank][1].size(); ++i)
      ASSERT_EQ(bytes[rank][1][i], expected(rank, run, i)) << "rank " << rank << " run " << run << " byte " << i;
  }
};

class RunsOf : public testing::TestWithParam<const Algorithm*> {};

void run_with_threads(World& world, std::uint64_t runs) {
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < world.request.ranks; ++rank)
    threads.emplace_back([&world, rank, runs] {
      for (std::uint64_t run = 0; run < runs && !testing::Test::HasFailure(); ++run) {
        world.fill(rank, run);
        world.queues[rank]->start();
        // Who has failed begins no other run, which others would wait for.
        while (!world.queues[rank]->advance()) {
          if (testing::Test::HasFailure()) return;
          std::this_thread::yield();
        }
        world.verify(rank, run);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_P(RunsOf, DoesWhatTheOperationSays) {
  const Algorithm& algorithm = *GetParam();
  for (const Rank ranks : {1U, 2U, 3U, 5U, 8U})
    for (const std::uint64_t bytes : {0U, 1U, 64U, 1003U}) {
      Request request{algorithm.operation, 0, ranks, ranks / 2, bytes, 1, bytes == 1003 ? 100U : 0U, {0, 0, 0}};
      if (ranks == 8) request.shape = {2, 2, 2};
      if (algorithm.refuses(request) != nullptr) continue;
      if (bytes == 0 && (algorithm.operation == Operation::gather || algorithm.operation == Operation::allgather ||
                         algorithm.operation == Operation::alltoall))
        continue;  // nothing to compare
      World world(algorithm, request);
      run_with_threads(world, 20);
      ASSERT_FALSE(HasFailure()) << algorithm.name << " ranks " << ranks << " bytes " << bytes;
    }
}

std::vector<const Algorithm*> all_algorithms() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& algorithm : algorithms()) all.push_back(&algorithm);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Table, RunsOf, testing::ValuesIn(all_algorithms()), [](const auto& row) {
  std::string name = row.param->name;
  for (char& c : name)
    if (c == '.') c = '_';
  return name;
});

// The ranks only start and wait for done(); two helpers advance all of them.
TEST(SessionQueue, IsAdvancedByAnybody) {
  const Algorithm& algorithm = *find_algorithm("allreduce.ring");
  World world(algorithm, {Operation::allreduce, 0, 4, 0, 4096, 1, 0, {0, 0, 0}});
  std::atomic<bool> stop{false};
  std::vector<std::thread> helpers;
  for (int i = 0; i < 2; ++i)
    helpers.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        for (const auto& queue : world.queues) static_cast<void>(queue->advance());
        std::this_thread::yield();
      }
    });
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&world, rank] {
      for (std::uint64_t run = 0; run < 300; ++run) {
        world.fill(rank, run);
        world.queues[rank]->start();
        while (!world.queues[rank]->done()) std::this_thread::yield();
        world.verify(rank, run);
      }
    });
  for (std::thread& thread : ranks) thread.join();
  stop = true;
  for (std::thread& thread : helpers) thread.join();
}

// One thread, all ranks, in random order: no run needs a second thread or another order.
TEST(SessionQueue, NeedsNoParticularOrder) {
  base::Random random(7);
  for (const char* name : {"broadcast.trinary", "allreduce.doubling", "alltoall.pairwise", "barrier.dissemination"}) {
    const Algorithm& algorithm = *find_algorithm(name);
    World world(algorithm, {algorithm.operation, 0, 7, 2, 24, 4, 8, {0, 0, 0}});
    std::vector<std::uint64_t> runs(7);
    std::uint64_t left = 7 * 50;
    for (Rank rank = 0; rank < 7; ++rank) {
      world.fill(rank, 0);
      world.queues[rank]->start();
    }
    while (left > 0) {
      const auto rank = static_cast<Rank>(random.below(7));
      if (runs[rank] == 50 || !world.queues[rank]->advance()) continue;
      world.verify(rank, runs[rank]);
      ++runs[rank];
      --left;
      if (runs[rank] == 50) continue;
      world.fill(rank, runs[rank]);
      world.queues[rank]->start();
    }
  }
}

}  // namespace
}  // namespace heddle::collective
