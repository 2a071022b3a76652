// Ranks that call different collectives all get an error, and can go on.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "api/test_job.hpp"

namespace heddle::test::collectives_test {
namespace {

struct Told {
  Status status = HEDDLE_DONE;
  std::string why;
};

// The collectives, each called as rank `context` would.
enum class Call { barrier, exchange, region_exchange, leave };

struct Member {
  heddle_context context{};
  heddle_worker worker{};
  heddle_region region{};

  Told call(Call what) const {
    std::array<std::uint64_t, 3> all{};
    std::array<heddle_remote_region, 3> regions{};
    const std::uint64_t mine = 7;
    Status status = HEDDLE_DONE;
    switch (what) {
      case Call::barrier:
        status = heddle_context_barrier(context, worker, HEDDLE_FOREVER);
        break;
      case Call::exchange:
        status = heddle_context_exchange(context, &mine, sizeof mine, all.data());
        break;
      case Call::region_exchange:
        status = heddle_region_exchange(context, region, regions.data());
        break;
      case Call::leave:
        status = heddle_context_leave(context);
        break;
    }
    return {status, status < 0 ? heddle_last_error() : ""};
  }
};

// After so many barriers further ones go by memory: the first asks for what the second finds.
constexpr int kToMemory = 3;

// Three ranks, each in a thread: `before` barriers, then rank 1 calls `odd`, the others `even`;
// then `after`.
class Mismatch {
 public:
  template <class After>
  Mismatch(int before, Call odd, Call even, After&& after) : job_(3, "shm") {
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        Member member;
        const heddle_context_options options{sizeof options, "inproc", "shm", job_.handle(), rank, nullptr};
        ASSERT_EQ(heddle_context_join(&options, &member.context), HEDDLE_DONE) << heddle_last_error();
        ASSERT_EQ(heddle_worker_open(member.context, nullptr, &member.worker), HEDDLE_DONE);
        ASSERT_EQ(heddle_region_alloc(member.context, 64, &member.region), HEDDLE_DONE);
        for (int i = 0; i < before; ++i) ASSERT_EQ(member.call(Call::barrier).status, HEDDLE_DONE);
        told[rank] = member.call(rank == 1 ? odd : even);
        after(rank, member);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::array<Told, 3> told;

 private:
  Job job_;
};

void expect_told(const Mismatch& mismatch, const char* odd, const char* even) {
  const std::string rule = ": all ranks call the same collectives in the same order";
  for (const std::uint32_t rank : {0U, 1U, 2U}) {
    EXPECT_EQ(mismatch.told[rank].status, HEDDLE_ERR_STATE) << "rank " << rank;
    const std::string expected = rank == 1 ? std::string("rank 0 is in ") + even + ", this rank in " + odd + rule
                                           : std::string("rank 1 is in ") + odd + ", this rank in " + even + rule;
    EXPECT_EQ(mismatch.told[rank].why, expected);
  }
}

// Number of barriers before.
class Collectives : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Barriers, Collectives, testing::Values(0, 1, kToMemory));

TEST_P(Collectives, ThatDifferAreRefusedOnAllRanksAndTheNextOnesAgree) {
  const std::vector<std::pair<Call, const char*>> calls = {{Call::barrier, "heddle_context_barrier"},
                                                           {Call::exchange, "heddle_context_exchange"},
                                                           {Call::region_exchange, "heddle_region_exchange"}};
  for (const auto& [odd, odd_name] : calls) {
    for (const auto& [even, even_name] : calls) {
      if (odd == even) continue;
      const Mismatch mismatch(GetParam(), odd, even, [](std::uint32_t, const Member& member) {
        for (const Call call : {Call::exchange, Call::barrier, Call::region_exchange, Call::barrier, Call::leave}) {
          const Told next = member.call(call);
          EXPECT_EQ(next.status, HEDDLE_DONE) << next.why;
        }
      });
      expect_told(mismatch, odd_name, even_name);
    }
  }
}

TEST_P(Collectives, LeavingWhileOthersAreInABarrierIsToldAndLeaves) {
  for (const auto& [even, name] :
       {std::pair{Call::barrier, "heddle_context_barrier"}, std::pair{Call::exchange, "heddle_context_exchange"}}) {
    const Mismatch mismatch(GetParam(), Call::leave, even, [](std::uint32_t rank, const Member& member) {
      // Rank 1 has left, so its handles are closed; the others leave without it.
      EXPECT_EQ(heddle_context_leave(member.context), rank == 1 ? HEDDLE_ERR_HANDLE : HEDDLE_DONE);
    });
    expect_told(mismatch, "heddle_context_leave", name);
  }
}

TEST(Exchange, TheLargestExchangeHasRoomBesideItsKind) {
  Job(2, "shm").run([](Context& context, Worker&) {
    const std::vector<std::byte> mine(std::size_t{1} << 20, static_cast<std::byte>(context.rank() + 1));
    const std::vector<std::byte> all = context.exchange(mine);
    ASSERT_EQ(all.size(), 2 * mine.size());
    EXPECT_EQ(std::count(all.begin(), all.begin() + (1 << 20), std::byte{1}), 1 << 20);
    EXPECT_EQ(std::count(all.begin() + (1 << 20), all.end(), std::byte{2}), 1 << 20);
    const std::vector<std::byte> more(mine.size() + 1);
    std::vector<std::byte> room(2 * more.size());
    EXPECT_EQ(heddle_context_exchange(context.handle(), more.data(), more.size(), room.data()), HEDDLE_ERR_SIZE);
  });
}

// All ranks at once, each in a thread.
template <class Body>
void together(std::array<Context, 3>& contexts, Body&& body) {
  std::vector<std::thread> threads;
  for (Context& context : contexts) threads.emplace_back([&context, &body] { body(context); });
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Collectives, ABarrierThatTimesOutNamesWhoIsMissing) {
  const Job job(3, "shm");
  std::array<Context, 3> contexts = {job.join(0), job.join(1), job.join(2)};
  together(contexts, [](const Context& context) {
    for (int i = 0; i < GetParam(); ++i) {
      EXPECT_EQ(heddle_context_barrier(context.handle(), {0}, HEDDLE_FOREVER), HEDDLE_DONE);
    }
  });
  EXPECT_EQ(heddle_context_barrier(contexts[0].handle(), {0}, 1'000'000), HEDDLE_ERR_TIMEOUT);
  EXPECT_STREQ(heddle_last_error(), "not all ranks have arrived within 1000000 ns: missing is rank 1, 2");
  EXPECT_EQ(heddle_context_barrier(contexts[1].handle(), {0}, 0), HEDDLE_ERR_TIMEOUT);
  EXPECT_STREQ(heddle_last_error(), "not all ranks have arrived within 0 ns: missing is rank 2");
  EXPECT_EQ(heddle_inproc_fail(job.handle(), 2), HEDDLE_DONE);
  together(contexts, [](Context& context) { context = {}; });
}

TEST_P(Collectives, ABarrierThatTimedOutIsGoneOnWith) {
  const Job job(3, "shm");
  std::array<Context, 3> contexts = {job.join(0), job.join(1), job.join(2)};
  together(contexts, [](const Context& context) {
    for (int i = 0; i < GetParam(); ++i) {
      EXPECT_EQ(heddle_context_barrier(context.handle(), {0}, HEDDLE_FOREVER), HEDDLE_DONE);
    }
  });
  EXPECT_EQ(heddle_context_barrier(contexts[0].handle(), {0}, 0), HEDDLE_ERR_TIMEOUT);
  std::uint64_t word = 0;
  EXPECT_EQ(heddle_context_exchange(contexts[0].handle(), &word, sizeof word, &word), HEDDLE_ERR_STATE);
  for (int round = 0; round < 3; ++round) {
    together(contexts, [](const Context& context) {
      EXPECT_EQ(heddle_context_barrier(context.handle(), {0}, HEDDLE_FOREVER), HEDDLE_DONE);
    });
  }
  together(contexts, [](Context& context) { context = {}; });
}

TEST_P(Collectives, ARankThatDiesBeforeItComesIsToldToAllOthers) {
  const Job job(3, "shm");
  std::array<Context, 3> contexts = {job.join(0), job.join(1), job.join(2)};
  std::atomic<int> waiting{0};
  together(contexts, [&](const Context& context) {
    for (int i = 0; i < GetParam(); ++i) {
      EXPECT_EQ(heddle_context_barrier(context.handle(), {0}, HEDDLE_FOREVER), HEDDLE_DONE);
    }
    if (context.rank() == 1) {  // it dies while the others wait, asleep for some time
      while (waiting.load() < 2) std::this_thread::yield();
      EXPECT_EQ(heddle_inproc_fail(job.handle(), 1), HEDDLE_DONE);
      return;
    }
    while (heddle_context_barrier(context.handle(), {0}, 3'000'000) == HEDDLE_ERR_TIMEOUT) ++waiting;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(heddle_context_barrier(context.handle(), {0}, HEDDLE_FOREVER), HEDDLE_ERR_PEER_FAILED);
    }
  });
  together(contexts, [](Context& context) { context = {}; });
}

// Some have met the dead rank by then, and some have not: all go on alike.
TEST(Exchange, ADeathAfterAllHaveExchangedIsTheSameToAll) {
  constexpr std::uint32_t kRanks = 8;
  constexpr std::uint32_t kDead = 1;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const Job job(kRanks, "shm");
    std::vector<Context> contexts;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) contexts.push_back(job.join(rank));
    std::array<Status, kRanks> outcomes{};
    const auto body = [&](std::uint32_t rank) {
      const heddle_context context = contexts[rank].handle();
      heddle_region mine{};
      std::array<heddle_remote_region, kRanks> all{};
      EXPECT_EQ(heddle_region_alloc(context, 4096, &mine), HEDDLE_DONE);
      outcomes.at(rank) = heddle_region_exchange(context, mine, all.data());
      if (rank == kDead) {
        EXPECT_EQ(heddle_inproc_fail(job.handle(), kDead), HEDDLE_DONE);
        return;
      }
      if (outcomes.at(rank) != HEDDLE_DONE) return;
      // It was mapped before the death, or never is.
      void* place = nullptr;
      const Status mapped = heddle_remote_pointer({all[kDead], 0}, &place);
      EXPECT_TRUE(mapped == HEDDLE_DONE || mapped == HEDDLE_ERR_PEER_FAILED) << heddle_last_error();
      std::uint64_t bytes = 0;
      EXPECT_EQ(heddle_remote_region_bytes(all[kDead], &bytes), HEDDLE_DONE);
      EXPECT_EQ(bytes, 4096U);
      for (const heddle_remote_region region : all) EXPECT_EQ(heddle_remote_region_release(region), HEDDLE_DONE);
    };
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
    for (std::uint32_t rank = 0; rank < kRanks; ++rank)
      EXPECT_EQ(outcomes.at(rank), HEDDLE_DONE) << "rank " << rank << " in round " << round;
    threads.clear();
    for (Context& context : contexts) threads.emplace_back([&context] { context = {}; });
    for (std::thread& thread : threads) thread.join();
  }
}

// Data written before a barrier is read after it, while ranks come and wait in every order, by
// memory and otherwise.
TEST(Exchange, BarriersAndExchangesInTurnKeepTheirOrder) {
  constexpr std::uint32_t kRanks = 4;
  constexpr int kRounds = 2000;
  std::array<std::array<std::uint64_t, 64>, kRanks> said{};
  Job(kRanks, "shm").run([&](Context& context, Worker& worker) {
    const std::uint32_t me = context.rank();
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      said[me][0] = round;
      if (round % 97 == 0) {
        const std::uint64_t mine = round;
        std::array<std::uint64_t, kRanks> all{};
        ASSERT_EQ(heddle_context_exchange(context.handle(), &mine, sizeof mine, all.data()), HEDDLE_DONE);
        ASSERT_EQ(all[(me + 1) % kRanks], round);
      } else {
        context.barrier(worker);
      }
      for (std::uint32_t rank = 0; rank < kRanks; ++rank) ASSERT_EQ(said[rank][0], round);
      context.barrier(worker);
    }
  });
}

}  // namespace
}  // namespace heddle::test::collectives_test
