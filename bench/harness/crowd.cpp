#include "harness/crowd.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace heddle::bench::harness {

namespace {

// looks before the core is given to one of those that are waited for
constexpr std::uint32_t kSpins = 200;

void futex(std::atomic<std::uint32_t>* word, int op, std::uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), op, value, nullptr, nullptr, 0);
}

rusage usage() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used;
}

// To `mine`, if that is further.
template <class Further>
void move_to(std::atomic<std::uint64_t>* word, std::uint64_t mine, Further&& further) {
  std::uint64_t now = word->load(std::memory_order_relaxed);
  while (further(now, mine) && !word->compare_exchange_weak(now, mine, std::memory_order_relaxed)) {
  }
}

}  // namespace

void Crowd::measure(Session* session, std::span<const Figure> figures, const CrowdWork& work) {
  if (session == nullptr) {
    follow(work);
    return;
  }
  session->measure(figures, [&](std::uint64_t n) {
    if (rank_ == 0) call(n);
    return take_part(n, work);
  });
  if (size_ == 2) return;
  if (rank_ == 0) call(0);
  barrier();  // the next number is stored only when all have read this one
}

void Crowd::meet_asleep() {
  if (!leads()) return follow({});
  if (rank_ == 0) call(0);
  barrier();
}

// Wakes the followers for n iterations; 0: there are no more.
void Crowd::call(std::uint64_t n) {
  if (size_ == 2) return;
  CrowdMemory& memory = channel_.memory().crowd;
  memory.iterations.store(n, std::memory_order_relaxed);
  memory.calls.fetch_add(1, std::memory_order_release);
  futex(&memory.calls, FUTEX_WAKE, INT_MAX);
}

void Crowd::follow(const CrowdWork& work) {
  CrowdMemory& memory = channel_.memory().crowd;
  std::uint32_t& seen = channel_.crowd_counts().calls;
  while (true) {
    while (memory.calls.load(std::memory_order_acquire) == seen) futex(&memory.calls, FUTEX_WAIT, seen);
    ++seen;
    const std::uint64_t n = memory.iterations.load(std::memory_order_relaxed);
    if (n == 0) break;
    static_cast<void>(take_part(n, work));
  }
  barrier();
}

Run Crowd::take_part(std::uint64_t n, const CrowdWork& work) {
  CrowdMemory& memory = channel_.memory().crowd;
  work.prepare();
  if (rank_ == 0) {
    memory.wrong.store(0, std::memory_order_relaxed);
    memory.begin_ns.store(~std::uint64_t{0}, std::memory_order_relaxed);
    memory.end_ns.store(0, std::memory_order_relaxed);
    memory.voluntary.store(0, std::memory_order_relaxed);
    memory.involuntary.store(0, std::memory_order_relaxed);
  }
  barrier();
  const rusage before = usage();
  const Interval own = work.run(n);
  const rusage after = usage();
  memory.voluntary.fetch_add(static_cast<std::uint64_t>(after.ru_nvcsw - before.ru_nvcsw), std::memory_order_relaxed);
  memory.involuntary.fetch_add(static_cast<std::uint64_t>(after.ru_nivcsw - before.ru_nivcsw),
                               std::memory_order_relaxed);
  move_to(&memory.begin_ns, own.begin_ns, [](std::uint64_t now, std::uint64_t mine) { return mine < now; });
  move_to(&memory.end_ns, own.end_ns, [](std::uint64_t now, std::uint64_t mine) { return mine > now; });
  barrier();
  Run run;
  run.elapsed_ns = static_cast<double>(memory.end_ns.load(std::memory_order_relaxed) -
                                       memory.begin_ns.load(std::memory_order_relaxed));
  run.voluntary = static_cast<double>(memory.voluntary.load(std::memory_order_relaxed));
  run.involuntary = static_cast<double>(memory.involuntary.load(std::memory_order_relaxed));
  if (!work.right()) memory.wrong.fetch_add(1, std::memory_order_relaxed);
  barrier();
  run.verified = memory.wrong.load(std::memory_order_relaxed) == 0;
  return run;
}

void Crowd::barrier() {
  std::atomic<std::uint32_t>& arrived = channel_.memory().crowd.arrived;
  const std::uint32_t target = ++channel_.crowd_counts().barriers * size_;
  arrived.fetch_add(1, std::memory_order_acq_rel);
  for (std::uint32_t looks = 0; static_cast<std::int32_t>(arrived.load(std::memory_order_acquire) - target) < 0;
       ++looks) {
    if (looks > kSpins) {
      sched_yield();
    } else {
      base::cpu_relax();
    }
  }
}

}  // namespace heddle::bench::harness
