// Teams: results of splits, agreement among PEs and among threads; thousands of teams leak nothing.
#include <shmem.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include "check.h"

namespace {

int me;
int n;

// The team has the PEs start, start + stride…; every member reports that.
void check_members(shmem_team_t team, int start, int stride, int size) {
  const int distance = me - start;
  const bool member =
      stride == 0 ? distance == 0 : distance % stride == 0 && distance / stride >= 0 && distance / stride < size;
  EXPECT((team != SHMEM_TEAM_INVALID) == member, "%d, %d, %d", start, stride, size);
  EXPECT(shmem_team_n_pes(team) == (member ? size : -1), "%d", shmem_team_n_pes(team));
  const int index = member && stride != 0 ? distance / stride : member ? 0 : -1;
  EXPECT(shmem_team_my_pe(team) == index, "%d", shmem_team_my_pe(team));
  if (!member) return;
  for (int i = 0; i < size; ++i) {
    const int world = start + i * stride;
    EXPECT(shmem_team_translate_pe(team, i, SHMEM_TEAM_WORLD) == world, "member %d", i);
    EXPECT(shmem_team_translate_pe(SHMEM_TEAM_WORLD, world, team) == i, "PE %d", world);
  }
  EXPECT(shmem_team_translate_pe(team, size, SHMEM_TEAM_WORLD) == -1, "beyond");
  EXPECT(shmem_team_translate_pe(team, -1, SHMEM_TEAM_WORLD) == -1, "before");
  static long sum;
  static long mine;
  mine = me + 1;
  EXPECT(shmem_sum_reduce(team, &sum, &mine, 1) == 0, "sum");
  long expected = 0;
  for (int i = 0; i < size; ++i) expected += start + i * stride + 1;
  EXPECT(sum == expected, "%ld", sum);
}

shmem_team_t split(shmem_team_t parent, int start, int stride, int size) {
  shmem_team_t team = SHMEM_TEAM_WORLD;
  EXPECT(shmem_team_split_strided(parent, start, stride, size, nullptr, 0, &team) == 0, "%d, %d, %d", start, stride,
         size);
  return team;
}

void check_splits() {
  for (int stride = 1; stride <= n; ++stride) {
    for (int start = 0; start < std::min(stride, n); ++start) {
      const int size = (n - start + stride - 1) / stride;
      shmem_team_t team = split(SHMEM_TEAM_WORLD, start, stride, size);
      check_members(team, start, stride, size);
      shmem_team_t reversed = SHMEM_TEAM_INVALID;
      if (team != SHMEM_TEAM_INVALID) reversed = split(team, size - 1, -1, size);
      check_members(reversed, start + (size - 1) * stride, -stride, size);
      shmem_team_destroy(reversed);
      shmem_team_destroy(team);
    }
  }
  shmem_team_t alone = split(SHMEM_TEAM_WORLD, n - 1, 0, 1);
  check_members(alone, n - 1, 0, 1);
  shmem_team_destroy(alone);
  // Invalid triplets, the same on all PEs.
  const int wrong[][3] = {{-1, 1, 1}, {0, 1, n + 1},   {n, 1, 1}, {0, 1, 0},
                          {0, -1, 2}, {0, 1 << 30, 3}, {0, n, 2}, {0, 0, 2}};
  for (const auto& [start, stride, size] : wrong) {
    shmem_team_t team = SHMEM_TEAM_WORLD;
    EXPECT(shmem_team_split_strided(SHMEM_TEAM_WORLD, start, stride, size, nullptr, 0, &team) != 0, "%d, %d, %d", start,
           stride, size);
    EXPECT(team == SHMEM_TEAM_INVALID, "%d, %d, %d", start, stride, size);
  }
  shmem_team_t team = SHMEM_TEAM_WORLD;
  EXPECT(shmem_team_split_strided(SHMEM_TEAM_INVALID, 0, 1, 1, nullptr, 0, &team) != 0, "no parent");
  EXPECT(team == SHMEM_TEAM_INVALID, "no parent");
}

void check_split_2d() {
  for (int range = 1; range <= n + 1; ++range) {
    shmem_team_t row = SHMEM_TEAM_WORLD;
    shmem_team_t column = SHMEM_TEAM_WORLD;
    EXPECT(shmem_team_split_2d(SHMEM_TEAM_WORLD, range, nullptr, 0, &row, nullptr, 0, &column) == 0, "%d", range);
    const int width = std::min(range, n);
    const int x = me % width;
    const int y = me / width;
    check_members(row, y * width, 1, std::min(width, n - y * width));
    shmem_barrier_all();
    check_members(column, x, width, (n - x + width - 1) / width);
    shmem_team_destroy(column);
    shmem_team_destroy(row);
    shmem_barrier_all();
  }
}

void check_configuration() {
  shmem_team_config_t config{3};
  shmem_team_t team = SHMEM_TEAM_INVALID;
  EXPECT(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, &config, SHMEM_TEAM_NUM_CONTEXTS, &team) == 0, "split");
  config.num_contexts = 77;
  EXPECT(shmem_team_get_config(team, 0, &config) == 0 && config.num_contexts == 77, "%d", config.num_contexts);
  EXPECT(shmem_team_get_config(team, SHMEM_TEAM_NUM_CONTEXTS, &config) == 0 && config.num_contexts == 3, "%d",
         config.num_contexts);
  EXPECT(shmem_team_get_config(SHMEM_TEAM_INVALID, SHMEM_TEAM_NUM_CONTEXTS, &config) != 0, "no team");
  shmem_team_t other = SHMEM_TEAM_WORLD;
  EXPECT(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, &config, 1L << 20, &other) != 0, "an unknown mask");
  EXPECT(other == SHMEM_TEAM_INVALID, "an unknown mask");
  shmem_team_destroy(team);
}

void check_contexts() {
  static long words[2];
  shmem_team_t reversed = split(SHMEM_TEAM_WORLD, n - 1, -1, n);
  const int mine = shmem_team_my_pe(reversed);
  shmem_ctx_t ctx = SHMEM_CTX_INVALID;
  EXPECT(shmem_team_create_ctx(reversed, SHMEM_CTX_PRIVATE, &ctx) == 0, "context");
  shmem_team_t of = SHMEM_TEAM_INVALID;
  EXPECT(shmem_ctx_get_team(ctx, &of) == 0 && of == reversed, "its team");
  EXPECT(shmem_ctx_get_team(SHMEM_CTX_DEFAULT, &of) == 0 && of == SHMEM_TEAM_WORLD, "the default's team");
  EXPECT(shmem_ctx_get_team(SHMEM_CTX_INVALID, &of) != 0 && of == SHMEM_TEAM_INVALID, "no context's team");
  shmem_p(ctx, &words[0], 100L + mine, (mine + 1) % n);
  shmem_ctx_quiet(ctx);
  EXPECT(shmem_team_sync(reversed) == 0, "sync");
  EXPECT(words[0] == 100 + (mine + n - 1) % n, "%ld", words[0]);
  *static_cast<volatile long*>(shmem_team_ptr(reversed, &words[1], mine)) = 7;
  EXPECT(*static_cast<volatile long*>(&words[1]) == 7, "this PE's own");
  EXPECT(shmem_team_ptr(reversed, &words[1], n) == nullptr && shmem_team_ptr(SHMEM_TEAM_INVALID, words, 0) == nullptr,
         "ptr");
  for (int i = 0; i < n; ++i) EXPECT(shmem_team_ptr(reversed, words, i) == shmem_ptr(words, n - 1 - i), "member %d", i);
  shmem_ctx_destroy(ctx);
  // Shareable contexts are destroyed with their team.
  shmem_ctx_t left = SHMEM_CTX_INVALID;
  EXPECT(shmem_team_create_ctx(reversed, 0, &left) == 0, "context");
  shmem_team_destroy(reversed);
  EXPECT(shmem_team_create_ctx(SHMEM_TEAM_INVALID, 0, &ctx) != 0 && ctx == SHMEM_CTX_INVALID, "of no team");
}

// All PEs run out of teams at the same number, and can make them again afterwards; a new team does
// not see signals of an old one.
void check_many() {
  std::vector<shmem_team_t> teams;
  shmem_team_t team = SHMEM_TEAM_INVALID;
  while (shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, nullptr, 0, &team) == 0) teams.push_back(team);
  EXPECT(team == SHMEM_TEAM_INVALID && teams.size() > 200, "%zu", teams.size());
  static long counts[2];
  counts[0] = static_cast<long>(teams.size());
  shmem_max_reduce(SHMEM_TEAM_WORLD, &counts[1], &counts[0], 1);
  EXPECT(counts[1] == counts[0], "%ld here, %ld elsewhere", counts[0], counts[1]);
  for (const shmem_team_t one : teams) shmem_team_sync(one);
  for (const shmem_team_t one : teams) shmem_team_destroy(one);
  static long sums[2];
  for (int round = 0; round < 1500; ++round) {
    const int size = round % n + 1;
    team = split(SHMEM_TEAM_WORLD, 0, 1, size);
    if (team == SHMEM_TEAM_INVALID) continue;
    for (int k = 0; k < round % 4; ++k) {
      sums[0] = round + k;
      shmem_sum_reduce(team, &sums[1], &sums[0], 1);
      EXPECT(sums[1] == static_cast<long>(size) * (round + k), "%ld in round %d", sums[1], round);
    }
    shmem_team_destroy(team);
  }
}

// Each thread splits its own parent at the same time as the others; all take slots from one pool.
void check_threads() {
  constexpr int kThreads = 4;
  static long sums[kThreads][2];
  shmem_team_t parents[kThreads];
  for (shmem_team_t& parent : parents) parent = split(SHMEM_TEAM_WORLD, 0, 1, n);
  std::vector<std::thread> threads;
  std::vector<int> wrong(kThreads, 0);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (long round = 0; round < 100; ++round) {
        shmem_team_t team = SHMEM_TEAM_INVALID;
        wrong[t] += shmem_team_split_strided(parents[t], n - 1, -1, n, nullptr, 0, &team) != 0;
        sums[t][0] = round + t;
        wrong[t] += shmem_sum_reduce(team, &sums[t][1], &sums[t][0], 1) != 0 || sums[t][1] != (round + t) * n;
        wrong[t] += shmem_team_sync(team) != 0;
        shmem_team_destroy(team);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) EXPECT(count == 0, "%d", count);
  for (const shmem_team_t parent : parents) shmem_team_destroy(parent);
}

}  // namespace

int main(int argc, char**) {
  int provided = 0;
  shmem_init_thread(argc > 1 ? SHMEM_THREAD_MULTIPLE : SHMEM_THREAD_SINGLE, &provided);
  me = shmem_my_pe();
  n = shmem_n_pes();
  check_members(SHMEM_TEAM_WORLD, 0, 1, n);
  const int sharing = shmem_team_n_pes(SHMEM_TEAM_SHARED);
  int reached = 0;
  for (int pe = 0; pe < n; ++pe) reached += pe == me || shmem_ptr(&me, pe) != nullptr ? 1 : 0;
  EXPECT(sharing == reached, "%d of %d", sharing, reached);
  EXPECT(shmem_team_sync(SHMEM_TEAM_SHARED) == 0, "sync");
  shmem_barrier_all();
  if (argc > 1) {
    check_threads();
  } else {
    check_splits();
    check_split_2d();
    check_configuration();
    check_contexts();
    check_many();
  }
  if (failures == 0) std::printf("PE %d of %d: all is well\n", me, n);
  shmem_finalize();
  return failures != 0 ? 1 : 0;
}
