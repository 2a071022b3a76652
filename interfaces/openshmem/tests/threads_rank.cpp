// Many threads in each PE: each with a private context, all on one shared context, and all on the
// default context; contexts made and destroyed by all at the same time, and more contexts than
// workers. Thread t of a PE communicates with thread t of the next PE.
#include <shmem.h>
#include <shmemx.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "check.h"

namespace {

constexpr int kThreads = 8;
constexpr std::size_t kWords = 16;
constexpr std::size_t kTable = 1U << 12U;

struct alignas(64) Mailbox {
  long data[kWords];
  long flag;
  long acknowledged;
};
Mailbox g_mail[kThreads];  // static data
std::uint64_t g_table[kTable];
long g_total;
int g_me = 0;
int g_n = 0;
int g_rounds = 1500;

// Failures per thread; added to the program's one count at the end.
std::array<long, kThreads> g_wrong{};

void in_threads(const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(body, t);
  for (std::thread& thread : threads) thread.join();
  for (long& wrong : g_wrong) {
    EXPECT(wrong == 0, "%ld wrong values", wrong);
    wrong = 0;
  }
}

// Puts data, then the flag behind a fence. The reader acknowledges, so that the next data does not
// overwrite this one.
void exchange(int t, shmem_ctx_t ctx, int round) {
  const int next = (g_me + 1) % g_n;
  const int before = (g_me + g_n - 1) % g_n;
  long data[kWords];
  for (std::size_t i = 0; i < kWords; ++i) data[i] = round * 1000L + g_me * 100L + static_cast<long>(i);
  Mailbox& mine = g_mail[t];
  shmem_ctx_long_put(ctx, mine.data, data, kWords, next);
  shmem_ctx_fence(ctx);
  shmem_ctx_long_p(ctx, &mine.flag, round, next);
  shmem_long_wait_until(&mine.flag, SHMEM_CMP_EQ, round);
  for (std::size_t i = 0; i < kWords; ++i) {
    g_wrong[static_cast<std::size_t>(t)] += mine.data[i] != round * 1000L + before * 100L + static_cast<long>(i);
  }
  shmem_ctx_long_atomic_set(ctx, &mine.acknowledged, round, before);
  shmem_long_wait_until(&mine.acknowledged, SHMEM_CMP_EQ, round);
  shmem_ctx_long_atomic_add(ctx, &g_total, 1, 0);
}

void reset() {
  shmem_barrier_all();
  for (Mailbox& mail : g_mail) mail = {};
  g_total = 0;
  shmem_barrier_all();
}

void check_total(long rounds) {
  shmem_barrier_all();
  EXPECT(shmem_long_g(&g_total, 0) == rounds * kThreads * g_n, "%ld", shmem_long_g(&g_total, 0));
}

void exchange_on_own_contexts(long options) {
  reset();
  in_threads([options](int t) {
    shmem_ctx_t ctx;
    if (shmem_ctx_create(options, &ctx) != 0) {
      ++g_wrong[static_cast<std::size_t>(t)];
      return;
    }
    for (int round = 1; round <= g_rounds; ++round) exchange(t, ctx, round);
    shmem_ctx_quiet(ctx);
    shmem_ctx_destroy(ctx);
  });
  check_total(g_rounds);
}

void exchange_on_one_context(shmem_ctx_t ctx) {
  reset();
  in_threads([ctx](int t) {
    for (int round = 1; round <= g_rounds; ++round) exchange(t, ctx, round);
    shmem_ctx_quiet(ctx);
  });
  check_total(g_rounds);
}

// Contexts are made and destroyed while other threads communicate.
void contexts_come_and_go() {
  reset();
  in_threads([](int t) {
    for (int round = 1; round <= 100; ++round) {
      std::array<shmem_ctx_t, 3> contexts{};
      for (std::size_t i = 0; i < contexts.size(); ++i) {
        const long options = i == 0 ? SHMEM_CTX_PRIVATE : i == 1 ? SHMEM_CTX_SERIALIZED : 0;
        g_wrong[static_cast<std::size_t>(t)] += shmem_ctx_create(options, &contexts[i]) != 0;
      }
      exchange(t, contexts[static_cast<std::size_t>(round) % contexts.size()], round);
      for (shmem_ctx_t ctx : contexts) shmem_ctx_destroy(ctx);
    }
  });
  check_total(100);
}

// Random updates of every PE's table: xoring the same values twice restores it.
std::uint64_t next_random(std::uint64_t& state) {
  state ^= state << 13U;
  state ^= state >> 7U;
  state ^= state << 17U;
  return state;
}
void random_updates() {
  for (std::size_t i = 0; i < kTable; ++i) g_table[i] = i;
  shmem_barrier_all();
  for (int pass = 0; pass < 2; ++pass) {
    in_threads([](int t) {
      shmem_ctx_t ctx;
      g_wrong[static_cast<std::size_t>(t)] += shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) != 0;
      std::uint64_t state = static_cast<std::uint64_t>(g_me * kThreads + t + 1) * 0x9e3779b97f4a7c15ULL;
      for (int i = 0; i < 10 * g_rounds; ++i) {
        const std::uint64_t r = next_random(state);
        const int pe = static_cast<int>((r >> 40U) % static_cast<std::uint64_t>(g_n));
        if (i % 2 == 0) {
          shmem_ctx_uint64_atomic_xor(ctx, &g_table[r % kTable], r, pe);
        } else {
          shmem_ctx_uint64_atomic_fetch_xor(ctx, &g_table[r % kTable], r, pe);
        }
      }
      shmem_ctx_quiet(ctx);
      shmem_ctx_destroy(ctx);
    });
    shmem_barrier_all();
  }
  for (std::size_t i = 0; i < kTable; ++i) EXPECT(g_table[i] == i, "[%zu]", i);
}

// More contexts than the engine has workers: they share workers and still transfer and order.
void more_contexts_than_workers() {
  reset();
  std::vector<shmem_ctx_t> contexts(300);
  for (shmem_ctx_t& ctx : contexts) EXPECT(shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) == 0, "no context");
  long value = 0;
  for (shmem_ctx_t ctx : contexts) {
    shmem_ctx_long_p(ctx, &g_mail[0].data[1], ++value, (g_me + 1) % g_n);
    shmem_ctx_quiet(ctx);
    EXPECT(shmem_ctx_long_g(ctx, &g_mail[0].data[1], (g_me + 1) % g_n) == value, "%ld", value);
    shmem_ctx_long_atomic_inc(ctx, &g_total, 0);
  }
  for (shmem_ctx_t ctx : contexts) shmem_ctx_destroy(ctx);
  shmem_barrier_all();
  EXPECT(shmem_long_g(&g_total, 0) == 300L * g_n, "%ld", shmem_long_g(&g_total, 0));
}

}  // namespace

// Optional argument: number of rounds.
int main(int argc, char** argv) {
  if (argc > 1) g_rounds = std::atoi(argv[1]);
  int provided = -1;
  EXPECT(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) == 0 && provided == SHMEM_THREAD_MULTIPLE, "%d", provided);
  g_me = shmem_my_pe();
  g_n = shmem_n_pes();
  exchange_on_own_contexts(SHMEM_CTX_PRIVATE);
  exchange_on_own_contexts(0);
  exchange_on_one_context(SHMEM_CTX_DEFAULT);
  shmem_ctx_t shared;
  EXPECT(shmem_ctx_create(0, &shared) == 0, "no context");
  exchange_on_one_context(shared);
  shmem_ctx_destroy(shared);
  contexts_come_and_go();
  random_updates();
  more_contexts_than_workers();
  shmem_finalize();
  if (failures == 0) std::printf("PE %d of %d: all is well\n", g_me, g_n);
  return failures != 0;
}
