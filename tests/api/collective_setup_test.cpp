// The set-up of operations: memory of their own for slots, wrong arguments at one member and at
// all, progress by other waits.
#include <algorithm>
#include <cstring>
#include <vector>

#include "api/test_collective.hpp"

namespace heddle::test::collective_setup_test {
namespace {

const heddle_reduction kSum{HEDDLE_UINT64, HEDDLE_SUM, nullptr, nullptr, 0};

// The root's slots are too large for the arena, and lie in a region of their own; the other has
// none.
TEST(CollectiveSetup, SlotsOfOneMemberMayHaveARegionOfTheirOwn) {
  run_members(2, "shm", [](Member& member) {
    constexpr std::size_t kCount = 256 * 1024;
    std::vector<std::uint64_t> send(kCount, member.rank() + 1);
    std::vector<std::uint64_t> receive(kCount);
    heddle_collective reduce{};
    must(heddle_reduce_init(member.world.handle(), send.data(), receive.data(), kCount, &kSum, 0, nullptr, &reduce),
         "init");
    for (int run = 0; run < 3; ++run) {
      must(heddle_collective_start(reduce), "start");
      must(heddle_collective_wait(reduce, HEDDLE_FOREVER), "wait");
    }
    if (member.rank() == 0) must_be(receive.front() == 3 && receive.back() == 3, "the sum");
    must(heddle_collective_free(reduce), "free");
  });
}

TEST(CollectiveSetup, AWrongAlgorithmLeavesTheTeamAsItWas) {
  run_members(2, "shm", [](Member& member) {
    const heddle_collective_options wrong{sizeof(heddle_collective_options), "broadcast.none", 0};
    std::uint64_t word = member.rank();
    heddle_collective made{};
    const Status status = heddle_broadcast_init(member.world.handle(), &word, 8, 0, &wrong, &made);
    must_be(status == HEDDLE_ERR_ARGUMENT, "there is no such algorithm");
    heddle_team team{};
    must(heddle_team_split(member.world.handle(), 0, member.rank(), &team), "split");
    must_be(heddle_broadcast_init(team, &word, 8, 0, &wrong, &made) == HEDDLE_ERR_ARGUMENT, "nor here");
    must(heddle_broadcast_init(team, &word, 8, 0, nullptr, &made), "init");
    must_be(heddle_team_free(team) == HEDDLE_ERR_STATE, "an operation is open");
    must(heddle_collective_free(made), "free");
    must(heddle_barrier(member.world.handle()), "barrier");
    must(heddle_team_free(team), "the last is freed");
  });
}

struct alignas(16) Wide {
  std::uint64_t low;
  std::uint64_t high;
};

void add_wide(void* inout, const void* in, std::size_t bytes, const void* misaligned) {
  for (const void* address : {static_cast<const void*>(inout), in}) {
    if (reinterpret_cast<std::uintptr_t>(address) % alignof(Wide) != 0)
      static_cast<std::atomic<bool>*>(const_cast<void*>(misaligned))->store(true);
  }
  for (std::size_t i = 0; i < bytes / sizeof(Wide); ++i) {
    Wide a;
    Wide b;
    std::memcpy(&a, static_cast<std::byte*>(inout) + i * sizeof a, sizeof a);
    std::memcpy(&b, static_cast<const std::byte*>(in) + i * sizeof b, sizeof b);
    a = {a.low + b.low, a.high + b.high};
    std::memcpy(static_cast<std::byte*>(inout) + i * sizeof a, &a, sizeof a);
  }
}

TEST(CollectiveSetup, ElementsOfSixteenBytesAreAligned) {
  std::atomic<bool> misaligned{false};
  for (const std::uint32_t ranks : {2U, 3U, 5U}) {
    run_members(ranks, "shm", [&](Member& member) {
      const heddle_reduction sum{{}, {}, add_wide, &misaligned, sizeof(Wide)};
      for (const std::size_t count : {1U, 3U, 100U}) {
        const std::vector<Wide> send(count, Wide{1, member.rank()});
        std::vector<Wide> receive(count);
        must(heddle_allreduce(member.world.handle(), send.data(), receive.data(), count, &sum), "allreduce");
        must_be(receive.back().low == ranks && receive.back().high == ranks * (ranks - 1) / 2, "the sum");
        must(heddle_scan(member.world.handle(), send.data(), receive.data(), count, &sum), "scan");
        must_be(receive.back().low == member.rank() + 1, "the sum so far");
      }
    });
  }
  EXPECT_FALSE(misaligned);
}

// Blocking calls go in pieces: the whole has to agree.
TEST(CollectiveSetup, LengthsThatDifferByWholePiecesAreTold) {
  run_members(2, "shm", [](Member& member) {
    std::vector<std::byte> data(192 << 10);
    const std::size_t bytes = member.rank() == 0 ? data.size() : 128U << 10U;
    must_be(heddle_broadcast(member.world.handle(), data.data(), bytes, 0) == HEDDLE_ERR_ARGUMENT, "they differ");
    must(heddle_broadcast(member.world.handle(), data.data(), data.size(), 0), "the team goes on");
  });
}

// Members keep operations, and know of each other that they do: calls that differ must not change
// that. Before, the second right call was in pieces at one member only.
TEST(CollectiveSetup, CallsThatDifferLeaveNothingBehind) {
  run_members(2, "shm", [](Member& member) {
    constexpr std::size_t kLengths[] = {70'000, 300'000};
    std::vector<std::byte> send(2 * 300'032);
    std::vector<std::byte> receive(2 * 300'032);
    const auto call = [&](std::size_t bytes) {
      return heddle_alltoall(member.world.handle(), send.data(), receive.data(), bytes);
    };
    for (const std::size_t bytes : kLengths) {
      for (std::size_t turn = 0; turn < 3; ++turn) {
        must_be(call(bytes + turn * 8 + member.rank() * 4) == HEDDLE_ERR_ARGUMENT, "they differ");
        for (int again = 0; again < 5; ++again) must(call(bytes + turn * 8), "the team goes on");
      }
    }
  });
}

// A call in pieces that is kept sets nothing up between its pieces: there the root of a broadcast
// is ahead, and would remain so if the set-up failed. So its second call waits for nobody.
TEST(CollectiveSetup, ARootIsACallAhead) {
  for (const std::uint32_t ranks : {2U, 3U}) {
    run_members(ranks, "shm", [&](Member& member) {
      const Worker worker = member.context.open_worker();
      std::vector<std::uint8_t> data(ranks == 2 ? 150'000 : 600'000);
      const heddle_team team = member.world.handle();
      const auto call = [&](std::uint8_t value) {
        if (member.rank() == 0) std::fill(data.begin(), data.end(), value);
        must(heddle_broadcast(team, data.data(), data.size(), 0), "broadcast");
        const auto is_value = [&](std::uint8_t one) { return one == value; };
        must_be(std::all_of(data.begin(), data.end(), is_value), "broadcast " + std::to_string(value));
      };
      for (std::uint8_t value = 1; value < 40; value += 2) {
        call(value);
        if (member.rank() != 0) {
          heddle_receive receive{};
          constexpr heddle_wanted kAhead{{0, 0}, 1, ~std::uint64_t{0}};
          must(heddle_recv(worker.handle(), &kAhead, nullptr, 0, &receive, nullptr), "receive");
          must(heddle_recv_wait(worker.handle(), &receive, HEDDLE_FOREVER), "wait");
        }
        call(static_cast<std::uint8_t>(value + 1));
        for (std::uint32_t to = 1; to < ranks && member.rank() == 0; ++to)
          must(heddle_send(worker.handle(), {to, 0}, 1, nullptr, 0, nullptr), "send");
      }
    });
  }
}

// Many lengths on many teams: operations that are kept do not use up the memory that teams share.
TEST(CollectiveSetup, WhatIsKeptMakesRoom) {
  const std::vector<std::pair<const char*, const char*>> variables = {{"HEDDLE_COLLECTIVE_BYTES", "1M"}};
  const Variables little(variables);
  run_members(4, "shm", [](Member& member) {
    std::vector<Team> teams;
    for (int i = 0; i < 6; ++i) teams.push_back(member.world.split(0, member.world.rank()));
    std::vector<std::byte> send(4 * 100'000);
    std::vector<std::byte> receive(4 * 100'000);
    for (const Team& team : teams) {
      for (std::size_t bytes = 30'000; bytes < 100'000; bytes += 10'000) {
        for (int again = 0; again < 3; ++again) {
          std::fill(send.begin(), send.end(), static_cast<std::byte>(team.rank() + again));
          must(heddle_alltoall(team.handle(), send.data(), receive.data(), bytes), "alltoall");
          for (std::uint32_t from = 0; from < 4; ++from) {
            must_be(receive[from * bytes] == static_cast<std::byte>(from + again) &&
                        receive[(from + 1) * bytes - 1] == static_cast<std::byte>(from + again),
                    "blocks of " + std::to_string(bytes));
          }
          must(heddle_broadcast(team.handle(), send.data(), bytes * 4, 1), "broadcast");
          must_be(send[bytes * 4 - 1] == static_cast<std::byte>(1 + again), "the root's");
        }
      }
    }
  });
}

// Rank 1 waits for the part of rank 0, which is in a barrier of the context.
TEST(CollectiveSetup, WhatIsUnderWayMovesInOtherWaits) {
  for (const char* transport : {"shm", "loopback", "loopback-messages"}) {
    run_members(2, transport, [](Member& member) {
      std::vector<std::uint64_t> data(20'000, member.rank() + 5);
      heddle_collective broadcast{};
      must(heddle_broadcast_start(member.world.handle(), data.data(), data.size() * 8, 1, &broadcast), "start");
      if (member.rank() == 0) must(heddle_collective_wait(broadcast, HEDDLE_FOREVER), "wait");
      must(heddle_context_barrier(member.context.handle(), {}, HEDDLE_FOREVER), "barrier");
      if (member.rank() == 1) must(heddle_collective_wait(broadcast, HEDDLE_FOREVER), "wait");
      must_be(data.back() == 6, "the root's");
    });
  }
}

// The internal worker has the last number. If the application has taken all numbers, every rank
// gets the error, as often as it asks.
TEST(CollectiveSetup, ATeamNeedsAWorkerWhereMemoryIsNotMapped) {
  const std::vector<std::pair<const char*, const char*>> few = {{"HEDDLE_MAX_WORKERS", "2"}};
  const Variables variables(few);
  const Job job(2, "loopback-messages");
  std::vector<std::thread> ranks;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&job, rank] {
      Context context = job.join(rank);
      std::vector<Worker> workers;
      for (int i = 0; i < (rank == 0 ? 2 : 1); ++i) workers.push_back(context.open_worker());
      for (int i = 0; i < 2; ++i) {
        heddle_team team{};
        EXPECT_EQ(heddle_team_world(context.handle(), &team), HEDDLE_ERR_NO_MEMORY) << heddle_last_error();
        EXPECT_NE(std::string(heddle_last_error()).find("rank 0"), std::string::npos) << heddle_last_error();
      }
    });
  }
  for (std::thread& thread : ranks) thread.join();
}

TEST(CollectiveSetup, RanksThatReachEachOtherDifferentlyAreTold) {
  const Job job(2, "shm");
  const auto make = [](Context& context) {
    heddle_team team{};
    EXPECT_EQ(heddle_team_world(context.handle(), &team), HEDDLE_ERR_CONFIG) << heddle_last_error();
    EXPECT_NE(std::string(heddle_last_error()).find("HEDDLE_SHM_DIRECT"), std::string::npos) << heddle_last_error();
  };
  Context first = job.join(0);
  const std::vector<std::pair<const char*, const char*>> unmapped = {{"HEDDLE_SHM_DIRECT", "0"}};
  const Variables variables(unmapped);
  Context second = job.join(1);
  std::thread other([&] {
    make(first);
    first = Context();
  });
  make(second);
  second = Context();
  other.join();
}

}  // namespace
}  // namespace heddle::test::collective_setup_test
