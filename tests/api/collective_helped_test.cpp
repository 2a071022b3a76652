// Helpers and collectives: if a helper loses its core inside an operation, a thread that waits for
// the operation fetches it. A barrier orders the work that a helper has done for other ranks.
#include <sched.h>

#include <atomic>

#include "api/test_collective.hpp"
#include "api/test_loaded.hpp"
#include "base/wait.hpp"
#include "queue/locks.hpp"

namespace heddle::test::collective_helped_test {
namespace {

// The sum of bytes; a helper of the lowest priority stays inside until it is brought to another
// core.
struct PutAside {
  std::atomic<int> inside_on{-1};  // the helper's core
  std::atomic<bool> brought{false};
};

void add_put_aside(void* inout, const void* in, std::size_t bytes, const void* arg) {
  auto* test = static_cast<PutAside*>(const_cast<void*>(arg));
  auto* to = static_cast<std::uint8_t*>(inout);
  const auto* from = static_cast<const std::uint8_t*>(in);
  for (std::size_t i = 0; i < bytes; ++i) to[i] = static_cast<std::uint8_t>(to[i] + from[i]);
  if (queue::this_helper() == 0 || test->inside_on.load() >= 0) return;
  cpu_set_t home;
  sched_getaffinity(0, sizeof home, &home);
  test->inside_on.store(sched_getcpu());
  cpu_set_t now = home;
  within_time([&] {
    sched_yield();
    sched_getaffinity(0, sizeof now, &now);
    return !CPU_EQUAL(&now, &home);
  });
  test->brought.store(!CPU_EQUAL(&now, &home));
}

TEST(HelpedCollectives, AHelperThatWasPutAsideInsideIsFetched) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "skipped: needs two cores";
  const Variables variables(std::vector<std::pair<const char*, const char*>>{{"HEDDLE_PROGRESS", "idle"}});
  PutAside test;
  std::atomic<bool> outside{false};
  const LoadedMachine loaded;
  run_members(2, "shm", [&](const Member& member) {
    const heddle_reduction sum{static_cast<heddle_type>(0), static_cast<heddle_operator>(0), add_put_aside, &test, 1};
    std::array<std::uint8_t, 64> send{};
    std::array<std::uint8_t, 64> receive{};
    send.fill(static_cast<std::uint8_t>(1 + member.rank()));
    heddle_collective made{};
    must(heddle_reduce_init(member.world.handle(), send.data(), receive.data(), send.size(), &sum, 0, nullptr, &made),
         "init");
    // Rank 0 begins first, so that only its helper can combine.
    if (member.rank() == 0) must(heddle_collective_start(made), "start");
    must(heddle_barrier(member.world.handle()), "barrier");
    if (member.rank() == 0) outside.store(true);
    if (member.rank() == 1) {
      must_be(within_time([&] { return outside.load(); }), "rank 0 calls nothing any more");
      must(heddle_collective_start(made), "start");
    }
    if (member.rank() == 0) {
      heddle::base::Nap off_the_core;
      must_be(within_time([&] { return test.inside_on.load() >= 0; }, [&] { off_the_core.take(); }),
              "a helper has come inside");
      cpu_set_t mine = all;
      CPU_CLR(test.inside_on.load(), &mine);
      must_be(sched_setaffinity(0, sizeof mine, &mine) == 0, "this thread is on another core");
    }
    must(heddle_collective_wait(made, HEDDLE_FOREVER), "wait");
    if (member.rank() == 0) must_be(receive[63] == 3, "the sum is right");
    must(heddle_collective_free(made), "free");
  });
  EXPECT_TRUE(test.brought.load()) << "it was left where it was";
}

// A missing order shows on machines with weak memory, and to ThreadSanitizer, which does not see
// the synchronisation through the other rank.
TEST(HelpedCollectives, ABarrierOrdersWhatAHelperHasExecuted) {
  const Variables variables(std::vector<std::pair<const char*, const char*>>{
      {"HEDDLE_PROGRESS", "dedicated:1"}, {"HEDDLE_SHM_DIRECT", "0"}, {"HEDDLE_SHM_CMA", "0"}});
  constexpr std::uint64_t kRounds = 20;
  constexpr std::size_t kLong = 512;       // words
  constexpr std::size_t kPut = kLong + 2;  // words that rank 0 changes; it gets those behind them
  std::atomic<std::uint64_t> executed{0};  // rounds; relaxed: it orders nothing
  run_members(2, "shm", [&](const Member& member) {
    Worker worker = member.context.open_worker();
    const Region region = member.context.alloc((kPut + kLong) * sizeof(std::uint64_t));
    const auto remotes = member.context.exchange(region);
    const auto words = region.memory<std::uint64_t>();
    const auto changed = words.first(kPut);
    const auto got = words.subspan(kPut, kLong);
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      if (member.rank() == 0) {
        const RemoteRegion& there = remotes[1];
        const std::vector<std::uint64_t> sent(kLong, round);
        const auto bytes = std::as_bytes(std::span(sent));
        must(worker.put(bytes, there.at(0)), "put");
        must(worker.put(bytes.first(sizeof(std::uint64_t)), there.at(bytes.size())), "short put");
        must(worker.atomic(HEDDLE_ADD64, there.at(bytes.size() + sizeof(std::uint64_t)), 1), "atomic");
        std::vector<std::uint64_t> seen(kLong);
        must(worker.get(std::as_writable_bytes(std::span(seen)), there.at(kPut * sizeof(std::uint64_t))), "get");
        must(worker.quiet(), "quiet");
        must_be(seen == std::vector<std::uint64_t>(kLong, round - 1), "what was there is got");
        executed.store(round, std::memory_order_relaxed);
      } else {  // executes nothing itself meanwhile
        must_be(within_time([&] { return executed.load(std::memory_order_relaxed) >= round; }), "the helper executes");
      }
      must(heddle_barrier(member.world.handle()), "barrier");
      if (member.rank() == 1) {
        must_be(std::all_of(changed.begin(), changed.end(), [&](std::uint64_t word) { return word == round; }),
                "all has come");
        std::fill(got.begin(), got.end(), round);
      }
      must(heddle_barrier(member.world.handle()), "barrier");
    }
  });
}

}  // namespace
}  // namespace heddle::test::collective_helped_test
