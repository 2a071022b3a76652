// Reductions through the interface: types, functions of the program, the same bits everywhere; the
// wrappers of C++.
#include <array>
#include <complex>
#include <random>

#include "api/test_collective.hpp"

namespace heddle::test::collective_reductions_test {
namespace {

template <class T>
T number(std::uint32_t n) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(n);
  } else {
    return T(static_cast<typename T::value_type>(n));
  }
}

template <class T>
void sum_and_max(const Member& member, T unit) {
  const std::uint32_t ranks = member.world.size();
  const T sum = unit * number<T>(ranks * (ranks + 1) / 2);
  const T mine = unit * number<T>(member.rank() + 1);
  must_be(member.world.allreduce(mine, HEDDLE_SUM) == sum, "the sum");
  if constexpr (std::is_arithmetic_v<T>) {
    must_be(member.world.allreduce(mine, HEDDLE_MAX) == unit * number<T>(ranks), "the maximum");
    must_be(member.world.allreduce(mine, HEDDLE_MIN) == unit, "the minimum");
  }
}

TEST(Reductions, OfEveryType) {
  run_members(4, "shm", [](const Member& member) {
    sum_and_max<std::int8_t>(member, 1);
    sum_and_max<std::int16_t>(member, 300);
    sum_and_max<std::int32_t>(member, 70'000);
    sum_and_max<std::int64_t>(member, std::int64_t{1} << 40);
    sum_and_max<std::uint8_t>(member, 1);
    sum_and_max<std::uint16_t>(member, 300);
    sum_and_max<std::uint32_t>(member, 70'000);
    sum_and_max<std::uint64_t>(member, std::uint64_t{1} << 40);
    sum_and_max<float>(member, 0.5F);
    sum_and_max<double>(member, 0.25);
    sum_and_max<std::complex<float>>(member, {0.5F, -2});
    sum_and_max<std::complex<double>>(member, {0.25, 3});
    must_be(member.world.allreduce<std::uint32_t>(1U << member.rank(), HEDDLE_BOR) == 15U, "or");
    must_be(member.world.allreduce<std::int32_t>(member.rank() == 2 ? 0 : 5, HEDDLE_LAND) == 0, "and");
  });
}

struct Longest {
  std::uint64_t length;
  std::uint32_t rank;
  std::uint32_t checksum;
  std::array<std::uint64_t, 3> more;
};

struct Calls {
  std::atomic<int> inside{0};
  std::atomic<int> wrong{0};
};

void longest(void* inout, const void* in, std::size_t bytes, const void* arg) {
  auto* calls = static_cast<Calls*>(const_cast<void*>(arg));
  if (calls->inside.fetch_add(1) != 0 || bytes % sizeof(Longest) != 0 ||
      reinterpret_cast<std::uintptr_t>(in) % alignof(Longest) != 0) {
    calls->wrong.fetch_add(1);
  }
  auto* to = static_cast<Longest*>(inout);
  const auto* from = static_cast<const Longest*>(in);
  for (std::size_t i = 0; i < bytes / sizeof(Longest); ++i) {
    if (from[i].length > to[i].length || (from[i].length == to[i].length && from[i].rank < to[i].rank)) to[i] = from[i];
  }
  calls->inside.fetch_sub(1);
}

// Elements of 40 bytes, which no algorithm cuts.
TEST(Reductions, ByAFunctionOfTheProgram) {
  for (const char* algorithm : {"allreduce.doubling", "allreduce.ring", "allreduce.kept_ring"}) {
    for (const char* transport : {"shm", "loopback-messages"}) {
      run_members(3, transport, [&](const Member& member) {
        constexpr std::size_t kCount = 50;
        Calls calls;
        const heddle_reduction how{static_cast<heddle_type>(0), static_cast<heddle_operator>(0), longest, &calls,
                                   sizeof(Longest)};
        const heddle_collective_options options{sizeof options, algorithm, 0};
        std::vector<Longest> mine(kCount);
        std::vector<Longest> all(kCount);
        const Persistent operation =
            member.world.make<heddle_allreduce_init>(mine.data(), all.data(), kCount, &how, &options);
        must_be(std::string(operation.algorithm()) == algorithm, "it is that algorithm");
        for (std::uint64_t run = 0; run < 5; ++run) {
          const auto length = [run](std::uint32_t rank, std::size_t i) { return (rank * 5 + i * 3 + run) % 7; };
          for (std::size_t i = 0; i < kCount; ++i) {
            mine[i] = {length(member.rank(), i), member.rank(), static_cast<std::uint32_t>(i), {i, i + 1, run}};
          }
          must(operation.start(), "start");
          must(operation.wait(), "wait");
          for (std::size_t i = 0; i < kCount; ++i) {
            std::uint32_t best = 0;
            for (std::uint32_t rank = 1; rank < 3; ++rank) {
              if (length(rank, i) > length(best, i)) best = rank;
            }
            must_be(all[i].rank == best && all[i].checksum == i && all[i].more[2] == run, "the longest is found");
          }
        }
        must_be(calls.wrong == 0, "one call at a time, whole elements, aligned");
      });
      ASSERT_FALSE(HasFailure()) << transport;
    }
  }
}

// Sums that round differently in every order have the same bits at all ranks, and again in the next
// run.
TEST(Reductions, HaveTheSameBitsEverywhere) {
  for (const char* algorithm : {"allreduce.doubling", "allreduce.ring", "allreduce.kept_ring"}) {
    for (const std::uint32_t ranks : {2U, 3U, 5U, 8U}) {
      run_members(ranks, "shm", [&](const Member& member) {
        constexpr std::size_t kCount = 301;
        std::mt19937_64 random(member.rank());
        std::uniform_real_distribution<double> any(-1, 1);
        std::vector<double> mine(kCount);
        for (double& each : mine) each = any(random);
        std::vector<double> sum(kCount);
        std::vector<double> first;
        const heddle_reduction how = reduction<double>(HEDDLE_SUM);
        const heddle_collective_options options{sizeof options, algorithm, 0};
        const Persistent operation =
            member.world.make<heddle_allreduce_init>(mine.data(), sum.data(), kCount, &how, &options);
        std::vector<double> all(kCount * ranks);
        for (int run = 0; run < 5; ++run) {
          must(operation.start(), "start");
          must(operation.wait(), "wait");
          if (run == 0) first = sum;
          must_be(std::memcmp(first.data(), sum.data(), kCount * sizeof(double)) == 0, "the same bits in every run");
          must(member.world.allgather<double>(sum, all.data()), "allgather");
          for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            must_be(std::memcmp(&all[rank * kCount], sum.data(), kCount * sizeof(double)) == 0, "the same bits at all");
          }
        }
      });
      ASSERT_FALSE(HasFailure()) << algorithm << ", " << ranks << " ranks";
    }
  }
}

TEST(ReductionWrappers, DoWhatTheirFunctionsDo) {
  run_members(3, "shm", [](const Member& member) {
    const Team& team = member.world;
    const std::uint32_t me = member.rank();
    std::array<int, 2> mine = {static_cast<int>(me), 10};
    std::array<int, 6> all{};
    must(team.gather<int>(mine, all.data(), 2), "gather");
    must_be(me != 2 || all == std::array<int, 6>{0, 10, 1, 10, 2, 10}, "gather");
    all.fill(-1);
    must(team.allgather<int>(mine, all.data()), "allgather");
    must_be(all == std::array<int, 6>{0, 10, 1, 10, 2, 10}, "allgather");
    std::array<int, 2> part{};
    must(team.scatter<int>(all.data(), part, 1), "scatter");
    must_be(part == mine, "scatter");
    std::array<int, 6> turned{};
    must(team.alltoall<int>(all.data(), turned.data(), 2), "alltoall");
    must_be(turned[0] == static_cast<int>(me) && turned[4] == static_cast<int>(me), "alltoall");
    must(team.reduce_scatter<int>(all.data(), part, HEDDLE_SUM), "reduce_scatter");
    must_be(part[0] == 3 * static_cast<int>(me) && part[1] == 30, "reduce_scatter");
    must(team.scan<int>(mine, part.data(), HEDDLE_SUM), "scan");
    must_be(part[1] == 10 * static_cast<int>(me + 1), "scan");
    must(team.reduce<int>(mine, me == 0 ? part.data() : nullptr, HEDDLE_SUM, 0), "reduce");
    must_be(me != 0 || part == std::array<int, 2>{3, 30}, "reduce");
    must(team.allreduce<int>(std::span(mine), HEDDLE_SUM), "allreduce in place");
    must_be(mine == std::array<int, 2>{3, 30}, "allreduce in place");
    if (me == 1) mine = {7, 8};
    must(team.broadcast<int>(mine, 1), "broadcast");
    must_be(mine == std::array<int, 2>{7, 8}, "broadcast");
    Started barrier = team.start<heddle_barrier_start>();
    must(barrier.wait(), "wait");
    must_be(!barrier, "the handle is given up with the end");
    {
      const Started left_alone = team.start<heddle_barrier_start>();  // its end waits
    }
    const heddle_collective_options* defaults = nullptr;
    Persistent made = team.make<heddle_barrier_init>(defaults);
    must(made.start(), "start");
    made = {};  // waits and frees
    Status status = HEDDLE_DONE;
    try {
      static_cast<void>(team.split(0).strided(9, 1, 1));
    } catch (const Error& error) {
      status = error.status();
    }
    must_be(status == HEDDLE_ERR_RANK, "what makes teams throws");
  });
}

}  // namespace
}  // namespace heddle::test::collective_reductions_test
