// All algorithms, run by threads on the memory of one process, compared with the specification of
// the operation; and which threads may advance a queue.
#include "collective/session_queue.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>

#include "base/random.hpp"
#include "base/test_support.hpp"
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective::session_queue_test {
namespace {

void add_bytes(void* inout, const void* in, std::uint64_t bytes, const void* /*argument*/) {
  auto* to = static_cast<std::uint8_t*>(inout);
  const auto* from = static_cast<const std::uint8_t*>(in);
  for (std::uint64_t i = 0; i < bytes; ++i) to[i] = static_cast<std::uint8_t>(to[i] + from[i]);
}

// The memory and the queues of all ranks of one operation.
struct World {
  AlgorithmRequest request;
  std::vector<std::array<std::vector<std::byte>, 3>> bytes;
  std::vector<std::vector<CounterWord>> counters;
  std::vector<RankMemory> ranks;
  std::vector<Schedule> schedules;
  std::vector<std::unique_ptr<SessionQueue>> queues;

  // `bind`: changes how a rank sees the others' memory.
  using Bind = std::function<void(Rank rank, std::vector<RankMemory>& seen)>;
  World(const Algorithm& algorithm, const AlgorithmRequest& asked, const Bind& bind = {})
      : request(asked), bytes(asked.ranks), counters(asked.ranks) {
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
    for (const Schedule& schedule : schedules) {
      std::vector<RankMemory> seen = ranks;
      if (bind) bind(schedule.rank, seen);
      queues.push_back(std::make_unique<SessionQueue>(schedule, seen, Reduction{add_bytes, nullptr}));
    }
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
      case Operation::gatherv:
      case Operation::allgatherv:
        return given(run, static_cast<Rank>(i / n), i % n);
      case Operation::scatter:
      case Operation::scatterv:
        return given(run, request.root, rank * n + i);
      case Operation::alltoall:
      case Operation::alltoallv:
        return given(run, static_cast<Rank>(i / n), rank * n + i % n);
      case Operation::neighbor_alltoallv:  // a ring
        return i < n ? given(run, (rank + request.ranks - 1) % request.ranks, i)
                     : given(run, (rank + 1) % request.ranks, i);
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
        // A failed thread begins no other run, for which others would wait.
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
    for (const std::uint64_t bytes : {0U, 1U, 48U, 64U, 1003U}) {
      AlgorithmRequest request{algorithm.operation,       0,        ranks, ranks / 2, bytes, 1,
                               bytes == 1003 ? 100U : 0U, {0, 0, 0}};
      if (ranks == 8) request.shape = {2, 2, 2};
      if (algorithm.rejects(request) != nullptr) continue;
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

std::string name_of_row(const testing::TestParamInfo<const Algorithm*>& row) {
  std::string name = row.param->name;
  for (char& c : name)
    if (c == '.') c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Table, RunsOf, testing::ValuesIn(all_algorithms()), name_of_row);

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

// A network that delivers everything late and out of order, and sometimes rejects puts.
class Network {
 public:
  explicit Network(std::uint64_t seed) : random_(seed) {}
  bool takes() { return random_.below(4) != 0; }
  void add(std::function<void()> arrival) { under_way_.push_back(std::move(arrival)); }
  void deliver_one() {
    if (under_way_.empty()) return;
    std::swap(under_way_[random_.below(under_way_.size())], under_way_.back());
    const std::function<void()> arrival = std::move(under_way_.back());
    under_way_.pop_back();
    arrival();
  }
  [[nodiscard]] bool empty() const { return under_way_.empty(); }
  base::Random& random() { return random_; }

 private:
  base::Random random_;
  std::vector<std::function<void()>> under_way_;
};

class LateCarrier final : public Carrier {
 public:
  LateCarrier(Network& network, RankMemory target) : network_(network), target_(target) {}
  bool put(const std::byte* source, std::uint64_t bytes, Place place, std::uint64_t offset,
           std::atomic<std::int32_t>* ended) override {
    if (!network_.takes()) return false;
    std::byte* to = place == Place::beside ? reinterpret_cast<std::byte*>(target_.counters) + beside_at(offset)
                                           : target_.places[static_cast<std::size_t>(place)] + offset;
    network_.add([=, this] {
      if (lost_ != HEDDLE_DONE) return ended->store(lost_);
      std::memcpy(to, source, bytes);
      ended->store(kThere);
    });
    return true;
  }
  base::Status give(std::uint32_t counter, std::uint64_t credits) override {
    if (credits_lost_ != HEDDLE_DONE) return credits_lost_;
    if (!network_.takes()) return HEDDLE_AGAIN;
    network_.add([word = target_.counters + counter, credits] { word->credits.fetch_add(credits); });
    return HEDDLE_POSTED;
  }
  void lose(base::Status status) { lost_ = status; }
  void lose_credits(base::Status status) { credits_lost_ = status; }

 private:
  Network& network_;
  const RankMemory target_;
  base::Status lost_ = HEDDLE_DONE;
  base::Status credits_lost_ = HEDDLE_DONE;
};

struct CarriedWorld {
  Network network{11};
  std::vector<std::unique_ptr<LateCarrier>> carriers;
  World world;
  CarriedWorld(const Algorithm& algorithm, const AlgorithmRequest& request)
      : world(algorithm, request, [this](Rank rank, std::vector<RankMemory>& seen) {
          for (Rank other = 0; other < seen.size(); ++other) {
            carriers.push_back(std::make_unique<LateCarrier>(network, seen[other]));
            seen[other].carrier = carriers.back().get();
            if (other != rank) seen[other].places = {};  // this rank must not touch them
            if (other != rank) seen[other].counters = nullptr;
          }
        }) {}
};

class CarriedRunsOf : public testing::TestWithParam<const Algorithm*> {};

TEST_P(CarriedRunsOf, DoesWhatTheOperationSays) {
  const Algorithm& algorithm = *GetParam();
  for (const auto& [ranks, bytes] : {std::pair{2U, 103U}, {3U, 103U}, {8U, 103U}, {2U, 20U}, {5U, 20U}}) {
    AlgorithmRequest request{algorithm.operation, 0, ranks, ranks / 2, bytes, 1, 20U, {0, 0, 0}};
    if (ranks == 8) request.shape = {2, 2, 2};
    if (algorithm.rejects(request) != nullptr) continue;
    CarriedWorld carried(algorithm, request);
    World& world = carried.world;
    constexpr std::uint64_t kRuns = 10;
    std::vector<std::uint64_t> runs(ranks);
    for (Rank rank = 0; rank < ranks; ++rank) {
      world.fill(rank, 0);
      world.queues[rank]->start();
    }
    for (Rank left = ranks; left > 0;) {
      carried.network.deliver_one();
      const auto rank = static_cast<Rank>(carried.network.random().below(ranks));
      if (runs[rank] == kRuns || !world.queues[rank]->advance()) continue;
      world.verify(rank, runs[rank]);
      ASSERT_FALSE(HasFailure()) << algorithm.name << " ranks " << ranks;
      if (++runs[rank] == kRuns) {
        --left;
        continue;
      }
      world.fill(rank, runs[rank]);
      world.queues[rank]->start();
    }
  }
}

// Algorithms that do not read others' memory.
std::vector<const Algorithm*> algorithms_of_puts() {
  std::vector<const Algorithm*> all = all_algorithms();
  std::erase_if(all, [](const Algorithm* algorithm) { return algorithm->gets; });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Table, CarriedRunsOf, testing::ValuesIn(algorithms_of_puts()), name_of_row);

// A failed put ends the run of the rank that put, but only after the other puts have left.
TEST(SessionQueue, TellsWhatACarrierCouldNotBring) {
  const Algorithm& algorithm = *find_algorithm("scatter.linear");
  CarriedWorld carried(algorithm, {Operation::scatter, 0, 4, 0, 64, 1, 0, {0, 0, 0}});
  World& world = carried.world;
  carried.carriers[2]->lose(HEDDLE_ERR_PEER_FAILED);  // from the root to rank 2
  for (Rank rank = 0; rank < 4; ++rank) {
    world.fill(rank, 0);
    world.queues[rank]->start();
  }
  while (!world.queues[0]->done()) {
    for (Rank rank = 0; rank < 4; ++rank) static_cast<void>(world.queues[rank]->advance());
    carried.network.deliver_one();
  }
  EXPECT_EQ(world.queues[0]->status(), HEDDLE_ERR_PEER_FAILED);
}

TEST(SessionQueue, TellsWhichCreditsCouldNotBeGiven) {
  const Algorithm& algorithm = *find_algorithm("scatter.linear");
  CarriedWorld carried(algorithm, {Operation::scatter, 0, 4, 0, 64, 1, 0, {0, 0, 0}});
  World& world = carried.world;
  carried.carriers[2]->lose_credits(HEDDLE_ERR_NO_MEMORY);
  for (Rank rank = 0; rank < 4; ++rank) {
    world.fill(rank, 0);
    world.queues[rank]->start();
  }
  while (!world.queues[0]->done()) {
    for (Rank rank = 0; rank < 4; ++rank) static_cast<void>(world.queues[rank]->advance());
    carried.network.deliver_one();
  }
  EXPECT_EQ(world.queues[0]->status(), HEDDLE_ERR_NO_MEMORY);
}

TEST(SessionQueue, EndsWhenItIsToldThatAPeerHasFailed) {
  const Algorithm& algorithm = *find_algorithm("allreduce.doubling");
  CarriedWorld carried(algorithm, {Operation::allreduce, 0, 2, 0, 64, 1, 0, {0, 0, 0}});
  SessionQueue& queue = *carried.world.queues[0];
  queue.start();  // the other rank never does
  while (carried.network.empty()) static_cast<void>(queue.advance());
  queue.fail(HEDDLE_ERR_PEER_FAILED);
  EXPECT_FALSE(queue.advance()) << "its bytes are still on their way";
  carried.network.deliver_one();
  EXPECT_TRUE(queue.advance());
  EXPECT_EQ(queue.status(), HEDDLE_ERR_PEER_FAILED);
}

}  // namespace
}  // namespace heddle::collective::session_queue_test
