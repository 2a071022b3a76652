// Random updates of a table over all PEs (GUPS). Each thread has its own context and its own stream
// of random numbers.
//
// An update xors a random number into a word that the number selects. Applying all updates twice
// restores the table: exactly if they are atomic; with get, xor, put, races lose some, and the
// benchmark's rules allow one in a hundred.
#include <shmem.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "check.h"

namespace {

enum class Form { atomic, get_put };

// Selects the words that a thread updates. ThreadSanitizer rightly reports threads of one PE that
// get and put the same word without an order. In such builds each thread has its own words for get
// and put, and races occur only between PEs.
enum class Words { of_all, own };
#ifdef __SANITIZE_THREAD__
constexpr Words kGetPutWords = Words::own;
#else
constexpr Words kGetPutWords = Words::of_all;
#endif

struct Table {
  std::uint64_t* words;
  std::uint64_t size;  // on each PE
  Words words_of;      // the words that a thread updates
};

// splitmix64. Seeds are spread by another constant than the steps; otherwise all streams would be
// the same stream at different positions.
class Stream {
 public:
  explicit Stream(std::uint64_t seed) : state_(seed * 0xd1342543de82ef95ULL) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31U);
  }

 private:
  std::uint64_t state_;
};

std::uint64_t word_of(const Table& table, int thread, int threads, std::uint64_t random) {
  if (table.words_of == Words::of_all) return random % table.size;
  const auto n = static_cast<std::uint64_t>(threads);
  return random % (table.size / n) * n + static_cast<std::uint64_t>(thread);
}

void update(const Table& table, Form form, int thread, int threads, long updates) {
  shmem_ctx_t ctx = SHMEM_CTX_INVALID;
  if (shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) != 0) {
    std::fprintf(stderr, "no context\n");
    shmem_global_exit(1);
  }
  const auto n = static_cast<std::uint64_t>(shmem_n_pes());
  Stream stream(static_cast<std::uint64_t>(shmem_my_pe() * threads + thread + 1));
  for (long i = 0; i < updates; ++i) {
    const std::uint64_t value = stream.next();
    const int owner = static_cast<int>(value % n);
    std::uint64_t* at = table.words + word_of(table, thread, threads, value / n);
    if (form == Form::atomic) {
      shmem_ctx_uint64_atomic_xor(ctx, at, value, owner);
    } else {
      shmem_ctx_uint64_p(ctx, at, shmem_ctx_uint64_g(ctx, at, owner) ^ value, owner);
      shmem_ctx_quiet(ctx);  // the next update may be of the same word
    }
  }
  shmem_ctx_quiet(ctx);
  shmem_ctx_destroy(ctx);
}

void update_by_threads(const Table& table, Form form, int threads, long updates) {
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) running.emplace_back(update, table, form, t, threads, updates);
  for (std::thread& thread : running) thread.join();
  shmem_barrier_all();
}

long count_wrong(const Table& table) {
  static long wrong[2];
  wrong[0] = 0;
  for (std::uint64_t i = 0; i < table.size; ++i) wrong[0] += table.words[i] != i ? 1 : 0;
  shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &wrong[1], &wrong[0], 1);
  return wrong[1];
}

void check(const Table& table, Form form, int threads, long updates) {
  for (std::uint64_t i = 0; i < table.size; ++i) table.words[i] = i;
  shmem_barrier_all();
  update_by_threads(table, form, threads, updates);
  EXPECT(count_wrong(table) > 0, "%d threads have changed nothing", threads);
  // undoes all updates that were not lost
  update_by_threads(table, Form::atomic, threads, updates);
  const long wrong = count_wrong(table);
  const double allowed = form == Form::atomic ? 0 : 0.01 * static_cast<double>(updates) * threads * shmem_n_pes();
  EXPECT(static_cast<double>(wrong) <= allowed, "%ld words are wrong after %ld %s updates by each of %d threads", wrong,
         updates, form == Form::atomic ? "atomic" : "get-put", threads);
  shmem_barrier_all();
}

}  // namespace

// Arguments: words of the table on each PE, updates by each thread.
int main(int argc, char** argv) {
  int provided = -1;
  EXPECT(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) == 0 && provided == SHMEM_THREAD_MULTIPLE, "%d", provided);
  const std::uint64_t size = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1U << 20U;
  const long updates = argc > 2 ? std::atol(argv[2]) : 100'000;
  auto* words = static_cast<std::uint64_t*>(shmem_malloc(size * sizeof(std::uint64_t)));
  EXPECT(words != nullptr, "no memory");
  for (const int threads : {1, 2, 4}) {
    check({words, size, Words::of_all}, Form::atomic, threads, updates);
    check({words, size, kGetPutWords}, Form::get_put, threads, updates);
  }
  shmem_free(words);
  if (failures == 0) std::printf("PE %d of %d: all is well\n", shmem_my_pe(), shmem_n_pes());
  shmem_finalize();
  return failures != 0;
}
