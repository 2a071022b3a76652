#include "worker/helpers.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "base/fence.hpp"
#include "base/threads.hpp"
#include "base/wait.hpp"
#include "engine/handlers.hpp"
#include "queue/handover.hpp"
#include "queue/locks.hpp"
#include "worker/gate.hpp"
#include "worker/worker.hpp"

namespace heddle::worker {

namespace {

// An owner that comes this often makes progress itself, or soon will.
constexpr std::uint64_t kOutsideNs = 5'000;
// An owner that has come for this long without making progress will not make any: it may be
// waiting, by try_ functions, for something that only progress brings.
constexpr std::uint64_t kNeglectNs = 1'000'000;
// Rounds of progress in one visit, so that one busy worker does not keep a helper from the others.
constexpr int kRounds = 16;
// Adaptive: how long the bell is looked at after the last event before sleeping. About what a
// wake-up costs both sides.
constexpr std::uint64_t kLookNs = 50'000;
// Between visits that found something under way, but nothing done.
constexpr std::uint64_t kFirstBackoffNs = 2'000;
constexpr std::uint64_t kMostBackoffNs = 100'000;
constexpr std::int64_t kFirstNapNs = 20'000;
// How long the end of a visit is waited for before its helper is fetched, and between further
// attempts.
constexpr std::int64_t kPatienceNs = 1'000'000;
// A wake-up cannot be lost, as far as we know; if one were, this is how long it would be felt.
constexpr std::int64_t kLongestSleepNs = 10'000'000'000;
// The same while a collective of this process waits for stores.
constexpr std::int64_t kLongestStoresNs = 50'000'000;

std::uint32_t kernel_number() {
  return static_cast<std::uint32_t>(::syscall(SYS_gettid));
}

void pin_to(int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  // else it runs elsewhere, at the same low priority
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

// Whether the engine's threads help it: not a worker with an executor, nor a worker of one thread
// alone.
bool helped(const Worker& worker) {
  return !worker.core().unshared && worker.sharing() != Sharing::offload;
}

// The processors this process may use.
std::vector<int> cores() {
  cpu_set_t all;
  CPU_ZERO(&all);
  std::vector<int> found;
  if (::sched_getaffinity(0, sizeof all, &all) != 0) return {-1};
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &all)) found.push_back(core);
  }
  return found;
}

}  // namespace

class Helpers::Visit {
 public:
  explicit Visit(Entry& entry) : entry_(entry) {
    entry_.visitors.fetch_add(1, std::memory_order_seq_cst);
    worker_ = entry_.worker.load(std::memory_order_seq_cst);
  }
  ~Visit() {
    if (entry_.visitors.fetch_sub(1, std::memory_order_seq_cst) != 1) return;
    // Partner: the store in remove(). A visitor that does not see the store has left before
    // remove() counts the visitors.
    if (entry_.worker.load(std::memory_order_seq_cst) == nullptr) {
      base::futex_wake_all(&entry_.visitors, base::FutexScope::process);
    }
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  [[nodiscard]] Worker* worker() const { return worker_; }

 private:
  Entry& entry_;
  Worker* worker_;
};

void Helpers::add(Worker* worker) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t index = worker->index();
  entries_[index].worker.store(worker, std::memory_order_seq_cst);
  if (used_.load(std::memory_order_relaxed) <= index) used_.store(index + 1, std::memory_order_release);
  if (threads_.empty() && policy_.helps() && worker->sharing() != Sharing::offload && worker->gate() != nullptr) {
    try {
      start();
    } catch (...) {
      entries_[index].worker.store(nullptr, std::memory_order_seq_cst);
      throw;
    }
  }
  transport_.ring();  // nobody knows it yet
}

void Helpers::remove(const Worker* worker) {
  Entry& entry = entries_[worker->index()];
  if (entry.worker.exchange(nullptr, std::memory_order_seq_cst) == nullptr) return;
  for (bool waited = false;; waited = true) {
    const std::uint32_t visitors = entry.visitors.load(std::memory_order_seq_cst);
    if (visitors == 0) return;
    if (waited) fetch_visitors(entry);
    base::futex_wait(&entry.visitors, visitors, kPatienceNs, base::FutexScope::process);
  }
}

void Helpers::attach(Attachment* attachment) {
  const std::lock_guard lock(mutex_);
  attachment_.store(attachment, std::memory_order_release);
  try {
    if (threads_.empty() && policy_.helps()) start();
  } catch (const std::system_error&) {
    threads_.clear();  // no helper threads: threads that wait move it on
  }
  transport_.ring();
}

// The visitors may have lost their cores during the visit.
void Helpers::fetch_visitors(const Entry& entry) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    const Seat& seat = seats_[i];
    if (seat.at.load(std::memory_order_relaxed) != &entry) continue;
    const std::uint32_t number = seat.number.load(std::memory_order_relaxed);
    queue::SystemHandover::bring(number, seat.number, number);
  }
}

void Helpers::stop() {
  stop_.store(true, std::memory_order_relaxed);
  stopped_.store(1, std::memory_order_release);
  base::futex_wake_all(&stopped_, base::FutexScope::process);
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    threads.swap(threads_);
  }
  transport_.ring();
  for (std::thread& thread : threads) thread.join();
}

Helpers::Owner Helpers::look_at_owner(Entry& entry, Worker& worker, std::uint64_t now) {
  const Gate& gate = *worker.gate();
  const std::uint64_t entries = gate.entries();
  if (entries != entry.entries.load(std::memory_order_relaxed)) {
    entry.entries.store(entries, std::memory_order_relaxed);
    entry.unchanged_since.store(now, std::memory_order_relaxed);
  } else if (now - entry.unchanged_since.load(std::memory_order_relaxed) >= kOutsideNs) {
    return Owner::outside;
  }
  const std::uint64_t polls = gate.polls();
  if (polls != entry.polls.load(std::memory_order_relaxed)) {
    entry.polls.store(polls, std::memory_order_relaxed);
    entry.advanced_at.store(now, std::memory_order_relaxed);
  }
  return now - entry.advanced_at.load(std::memory_order_relaxed) < kNeglectNs ? Owner::active : Owner::neglectful;
}

// Nothing has happened since a visit that left the worker quiet.
bool Helpers::unchanged(const Entry& entry, Worker& worker) {
  return entry.quiet.load(std::memory_order_relaxed) && worker.core().transport.armed() &&
         !worker.gate()->registered() && worker.gate()->entries() == entry.entries.load(std::memory_order_relaxed) &&
         worker.core().failure_epoch.load(std::memory_order_relaxed) == entry.epoch.load(std::memory_order_relaxed);
}

bool Helpers::workers_unchanged() {
  const std::uint32_t used = used_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < used; ++i) {
    const Visit visit(entries_[i]);
    if (visit.worker() == nullptr || !helped(*visit.worker())) continue;
    if (!unchanged(entries_[i], *visit.worker())) return false;
  }
  return true;
}

// `stores`: those are armed, which a collective under way waits for.
bool Helpers::all_unchanged(bool stores) {
  if (!workers_unchanged()) return false;
  Attachment* attachment = attachment_.load(std::memory_order_acquire);
  if (attachment == nullptr || !attachment->active()) return true;
  return stores && attachment->advance() != Attachment::Found::moved;
}

// By the barrier, an application thread that enters a gate meanwhile sees asleep_ on its way out,
// or is seen here. False: there was something to do, or `stores` do not ring.
bool Helpers::sleep(std::uint32_t seen, bool stores) {
  if (stores && (!workers_unchanged() || !transport_.arm_stores())) return false;
  asleep_.fetch_or(kHelper, std::memory_order_relaxed);
  base::full_fence();
  const bool ordered = base::membarrier_private();
  if (stores) transport_.settle();
  const bool sleeps = all_unchanged(stores) && !stop_.load(std::memory_order_relaxed);
  if (sleeps) {
    const std::int64_t looks = crowd_.longest_nap_ns();
    const std::int64_t ns = !ordered ? looks : stores ? std::max(kLongestStoresNs, looks) : kLongestSleepNs;
    transport_.wait(seen, ns, queue::kEveryPlace);
  }
  asleep_.fetch_and(~kHelper, std::memory_order_relaxed);
  return sleeps;
}

Helpers::Found Helpers::visit(Entry& entry, Worker& worker, std::uint32_t number) {
  if (!helped(worker) || unchanged(entry, worker)) return Found::nothing;
  // A visit disturbs the cores of other threads, so visits to workers that only wait for something
  // else are not repeated all the time.
  const std::uint64_t now = clock_.now_ns();
  // Helpers submit registered messages at once. A message that a visit has met and that did not
  // leave waits as everything else does.
  const SmallOffload* small = worker.gate()->small_offload();
  const std::uint64_t messages = small == nullptr ? 0 : small->registered_messages();
  const bool registered = messages != entry.registered.load(std::memory_order_relaxed) && worker.gate()->registered();
  if (!registered && now < entry.not_before.load(std::memory_order_relaxed) &&
      worker.core().transport.armed() == entry.was_armed.load(std::memory_order_relaxed)) {
    return Found::later;
  }
  const Owner owner = look_at_owner(entry, worker, now);
  if (owner == Owner::active) {
    entry.quiet.store(false, std::memory_order_relaxed);
    // An owner that registers a message and goes away is outside in a moment; one that stays
    // submits the message itself.
    return registered ? Found::events : Found::later;
  }
  entry.epoch.store(worker.core().failure_epoch.load(std::memory_order_relaxed), std::memory_order_relaxed);
  const std::uint64_t refused = entry.refused_since.load(std::memory_order_relaxed);
  const bool waited = refused != 0 && now - refused >= kNeglectNs;
  const auto [visited, quiet, events] = let_in(worker, number, owner == Owner::neglectful || waited);
  if (!visited && waited) worker.gate()->fetch_helper();
  const Found found = events > 0 ? Found::events : quiet ? Found::nothing : Found::later;
  if (visited) entry.advanced_at.store(now, std::memory_order_relaxed);
  if (visited) entry.registered.store(messages, std::memory_order_relaxed);
  if (visited || refused == 0) entry.refused_since.store(visited ? 0 : now, std::memory_order_relaxed);
  entry.quiet.store(quiet, std::memory_order_relaxed);
  entry.was_armed.store(worker.core().transport.armed(), std::memory_order_relaxed);
  const std::uint64_t backoff =
      found == Found::later
          ? std::min(2 * entry.backoff.load(std::memory_order_relaxed) + kFirstBackoffNs, kMostBackoffNs)
          : 0;
  entry.backoff.store(backoff, std::memory_order_relaxed);
  entry.not_before.store(now + backoff, std::memory_order_relaxed);
  return found;
}

Helpers::Outcome Helpers::let_in(Worker& worker, std::uint32_t number, bool urgent) {
  Outcome outcome;
  outcome.visited = worker.gate()->try_visit(number, urgent, [&] {
    for (int round = 0; round < kRounds; ++round) {
      const int got = worker.gate()->advance();
      outcome.events += std::max(got, 0);
      if (got > 0 && !worker.gate()->wanted()) continue;
      if (got > 0 || !worker.completer().arm()) break;
      transport_.settle();
      if (!worker.core().transport.has_arrivals()) {
        // commands that the transport refused wait there for the next look
        outcome.quiet = !worker.gate()->queued();
        break;
      }
    }
  });
  return outcome;
}

Helpers::Found Helpers::sweep(Seat& seat, std::uint32_t number) {
  Found found = Found::nothing;
  const std::uint32_t used = used_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < used && !stop_.load(std::memory_order_relaxed); ++i) {
    seat.at.store(&entries_[i], std::memory_order_relaxed);
    {
      const Visit at(entries_[i]);
      if (at.worker() != nullptr) found = std::max(found, visit(entries_[i], *at.worker(), number));
    }
    seat.at.store(nullptr, std::memory_order_relaxed);
  }
  return std::max(found, sweep_attachment());
}

Helpers::Found Helpers::sweep_attachment() {
  Attachment* attachment = attachment_.load(std::memory_order_acquire);
  if (attachment == nullptr) return Found::nothing;
  switch (attachment->advance()) {
    case Attachment::Found::nothing:
      return Found::nothing;
    case Attachment::Found::waits:
      return Found::soon;
    case Attachment::Found::moved:
      break;
  }
  return Found::events;
}

int Helpers::advance_all() {
  const std::uint32_t number = kernel_number() | queue::SystemHandover::kStays;
  const std::uint32_t used = used_.load(std::memory_order_acquire);
  int events = 0;
  for (std::uint32_t i = 0; i < used; ++i) {
    const Visit at(entries_[i]);
    if (at.worker() == nullptr || at.worker()->gate() == nullptr) continue;
    Gate& gate = *at.worker()->gate();
    static_cast<void>(gate.try_visit(number, false, [&] { events += std::max(gate.advance(), 0); }));
  }
  events += sweep_attachment() == Found::events ? 1 : 0;
  return events;
}

int Helpers::attend(Entry& entry, Worker& worker, std::uint32_t* number, bool thorough) {
  int events = 0;
  Gate* const gate = worker.gate();
  if (gate == nullptr) {
    static_cast<void>(worker.ownership().attend([&] { events = std::max(worker.completer().progress(), 0); }));
    return events;
  }
  if (!thorough && gate->disturbs()) return 0;
  const std::uint64_t polls = gate->polls();
  if (entry.attended_polls.exchange(polls, std::memory_order_relaxed) != polls) return 0;
  if (*number == 0) *number = kernel_number() | queue::SystemHandover::kStays;
  // It counts as a poll: a helper leaves a worker alone that threads attend to. A thorough look may
  // be the last one before a long sleep: then the helper must arm the worker.
  static_cast<void>(
      gate->try_visit(*number, false, [&] { events = std::max(thorough ? gate->advance() : gate->attend(), 0); }));
  entry.attended_polls.store(gate->polls(), std::memory_order_relaxed);
  return events;
}

int Helpers::attend(bool thorough) {
  std::uint32_t number = 0;  // asked for only if it is needed
  const std::uint32_t used = used_.load(std::memory_order_acquire);
  int events = 0;
  for (std::uint32_t i = 0; i < used; ++i) {
    if (entries_[i].worker.load(std::memory_order_relaxed) == nullptr) continue;
    const Visit at(entries_[i]);
    if (at.worker() != nullptr) events += attend(entries_[i], *at.worker(), &number, thorough);
  }
  return events;
}

std::uint64_t Helpers::moved_but(const Worker& one) {
  const std::uint32_t used = used_.load(std::memory_order_acquire);
  std::uint64_t moved = 0;
  for (std::uint32_t i = 0; i < used; ++i) {
    const Worker* const worker = entries_[i].worker.load(std::memory_order_relaxed);
    if (worker == nullptr || worker == &one) continue;
    const Visit at(entries_[i]);
    if (at.worker() != nullptr) moved += at.worker()->moved();
  }
  return moved;
}

Rest Helpers::lie_down(queue::Places* places) {
  Rest least = Rest::whole;
  const std::uint32_t used = used_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < used; ++i) {
    if (entries_[i].worker.load(std::memory_order_relaxed) == nullptr) continue;
    const Visit at(entries_[i]);
    if (at.worker() == nullptr) continue;
    Worker& worker = *at.worker();
    Rest rest = Rest::whole;
    bool looked = true;
    if (worker.gate() == nullptr) {
      looked = worker.ownership().attend([&] { rest = worker.lie_down(); });
    } else if (helped(worker) && policy_.helps()) {
      continue;  // a helper looks after it
    } else if (looked = helped(worker) && !worker.gate()->disturbs(); looked) {
      rest = worker.lie_down();
    }
    if (!looked) rest = Rest::polls;  // for as long as its own threads are there
    if (rest == Rest::none) return rest;
    least = std::max(least, rest);
    if (looked) *places |= queue::place(worker.index());
  }
  return least;
}

// ---- the threads --------------------------------------------------------------------------------

void Helpers::start() {
  stop_.store(false, std::memory_order_relaxed);
  std::vector<int> places;
  if (policy_.kind == PolicyKind::idle) places = cores();
  if (policy_.kind == PolicyKind::dedicated) places.assign(policy_.threads, -1);
  if (policy_.kind == PolicyKind::adaptive) places = {-1};
  seats_ = std::make_unique<Seat[]>(places.size());
  try {
    for (const int core : places) {
      Seat& seat = seats_[threads_.size()];
      threads_.push_back(base::start_quiet_thread([this, core, &seat] { run(core, seat); }));
    }
  } catch (...) {
    // Those that have started are enough; stop() ends them.
    if (threads_.empty()) throw;
  }
}

void Helpers::cool_down(int core) const {
  pthread_setname_np(pthread_self(), "heddle-progress");
  if (core >= 0) pin_to(core);
  if (policy_.kind == PolicyKind::dedicated) return;
  if (policy_.kind == PolicyKind::adaptive) {
    // It sleeps when it has nothing to do, so it need not be kept away by SCHED_IDLE, under which
    // it would wake late.
    constexpr int kLowest = 19;
    ::setpriority(PRIO_PROCESS, kernel_number(), kLowest);
    return;
  }
  const sched_param none{};
  pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);  // always allowed
}

void Helpers::run(int core, Seat& seat) {
  engine::look_at_this_thread();  // it may run handlers
  base::prepare_thread();
  const std::uint32_t number = kernel_number();
  queue::be_helper(number);
  seat.number.store(number, std::memory_order_relaxed);
  cool_down(core);
  cpu_set_t home;
  const bool known = pthread_getaffinity_np(pthread_self(), sizeof home, &home) == 0;
  std::int64_t nap_ns = kFirstNapNs;
  std::uint64_t quiet_since = clock_.now_ns();
  std::uint32_t moves = queue::SystemHandover::moves();
  Aside aside;
  while (!stop_.load(std::memory_order_relaxed)) {
    const std::uint32_t seen = transport_.bell();
    const Found found = sweep(seat, number);
    rounds_.fetch_add(1, std::memory_order_relaxed);
    if (const std::uint32_t now = queue::SystemHandover::moves(); now != moves) {
      moves = now;
      if (known) pthread_setaffinity_np(pthread_self(), sizeof home, &home);
    }
    if (found == Found::events || !stands_aside(&aside)) pause(found, seen, &nap_ns, &quiet_since);
  }
}

// True: it has slept.
bool Helpers::stands_aside(Aside* aside) {
  if (policy_.kind != PolicyKind::adaptive || !crowd_.crowded()) return false;
  const std::uint64_t turns = crowd_.turns();
  if (std::exchange(aside->turns, turns) == turns) {
    aside->nap_ns = 0;
    return false;
  }
  aside->nap_ns = std::clamp(2 * aside->nap_ns, 2 * crowd_.brief_nap_ns(), crowd_.longest_nap_ns());
  aside_.store(true, std::memory_order_relaxed);
  const std::uint64_t before = clock_.now_ns();
  base::futex_wait(&stopped_, 0, aside->nap_ns, base::FutexScope::process);
  aside_.store(false, std::memory_order_relaxed);
  look_for_strangers(before, aside);
  return true;
}

// It has the lowest priority: if it is awake in time, nobody computes on its core.
void Helpers::look_for_strangers(std::uint64_t before, Aside* aside) {
  const std::uint64_t now = clock_.now_ns();
  const std::uint64_t slept = now - before;
  const auto wanted = static_cast<std::uint64_t>(aside->nap_ns);
  const bool prompt = slept >= wanted && slept < wanted + kPromptNs && crowd_.strangers(now);
  const std::size_t core = base::Crowd::core_number();
  const bool here = std::exchange(aside->core, core) == core;
  aside->prompt = !prompt ? 0 : here ? aside->prompt + 1 : 1;
  if (aside->prompt < kPromptSleeps) return;
  crowd_.found_free(core, now);
  aside->prompt = 0;
}

void Helpers::pause(Found found, std::uint32_t seen, std::int64_t* nap_ns, std::uint64_t* quiet_since) {
  if (found == Found::events) {
    *nap_ns = kFirstNapNs;
    *quiet_since = clock_.now_ns();
    return;
  }
  if (policy_.kind != PolicyKind::adaptive) {
    for (int i = 0; i < 32 && transport_.bell() == seen; ++i) base::cpu_relax();
    if (policy_.kind == PolicyKind::dedicated) ::sched_yield();
    return;
  }
  // Stores by other processes may ring no bell. The thread looks for them all the time while they
  // may come any moment, then from time to time; if it has done so for long, it asks for the bell.
  const bool soon = found == Found::soon && clock_.now_ns() - *quiet_since < kLookNs;
  if (found == Found::later || (found == Found::soon && !soon)) {
    if (found == Found::soon && *nap_ns >= base::Crowd::kLongestNapNs && sleep(seen, true)) return;
    transport_.wait(seen, *nap_ns, queue::kEveryPlace);
    *nap_ns = std::min(2 * *nap_ns, crowd_.longest_nap_ns());
    return;
  }
  *nap_ns = kFirstNapNs;
  if (soon) ::sched_yield();
  if (clock_.now_ns() - *quiet_since < kLookNs) {
    for (int i = 0; i < 64 && transport_.bell() == seen; ++i) base::cpu_relax();
    return;
  }
  static_cast<void>(sleep(seen, false));
  *quiet_since = clock_.now_ns();
}

std::optional<Policy> policy_named(std::string_view text) {
  constexpr std::string_view kDedicated = "dedicated";
  if (text == "none") return Policy{PolicyKind::none, 0};
  if (text == "idle") return Policy{PolicyKind::idle, 0};
  if (text == "adaptive") return Policy{PolicyKind::adaptive, 1};
  if (text == kDedicated) return Policy{PolicyKind::dedicated, 1};
  if (!text.starts_with("dedicated:")) return std::nullopt;
  text.remove_prefix(kDedicated.size() + 1);
  std::uint32_t threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (threads < 1 || threads > Policy::kMostDedicated) return std::nullopt;
  return Policy{PolicyKind::dedicated, threads};
}

std::optional<OffloadPolicy> offload_policy_named(std::string_view text) {
  if (text == "off") return OffloadPolicy::off;
  if (text == "on") return OffloadPolicy::on;
  if (text == "auto") return OffloadPolicy::automatic;
  return std::nullopt;
}

void SmallOffload::learn(Average& average, std::uint64_t ns) {
  // A sample that took longer was interrupted.
  constexpr std::uint64_t kMost = 1'000'000;
  const auto sample = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(ns, 1, kMost) * kUnit);
  const std::uint32_t before = average.load(std::memory_order_relaxed);
  average.store(before == 0 ? sample : before - before / 8 + sample / 8, std::memory_order_relaxed);
}

bool SmallOffload::pays(const Class& of) const {
  const std::uint64_t gain =
      std::uint64_t{of.submit_ns.load(std::memory_order_relaxed)} * of.share.load(std::memory_order_relaxed) / kWhole;
  return gain > register_ns_.load(std::memory_order_relaxed) + std::uint64_t{visit_ns_} * kUnit;
}

SmallOffload::Plan SmallOffload::plan(std::uint64_t bytes, std::uint64_t rounds, bool asleep) {
  if (policy_ != OffloadPolicy::automatic) return {policy_ == OffloadPolicy::on, false};
  Class& of = classes_[class_of(bytes)];
  const std::uint32_t turn = of.turns.load(std::memory_order_relaxed);
  of.turns.store(turn + 1, std::memory_order_relaxed);
  const bool ready = rounds != rounds_.load(std::memory_order_relaxed) && !asleep;
  rounds_.store(rounds, std::memory_order_relaxed);
  const bool sample = turn % kSample == 0;
  if (of.submit_ns.load(std::memory_order_relaxed) == 0) return {false, true};
  if (!ready) return {false, sample};
  if (register_ns_.load(std::memory_order_relaxed) == 0) return {true, true};
  const bool other = turn % kExplore == kExplore - 1;
  return {pays(of) != other, sample || other};
}

void SmallOffload::executed(std::uint64_t bytes, bool by_helper) {
  if (by_helper) helped_.fetch_add(1, std::memory_order_relaxed);
  std::atomic<std::uint32_t>& share = classes_[class_of(bytes)].share;
  const std::uint32_t before = share.load(std::memory_order_relaxed);
  share.store(before - before / 8 + (by_helper ? kWhole / 8 : 0), std::memory_order_relaxed);
}

}  // namespace heddle::worker
