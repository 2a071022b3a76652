#include "rank.hpp"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace heddle::tests::api {
namespace {

// the rank whose calls this thread makes; helpers of the library make none
thread_local Rank* t_rank = nullptr;

constexpr std::uint64_t kBoundaries[] = {0,
                                         1,
                                         2,
                                         3,
                                         7,
                                         8,
                                         64,
                                         65,
                                         4095,
                                         4096,
                                         4097,
                                         65536,
                                         kBig,
                                         kBig + 1,
                                         0x7FFF'FFFF,
                                         0x8000'0000,
                                         0xFFFF'FFFE,
                                         0xFFFF'FFFF,
                                         std::uint64_t{1} << 32,
                                         (std::uint64_t{1} << 48) + 1,
                                         std::uint64_t{1} << 56,
                                         (std::uint64_t{1} << 56) + 1,
                                         std::uint64_t{1} << 63,
                                         UINT64_MAX - 4096,
                                         UINT64_MAX - 7,
                                         UINT64_MAX};

void callback(void*, heddle_status) {
  Rank::from_inside(true);
}

// Those that may answer AGAIN without being called try_.
bool tests(const char* name) {
  for (const char* one :
       {"heddle_collective_test", "heddle_partitioned_test", "heddle_parrived", "heddle_worker_arm"}) {
    if (std::strcmp(name, one) == 0) return true;
  }
  return false;
}

// They return how many.
bool counting(const char* name) {
  for (const char* one : {"heddle_worker_progress", "heddle_context_progress", "heddle_run_tasks"}) {
    if (std::strcmp(name, one) == 0) return true;
  }
  return false;
}

}  // namespace

Rank::Rank(const Settings& settings, std::uint32_t number, Meeting& meeting, Trace& trace)
    : settings_(settings), number_(number), meeting_(meeting), trace_(trace), own_(0), shared_(0) {
  for (auto& buffer : buffers_) buffer = std::make_unique<std::byte[]>(kBig);
}

std::uint64_t Rank::odd() {
  if (chance(75)) return kBoundaries[below(std::size(kBoundaries))];
  return random().next() >> below(64);
}

std::size_t Rank::fitting(std::size_t most) {
  const std::size_t bits = below(std::bit_width(most));
  return std::min<std::size_t>(most, below((std::uint64_t{2} << bits)));
}

std::int64_t Rank::timeout() {
  if (bad_ && chance(30)) return chance(50) ? HEDDLE_FOREVER : INT64_MAX;
  constexpr std::int64_t kTimes[] = {0, 0, 1, 1'000, 100'000, 2'000'000};
  return kTimes[below(std::size(kTimes))];
}

std::uint32_t Rank::rank_number() {
  return chance(85) ? static_cast<std::uint32_t>(below(2)) : odd32();
}

// A worker that the other rank, or this one, has opened, maybe closed since; or one that none can
// be. A message to a worker that is still to be opened waits for it, correctly and for ever.
heddle_peer Rank::peer() {
  const std::uint32_t rank = rank_number();
  std::uint32_t opened = rank < 2 ? meeting_.sides[rank].workers.load(std::memory_order_relaxed) : 1;
  if (!contexts.live.empty()) opened = 1;
  if (chance(94)) return {rank, static_cast<std::uint32_t>(below(std::max(opened, 1U)))};
  return {rank, 0x10'0000 | odd32()};
}

std::size_t Rank::struct_size(std::size_t own) {
  constexpr std::size_t kMost = 4096;
  switch (below(8)) {
    case 0:
      return below(own + 1);
    case 1:
      return own + 1 + below(kMost - own);
    default:
      return own;
  }
}

std::byte* Rank::data(std::size_t which, std::size_t bytes, std::size_t align) {
  std::byte* const memory = buffers_[which % kBuffers].get();
  if (bytes > kBig) return memory + below(kBig);
  return memory + (kBig - bytes) / align * align;
}

void* Rank::keep(std::size_t bytes) {
  kept_.push_back(std::make_unique<std::byte[]>(std::max<std::size_t>(bytes, 1)));
  return kept_.back().get();
}

const heddle_completion* Rank::completion() {
  if (chance(40)) return nullptr;
  heddle_completion made{};
  made.fn = chance(50) ? callback : nullptr;
  made.when = chance(10) ? HEDDLE_WHEN_MATCHED : enumeration<heddle_when>(1);
  if (chance(50)) {
    const bool was_bad = bad_;
    made.counter = pick(counters);
    bad_ = was_bad;  // looked at only when a completion follows
  }
  return keep_one(made);
}

std::uint64_t Rank::another_type(int kind) {
  const int other = (kind + 1 + static_cast<int>(below(8))) % 9;
  const auto any = [&](const auto& pool) {
    return pool.live.empty() ? 0 : pool.live[below(pool.live.size())].handle.id;
  };
  switch (other) {
    case 0:
      return main_.id;
    case 1:
      return any(jobs);
    case 2:
      return any(workers);
    case 3:
      return any(regions);
    case 4:
      return any(remotes);
    case 5:
      return any(counters);
    case 6:
      return any(partitioned);
    case 7:
      return any(side_teams);
    default:
      return any(side_operations);
  }
}

heddle_remote Rank::remote(bool aligned) {
  heddle_remote made{pick(remotes), chance(70) ? fitting(4096) : odd()};
  if (aligned && chance(90)) made.offset &= ~std::uint64_t{7};
  return made;
}

std::uint64_t Rank::owner(heddle_worker worker) const {
  for (const auto& one : workers.live) {
    if (one.handle.id == worker.id) return one.context;
  }
  return 0;
}

void Rank::check(const char* name, int status, bool must_fail) {
  if (status < HEDDLE_ERR_TRUNCATED || (status > HEDDLE_AGAIN && !counting(name))) {
    trace_.wrong("the last call returned what is no status");
  }
  if (must_fail && status >= 0) trace_.wrong("the last call took a handle that is none");
  if (status == HEDDLE_AGAIN && std::strncmp(name, "heddle_try_", 11) != 0 && !counting(name) && !tests(name)) {
    trace_.wrong("the last call may not return AGAIN");
  }
  if (status < 0 && heddle_last_error()[0] == 0) trace_.wrong("an error without words");
}

void Rank::from_inside(bool waits) {
  Rank* const rank = t_rank;
  if (rank == nullptr || rank->inside_) return;
  rank->inside_ = true;
  const bool together = std::exchange(rank->together_, false);
  const bool bad = std::exchange(rank->bad_, false);
  const std::int64_t timeout = std::exchange(rank->timeout_, 0);
  if (rank->chance(20)) {
    static const std::vector<Row> rows = table();
    const Row& row = rows[rank->below(rows.size())];
    if (row.when != When::turn || waits) row.run(*rank);
  }
  rank->timeout_ = timeout;
  rank->bad_ = bad;
  rank->together_ = together;
  rank->inside_ = false;
}

std::int64_t Rank::meet(std::int64_t say) {
  Meeting::Side& mine = meeting_.sides[number_];
  Meeting::Side& other = meeting_.sides[1 - number_];
  const std::uint64_t now = met_++;
  mine.said[now % 2].store(say, std::memory_order_relaxed);
  mine.came.store(now + 1, std::memory_order_release);
  if (other.came.load(std::memory_order_acquire) <= now) {
    trace_.outside("meeting");
    const std::int64_t begun = now_ns();
    while (other.came.load(std::memory_order_acquire) <= now) {
      serve();
      if (now_ns() - begun > kKeptNs) drop_claimed();
      sched_yield();
    }
    trace_.outside(nullptr);
  }
  return other.said[now % 2].load(std::memory_order_relaxed);
}

// Everything that the other rank may wait for: progress, handlers of USER messages, receives of
// messages that nobody wants.
void Rank::serve() {
  const bool together = std::exchange(together_, false);
  for (std::size_t i = 0; i < workers.live.size(); ++i) {
    const heddle_worker worker = workers.live[i].handle;
    if (heddle_worker_progress(worker) < 0) wrong("progress of an open worker failed");
    static_cast<void>(heddle_run_tasks(worker, 8, 0));
    auto* found = static_cast<heddle_receive*>(nullptr);
    heddle_receive kept{};
    const heddle_wanted any{{HEDDLE_ANY, HEDDLE_ANY}, 0, 0};
    if (heddle_try_probe(worker, &any, &kept) != HEDDLE_DONE) continue;
    found = static_cast<heddle_receive*>(keep(sizeof *found));
    if (heddle_try_claim(worker, &any, found) != HEDDLE_DONE) continue;
    while (heddle_try_recv_claimed(worker, nullptr, 0, found, nullptr) == HEDDLE_AGAIN) heddle_worker_progress(worker);
  }
  if (main_.id != 0) static_cast<void>(heddle_context_progress(main_));
  together_ = together;
}

void Rank::forget(heddle_context context) {
  workers.left(context.id);
  regions.left(context.id);
  remotes.left(context.id);
  doubtful.left(context.id);
  counters.left(context.id);
  partitioned.left(context.id);
  side_teams.left(context.id);
  side_operations.left(context.id);
}

void Rank::run(const Row& row, bool together) {
  together_ = together;
  bad_ = false;
  timeout_ = 0;
  row.run(*this);
  together_ = false;
  bad_ = false;
}

void Rank::step(const std::vector<Row>& rows) {
  static const auto of = [](const std::vector<Row>& all, auto wanted) {
    std::vector<Row> some;
    std::copy_if(all.begin(), all.end(), std::back_inserter(some), wanted);
    return some;
  };
  static const std::vector<Row> free = of(rows, [](const Row& row) { return row.when != When::turn; });
  static const std::vector<Row> turns = of(rows, [](const Row& row) { return row.when == When::turn; });
  static const std::vector<Row> common = of(rows, [](const Row& row) { return row.when == When::together; });
  const std::uint64_t kind = shared_.below(100);
  if (kind < 50) {
    const std::uint64_t calls = 1 + shared_.below(8);
    for (std::uint64_t i = 0; i < calls; ++i) run(free[own_.below(free.size())], false);
    planned_ += calls;
    return;
  }
  if (kind < 75) {
    for (std::uint32_t turn = 0; turn < 2; ++turn) {
      if (turn == number_) run(turns[own_.below(turns.size())], false);
      meet();
    }
    ++planned_;
    return;
  }
  const Row& row = common[shared_.below(common.size())];
  meet();
  run(row, true);
  ++planned_;
}

void Rank::round(heddle_context context, std::uint64_t seed, std::uint64_t calls, std::int64_t until_ns) {
  t_rank = this;
  main_ = context;
  own_ = base::Random(seed * 2 + number_ + 1);
  shared_ = base::Random(seed ^ 0x5EED);
  planned_ = 0;
  prepare();
  const std::vector<Row> rows = table();
  for (std::uint64_t steps = 0; planned_ < calls; ++steps) {
    if (steps % 32 == 0) {
      const std::int64_t over = until_ns > 0 && now_ns() > until_ns ? 1 : 0;
      if (meet(over) + over > 0) break;
    }
    step(rows);
  }
  leave();
  t_rank = nullptr;
}

// Opens objects so that most calls have something to work on: a worker, regions of both ranks, a
// team.
void Rank::prepare() {
  offers.clear();
  heddle_worker_options options{};
  options.size = sizeof options;
  options.sharing = settings_.mode;
  heddle_worker worker{};
  if (HEDDLE_CALL(*this, heddle_worker_open, main_, &options, &worker) != HEDDLE_DONE) wrong("no worker");
  workers.add(worker, main_.id);
  opened_worker();
  meet();
  for (const bool allocated : {true, false}) {
    heddle_region region{};
    const heddle_status status = allocated ? HEDDLE_CALL(*this, heddle_region_alloc, main_, std::size_t{65536}, &region)
                                           : HEDDLE_CALL(*this, heddle_region_register, main_,
                                                         static_cast<void*>(keep(65536)), std::size_t{65536}, &region);
    if (status != HEDDLE_DONE) wrong("no region");
    heddle_remote_region all[2] = {};
    if (HEDDLE_CALL(*this, heddle_region_exchange, main_, region, &all[0]) != HEDDLE_DONE) wrong("no exchange");
    for (const heddle_remote_region one : all) remotes.add(one, main_.id);
    std::vector<std::byte> name(HEDDLE_PACKED_REGION_BYTES);
    std::size_t bytes = name.size();
    if (HEDDLE_CALL(*this, heddle_region_pack, region, static_cast<void*>(name.data()), &bytes) != HEDDLE_DONE) {
      wrong("no packed region");
    }
    name.resize(bytes);
    packed.push_back(name);
  }
  meet();
  heddle_team team{};
  if (HEDDLE_CALL(*this, heddle_team_world, main_, &team) != HEDDLE_DONE) wrong("no team");
  teams.push_back({team, 2});
}

void Rank::finish(std::size_t which) {
  Operation& operation = operations[which];
  if (operation.running) {
    constexpr std::int64_t kLong = 120'000'000'000;
    // both wait for it, and it does not need anything else: the watchdog ends what does not end
    allow(0);
    const heddle_status status = HEDDLE_CALL(*this, heddle_collective_wait, operation.handle, kLong);
    if (status == HEDDLE_ERR_TIMEOUT) wrong("an operation that both wait for has not ended");
    if (status == HEDDLE_ERR_HANDLE || status == HEDDLE_ERR_STATE) wrong("an operation that runs is not known");
    operation.running = false;
    if (!operation.persistent) {
      closed_operations.push_back(operation.handle);
      operation.handle = {};
    }
  }
  meet();
}

void Rank::drop_operation(std::size_t which) {
  finish(which);
  const Operation operation = operations[which];
  if (operation.handle.id != 0) {
    if (HEDDLE_CALL(*this, heddle_collective_free, operation.handle) != HEDDLE_DONE)
      wrong("an operation cannot be freed");
    closed_operations.push_back(operation.handle);
  }
  operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(which));
}

void Rank::drop_team(std::size_t which) {
  const Team team = teams[which];
  for (std::size_t i = operations.size(); i-- > 0;) {
    if (operations[i].team == which) drop_operation(i);
  }
  for (Operation& operation : operations) operation.team -= operation.team > which ? 1 : 0;
  teams.erase(teams.begin() + static_cast<std::ptrdiff_t>(which));
  meet();
  if (team.handle.id == 0) return;
  if (HEDDLE_CALL(*this, heddle_team_free, team.handle) != HEDDLE_DONE) wrong("a team cannot be freed");
  closed_teams.push_back(team.handle);
}

void Rank::leave() {
  together_ = true;
  const bool tidy = chance(30);
  while (!operations.empty()) drop_operation(operations.size() - 1);
  while (tidy && !teams.empty()) drop_team(teams.size() - 1);
  together_ = false;
  while (!contexts.live.empty()) {
    const heddle_context side = contexts.live.back().handle;
    HEDDLE_CALL(*this, heddle_context_leave, side);
    contexts.remove(side);
    forget(side);
  }
  while (!jobs.live.empty()) {
    HEDDLE_CALL(*this, heddle_inproc_close, jobs.live.back().handle);
    jobs.remove(jobs.live.back().handle);
  }
  meet();
  const heddle_status status = HEDDLE_CALL(*this, heddle_context_leave, main_);
  if (status != HEDDLE_DONE) wrong("the context cannot be left");
  for (const Team& team : teams) closed_teams.push_back(team.handle);
  teams.clear();
  forget(main_);
  for (const heddle_worker worker : workers.closed) {
    if (heddle_worker_progress(worker) != HEDDLE_ERR_HANDLE) wrong("a closed worker makes progress");
  }
  for (const heddle_team team : closed_teams) {
    std::uint32_t size = 0;
    if (heddle_team_size(team, &size) != HEDDLE_ERR_HANDLE) wrong("a freed team has a size");
  }
  main_ = {};
  receives.clear();
  kept_.clear();
  packed.clear();
}

std::vector<Row> table() {
  std::vector<Row> all;
  for (const auto& rows : {context_rows(), transfer_rows(), message_rows(), team_rows(), operation_rows()}) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

}  // namespace heddle::tests::api
