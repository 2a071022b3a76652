// Collectives of a context: barriers by memory (queue/meeting.hpp), and all others through the
// bootstrap. Leaving the job is the last one.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/fence.hpp"
#include "base/wait.hpp"
#include "tap/probes.hpp"
#include "worker/context.hpp"
#include "worker/worker.hpp"

namespace heddle::worker {
namespace {

// A wait looks at the workers that other ranks may be waiting for. During its first kSpinning
// fruitless rounds it looks in every kOthers-th round, since each look holds up the wait. Later,
// when each round is long, it looks in every round.
constexpr std::uint32_t kOthers = 64;
constexpr std::uint32_t kSpinning = 1024;
// One in kThorough of the looks in every kOthers-th round includes all workers, and not only those
// where a look disturbs no owner.
constexpr std::uint32_t kThorough = 4;

// The head of each part of an exchange.
struct Head {
  Collective kind;
  std::uint8_t meets;  // 1: this rank reaches the words for barriers
};
static_assert(sizeof(Head) == kExchangeHead);
static_assert(bootstrap::kMaxExchangeBytes >= kExchangeHead + kMostExchanged);

// Each look reads all words. With more ranks than this the bootstrap is no slower.
constexpr std::uint32_t kMostMeeting = 64;

// Ranks in one process reach the words through different mappings, so ThreadSanitizer does not see
// that the words are the same. This word, which it does see, shows it the order.
void show_order() {
  if constexpr (base::kThreadSanitizer) {
    static std::atomic<int> word{0};
    word.fetch_add(1, std::memory_order_acq_rel);
  }
}

// Messages order what other threads do for peers inside the worker: it comes after this thread's
// arrival, or before its return. ThreadSanitizer does not see this order if both ends of the
// messages are in one process, each with its own mapping of the segment. It sees the gate. So this
// function enters the gate, and waits for the thread that is inside.
void show_order(Worker* worker) {
  if (base::kThreadSanitizer && worker != nullptr) static_cast<void>(worker->unfinished_operations());
}

const char* name_of(Collective kind) {
  switch (kind) {
    case Collective::barrier:
      return "heddle_context_barrier";
    case Collective::exchange:
      return "heddle_context_exchange";
    case Collective::region_exchange:
      return "heddle_region_exchange";
    case Collective::leave:
      return "heddle_context_leave";
    case Collective::team:
      return "heddle_team_world";
  }
  return "a collective of another version";
}

}  // namespace

bool Context::begin_nap(std::span<Worker* const> workers, bool attends, Nap* nap) {
  if (transport().capabilities().sleeping == transport::Sleeping::impossible) {
    for (Worker* worker : workers) static_cast<void>(worker->lie_down());  // which counts the naps
    // less than a second, see Crowd
    const timespec length{0, nap->ns};
    note_sleep(tap::TraceEvent::sleep_begin, nap->ns);
    const base::ShortSlack slack(nap->ns < base::Crowd::kLongestNapNs);
    ::nanosleep(&length, nullptr);
    note_sleep(tap::TraceEvent::sleep_end, nap->ns);
    return false;
  }
  // It naps because strangers are suspected: a helper finds out whether the core has become free.
  const bool young = nap->ns <= 2 * base::Crowd::kShortestNapNs;
  if (young && helpers_->asleep() && crowd_.crowded() && crowd_.strangers(clock().now_ns())) helpers_->wake();
  nap->rings = transport().capabilities().rings_all;
  nap->seen = transport().bell();
  if (nap->stores && (nap->stores = transport().arm_stores())) nap->places |= queue::kStoresPlace;
  for (Worker* worker : workers) {
    nap->places |= queue::place(worker->index());
    bool armed = false;  // not if an executor is about to handle what comes: it rings nobody then
    const Worker::Rest rest = worker->lie_down(&armed);
    if (rest == Worker::Rest::none) return false;
    if (rest == Worker::Rest::brief) nap->ns = std::min(nap->ns, crowd_.brief_nap_ns());
    nap->rings = nap->rings && armed && rest == Worker::Rest::whole;
  }
  if (attends) {
    const Worker::Rest rest = helpers_->lie_down(&nap->places);
    if (rest == Worker::Rest::none) return false;
    if (rest == Worker::Rest::brief) nap->ns = std::min(nap->ns, crowd_.brief_nap_ns());
    nap->rings = nap->rings && rest == Worker::Rest::whole;
  }
  if (nap->stores) transport().settle();
  return true;
}

void Context::sleep(const Nap& nap) {
  note_sleep(tap::TraceEvent::sleep_begin, nap.ns);
  const base::ShortSlack slack(nap.ns < base::Crowd::kLongestNapNs);
  transport().wait(nap.seen, nap.ns, nap.places != 0 ? nap.places : queue::kEveryPlace);
  note_sleep(tap::TraceEvent::sleep_end, nap.ns);
}

// `moved`: sleep only if the first worker has not moved since; null: always.
bool Context::nap_unless(std::span<Worker* const> workers, Length length, const std::uint64_t* moved, bool attends) {
  Nap nap{.ns = length.ns};
  if (!begin_nap(workers, attends, &nap)) return true;
  if (nap.rings && length.rung_ns > length.ns) helpers_->note_sleeper();
  if (moved != nullptr && workers.front()->moved() != *moved) return false;
  if (nap.rings) nap.ns = length.rung_ns;
  sleep(nap);
  return true;
}

void Context::note_sleep(tap::TraceEvent event, std::int64_t ns) const {
  event == tap::TraceEvent::sleep_begin ? tap::probe_sleep_begin(ns) : tap::probe_sleep_end();
  if (tracer() == nullptr) return;
  tap::TraceRecord record{};
  record.worker = tap::kNoTraceWorker;
  record.event = event;
  tracer()->note(record);
}

void Context::note_entered(std::uint64_t team, std::uint64_t number, std::uint32_t members) const {
  if (tracer() == nullptr) return;
  tap::TraceRecord record{};
  record.id = team;
  record.bytes = number;
  record.rank = members;
  record.worker = tap::kNoTraceWorker;
  record.event = tap::TraceEvent::entered;
  tracer()->note_wait(record);
}

base::Status Context::start_exchange(Collective kind, std::span<const std::byte> mine) {
  const bool meets = size() <= kMostMeeting && transport().common_words().size() == size();
  const Head head{kind, meets ? std::uint8_t{1} : std::uint8_t{0}};
  std::vector<std::byte> bytes(kExchangeHead + mine.size());
  std::memcpy(bytes.data(), &head, sizeof head);
  std::copy(mine.begin(), mine.end(), bytes.begin() + kExchangeHead);
  return bootstrap().exchange_start(bytes);
}

// Takes off what start_exchange() has put before each part. Every rank sees the same parts, so if
// one rank finds that ranks disagree, all of them do. All ranks open the meeting after the same
// exchange, the first one in which every rank could.
base::Status Context::take_heads(Collective kind, std::vector<std::vector<std::byte>>* all) {
  std::uint32_t meet = 0;
  std::uint32_t other = size();  // the first that is in another collective
  Head found{kind, 0};
  for (std::uint32_t rank = size(); rank-- > 0;) {
    std::vector<std::byte>& part = (*all)[rank];
    if (part.size() < sizeof(Head)) {
      return base::fail(HEDDLE_ERR_PROTOCOL, "rank %u does not say in which collective it is", rank);
    }
    Head head{};
    std::memcpy(&head, part.data(), sizeof head);
    part.erase(part.begin(), part.begin() + kExchangeHead);
    meet += head.meets == 1 ? 1 : 0;
    if (head.kind == kind) continue;
    other = rank;
    found = head;
  }
  if (meet == size() && !meets_) {
    meets_ = true;
    meeting_ = queue::Meeting<>(transport().common_words(), rank());
  }
  if (other == size()) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_STATE,
                    "rank %u is in %s, this rank in %s: all ranks call the same collectives in the same order", other,
                    name_of(found.kind), name_of(kind));
}

std::string Context::missing() {
  std::string who;
  for (const std::uint32_t other : by_memory_ ? meeting_.awaited() : bootstrap().awaited()) {
    who += (who.empty() ? ": missing is rank " : ", ") + std::to_string(other);
  }
  return who;
}

void Context::describe_awaited(Collective kind, tap::Wait& wait) {
  awaits(wait, "%s%s", tap::kNotAllArrived, missing().c_str());
  wait.step = {0, exchanges_, size(), "all ranks", name_of(kind)};
}

base::Status Context::not_arrived(std::int64_t timeout_ns) {
  const std::string who = missing();
  return base::fail(HEDDLE_ERR_TIMEOUT, "not all ranks have arrived within %lld ns%s",
                    static_cast<long long>(timeout_ns), who.c_str());
}

base::Status Context::begin_exchange(Collective kind, std::span<const std::byte> mine) {
  by_memory_ = kind == Collective::barrier && meets_;
  if (!by_memory_) {
    if (const base::Status status = start_exchange(kind, mine); status != HEDDLE_DONE) return status;
  }
  // This tells the ranks in a barrier by memory to turn to the bootstrap.
  show_order();
  if (meets_) meeting_.enter(kind == Collective::barrier);
  in_exchange_ = true;
  ++exchanges_;
  note_entered(0, exchanges_, size());
  return HEDDLE_DONE;
}

// AGAIN: not all have come.
base::Status Context::test_exchange(Collective kind, std::vector<std::vector<std::byte>>* all) {
  if (by_memory_) {
    using Found = queue::Meeting<>::Found;
    const auto failed = [this](std::uint32_t rank) { return bootstrap().failed(rank); };
    // A rank may be told that it is itself dead, by a test.
    const Found found = failed(rank()) ? Found::astray : meeting_.look(failed);
    if (found == Found::waiting) return HEDDLE_AGAIN;
    if (found == Found::all) {
      show_order();
      in_exchange_ = false;
      return HEDDLE_DONE;
    }
    if (const base::Status status = start_exchange(kind, {}); status != HEDDLE_DONE) {
      in_exchange_ = false;
      return status;
    }
    by_memory_ = false;
  }
  const base::Status status = bootstrap().exchange_test(all);
  if (status == HEDDLE_AGAIN) return status;
  in_exchange_ = false;
  return status == HEDDLE_DONE ? take_heads(kind, all) : status;
}

// Peers may be waiting for this rank's part of what is under way there.
int Context::progress_attachment() {
  Attachment* attached = attachment();
  return attached != nullptr && attached->advance() == Attachment::Found::moved ? 1 : 0;
}

// Others may wait for this rank's part of a collective, or for what its workers do.
int Context::attend(std::uint32_t round, bool naps) {
  const bool often = round % kOthers == 0 || naps;
  if (!often && round < kSpinning) return 0;
  const int events = often ? progress_attachment() : 0;
  return events + helpers_->attend(naps || round % (kThorough * kOthers) == 0);
}

base::Status Context::exchange(const Exchange& exchange, std::vector<std::vector<std::byte>>* all) {
  if (engine::inside_of() != nullptr) return engine::reject_wait(name_of(exchange.kind));
  const std::unique_lock lock(exchange_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    return base::fail(HEDDLE_ERR_STATE,
                      "another thread of this rank is in a barrier or exchange; one at a time per context");
  }
  if (in_exchange_ && exchange.kind != Collective::barrier) {
    return base::fail(HEDDLE_ERR_STATE, "a barrier of this rank has timed out and is still open; call it again first");
  }
  if (!in_exchange_) {
    show_order(exchange.worker);
    base::show_told();
    if (const base::Status status = begin_exchange(exchange.kind, exchange.mine); status != HEDDLE_DONE) return status;
  }
  const std::span<Worker* const> workers(&exchange.worker, exchange.worker != nullptr ? 1 : 0);
  base::Waiter waiter(clock(), exchange.timeout_ns, &crowd_);
  Watch watch(*this, exchange.worker, name_of(exchange.kind));
  std::uint32_t rounds = 0;
  std::uint32_t naps = 0;
  for (;;) {
    const base::Status status = test_exchange(exchange.kind, all);
    if (status != HEDDLE_AGAIN) {
      show_order(exchange.worker);
      if (status == HEDDLE_DONE) base::show_learnt();
      return status;
    }
    int events = exchange.worker != nullptr ? exchange.worker->progress() : 0;
    if (events == 0) events = attend(++rounds, waiter.nap_ns() > 0);
    if (events < 0) return static_cast<base::Status>(events);
    if (!(events > 0 ? waiter.busy() : waiter.idle())) {
      watch.may_resume();
      return not_arrived(exchange.timeout_ns);
    }
    if (const std::int64_t ns = waiter.nap_ns(); ns > 0) {
      // Everything that this thread is needed for wakes it: the result, messages, a death. Hundreds
      // of ranks that wait for the last one to start would only take its core from it.
      // Not for the first nap, before which something may have rung since the last look, nor while
      // operations are under way, whose steps ring nobody.
      const bool rings = ++naps > 1 && !by_memory_ && exchange.timeout_ns < 0 &&
                         (attachment() == nullptr || !attachment()->active()) &&
                         (exchange.worker == nullptr || exchange.worker->unfinished_operations() == 0);
      nap_attending(workers, rings ? std::max(ns, crowd_.longest_nap_ns()) : ns);
    }
    watch.round([&](tap::Wait& wait) { describe_awaited(exchange.kind, wait); }, waiter.nap_ns() > 0);
  }
}

}  // namespace heddle::worker
