#include "worker/worker.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <new>

#include "base/error.hpp"
#include "base/fence.hpp"
#include "engine/tapped.hpp"
#include "protocol/requests.hpp"
#include "tap/probes.hpp"
#include "worker/extension.hpp"
#include "worker/gate.hpp"

namespace heddle::worker {

base::Result<std::unique_ptr<Worker>> Worker::open(Context& context, std::uint32_t index, const Traits& traits) {
  const std::uint64_t operations = context.environment().config.number(base::Var::worker_operations);
  auto transport = context.transport().open_worker(index);
  if (!transport) return transport.status();
  std::unique_ptr<Worker> worker(new Worker(context, index, traits, std::move(*transport)));
  for (const ProtocolEntry& entry : protocol_table()) worker->add(entry.open, entry.rows);
  if (context.extension() != nullptr) worker->add(context.extension(), std::array{wire::kExtensionRow});
  if (traits.sharing != Sharing::exclusive || traits.helped) {
    worker->counts_.share();
    // As many records as operations: the queue is full when that many wait.
    worker->gate_ =
        Gate::make(*worker, traits.sharing, static_cast<std::uint32_t>(operations), context.small_offload());
  }
  context.objects().add(*worker);  // complete from here on: any thread may ask what it names
  return worker;
}

Worker::Worker(Context& context, std::uint32_t index, const Traits& traits,
               std::unique_ptr<transport::TransportWorker> transport)
    : context_(context),
      index_(index),
      sharing_(traits.sharing),
      size_(context.size()),
      max_workers_(context.transport().capabilities().max_workers),
      max_payload_(context.environment().config.number(base::Var::am_max_bytes)),
      transport_([&]() -> std::unique_ptr<transport::TransportWorker> {
        const transport::Capabilities& capabilities = context.transport().capabilities();
        if (tap::Tracer* const tracer = context.tracer(); tracer != nullptr) {
          const engine::TracingWorker::Place place{index, context.size(), capabilities.max_workers};
          transport = std::make_unique<engine::TracingWorker>(std::move(transport), *tracer, place);
        }
        if (context.probes()) transport = std::make_unique<engine::ProbingWorker>(std::move(transport), index);
        if (base::has_thread_sanitizer())
          transport = std::make_unique<engine::OrderingWorker>(std::move(transport), context.rank(), index);
        return std::move(transport);
      }()),
      core_(context.objects(), index, *transport_, traits.sharing == Sharing::exclusive && !traits.helped),
      messages_(core_),
      tagged_(core_),
      completer_(core_),
      traits_(traits) {
  core_.attentive = this;
  if (!core_.unshared) ownership_.renounce();
  // The protocols whose functions the worker calls. open() adds the others.
  completer_.add(wire::row_of(wire::Kind::active_message), messages_);
  completer_.add(wire::row_of(wire::Kind::fragment), messages_);
  completer_.add(wire::row_of(wire::Kind::user), messages_);
  completer_.add(wire::row_of(wire::Kind::tagged), tagged_);
}

void Worker::add(OpenExtension open_one, std::span<const std::uint32_t> rows) {
  others_.push_back(open_one(*this));
  for (const std::uint32_t row : rows) completer_.add(row, *others_.back());
}

Worker::~Worker() {
  // Callbacks that end() ran may have posted again. These operations name objects until they are
  // cancelled, too.
  context_.objects().without_reclaim([this] { gate_.reset(); });
  completer_.cancel_all(HEDDLE_ERR_CANCELLED);
  context_.objects().remove(*this);
  if (!context_.environment().config.flag(base::Var::stats)) return;
  const heddle_worker_stats all = read_stats();
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  context_.environment().log.say(
      "worker %u: puts %llu gets %llu atomics %llu messages %llu bytes %llu direct %llu "
      "again %llu polls %llu received %llu "
      "dropped %llu stored %llu failed %llu sends %llu receives %llu kept %llu tasks %llu registered %llu "
      "helped %llu taken %llu",
      index_, number(all.puts), number(all.gets), number(all.atomics), number(all.messages), number(all.bytes),
      number(all.direct), number(all.again), number(all.polls), number(all.received), number(all.dropped),
      number(all.stored), number(all.failed), number(all.sends), number(all.receives), number(all.kept),
      number(all.tasks), number(all.registered), number(all.helped), number(all.taken));
}

heddle_worker_stats Worker::read_stats() {
  heddle_worker_stats all;
  Tally posted;
  const auto read = [&] {
    all = core_.stats;
    posted = counts_.total();
    all.failed += core_.operations.failed();
    all.dropped += transport_->counters().malformed + core_.responder.lost() + messages_.tasks().dropped();
  };
  use(*this) == nullptr ? read() : gate_->visit(read);
  if (gate_ != nullptr && gate_->small_offload() != nullptr) {
    all.registered = gate_->small_offload()->registered_messages();
    all.helped = gate_->small_offload()->helped_messages();
  }
  all.tasks = messages_.tasks().ran();
  all.stored = messages_.tasks().stored();
  all.puts = posted.puts;
  all.gets = posted.gets;
  all.atomics = posted.atomics;
  all.messages = posted.messages;
  all.sends = posted.sends;
  all.bytes = posted.bytes;
  all.again = posted.again;
  all.direct = posted.puts + posted.gets + posted.atomics - posted.commands;
  return all;
}

// Looks at the queue first: a command leaves the queue only when its operation has set its marks,
// which the second look then sees. In the other order a command could be started between the two
// looks, and neither would find it.
bool Worker::names_remote(const engine::RemoteRegion* remote) const {
  return (gate_ != nullptr && gate_->queued()) || core_.operations.marks().names_remote(remote);
}

bool Worker::names_counter(const engine::OperationCounter* counter) const {
  return (gate_ != nullptr && gate_->queued()) || core_.operations.marks().names_counter(counter) ||
         tagged_.names_counter(counter);
}

void Worker::begin() {
  if (gate_ != nullptr) gate_->begin();
}

void Worker::end() {
  gate_ == nullptr ? completer_.cancel_all(HEDDLE_ERR_CANCELLED) : gate_->end();
  if (messages_.tasks().stored() == 0) return;
  context_.environment().log.line(
      base::Level::warn,
      "worker %u was closed with %llu USER messages that no heddle_run_tasks had taken; they are "
      "dropped",
      index_, static_cast<unsigned long long>(messages_.tasks().stored()));
}

int Worker::progress() {
  return use(*this) == nullptr ? completer_.progress() : gate_->progress();
}

namespace {

// The state of a worker that a thread has seen in its last heddle_worker_wait. Another thread may
// move the worker on after the program has looked at what it waits for, and before its next wait:
// that wait has to notice the move.
struct Seen {
  std::uint64_t worker = 0;  // its handle; 0: of none
  std::uint64_t moved = 0;
  std::uint64_t others_moved = 0;  // of a worker that attends: the others, after the last nap
  std::uint64_t idle_since = 0;    // 0: that wait did not end in vain; Clock
  std::uint64_t returned = 0;      // then: when it did
  Watch::Waited waited{};
};

// The rows for the workers that a thread has waited on. If the row of a worker was replaced, the
// thread's next wait on that worker counts as its first one.
class SeenWorkers {
 public:
  Seen& of(std::uint64_t worker) {
    for (Seen& row : first_) {
      if (row.worker == worker) return row;
      if (row.worker == 0) return row = Seen{worker};
    }
    // As many rows as a process may open workers, by the worker's index in the table of handles:
    // workers that are open have different indices.
    if (more_ == nullptr) more_.reset(new (std::nothrow) Seen[kMore]);
    Seen& row = more_ != nullptr ? more_[(worker >> engine::kHandleIndexShift) % kMore] : first_.back();
    if (row.worker != worker) row = Seen{worker};
    return row;
  }

 private:
  static constexpr std::size_t kMore = 256;  // HEDDLE_MAX_WORKERS' most
  // enough for most threads, without an allocation
  std::array<Seen, 4> first_;
  std::unique_ptr<Seen[]> more_;
};

// initial-exec, as detail::t_inside.
thread_local constinit SeenWorkers t_seen [[gnu::tls_model("initial-exec")]];

// A wait that begins within this time after a wait that ended in vain continues that one: meanwhile
// the program has only looked at what it waits for.
constexpr std::uint64_t kLookedNs = 1'000'000;

}  // namespace

// Looks at other workers, as waits in collectives do: every so many rounds at those where that
// disturbs no owner, and more rarely at the rest, too. After a worker has moved it mostly moves
// again in a moment: an answer leaves, the next question comes. So more looks follow a look that
// found something.
int Worker::attend(std::uint32_t round) {
  constexpr std::uint32_t kOthers = 256;
  constexpr int kAgain = 8;  // looks after one that found something
  constexpr int kMost = 32;
  int events = context_.helpers().attend(round % kOthers == 0);
  int left = events > 0 ? kAgain : 0;
  for (int looks = 0; left > 0 && looks < kMost; ++looks) {
    const int more = context_.helpers().attend(false);
    left = more > 0 ? kAgain : left - 1;
    events += more;
  }
  return events;
}

int Worker::attend_before_nap() {
  return context_.helpers().attend(true);
}

int Worker::Rounds::attend() {
  constexpr std::uint32_t kNear = 256;
  const bool often = near_ > 0 || waiter_.idle_since() != 0;
  const int others = attends_in(round_, often) ? worker_.attend(round_) : 0;
  near_ = others > 0 ? kNear : near_ - std::min(near_, 1U);
  return others;
}

void Worker::Rounds::nap(std::int64_t ns, std::uint64_t seen) {
  if (worker_.traits_.attends && worker_.attend_before_nap() > 0) {
    static_cast<void>(waiter_.busy());
  } else if (std::exchange(sleeps_, false)) {
    worker_.context_.nap(&worker_, ns, worker_.traits_.attends);
  } else {
    const std::int64_t rung_ns = rings_ ? waiter_.rung_nap_ns() : ns;
    sleeps_ = !worker_.context_.nap_unless_moved(&worker_, {ns, rung_ns}, seen, worker_.traits_.attends);
  }
}

// The program may wait for something that no worker shows. So a wait without an end returns after
// each nap: the program's loop then looks at its condition as often as the library's own waits
// look. The next call goes on with the naps.
base::Status Worker::wait_moved(std::uint64_t handle, std::int64_t timeout_ns) {
  if (engine::inside_of() != nullptr) [[unlikely]]
    return engine::reject_wait("heddle_worker_wait");
  Seen& seen = t_seen.of(handle);
  base::Waiter waiter(context_.clock(), timeout_ns, &context_.crowd());
  const bool goes_on = seen.idle_since != 0 && context_.clock().now_ns() - seen.returned < kLookedNs;
  if (goes_on) waiter.resume(seen.idle_since);
  Watch watch(context_, this, "heddle_worker_wait", goes_on ? seen.waited : Watch::Waited{});
  const auto in_vain = [&](base::Status status) {
    watch.may_resume();
    seen.idle_since = waiter.idle_since();
    if (seen.idle_since != 0) seen.returned = context_.clock().now_ns();
    seen.waited = watch.waited();
    return status;
  };
  const auto has_moved = [&] {
    seen.idle_since = 0;
    base::show_acquire(core_.order());
    return HEDDLE_DONE;
  };
  // Between two naps another thread may have moved the other workers. This thread goes on with its
  // naps: otherwise it would take the core from the thread that moves them.
  const auto others_moved = [&] {
    const std::uint64_t moved = traits_.attends ? context_.helpers().moved_but(*this) : 0;
    return std::exchange(seen.others_moved, moved) != moved;
  };
  for (std::uint32_t round = 1;; ++round) {
    int events = progress();
    if (events < 0) return static_cast<base::Status>(events);
    events = traits_.attends && attends_in(round, waiter.idle_since() != 0) ? attend(round) : 0;
    if (const std::uint64_t moved = this->moved(); moved != seen.moved || events > 0) {
      seen.moved = moved;
      return has_moved();
    }
    if (!waiter.idle()) return in_vain(HEDDLE_ERR_TIMEOUT);
    watch.round(kNothingMore, waiter.nap_ns() > 0);
    if (const std::int64_t ns = waiter.nap_ns(); ns > 0) {
      if (traits_.attends && attend_before_nap() > 0) return has_moved();
      context_.nap(this, ns, traits_.attends);
      if (timeout_ns < 0 || others_moved()) return in_vain(HEDDLE_DONE);
    }
  }
}

base::Status Worker::wait_for(const heddle_wait_condition& condition, std::int64_t timeout_ns) {
  if (engine::inside_of() != nullptr) [[unlikely]]
    return engine::reject_wait(condition.call);
  Rounds rounds(*this, {condition.call, timeout_ns});
  ToldWait told(context_, this, {condition.call, condition.tell, condition.arg});
  for (;;) {
    const std::uint64_t seen = moved();
    const base::Status status = condition.ready(condition.arg);
    if (status != HEDDLE_AGAIN && status != HEDDLE_POSTED) {
      base::show_acquire(core_.order());
      return status;
    }
    const int events = progress();
    if (events < 0) return static_cast<base::Status>(events);
    rounds.set_rings(condition.rings != nullptr && *condition.rings != 0);
    if (!rounds.go_on(events + (status == HEDDLE_POSTED ? 1 : 0), seen)) return HEDDLE_ERR_TIMEOUT;
    constexpr std::uint32_t kManyRounds = 4096;  // something moves all the time, but ends nothing
    if (rounds.rested() || rounds.round() % kManyRounds == 0) told.note();
    rounds.watch([&](tap::Wait& wait) { told.describe(wait); });
  }
}

// The thread inside may only be posting, or may have polled before something arrived; and when it
// leaves, nothing is armed. So an arrival may wait for this thread's next look. If this thread
// could not enter, the next look has to be soon, unless the executor is the thread inside.
Worker::Rest Worker::lie_down(bool* was_armed) {
  bool quiet = true;
  bool polls = false;
  const auto look = [&] {
    bool armed = transport_->arm();
    // If several threads use the worker, the last poll may have been another thread's. What that
    // poll has taken is lent until the next poll, and this thread's poll was refused.
    if (!armed && gate_ != nullptr && gate_->may_advance()) {
      if (completer_.progress() != 0) {
        quiet = false;
        return;
      }
      armed = transport_->arm();
    }
    if (armed) {
      context_.transport().settle();
      quiet = !transport_->has_arrivals();
    }  // otherwise only polls move the worker on: the next poll is after the nap
    quiet = quiet && completer_.knows_failures();
    polls = !armed || completer_.under_way();
    if (was_armed != nullptr) *was_armed = armed;
    if (quiet) completer_.note_rest();
  };
  if (use(*this) == nullptr) {
    look();
  } else if (!gate_->look(look) && !gate_->executor_polls()) {
    return Rest::brief;
  }
  if (!quiet) return Rest::none;
  return polls || (gate_ != nullptr && gate_->queued()) ? Rest::polls : Rest::whole;
}

base::Status Worker::try_flush(std::uint32_t rank) {
  return use(*this) == nullptr ? core_.operations.flush(rank)
                               : gate_->after_queued([&] { return core_.operations.flush(rank); });
}

base::Status Worker::try_quiet() {
  return use(*this) == nullptr ? core_.operations.quiet()
                               : gate_->after_queued([&] { return core_.operations.quiet(); });
}

base::Status Worker::try_answer() {
  const auto answered = [&]() -> base::Status { return core_.responder.idle() ? HEDDLE_DONE : HEDDLE_AGAIN; };
  return use(*this) == nullptr ? answered() : gate_->after_queued(answered);
}

std::size_t Worker::post(std::span<transport::Command> prepared) {
  const std::size_t posted = core_.requester.post(prepared);
  for (const transport::Command& command : prepared.first(posted)) {
    if (protocol::is_tagged(command)) tagged_.count_sent({command.rank, command.worker});
  }
  return posted;
}

void Worker::give_back(const transport::Command& command) {
  if (command.opcode != transport::Opcode::message) return;
  const heddle_peer target{command.rank, command.worker};
  const wire::Kind kind = wire::kind_of(command.immediate);
  if (kind == wire::Kind::tagged) {
    tagged_.give_back<true>(target, command.packet_bytes() - sizeof(std::uint64_t));
  } else if (kind == wire::Kind::user) {
    const std::uint32_t header_bytes = wire::header_bytes_of(command.immediate);
    messages_.give_credit_back(target, header_bytes, command.packet_bytes() - wire::pad8(header_bytes));
  }
}

base::Status Worker::take_credit(heddle_peer target, const heddle_am_message& message) {
  if (messages_.take_credit(target, message.header_bytes, message.payload_bytes)) return HEDDLE_DONE;
  // Dead ranks and closed workers handle nothing any more. A message to a closed worker is sent as
  // any other, and is dropped.
  if (context_.failed(target.rank)) {
    return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has failed; go on without it", target.rank);
  }
  bool closed = false;
  const auto look = [&] { closed = transport_->closed({target.rank, target.worker}); };
  if (use(*this) == nullptr) {
    look();
  } else {
    static_cast<void>(gate_->look(look));
  }
  if (!closed && core_.tracer != nullptr)
    core_.note_held("credit for messages of class USER", target, message.payload_bytes);
  return closed ? HEDDLE_DONE : HEDDLE_AGAIN;
}

void Worker::note_task(tap::TraceEvent event, std::uint32_t handler) {
  if (core_.tracer == nullptr) [[likely]]
    return;
  tap::TraceRecord record{};
  record.id = handler;
  record.worker = static_cast<std::uint8_t>(index_);
  record.event = event;
  core_.tracer->note(record);
}

int Worker::run_tasks(heddle_worker handle, std::uint32_t most, std::int64_t timeout_ns) {
  if (engine::inside_of() != nullptr) return engine::reject_wait("heddle_run_tasks");
  base::Waiter waiter(context_.clock(), timeout_ns, &context_.crowd());
  Watch watch(context_, this, kServes);
  for (;;) {
    const int events = progress();
    if (events < 0) return events;
    std::uint32_t ran = 0;
    protocol::Tasks::Task* task = nullptr;
    while (ran < most && (task = messages_.tasks().take()) != nullptr) {
      watch.interrupt();
      protocol::ActiveMessages::EndedTask ended{};
      const std::uint32_t handler = task->handler;
      tap::probe_task_begin(index_, handler);
      note_task(tap::TraceEvent::task_begin, handler);
      const bool tells = messages_.run_task(handle, task, &ended);
      note_task(tap::TraceEvent::task_end, handler);
      tap::probe_task_end(index_, handler);
      ran += ended.handled ? 1 : 0;
      if (!tells) continue;
      // Not by the queue: a command there may wait behind messages that wait for credit of their
      // own.
      const auto inside = [&] { messages_.ended_task(ended); };
      use(*this) == nullptr ? inside() : gate_->visit(inside);
    }
    if (ran > 0) {
      core_.notifier.tell();
      return static_cast<int>(ran);
    }
    if (!(events > 0 ? waiter.busy() : waiter.idle())) {
      watch.may_resume();
      return 0;
    }
    if (const std::int64_t ns = waiter.nap_ns(); ns > 0) {
      context_.nap(this, ns);
      watch.round(kNothingMore, true);
    }
  }
}

std::uint64_t Worker::unfinished_operations() {
  if (use(*this) == nullptr) return core_.operations.under_way();
  std::uint64_t operations = 0;
  gate_->visit([&] { operations = core_.operations.under_way(); });
  return operations + gate_->queued_records();
}

base::Status Worker::try_drain() {
  const auto drained = [&]() -> base::Status { return core_.operations.under_way() > 0 ? HEDDLE_AGAIN : HEDDLE_DONE; };
  return use(*this) == nullptr ? drained() : gate_->after_queued(drained);
}

// The table of protocols. A new protocol is a file and a row here.

namespace {

// Makes a protocol that has kRows (the rows of what arrives for it) and is constructed from a core.
template <class Kind>
constexpr ProtocolEntry entry() {
  return {Kind::kRows,
          [](Worker& worker) -> std::unique_ptr<engine::Protocol> { return std::make_unique<Kind>(worker.core()); }};
}

constexpr std::array kProtocols = {
    entry<protocol::Requests>(),
};

// Every row has one owner.
constexpr bool is_sound() {
  std::array<bool, wire::kRows> taken{};
  taken[wire::kExtensionRow] = true;  // the room above
  for (const wire::Kind kind :
       {wire::Kind::invalid, wire::Kind::active_message, wire::Kind::fragment, wire::Kind::user, wire::Kind::tagged})
    taken[wire::row_of(kind)] = true;
  for (const ProtocolEntry& entry : kProtocols) {
    for (const std::uint32_t row : entry.rows) {
      if (row >= wire::kRows || taken[row]) return false;
      taken[row] = true;
    }
  }
  return true;
}
static_assert(is_sound(), "two protocols have the same row");

}  // namespace

std::span<const ProtocolEntry> protocol_table() {
  return kProtocols;
}

int progress_attending(Worker& worker) {
  constexpr std::uint32_t kOthers = 64;  // as Worker::attend()
  constexpr std::uint32_t kThorough = 256;
  // A thorough look takes other threads' workers of mode auto from them, which must not come often.
  constexpr std::uint64_t kThoroughNs = 2'000'000;
  thread_local std::uint32_t polls = 0;
  thread_local std::uint64_t thorough_at = 0;
  const int events = worker.progress();
  if (events != 0 || ++polls % kOthers != 0) return events;
  bool thorough = polls % kThorough == 0;
  if (thorough) {
    const std::uint64_t now = worker.context().clock().now_ns();
    thorough = now - thorough_at >= kThoroughNs;
    if (thorough) thorough_at = now;
  }
  return worker.context().helpers().attend(thorough);
}

}  // namespace heddle::worker
