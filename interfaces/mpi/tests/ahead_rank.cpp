// Members of a communicator that run ahead of others in its collectives, as far as there is room.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "check.hpp"

namespace {

// The same numbers at all ranks.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed) {}
  std::uint32_t below(std::uint32_t bound) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::uint32_t>(state_ >> 33) % bound;
  }

 private:
  std::uint64_t state_;
};

// The communicator of all calls.
MPI_Comm comm = MPI_COMM_WORLD;

int value_of(int call, int rank, int place) {
  return call * 31 + rank * 7 + place;
}

void broadcast(int call, int root, int count) {
  std::vector<int> data(static_cast<std::size_t>(count), -1);
  for (int i = 0; i < count && my_rank() == root; ++i) data[static_cast<std::size_t>(i)] = value_of(call, root, i);
  MUST(MPI_Bcast(data.data(), count, MPI_INT, root, comm));
  for (int i = 0; i < count; ++i) CHECK(data[static_cast<std::size_t>(i)] == value_of(call, root, i));
}

void reduce(int call, int root, int count, bool all) {
  std::vector<int> mine(static_cast<std::size_t>(count));
  std::vector<int> sum(static_cast<std::size_t>(count), -1);
  for (int i = 0; i < count; ++i) mine[static_cast<std::size_t>(i)] = value_of(call, my_rank(), i);
  if (all)
    MUST(MPI_Allreduce(mine.data(), sum.data(), count, MPI_INT, MPI_SUM, comm));
  else
    MUST(MPI_Reduce(mine.data(), sum.data(), count, MPI_INT, MPI_SUM, root, comm));
  if (!all && my_rank() != root) return;
  for (int i = 0; i < count; ++i) {
    int expected = 0;
    for (int rank = 0; rank < ranks(); ++rank) expected += value_of(call, rank, i);
    CHECK(sum[static_cast<std::size_t>(i)] == expected);
  }
}

void gather(int call, int root, int count) {
  std::vector<int> mine(static_cast<std::size_t>(count));
  std::vector<int> all(static_cast<std::size_t>(count * ranks()), -1);
  for (int i = 0; i < count; ++i) mine[static_cast<std::size_t>(i)] = value_of(call, my_rank(), i);
  MUST(MPI_Gather(mine.data(), count, MPI_INT, all.data(), count, MPI_INT, root, comm));
  for (int i = 0; i < count * ranks() && my_rank() == root; ++i)
    CHECK(all[static_cast<std::size_t>(i)] == value_of(call, i / count, i % count));
}

// So that others get ahead.
void compute(std::uint32_t rounds) {
  volatile std::uint32_t sum = 0;
  for (std::uint32_t i = 0; i < rounds; ++i) sum = sum + i;
}

// Few kinds of calls, so that each comes often, in any order, by any root; now and then a member is
// late.
void random_calls(std::uint64_t seed, int calls) {
  constexpr int kCounts[] = {1, 2, 250, 1024, 2000};
  Numbers numbers(seed);
  for (int call = 0; call < calls; ++call) {
    const int root = static_cast<int>(numbers.below(2)) * (ranks() - 1);
    const int count = kCounts[numbers.below(5)];
    const std::uint32_t kind = numbers.below(10);
    const auto late = static_cast<int>(numbers.below(8 * static_cast<std::uint32_t>(ranks())));
    if (late == my_rank()) compute(numbers.below(100'000));
    if (late != my_rank()) static_cast<void>(numbers.below(100'000));
    if (kind < 5)
      broadcast(call, root, count);
    else if (kind < 9)
      reduce(call, root, count, kind == 8);
    else
      gather(call, root, count);
  }
}

// The root ends its broadcasts before the others begin theirs: they wait for a message that it
// sends afterwards. No program may rely on that, but the library has the room.
void far_ahead(int root, int count) {
  constexpr int kMany = 300;
  constexpr int kAhead = 4;  // there is room for so many of this length
  for (int call = 0; call < kMany; ++call) broadcast(call, root, count);
  for (int round = 0; round < 50; ++round) {
    MUST(MPI_Barrier(comm));
    if (my_rank() != root) MUST(MPI_Recv(nullptr, 0, MPI_INT, root, 1, comm, MPI_STATUS_IGNORE));
    for (int call = 0; call < kAhead; ++call) broadcast(round * kAhead + call, root, count);
    for (int to = 0; to < ranks() && my_rank() == root; ++to)
      if (to != root) MUST(MPI_Send(nullptr, 0, MPI_INT, to, 1, comm));
  }
}

}  // namespace

int main(int argc, char** argv) {
  MUST(MPI_Init(&argc, &argv));
  random_calls(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1, 3000);
  // A communicator has room for the root of few kinds of calls to be ahead: of those here, so a new
  // one.
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  for (const int count : {1, 250, 1024}) far_ahead(ranks() - 1, count);
  MUST(MPI_Comm_free(&comm));
  MUST(MPI_Finalize());
  return 0;
}
