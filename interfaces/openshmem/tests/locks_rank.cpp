// Locks exclude other PEs and other threads; test_lock never waits.
#include <shmem.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "check.h"

namespace {

constexpr int kLocks = 3;
long locks[kLocks];
// on PE 0: two words that must be equal; the holder changes them by loads and stores, not atomics
long guarded[kLocks][2];

void change(int which, int& wrong) {
  const long first = shmem_g(&guarded[which][0], 0);
  const long second = shmem_g(&guarded[which][1], 0);
  wrong += first != second;
  shmem_p(&guarded[which][0], first + 1, 0);
  shmem_p(&guarded[which][1], second + 1, 0);  // clear_lock completes it
}

void contend(int rounds, int seed, int& wrong) {
  for (int round = 0; round < rounds; ++round) {
    const int which = (round + seed) % kLocks;
    if (round % 4 == 3) {
      while (shmem_test_lock(&locks[which]) != 0) std::this_thread::yield();
    } else {
      shmem_set_lock(&locks[which]);
    }
    change(which, wrong);
    shmem_clear_lock(&locks[which]);
  }
}

// PE 0 holds the lock until all others have found it taken; then exactly one PE gets it.
void check_taken() {
  if (shmem_my_pe() == 0) shmem_set_lock(&locks[1]);
  shmem_barrier_all();
  EXPECT(shmem_test_lock(&locks[1]) == 1, "taken");
  shmem_barrier_all();
  if (shmem_my_pe() == 0) shmem_clear_lock(&locks[1]);
  shmem_barrier_all();
  static long got[2];
  got[0] = shmem_test_lock(&locks[1]) == 0 ? 1 : 0;
  shmem_sum_reduce(SHMEM_TEAM_WORLD, &got[1], &got[0], 1);
  EXPECT(got[1] == 1, "%ld got it", got[1]);
  if (got[0] != 0) shmem_clear_lock(&locks[1]);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 2000;
  int provided = 0;
  shmem_init_thread(threads > 1 ? SHMEM_THREAD_MULTIPLE : SHMEM_THREAD_SINGLE, &provided);
  const int n = shmem_n_pes();
  std::vector<int> wrong(static_cast<std::size_t>(threads), 0);
  if (threads == 1) {
    contend(rounds, shmem_my_pe(), wrong[0]);
  } else {
    std::vector<std::thread> running;
    for (int t = 0; t < threads; ++t) {
      running.emplace_back([&, t] { contend(rounds, t, wrong[static_cast<std::size_t>(t)]); });
    }
    for (std::thread& thread : running) thread.join();
  }
  for (const int count : wrong) EXPECT(count == 0, "%d times others were inside", count);
  shmem_barrier_all();
  long total = 0;
  for (int which = 0; which < kLocks; ++which) {
    EXPECT(shmem_g(&guarded[which][0], 0) == shmem_g(&guarded[which][1], 0), "%d", which);
    total += shmem_g(&guarded[which][0], 0);
  }
  EXPECT(total == static_cast<long>(rounds) * threads * n, "%ld", total);
  shmem_barrier_all();
  check_taken();
  if (failures == 0) std::printf("PE %d of %d: all is well\n", shmem_my_pe(), n);
  shmem_finalize();
  return failures != 0 ? 1 : 0;
}
