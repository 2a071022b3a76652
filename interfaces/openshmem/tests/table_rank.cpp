// Tests every typed and sized function of the units rma, atomics and waits; cases.inc is generated
// from the table. A function whose operation has no check does not compile.
#define SHMEM_NO_GENERIC
#include "table_checks.hpp"
#include "table_checks_atomic.hpp"
#include "table_checks_wait.hpp"

namespace checks {
Job g_job;
}

namespace {

constexpr std::size_t kAreaBytes = checks::kMostPes * checks::kElements * checks::kLargest;
alignas(64) std::byte g_areas[checks::kWays][kAreaBytes];
std::uint64_t g_signals[checks::kWays];

}  // namespace

int main(int, char**) {
  using checks::g_job;
  using checks::SizedElement;
  shmem_init();
  g_job.me = shmem_my_pe();
  g_job.n = shmem_n_pes();
  for (int way = 0; way < checks::kWays; ++way) {
    g_job.areas[2 * way] = static_cast<std::byte*>(shmem_align(64, kAreaBytes));
    g_job.areas[2 * way + 1] = g_areas[way];
    g_job.signals[2 * way] = static_cast<std::uint64_t*>(shmem_malloc(sizeof(std::uint64_t)));
    g_job.signals[2 * way + 1] = &g_signals[way];
  }
  g_job.contexts[0] = SHMEM_CTX_DEFAULT;
  EXPECT(shmem_ctx_create(SHMEM_CTX_PRIVATE, &g_job.contexts[1]) == 0, "no private context");
  EXPECT(shmem_ctx_create(0, &g_job.contexts[2]) == 0, "no shareable context");
  int cases = 0;
#define CASE(op, type, plain, with_context)      \
  checks::op<type>(#plain, plain, with_context); \
  ++cases;
#include <cases.inc>
  shmem_ctx_destroy(g_job.contexts[1]);
  shmem_ctx_destroy(g_job.contexts[2]);
  shmem_finalize();
  if (failures == 0) std::printf("PE %d of %d: %d functions are well\n", g_job.me, g_job.n, cases);
  return failures == 0 && cases > 800 ? 0 : 1;
}
