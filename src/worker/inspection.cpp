#include "worker/inspection.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <new>
#include <utility>

#include "base/clock.hpp"
#include "base/fence.hpp"
#include "engine/handlers.hpp"
#include "engine/handles.hpp"
#include "tap/counters.hpp"
#include "worker/context.hpp"
#include "worker/gate.hpp"
#include "worker/sharing.hpp"
#include "worker/worker.hpp"

namespace heddle::worker {

namespace {

constexpr std::uint64_t kNoticeNs = base::kSecondNs;  // or a quarter of HEDDLE_HANG_SECONDS
// Additional time for threads that wait, besides the time that all have.
constexpr std::uint64_t kSlowAnswersNs = 750'000'000;

std::uint32_t this_thread() {
  return static_cast<std::uint32_t>(::syscall(SYS_gettid));
}

template <std::size_t kBytes>
std::string text_of(char (&text)[kBytes]) {
  text[kBytes - 1] = '\0';
  return text;
}

heddle_wait_facts facts_of(const Inspection::Waiting& waiting) {
  heddle_wait_facts facts{};
  facts.size = sizeof facts;
  facts.rank = HEDDLE_ANY;
  waiting.tell(waiting.arg, &facts);
  return facts;
}

// A collective of one of Heddle's teams: the call within the wait knows which one.
bool leaves_team_open(const heddle_wait_facts& facts) {
  return facts.cause == HEDDLE_WAIT_COLLECTIVE && facts.team == 0 && facts.rank == HEDDLE_ANY;
}

// What the program's own wait tells. `within`: what the Heddle call within that wait tells.
tap::Wait told_by(heddle_wait_facts& facts, tap::Wait&& within) {
  tap::Wait wait;
  wait.call = facts.call != nullptr ? facts.call : "a loop of the program";
  wait.awaited = text_of(facts.text);
  if (leaves_team_open(facts)) {
    if (wait.awaited.empty()) wait.awaited = std::move(within.awaited);
    if (!within.step) return wait;
    wait.step = std::move(within.step);
    if (facts.operation[0] == '\0') return wait;
    wait.step->operation = text_of(facts.operation);
    if (facts.team_name[0] != '\0') wait.step->team_name = text_of(facts.team_name);
    // The program's numbers are not those that Heddle has for the same team.
    wait.step->team |= ~std::uint64_t{0} << 32;
    wait.step->number = facts.number;
    return wait;
  }
  if (facts.cause == HEDDLE_WAIT_COLLECTIVE && facts.team != 0) {
    wait.step = {facts.team, facts.number, facts.members, text_of(facts.team_name), text_of(facts.operation)};
    if (facts.rank == HEDDLE_ANY) return wait;
  }
  if (facts.cause <= HEDDLE_WAIT_UNKNOWN || static_cast<unsigned>(facts.cause) > unsigned{HEDDLE_WAIT_LOCK})
    return wait;
  tap::Awaited awaited;
  awaited.cause = static_cast<tap::Cause>(facts.cause);
  awaited.rank = facts.rank == HEDDLE_ANY ? tap::kNobody : facts.rank;
  awaited.what = wait.call;
  if (facts.cause == HEDDLE_WAIT_LOCK || facts.cause == HEDDLE_WAIT_WORD) awaited.bytes = facts.number;
  awaited.tag = text_of(facts.tag);
  wait.things.push_back(std::move(awaited));
  return wait;
}
static_assert(static_cast<int>(tap::Cause::answer) == HEDDLE_WAIT_ANSWER &&
              static_cast<int>(tap::Cause::receive) == HEDDLE_WAIT_MESSAGE &&
              static_cast<int>(tap::Cause::unreceived) == HEDDLE_WAIT_RECEIVE &&
              static_cast<int>(tap::Cause::collective) == HEDDLE_WAIT_COLLECTIVE &&
              static_cast<int>(tap::Cause::word) == HEDDLE_WAIT_WORD &&
              static_cast<int>(tap::Cause::lock) == HEDDLE_WAIT_LOCK);

}  // namespace

void Inspection::begin() {
  const std::uint64_t period = context_.bootstrap().watch_seconds() * base::kSecondNs;
  watched_ = context_.bootstrap().can_be_asked();
  notice_ns_ = std::min(kNoticeNs, period / 4);
  {
    const std::lock_guard lock(mutex_);
    board_.begin(context_.rank(), context_.size());
  }
  context_.bootstrap().observe(this);
}

void Inspection::named(std::uint64_t handle) {
  const std::lock_guard lock(mutex_);
  board_.name(handle);
}

void Inspection::add(Worker& worker) {
  engine::look_at_this_thread();
  const std::lock_guard lock(mutex_);
  Row& row = rows_.emplace_back();
  row.worker = &worker;
  row.answered = number_.load(std::memory_order_relaxed);
  try {
    board_.add(worker);
  } catch (...) {
    rows_.pop_back();
    throw;
  }
}

void Inspection::remove(Worker& worker) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return looked_at_ != &worker; });
  std::erase_if(rows_, [&](const Row& row) { return row.worker == &worker; });
  board_.remove(worker);
}

// ---- threads that wait --------------------------------------------------------------------------

Inspection::Thread* Inspection::find(std::uint32_t number) {
  const auto found = std::ranges::find(threads_, number, &Thread::number);
  return found == threads_.end() ? nullptr : &*found;
}

void Inspection::Thread::begin(const Waiting& what) {
  row.begin(what.call, what.worker);
  tell_ns = kTellNs;
}

void Inspection::Thread::tell(const tap::Wait& what, std::uint64_t now) {
  const std::uint64_t waited_ns = now - std::min(now, since);
  row.tell(what, waited_ns);
  if (tells(now)) tell_ns = waited_ns + std::min(waited_ns, kMostTellNs);
}

// If no launcher watches and the user has asked for it, the program's wait reports itself. Returns
// the number of seconds to report; 0: no report now. Heddle's own waits do likewise (Watch).
std::uint64_t Inspection::due_seconds(Thread& thread, const Waiting& waiting, std::uint64_t now) const {
  const base::Config& config = context_.environment().config;
  if (watched_ || waiting.tell == nullptr || !config.is_set(base::Var::hang_seconds)) return 0;
  const std::uint64_t seconds = config.number(base::Var::hang_seconds) * (thread.reports + 1);
  if (seconds == 0 || now - thread.since < seconds * base::kSecondNs) return 0;
  ++thread.reports;
  return seconds;
}

tap::Wait Inspection::told(const Waiting& waiting) {
  heddle_wait_facts facts = facts_of(waiting);
  return told_by(facts, {});
}

bool Inspection::speaks(const Waiting& waiting) {
  return waiting.tell != nullptr && !leaves_team_open(facts_of(waiting));
}

// Of a wait of which the program tells, where no launcher would report it.
void Inspection::report(const Waiting& waiting, std::uint64_t seconds) {
  heddle_wait_facts facts = facts_of(waiting);
  if (leaves_team_open(facts)) return;  // the call within the wait reports
  const tap::Wait wait = told_by(facts, {});
  std::string what = wait.awaited;
  if (what.empty() && wait.step)
    what = wait.step->operation + " #" + std::to_string(wait.step->number) + " of " + wait.step->team_name;
  context_.environment().log.say("%s has waited %llu s: %s", wait.call.c_str(),
                                 static_cast<unsigned long long>(seconds), what.c_str());
}

bool Inspection::note(const Waiting& waiting, std::uint64_t now) {
  bool tells = false;
  bool wanted = false;
  bool began = false;
  std::uint64_t reports = 0;
  {
    const std::lock_guard lock(mutex_);
    Thread* thread = find(this_thread());
    if (thread == nullptr) {
      std::erase_if(threads_, [&](const Thread& one) { return stale(one, now); });
      try {
        thread = &threads_.emplace_back();
      } catch (const std::bad_alloc&) {
        return false;  // the wait goes on, and reports go without it
      }
      thread->number = this_thread();
      thread->waiting = waiting;
      thread->since = thread->last = now;
      thread->answered = number_.load(std::memory_order_relaxed);
      thread->row = board_.enter(thread->number);
      began = true;
      engine::look_at_this_thread();
    }
    // A wait within a noted one: the outer one counts, as long as it is noted.
    const bool noted_within = waiting.tell != nullptr && waiting.arg != thread->waiting.arg && !stale(*thread, now);
    const bool within = thread->waiting.tell != nullptr && (waiting.tell == nullptr || noted_within);
    if (!within && (stale(*thread, now) || thread->waiting.call != waiting.call ||
                    thread->waiting.tell != waiting.tell || thread->waiting.arg != waiting.arg)) {
      thread->since = now;
      thread->told = false;
      thread->reports = 0;
      began = true;
    }
    if (began) thread->begin(waiting);
    thread->row.resumed();
    if (!within) thread->waiting = waiting;
    if (!within || waiting.tell == nullptr) thread->last = now;
    thread->inside = thread->waiting.tell == nullptr;
    tells = notice_ns_ != 0 && !thread->told && now - thread->since >= notice_ns_;
    thread->told = thread->told || tells;
    reports = due_seconds(*thread, waiting, now);
    wanted = (thread->answered != number_.load(std::memory_order_relaxed) || thread->tells(now)) &&
             !(within && waiting.tell != nullptr);
  }
  if (began && waiting.tell != nullptr) {
    const heddle_wait_facts facts = facts_of(waiting);
    const std::lock_guard lock(mutex_);
    if (Thread* thread = find(this_thread()); thread != nullptr) {
      thread->for_lock = facts.cause == HEDDLE_WAIT_LOCK;
      thread->row.begin(facts.call, waiting.worker);
    }
  }
  if (reports != 0) report(waiting, reports);
  if (tells && !context_.bootstrap().note_waiting()) {  // if this fails, the next round tries again
    const std::lock_guard lock(mutex_);
    if (Thread* thread = find(this_thread()); thread != nullptr) thread->told = false;
  }
  return wanted;
}

void Inspection::answer(From from, tap::Wait&& wait) noexcept {
  Waiting noted;
  {
    const std::lock_guard lock(mutex_);
    const Thread* thread = find(this_thread());
    if (thread == nullptr) return;
    noted = thread->waiting;
  }
  try {
    if (noted.tell != nullptr) {
      heddle_wait_facts facts = facts_of(noted);
      if (from == From::program && leaves_team_open(facts)) return;
      wait = told_by(facts, std::move(wait));
    } else if (wait.call.empty()) {
      wait.call = noted.call;
    }
  } catch (const std::bad_alloc&) {
    return;
  }
  const std::lock_guard lock(mutex_);
  Thread* thread = find(this_thread());
  if (thread == nullptr) return;
  wait.thread = thread->number;
  wait.worker = thread->waiting.worker;
  thread->tell(wait, context_.clock().now_ns());
  thread->wait = std::move(wait);
  thread->answered = number_.load(std::memory_order_relaxed);
  changed_.notify_all();
}

void Inspection::end(bool resumes, std::uint64_t now) noexcept {
  const std::lock_guard lock(mutex_);
  Thread* thread = find(this_thread());
  if (thread == nullptr || thread->waiting.tell != nullptr) return;
  thread->inside = false;
  thread->last = now;
  thread->row.returned();
  if (resumes) return;
  ++ends_;
  std::erase_if(threads_, [&](const Thread& one) { return &one == thread; });
}

void Inspection::end_noted(const void* arg) noexcept {
  const std::lock_guard lock(mutex_);
  const std::size_t ended = std::erase_if(threads_, [number = this_thread(), arg](const Thread& one) {
    return one.number == number && one.waiting.tell != nullptr && one.waiting.arg == arg;
  });
  ends_ += ended;
}

// ---- workers ------------------------------------------------------------------------------------

void Inspection::noticed(Worker& worker) noexcept {
  const std::uint64_t number = number_.load(std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    const auto row = std::ranges::find(rows_, &worker, &Row::worker);
    if (row == rows_.end() || row->answered == number) return;
  }
  try {
    engine::Findings findings(worker.context());
    find_inside(worker, findings);
    findings.state.seen = true;
    const std::lock_guard lock(mutex_);
    const auto row = std::ranges::find(rows_, &worker, &Row::worker);
    if (row == rows_.end()) return;
    row->state = std::move(findings.state);
    row->lines = std::move(findings.lines);
    row->answered = number;
    changed_.notify_all();
  } catch (const std::bad_alloc&) {
    return;  // the worker is reported without them
  }
}

// Looks at the workers that no thread has come by: each one whose gate lets this thread in. If a
// worker has no gate, this thread looks only at what any thread may read. A worker that is being
// looked at is not closed (remove()).
void Inspection::look_at_others() {
  std::unique_lock lock(mutex_);
  const std::uint64_t number = number_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    Worker* const worker = rows_[i].worker;
    if (rows_[i].answered == number) continue;
    looked_at_ = worker;
    const std::uint64_t polls = rows_[i].polls;
    lock.unlock();
    engine::Findings findings(context_);
    const bool told = worker->gate() != nullptr && look_inside(*worker, findings);
    const bool still = base::peek(worker->core().stats.polls) == polls;
    if (worker->gate() == nullptr) {
      look_from_outside(*worker, still, findings);
    } else if (!told) {
      // The thread inside may only be posting, slowly, or may have lost its core.
      findings.state.held = still && running(worker->core()).handler;
    }
    lock.lock();
    looked_at_ = nullptr;
    changed_.notify_all();
    const auto row = std::ranges::find(rows_, worker, &Row::worker);
    if (row == rows_.end() || row->answered == number) continue;
    row->state = std::move(findings.state);
    row->state.seen = false;  // no thread has come by it
    row->lines = std::move(findings.lines);
    row->answered = number;
  }
}

// ---- the launcher asks --------------------------------------------------------------------------

tap::Pulse Inspection::pulse() {
  tap::Pulse pulse;
  const std::uint64_t now = context_.clock().now_ns();
  // Movement that no worker shows: barriers of the job, collectives by memory, and waits that have
  // ended.
  pulse.moves = context_.exchanges();
  if (const Attachment* attached = context_.attachment(); attached != nullptr) pulse.moves += attached->moves();
  const std::lock_guard lock(mutex_);
  pulse.moves += ends_;
  for (const Row& row : rows_) {
    const Glimpse seen = glimpse(*row.worker);
    pulse.moves += seen.moves;
    pulse.calls += seen.calls;
  }
  for (const Thread& thread : threads_) {
    // Threads that serve may be idle for any time; the call that they are in is told all the same.
    if (stale(thread, now) || thread.waiting.call == kServes) continue;
    const std::uint64_t waited_ns = now - std::min(now, thread.since);
    pulse.waiting_ns = std::max(pulse.waiting_ns, waited_ns);
    if (thread.for_lock) pulse.for_lock_ns = std::max(pulse.for_lock_ns, waited_ns);
  }
  return pulse;
}

bool Inspection::all_answered(std::uint64_t now) const {
  const std::uint64_t number = number_.load(std::memory_order_relaxed);
  return std::ranges::all_of(rows_, [&](const Row& row) { return row.answered == number; }) &&
         std::ranges::all_of(threads_, [&](const Thread& one) { return one.answered == number || stale(one, now); });
}

std::vector<std::byte> Inspection::snapshot() {
  {
    const std::lock_guard lock(mutex_);
    number_.store(number_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    for (Row& row : rows_) row.polls = base::peek(row.worker->core().stats.polls);
  }
  context_.bootstrap().call_attention();
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::nanoseconds(kAnswersNs),
                      [&] { return all_answered(context_.clock().now_ns()); });
    // A worker may have no thread, but a thread that waits wakes once it gets a core.
    changed_.wait_for(lock, std::chrono::nanoseconds(kSlowAnswersNs), [&] {
      const std::uint64_t now = context_.clock().now_ns();
      const std::uint64_t number = number_.load(std::memory_order_relaxed);
      return std::ranges::all_of(threads_,
                                 [&](const Thread& one) { return one.answered == number || stale(one, now); });
    });
  }
  look_at_others();
  return tap::encode(gather());
}

tap::Snapshot Inspection::gather() {
  tap::Snapshot all = gather_waits();
  if (Attachment* attached = context_.attachment(); attached != nullptr) attached->tell(&all);
  if (const heddle_list_held list = list_held_.load(std::memory_order_relaxed); list != nullptr) {
    all.held.resize(tap::kMostListed);
    all.held.resize(std::min(list(all.held.data(), all.held.size()), all.held.size()));
  }
  return all;
}

// Those, and the workers.
tap::Snapshot Inspection::gather_waits() {
  tap::Snapshot all;
  const std::uint64_t now = context_.clock().now_ns();
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = number_.load(std::memory_order_relaxed);
  const auto say = [&](const char* format, auto... arguments) {
    std::array<char, tap::kMostText> line{};
    std::snprintf(line.data(), line.size(), format, arguments...);
    all.lines.emplace_back(line.data());
  };
  for (const Thread& thread : threads_) {
    if (stale(thread, now)) continue;
    tap::Wait wait = thread.answered == number ? thread.wait : tap::Wait{};
    if (wait.call.empty()) wait.call = thread.waiting.call != nullptr ? thread.waiting.call : "a loop of the program";
    wait.waited_ns = now - std::min(now, thread.since);
    wait.thread = thread.number;
    wait.worker = thread.waiting.worker;
    const std::string on = wait.worker == tap::kNobody ? "" : " on worker " + std::to_string(wait.worker);
    say("thread %u waits in %s%s for %.3g s%s%s", wait.thread, wait.call.c_str(), on.c_str(),
        static_cast<double>(wait.waited_ns) / 1e9, wait.awaited.empty() ? "" : ": ", wait.awaited.c_str());
    if (all.waits.size() < tap::kMostListed) all.waits.push_back(std::move(wait));
  }
  for (const Row& row : rows_) {
    tap::WorkerState state = row.answered == number ? row.state : tap::WorkerState{};
    state.index = row.worker->index();
    state.internal = state.index == context_.internal_worker();
    if (row.answered != number || (!state.seen && !state.held)) {
      say("worker %u: no thread has made progress on it while it was asked", state.index);
    }
    if (row.answered == number) all.lines.insert(all.lines.end(), row.lines.begin(), row.lines.end());
    if (all.workers.size() < tap::kMostListed) all.workers.push_back(std::move(state));
  }
  return all;
}

DebugBoard::~DebugBoard() {
  if (begun_) engine::hide_context(context_);
}

void DebugBoard::begin(std::uint32_t rank, std::uint32_t size) {
  context_.rank = rank;
  context_.size = size;
  context_.process = static_cast<std::uint64_t>(::getpid());
  begun_ = true;
  engine::show_context(context_);
}

void DebugBoard::add(Worker& worker) {
  const auto free = std::ranges::find(workers_, nullptr, [](const auto& row) { return row.first; });
  tap::DebugWorker* shown = free != workers_.end() ? free->second.get() : nullptr;
  if (shown == nullptr) {
    shown = workers_.emplace_back(&worker, std::make_unique<tap::DebugWorker>()).second.get();
    shown->next = context_.workers;
    context_.workers = shown;
  } else {
    free->first = &worker;
  }
  shown->value_count = shown->row_count = 0;
  show(worker, *shown);
  shown->open = 1;
}

void DebugBoard::remove(const Worker& worker) {
  const auto row = std::ranges::find(workers_, &worker, [](const auto& one) { return one.first; });
  if (row == workers_.end()) return;
  row->second->open = 0;
  row->first = nullptr;
}

DebugBoard::Row DebugBoard::enter(std::uint32_t thread) noexcept {
  const auto is_free = [](const auto& wait) { return wait->waits == tap::DebugWaiting::no; };
  const auto free = std::ranges::find_if(waits_, is_free);
  tap::DebugWait* wait = free != waits_.end() ? free->get() : nullptr;
  if (wait == nullptr) {
    try {
      wait = waits_.emplace_back(std::make_unique<tap::DebugWait>()).get();
    } catch (const std::bad_alloc&) {
      return Row();
    }
    wait->next = context_.waits;
    context_.waits = wait;
  }
  wait->thread = thread;
  return Row(wait);
}

void DebugBoard::Row::begin(const char* call, std::uint32_t worker) {
  if (wait_ == nullptr) return;
  tap::set_text(wait_->call, call != nullptr ? call : "a loop of the program");
  wait_->awaited[0] = '\0';
  wait_->worker = worker;
  wait_->thing_count = 0;
  wait_->told_ns = 0;
  wait_->waits = tap::DebugWaiting::yes;
}

void DebugBoard::Row::returned() {
  if (wait_ != nullptr) wait_->waits = tap::DebugWaiting::returned;
}

void DebugBoard::Row::resumed() {
  if (wait_ != nullptr) wait_->waits = tap::DebugWaiting::yes;
}

void DebugBoard::Row::tell(const tap::Wait& wait, std::uint64_t waited_ns) {
  if (wait_ == nullptr) return;
  tap::set_text(wait_->call, wait.call.c_str());
  tap::set_text(wait_->awaited, wait.awaited.c_str());
  wait_->told_ns = waited_ns;
  wait_->thing_count = 0;
  for (const tap::Awaited& awaited : wait.things) {
    if (wait_->thing_count == tap::DebugWait::kMostThings) break;
    tap::DebugThing& thing = wait_->things[wait_->thing_count++];
    thing.cause = static_cast<std::uint32_t>(awaited.cause);
    thing.rank = awaited.rank;
    thing.worker = awaited.worker;
    tap::set_text(thing.what, awaited.what.c_str());
    tap::set_text(thing.tag, awaited.tag.c_str());
  }
}

// The counters of this rank, told while it runs. They are read while other threads count.

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
  const protocol::Tasks& tasks = worker.messages().tasks();
  stats.tasks = tasks.ran();
  stats.stored = tasks.stored();
  stats.dropped += tasks.dropped();
  stats.failed += worker.core().operations.failed();
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

}  // namespace heddle::worker
