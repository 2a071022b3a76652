// Contexts, jobs, workers, counters, regions.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "rank.hpp"

namespace heddle::tests::api {
namespace {

// The job's context, one of this rank's own, or none.
heddle_context any_context(Rank& rank) {
  return rank.chance(70) ? rank.main() : rank.pick(rank.contexts);
}

// Options with a size that may be another version's; the bytes beyond are zero or not. Null now and
// then.
template <class Options>
const Options* sized(Rank& rank, const Options& made) {
  if (rank.chance(20)) return nullptr;
  if (rank.chance(4)) {
    auto* huge = static_cast<Options*>(rank.keep(8192));
    std::memcpy(huge, &made, sizeof made);
    huge->size = SIZE_MAX - rank.below(2) * 4096;
    return huge;
  }
  const std::size_t size = rank.struct_size(sizeof made);
  auto* bytes = static_cast<std::byte*>(rank.keep(std::max(size, sizeof(std::size_t))));
  std::memcpy(bytes, &made, std::min(size, sizeof made));
  if (size > sizeof made && rank.chance(50)) bytes[sizeof made + rank.below(size - sizeof made)] = std::byte{1};
  auto* options = static_cast<Options*>(static_cast<void*>(bytes));
  std::memcpy(bytes, &size, sizeof size);
  return options;
}

void version(Rank& rank) {
  static thread_local int numbers[3];
  HEDDLE_CALL(rank, heddle_version, rank.maybe_null(&numbers[0]), rank.maybe_null(&numbers[1]),
              rank.maybe_null(&numbers[2]));
}

void join(Rank& rank) {
  if (rank.contexts.live.size() >= 2 || rank.inside()) return;
  constexpr const char* kBootstraps[] = {"single", "inproc", "inproc", "nonesuch", ""};
  constexpr const char* kTransports[] = {"shm",  "loopback", "loopback-messages", "fault+loopback", "nonesuch",
                                         "shm,", ""};
  constexpr const char* kProgress[] = {nullptr, "none", "idle", "adaptive", "dedicated:1", "dedicated:x", "nonesuch"};
  heddle_context_options options{};
  options.size = sizeof options;
  options.bootstrap = kBootstraps[rank.below(std::size(kBootstraps))];
  options.transport = rank.chance(60) ? "loopback" : kTransports[rank.below(std::size(kTransports))];
  // Jobs of one rank: a second one would have to be joined by another thread.
  options.job = rank.pick(rank.jobs);
  rank.not_bad();
  options.rank = rank.chance(80) ? 0 : rank.odd32();
  options.progress = kProgress[rank.below(std::size(kProgress))];
  // Cut off before the bootstrap it would be the launcher's job.
  std::size_t size = rank.chance(70) ? sizeof options : rank.struct_size(sizeof options);
  if (size < offsetof(heddle_context_options, transport)) size = 0;
  auto* copy = static_cast<heddle_context_options*>(rank.keep(std::max(size, sizeof options)));
  *copy = options;
  copy->size = size;
  auto* context = rank.maybe_null(rank.keep_one(heddle_context{}));
  const heddle_status status =
      HEDDLE_CALL(rank, heddle_context_join, static_cast<const heddle_context_options*>(copy), context);
  if (status != HEDDLE_DONE) return;
  rank.contexts.add(*context, context->id);
  heddle_team team{};
  if (HEDDLE_CALL(rank, heddle_team_world, *context, &team) == HEDDLE_DONE) rank.side_teams.add(team, context->id);
}

void leave(Rank& rank) {
  if (rank.inside()) return;
  const heddle_context context = rank.pick(rank.contexts, 60);
  // A rank that leaves has ended the operations of its teams.
  if (HEDDLE_CALL(rank, heddle_context_leave, context) < 0) return;
  rank.contexts.remove(context);
  rank.forget(context);
}

void number(Rank& rank) {
  HEDDLE_CALL(rank, heddle_context_rank, any_context(rank), rank.maybe_null(rank.keep_one(std::uint32_t{})));
}
void size(Rank& rank) {
  HEDDLE_CALL(rank, heddle_context_size, any_context(rank), rank.maybe_null(rank.keep_one(std::uint32_t{})));
}
void peer_status(Rank& rank) {
  HEDDLE_CALL(rank, heddle_context_peer_status, any_context(rank), rank.rank_number());
}
void tell_wait(void* /*arg*/, heddle_wait_facts* facts) {
  facts->call = "fuzz";
  facts->cause = HEDDLE_WAIT_LOCK;
  facts->number = 1;
}
void wait_note(Rank& rank) {
  HEDDLE_CALL(rank, heddle_wait_note, rank.pick(rank.workers, 50), rank.below(8) == 0 ? nullptr : &tell_wait, nullptr);
}
void wait_end(Rank& rank) {
  HEDDLE_CALL(rank, heddle_wait_end, rank.pick(rank.workers, 50), nullptr);
}
void word_tag(std::uint64_t tag, std::uint64_t /*mask*/, char* text, std::size_t bytes) {
  std::snprintf(text, bytes, "%llx", static_cast<unsigned long long>(tag));
}
void name_tags(Rank& rank) {
  HEDDLE_CALL(rank, heddle_context_name_tags, any_context(rank), rank.below(2) == 0 ? nullptr : &word_tag);
}
std::size_t one_key(std::uint64_t* keys, std::size_t most) {
  if (most > 0) keys[0] = 1;
  return 1;
}
void list_held(Rank& rank) {
  HEDDLE_CALL(rank, heddle_context_list_held, any_context(rank), rank.below(2) == 0 ? nullptr : &one_key);
}
void trace_begin(Rank& rank) {
  const char* const name = rank.below(4) == 0 ? nullptr : "a slice";
  HEDDLE_CALL(rank, heddle_trace_begin, any_context(rank), name, rank.below(2) == 0 ? nullptr : "arguments");
}
void trace_end(Rank& rank) {
  HEDDLE_CALL(rank, heddle_trace_end, any_context(rank), rank.below(4) == 0 ? nullptr : "a slice");
}
void context_progress(Rank& rank) {
  HEDDLE_CALL(rank, heddle_context_progress, any_context(rank));
}

void barrier(Rank& rank) {
  if (!rank.together()) {
    const heddle_context context = rank.pick(rank.contexts, 50);
    const heddle_worker worker = rank.pick(rank.workers, 40);
    rank.not_bad();
    rank.allow(2'000'000);
    HEDDLE_CALL(rank, heddle_context_barrier, context, worker, std::int64_t{2'000'000});
    return;
  }
  const std::int64_t times[] = {0, 1'000, HEDDLE_FOREVER};
  std::int64_t time = times[rank.below(3)];
  // A rank that times out has arrived, and goes on with the same barrier.
  heddle_status status = HEDDLE_ERR_TIMEOUT;
  while (status == HEDDLE_ERR_TIMEOUT) {
    status = HEDDLE_CALL(rank, heddle_context_barrier, rank.main(), heddle_worker{0}, time);
    time = HEDDLE_FOREVER;
  }
  if (status != HEDDLE_DONE) rank.wrong("a barrier of two living ranks failed");
}

void exchange(Rank& rank) {
  std::size_t bytes = rank.transfer_bytes();
  if (!rank.together()) {
    const heddle_context context = rank.pick(rank.contexts, 50);
    HEDDLE_CALL(rank, heddle_context_exchange, context, static_cast<const void*>(rank.data(0, bytes)), bytes,
                static_cast<void*>(rank.data(1, bytes)));
    return;
  }
  const bool differ = rank.chance(10) && bytes < kBig / 2 && bytes > 0;
  if (differ) bytes += rank.number();
  void* all = bytes <= kBig ? rank.keep(2 * bytes) : rank.keep(1);
  const heddle_status status = HEDDLE_CALL(rank, heddle_context_exchange, rank.main(),
                                           static_cast<const void*>(rank.data(0, bytes)), bytes, all);
  if (status != (differ || bytes == 0 || bytes > kBig ? HEDDLE_ERR_SIZE : HEDDLE_DONE)) rank.wrong("an exchange");
}

void create_job(Rank& rank) {
  if (rank.jobs.live.size() >= 3) return;
  // Of one rank, so that it can be joined here; others are closed again.
  const std::uint32_t ranks = rank.chance(60) ? 1 : rank.odd32();
  auto* job = rank.maybe_null(rank.keep_one(heddle_inproc_job{}));
  if (HEDDLE_CALL(rank, heddle_inproc_create, ranks, job) != HEDDLE_DONE) return;
  rank.jobs.add(*job, 0);
  if (ranks == 1) return;
  if (HEDDLE_CALL(rank, heddle_inproc_close, *job) != HEDDLE_DONE) rank.wrong("a job that nobody joined is in use");
  rank.jobs.remove(*job);
}
void close_job(Rank& rank) {
  const heddle_inproc_job job = rank.pick(rank.jobs);
  if (HEDDLE_CALL(rank, heddle_inproc_close, job) == HEDDLE_DONE) rank.jobs.remove(job);
}
void fail_rank(Rank& rank) {
  HEDDLE_CALL(rank, heddle_inproc_fail, rank.pick(rank.jobs), rank.chance(20) ? 0 : rank.odd32() | 1);
}

void open_worker(Rank& rank) {
  const heddle_context context = any_context(rank);
  heddle_worker_options options{};
  options.sharing = rank.settings().mode != HEDDLE_SHARING_DEFAULT && rank.chance(90)
                        ? rank.settings().mode
                        : rank.enumeration<heddle_sharing>(HEDDLE_SHARING_AUTO);
  options.no_help = rank.chance(20) ? rank.odd() : 0;
  options.attends = rank.chance(20) ? rank.odd() : 0;
  auto* worker = rank.maybe_null(rank.keep_one(heddle_worker{}));
  const auto* given = sized(rank, options);
  if (rank.workers.live.size() >= 12) return rank.not_bad();
  if (HEDDLE_CALL(rank, heddle_worker_open, context, given, worker) != HEDDLE_DONE) return;
  rank.workers.add(*worker, context.id);
  if (context.id == rank.main().id) rank.opened_worker();
}

void close_worker(Rank& rank) {
  const bool enough = rank.workers.live.size() > 3;
  heddle_worker worker = rank.pick(rank.workers, enough ? 50 : 0);
  // Worker 0 serves registered memory: few operations would find memory without it.
  if (!rank.workers.live.empty() && worker.id == rank.workers.live[0].handle.id && !rank.chance(4))
    return rank.not_bad();
  if (!rank.settle(worker)) return rank.not_bad();
  HEDDLE_CALL(rank, heddle_worker_close, worker);
  std::uint32_t index = 0;
  if (heddle_worker_index(worker, &index) == HEDDLE_ERR_HANDLE) rank.workers.remove(worker);
}

void worker_index(Rank& rank) {
  HEDDLE_CALL(rank, heddle_worker_index, rank.pick(rank.workers), rank.maybe_null(rank.keep_one(std::uint32_t{})));
}
void worker_mode(Rank& rank) {
  HEDDLE_CALL(rank, heddle_worker_mode, rank.pick(rank.workers), rank.maybe_null(rank.keep_one(heddle_sharing{})));
}
void progress(Rank& rank) {
  HEDDLE_CALL(rank, heddle_worker_progress, rank.pick(rank.workers));
}
void wait(Rank& rank) {
  const heddle_worker worker = rank.pick(rank.workers);
  const std::int64_t time = rank.timeout();
  HEDDLE_CALL(rank, heddle_worker_wait, worker, time);
}
void wait_for(Rank& rank) {
  static constexpr std::array kEnds = {HEDDLE_DONE, HEDDLE_AGAIN, HEDDLE_POSTED, HEDDLE_ERR_CANCELLED};
  const heddle_worker worker = rank.pick(rank.workers);
  heddle_wait_condition condition{};
  condition.size = sizeof condition;
  // An error of the program's own leaves no words, and this thread may not have any yet.
  const std::size_t ends = heddle_last_error()[0] == 0 ? kEnds.size() - 1 : kEnds.size();
  condition.arg = const_cast<heddle_status*>(&kEnds[rank.below(ends)]);
  if (!rank.chance(10)) condition.ready = [](void* end) { return *static_cast<const heddle_status*>(end); };
  if (rank.chance(50)) condition.tell = &tell_wait;
  const std::int64_t time = rank.timeout();
  HEDDLE_CALL(rank, heddle_worker_wait_for, worker, sized(rank, condition), time);
}
void descriptor(Rank& rank) {
  HEDDLE_CALL(rank, heddle_worker_descriptor, rank.pick(rank.workers), rank.maybe_null(rank.keep_one(-1)));
}
void arm(Rank& rank) {
  HEDDLE_CALL(rank, heddle_worker_arm, rank.pick(rank.workers));
}
void stats(Rank& rank) {
  const heddle_worker worker = rank.pick(rank.workers);
  const auto* made = sized(rank, heddle_worker_stats{});
  HEDDLE_CALL(rank, heddle_worker_stats_read, worker, const_cast<heddle_worker_stats*>(made));
}
void user(Rank& rank) {
  HEDDLE_CALL(rank, heddle_worker_user, rank.pick(rank.workers), rank.maybe_null(rank.keep_one<void*>(nullptr)));
}

void on_engine(Rank& rank, const char* name, decltype(heddle_run_on_engine)* fn) {
  void (*const nothing)(void*) = [](void*) {};
  const heddle_worker worker = rank.pick(rank.workers);
  void (*const given)(void*) = rank.chance(5) ? nullptr : nothing;
  rank.call(name, fn, worker, given, static_cast<void*>(nullptr), rank.completion());
}

void create_counter(Rank& rank) {
  const heddle_context context = any_context(rank);
  heddle_counter_options options{};
  if (rank.chance(30)) options.worker = rank.pick(rank.workers);
  if (rank.chance(30)) options.counts_done = rank.odd();
  auto* counter = rank.maybe_null(rank.keep_one(heddle_counter{}));
  const auto* given = sized(rank, options);
  if (given == nullptr || given->size != sizeof options || options.worker.id == 0) rank.not_bad();
  if (HEDDLE_CALL(rank, heddle_counter_create, context, given, counter) != HEDDLE_DONE) return;
  rank.counters.add(*counter, context.id);
}
void free_counter(Rank& rank) {
  const heddle_counter counter = rank.pick(rank.counters, 60);
  if (HEDDLE_CALL(rank, heddle_counter_free, counter) == HEDDLE_DONE) rank.counters.remove(counter);
}
void read_counter(Rank& rank) {
  HEDDLE_CALL(rank, heddle_counter_read, rank.pick(rank.counters), rank.maybe_null(rank.keep_one(std::uint64_t{})));
}
void reset_counter(Rank& rank) {
  HEDDLE_CALL(rank, heddle_counter_reset, rank.pick(rank.counters));
}
void wait_counter(Rank& rank) {
  const heddle_worker worker = rank.pick(rank.workers);
  const heddle_counter counter = rank.pick(rank.counters);
  const std::uint64_t value = rank.chance(60) ? rank.below(4) : rank.odd();
  const std::int64_t time = rank.timeout();
  HEDDLE_CALL(rank, heddle_counter_wait, worker, counter, value, time);
}

void keep_region(Rank& rank, heddle_context context, heddle_region region, std::size_t bytes) {
  if (bytes <= kBig && rank.regions.live.size() < 40) return rank.regions.add(region, context.id);
  if (HEDDLE_CALL(rank, heddle_region_release, region) != HEDDLE_DONE) rank.wrong("a region cannot be released");
  rank.regions.closed.push_back(region);
}
void alloc(Rank& rank) {
  const heddle_context context = any_context(rank);
  // A length that fits, or one that no machine has: gigabytes are available, and take seconds to be
  // zeroed.
  std::size_t bytes = rank.transfer_bytes();
  if (bytes > kBig) bytes = std::max(bytes, std::size_t{1} << 48);
  auto* region = rank.maybe_null(rank.keep_one(heddle_region{}));
  if (HEDDLE_CALL(rank, heddle_region_alloc, context, bytes, region) == HEDDLE_DONE)
    keep_region(rank, context, *region, bytes);
}
void register_memory(Rank& rank) {
  const heddle_context context = any_context(rank);
  const std::size_t bytes = rank.transfer_bytes();
  auto* region = rank.maybe_null(rank.keep_one(heddle_region{}));
  void* address = rank.maybe_null(bytes <= kBig ? rank.keep(bytes) : rank.data(0, bytes));
  // A length beyond what is mapped is a lie that no operation finds out here: it is released at
  // once.
  if (HEDDLE_CALL(rank, heddle_region_register, context, address, bytes, region) != HEDDLE_DONE) return;
  keep_region(rank, context, *region, bytes);
}
// Memory of its own, since nobody else may touch what is adopted.
void register_with(Rank& rank) {
  heddle_region_options made{};
  made.adopt = rank.chance(70) ? 1 : 0;
  made.whole_pages = rank.chance(30) ? 1 : 0;
  const heddle_region_options* options = sized(rank, made);
  const std::size_t pages = 4096 * (1 + rank.below(20));
  void* memory = mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  const std::size_t skipped = rank.chance(50) ? rank.below(5000) % pages : 0;
  void* address = rank.maybe_null(static_cast<void*>(static_cast<std::byte*>(memory) + skipped));
  const std::size_t bytes = rank.chance(80) ? pages - skipped : rank.chance(50) ? 0 : std::size_t{1} << 50;
  auto* region = rank.maybe_null(rank.keep_one(heddle_region{}));
  const heddle_context context = any_context(rank);
  if (HEDDLE_CALL(rank, heddle_region_register_with, context, address, bytes, options, region) == HEDDLE_DONE) {
    if (HEDDLE_CALL(rank, heddle_region_release, *region) != HEDDLE_DONE) rank.wrong("a region stays");
  }
  munmap(memory, pages);
}
void release(Rank& rank) {
  const heddle_region region = rank.pick(rank.regions, 60);
  if (HEDDLE_CALL(rank, heddle_region_release, region) == HEDDLE_DONE) rank.regions.remove(region);
}
void address(Rank& rank) {
  HEDDLE_CALL(rank, heddle_region_address, rank.pick(rank.regions), rank.maybe_null(rank.keep_one<void*>(nullptr)),
              rank.maybe_null(rank.keep_one(std::size_t{})));
}
void pack(Rank& rank) {
  const heddle_region region = rank.pick(rank.regions);
  auto* bytes = rank.maybe_null(rank.keep_one(rank.chance(50) ? HEDDLE_PACKED_REGION_BYTES : rank.odd()));
  HEDDLE_CALL(rank, heddle_region_pack, region, rank.maybe_null(rank.keep(HEDDLE_PACKED_REGION_BYTES)), bytes);
}

// Names as pack wrote them; some of their bits flipped, cut off, made longer; noise.
void unpack(Rank& rank) {
  const heddle_context context = any_context(rank);
  std::vector<std::byte> name =
      rank.packed.empty() ? std::vector<std::byte>(96) : rank.packed[rank.below(rank.packed.size())];
  const bool good = rank.chance(30) && !rank.packed.empty();
  if (!good && rank.chance(50)) {
    for (std::uint64_t flips = 1 + rank.below(8); flips > 0; --flips) {
      name[rank.below(name.size())] ^= std::byte{1} << static_cast<int>(rank.below(8));
    }
  } else if (!good && rank.chance(50)) {
    name.resize(rank.below(2 * HEDDLE_PACKED_REGION_BYTES));
  } else if (!good) {
    for (std::byte& one : name) one = static_cast<std::byte>(rank.below(256));
  }
  auto* remote = rank.maybe_null(rank.keep_one(heddle_remote_region{}));
  auto* bytes = std::memcpy(rank.keep(name.size()), name.data(), name.size());
  const auto* given = static_cast<const void*>(rank.maybe_null(bytes));
  if (HEDDLE_CALL(rank, heddle_region_unpack, context, given, name.size(), remote) != HEDDLE_DONE) return;
  if (good && context.id == rank.main().id && rank.remotes.live.size() < 12)
    return rank.remotes.add(*remote, context.id);
  if (rank.doubtful.live.size() < 40) return rank.doubtful.add(*remote, context.id);
  if (HEDDLE_CALL(rank, heddle_remote_region_release, *remote) != HEDDLE_DONE) rank.wrong("a remote region stays");
}

void exchange_regions(Rank& rank) {
  if (!rank.together()) {
    auto* all = static_cast<heddle_remote_region*>(rank.keep(2 * sizeof(heddle_remote_region)));
    const heddle_context context = rank.pick(rank.contexts, 50);
    const heddle_region region = rank.pick(rank.regions, 50);
    if (HEDDLE_CALL(rank, heddle_region_exchange, context, region, all) == HEDDLE_DONE)
      rank.doubtful.add(*all, context.id);
    return;
  }
  // Two regions of their own, which stay to the end.
  heddle_region region{};
  const std::size_t bytes = 1 + rank.fitting(65536);
  auto* all = static_cast<heddle_remote_region*>(rank.keep(2 * sizeof(heddle_remote_region)));
  if (HEDDLE_CALL(rank, heddle_region_register, rank.main(), rank.keep(bytes), bytes, &region) != HEDDLE_DONE)
    region = {};
  if (rank.meet(region.id != 0 ? 1 : 0) == 0 || region.id == 0) return;
  if (HEDDLE_CALL(rank, heddle_region_exchange, rank.main(), region, all) != HEDDLE_DONE) return;
  for (int i = 0; i < 2; ++i) rank.remotes.add(all[i], rank.main().id);
}

template <class Use>
void any_remote(Rank& rank, Use use) {
  if (rank.chance(50)) return use(rank.pick(rank.doubtful));
  use(rank.pick(rank.remotes));
}
void release_remote(Rank& rank) {
  const bool enough = rank.remotes.live.size() > 6;
  if (enough && rank.chance(30)) {
    const heddle_remote_region remote = rank.pick(rank.remotes);
    if (HEDDLE_CALL(rank, heddle_remote_region_release, remote) == HEDDLE_DONE) rank.remotes.remove(remote);
    return;
  }
  const heddle_remote_region remote = rank.pick(rank.doubtful);
  if (HEDDLE_CALL(rank, heddle_remote_region_release, remote) == HEDDLE_DONE) rank.doubtful.remove(remote);
}
void remote_rank(Rank& rank) {
  any_remote(rank, [&](heddle_remote_region remote) {
    HEDDLE_CALL(rank, heddle_remote_region_rank, remote, rank.maybe_null(rank.keep_one(std::uint32_t{})));
  });
}
void remote_bytes(Rank& rank) {
  any_remote(rank, [&](heddle_remote_region remote) {
    HEDDLE_CALL(rank, heddle_remote_region_bytes, remote, rank.maybe_null(rank.keep_one(std::uint64_t{})));
  });
}
void remote_pointer(Rank& rank) {
  any_remote(rank, [&](heddle_remote_region remote) {
    const heddle_remote address{remote, rank.chance(50) ? rank.fitting() : rank.odd()};
    HEDDLE_CALL(rank, heddle_remote_pointer, address, rank.maybe_null(rank.keep_one<void*>(nullptr)));
  });
}
void remote_mapped(Rank& rank) {
  any_remote(rank, [&](heddle_remote_region remote) {
    const heddle_remote address{remote, rank.chance(50) ? rank.fitting() : rank.odd()};
    HEDDLE_CALL(rank, heddle_remote_mapped, address, rank.odd(), rank.maybe_null(rank.keep_one(0)));
  });
}

}  // namespace

std::vector<Row> context_rows() {
  return {
      {"heddle_status_name", When::anywhere,
       [](Rank& rank) { HEDDLE_CALL(rank, heddle_status_name, static_cast<heddle_status>(rank.odd_int())); }},
      {"heddle_last_error", When::anywhere, [](Rank& rank) { HEDDLE_CALL(rank, heddle_last_error); }},
      {"heddle_version", When::anywhere, version},
      {"heddle_context_join", When::anywhere, join},
      {"heddle_context_leave", When::anywhere, leave},
      {"heddle_context_rank", When::anywhere, number},
      {"heddle_context_size", When::anywhere, size},
      {"heddle_context_peer_status", When::anywhere, peer_status},
      {"heddle_context_name_tags", When::anywhere, name_tags},
      {"heddle_context_list_held", When::anywhere, list_held},
      {"heddle_trace_begin", When::anywhere, trace_begin},
      {"heddle_trace_end", When::anywhere, trace_end},
      {"heddle_wait_note", When::anywhere, wait_note},
      {"heddle_wait_end", When::anywhere, wait_end},
      {"heddle_context_progress", When::anywhere, context_progress},
      {"heddle_context_barrier", When::together, barrier},
      {"heddle_context_exchange", When::together, exchange},
      {"heddle_inproc_create", When::anywhere, create_job},
      {"heddle_inproc_close", When::anywhere, close_job},
      {"heddle_inproc_fail", When::anywhere, fail_rank},
      {"heddle_worker_open", When::anywhere, open_worker},
      {"heddle_worker_close", When::turn, close_worker},
      {"heddle_worker_index", When::anywhere, worker_index},
      {"heddle_worker_mode", When::anywhere, worker_mode},
      {"heddle_worker_progress", When::anywhere, progress},
      {"heddle_worker_wait", When::anywhere, wait},
      {"heddle_worker_wait_for", When::anywhere, wait_for},
      {"heddle_worker_descriptor", When::anywhere, descriptor},
      {"heddle_worker_arm", When::anywhere, arm},
      {"heddle_worker_stats_read", When::anywhere, stats},
      {"heddle_worker_user", When::anywhere, user},
      {"heddle_try_run_on_engine", When::anywhere,
       [](Rank& rank) { on_engine(rank, "heddle_try_run_on_engine", heddle_try_run_on_engine); }},
      {"heddle_run_on_engine", When::turn,
       [](Rank& rank) { on_engine(rank, "heddle_run_on_engine", heddle_run_on_engine); }},
      {"heddle_counter_create", When::anywhere, create_counter},
      {"heddle_counter_free", When::anywhere, free_counter},
      {"heddle_counter_read", When::anywhere, read_counter},
      {"heddle_counter_reset", When::anywhere, reset_counter},
      {"heddle_counter_wait", When::anywhere, wait_counter},
      {"heddle_region_alloc", When::anywhere, alloc},
      {"heddle_region_register", When::anywhere, register_memory},
      {"heddle_region_register_with", When::anywhere, register_with},
      {"heddle_region_release", When::anywhere, release},
      {"heddle_region_address", When::anywhere, address},
      {"heddle_region_pack", When::anywhere, pack},
      {"heddle_region_unpack", When::turn, unpack},
      {"heddle_region_exchange", When::together, exchange_regions},
      {"heddle_remote_region_release", When::anywhere, release_remote},
      {"heddle_remote_region_rank", When::anywhere, remote_rank},
      {"heddle_remote_region_bytes", When::anywhere, remote_bytes},
      {"heddle_remote_pointer", When::anywhere, remote_pointer},
      {"heddle_remote_mapped", When::anywhere, remote_mapped},
  };
}

}  // namespace heddle::tests::api
