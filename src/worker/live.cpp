// The counters of this rank, told while it runs. They are read while other threads count.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/fence.hpp"
#include "engine/aggregator.hpp"
#include "tap/counters.hpp"
#include "worker/context.hpp"
#include "worker/gate.hpp"
#include "worker/inspection.hpp"
#include "worker/modes.hpp"

namespace heddle::engine {
namespace {

// As Worker::read_stats(), except for what only the thread inside may look at: invalid packets,
// which the transport counts.
tap::WorkerCounters counters_of(Worker& worker) {
  tap::WorkerCounters all;
  all.index = worker.index();
  all.internal = worker.index() == worker.context().internal_worker();
  all.mode = mode_numbered(static_cast<std::uint32_t>(worker.sharing()))->name;
  // Read before the polls of all threads: read after them, it could be the larger number.
  const std::uint64_t own_polls = worker.gate() != nullptr ? worker.gate()->polls() : 0;
  heddle_worker_stats& stats = all.stats;
  stats.size = sizeof stats;
  for (const tap::Count& count : tap::counts()) {
    if (count.field != nullptr) stats.*count.field = base::peek(worker.core().stats.*count.field);
  }
  const Tally posted = worker.counts().peek_total();
  stats.puts = posted.puts;
  stats.gets = posted.gets;
  stats.atomics = posted.atomics;
  stats.messages = posted.messages;
  stats.sends = posted.sends;
  stats.bytes = posted.bytes;
  stats.again = posted.again;
  const std::uint64_t operations = posted.puts + posted.gets + posted.atomics;
  stats.direct = operations - std::min(operations, posted.commands);
  const Tasks& tasks = worker.messages().tasks();
  stats.tasks = tasks.ran();
  stats.stored = tasks.stored();
  stats.dropped += tasks.dropped();
  stats.failed += worker.core().operations.failed();
  if (const Aggregator* aggregator = worker.aggregator(); aggregator != nullptr) {
    stats.aggregated = base::peek(aggregator->counts().messages);
    stats.packets = base::peek(aggregator->counts().packets);
  }
  const Gate* gate = worker.gate();
  if (gate == nullptr) return all;
  if (const SmallOffload* offload = gate->small_offload(); offload != nullptr) {
    stats.registered = offload->registered_messages();
    stats.helped = offload->helped_messages();
  }
  all.helper_polls = stats.polls - std::min(stats.polls, own_polls);
  return all;
}

// The resident memory of this process; 0: it cannot be read.
std::uint64_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  unsigned long long pages = 0;
  const int read = std::fscanf(file, "%*u %llu", &pages);
  std::fclose(file);
  return read == 1 ? pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace

std::string Inspection::counters() {
  tap::RankCounters all;
  all.rank = context_.bootstrap().rank();
  all.pid = ::getpid();
  all.transport = context_.transport().capabilities().name;
  all.resident_bytes = resident_bytes();
  const std::uint64_t now = context_.clock().now_ns();
  const std::lock_guard lock(mutex_);
  for (const Thread& thread : threads_) {
    if (stale(thread, now)) continue;
    ++all.waiting;
    all.longest_wait_ns = std::max(all.longest_wait_ns, now - std::min(now, thread.since));
  }
  for (const Row& row : rows_) all.workers.push_back(counters_of(*row.worker));
  return tap::to_text(all);
}

}  // namespace heddle::engine
