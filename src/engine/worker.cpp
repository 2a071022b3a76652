#include "engine/worker.hpp"

#include "base/log.hpp"
#include "engine/gate.hpp"

namespace heddle::engine {

thread_local constinit const Worker* detail::t_inside [[gnu::tls_model("initial-exec")]] = nullptr;

base::Result<std::unique_ptr<Worker>> Worker::open(Context& context, std::uint32_t index, const Traits& traits) {
  const std::uint64_t operations = context.environment().config.number(base::Var::worker_operations);
  auto transport = context.transport().open_worker(index);
  if (!transport) return transport.status();
  std::unique_ptr<Worker> worker(new Worker(context, index, traits, std::move(*transport)));
  if (context.extension() != nullptr) worker->extension_ = context.extension()(*worker);
  if (traits.sharing != Sharing::exclusive || traits.helped) {
    worker->tallies_ = std::make_unique<Tallies>();
    // As many records as operations: the queue is full when that many wait.
    worker->gate_ = std::make_unique<Gate>(*worker, traits.sharing, static_cast<std::uint32_t>(operations),
                                           context.small_offload());
  }
  return worker;
}

Worker::Worker(Context& context, std::uint32_t index, const Traits& traits,
               std::unique_ptr<transport::TransportWorker> transport)
    : context_(context),
      index_(index),
      sharing_(traits.sharing),
      max_workers_(context.transport().capabilities().max_workers),
      max_payload_(context.environment().config.number(base::Var::am_max_bytes)),
      small_payload_(context.transport().capabilities().max_message - HEDDLE_AM_HEADER_BYTES),
      short_limit_(context.transport().capabilities().short_way ? small_payload_ + 1 : 0),
      transport_([&]() -> std::unique_ptr<transport::TransportWorker> {
        if (!traits.aggregates) return std::move(transport);
        const std::uint32_t max_message = context.transport().capabilities().max_message;
        auto aggregator = std::make_unique<protocol::Aggregator>(std::move(transport), max_message);
        aggregator_ = aggregator.get();
        return aggregator;
      }()),
      capabilities_(context.transport().capabilities()),
      failure_epoch_(context.bootstrap().failure_epoch()),
      outstanding_(context.size()),
      operations_(context.environment().config.number(base::Var::worker_operations)),
      unreported_(context.size(), HEDDLE_DONE),
      failed_(context.size()),
      reassembly_(context.environment().config.number(base::Var::am_max_bytes),
                  context.environment().config.number(base::Var::am_reassembly_bytes)),
      responder_(*transport_, context.regions(), capabilities_.max_message),
      credits_(context.size(), max_workers_, context.environment().config.number(base::Var::am_user_bytes),
               traits.sharing == Sharing::exclusive && !traits.helped),
      tasks_({context.size(), max_workers_, context.environment().config.number(base::Var::am_user_bytes),
              context.environment().config.number(base::Var::am_reassembly_bytes)},
             traits.sharing == Sharing::exclusive && !traits.helped),
      tagged_(*this),
      am_rendezvous_(*this) {
  stats_.size = sizeof stats_;
  chores_.kind = Kind::chores;
}

Worker::~Worker() {
  gate_.reset();
  cancel_all(HEDDLE_ERR_CANCELLED);
  if (!context_.environment().config.flag(base::Var::stats)) return;
  const heddle_worker_stats all = read_stats();
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  context_.environment().log.say(
      "worker %u: puts %llu gets %llu atomics %llu messages %llu bytes %llu direct %llu "
      "again %llu polls %llu received %llu "
      "dropped %llu stored %llu failed %llu sends %llu receives %llu kept %llu tasks %llu aggregated %llu packets %llu "
      "registered "
      "%llu "
      "helped %llu taken %llu",
      index_, number(all.puts), number(all.gets), number(all.atomics), number(all.messages), number(all.bytes),
      number(all.direct), number(all.again), number(all.polls), number(all.received), number(all.dropped),
      number(all.stored), number(all.failed), number(all.sends), number(all.receives), number(all.kept),
      number(all.tasks), number(all.aggregated), number(all.packets), number(all.registered), number(all.helped),
      number(all.taken));
}

heddle_worker_stats Worker::read_stats() {
  heddle_worker_stats all;
  const auto read = [&] {
    all = stats_;
    all.dropped += transport_->counters().malformed + responder_.lost() + tasks_.dropped();
    if (aggregator_ == nullptr) return;
    all.aggregated = aggregator_->counts().messages;
    all.packets = aggregator_->counts().packets;
  };
  gate_ == nullptr ? read() : gate_->visit(read);
  const Tally posted = (tallies_ == nullptr ? tally_ : tallies_->sum()).total();
  if (gate_ != nullptr && gate_->small_offload() != nullptr) {
    all.registered = gate_->small_offload()->registered_messages();
    all.helped = gate_->small_offload()->helped_messages();
  }
  all.tasks = tasks_.ran();
  all.stored = tasks_.stored();
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

// The queue first: a command leaves it only when its operation has its marks, which are then seen. The other way round it
// could be started between the two looks, and neither would find it.
bool Worker::names_remote(const RemoteRegion* remote) const {
  return (gate_ != nullptr && gate_->queued()) || operations_.marks().names_remote(remote);
}

bool Worker::names_counter(const Counter* counter) const {
  return (gate_ != nullptr && gate_->queued()) || operations_.marks().names_counter(counter) ||
         tagged_.names_counter(counter);
}

void Worker::begin() {
  if (gate_ != nullptr) gate_->begin();
}

void Worker::end() {
  gate_ == nullptr ? cancel_all(HEDDLE_ERR_CANCELLED) : gate_->end();
  if (tasks_.stored() == 0) return;
  context_.environment().log.line(
      base::Level::warn,
      "worker %u was closed with %llu USER messages that no heddle_run_tasks had taken; they are "
      "dropped",
      index_, static_cast<unsigned long long>(tasks_.stored()));
}

bool Worker::may_call() const {
  return gate_ == nullptr || gate_->may_call();
}

int Worker::progress() {
  return gate_ == nullptr ? progress_inside() : gate_->progress();
}

// Where another thread is inside it polls, and this one sleeps unarmed.
bool Worker::lie_down() {
  bool quiet = true;
  const auto look = [&] {
    if (!transport_->arm()) return;  // only polls move it on: the next one is after the nap
    context_.transport().settle();
    quiet = !transport_->has_arrivals();
  };
  gate_ == nullptr ? look() : static_cast<void>(gate_->look(look));
  return quiet;
}

base::Status Worker::try_flush(std::uint32_t rank) {
  return gate_ == nullptr ? flush_inside(rank) : gate_->settled([&] { return flush_inside(rank); });
}

base::Status Worker::try_quiet() {
  return gate_ == nullptr ? quiet_inside() : gate_->settled([&] { return quiet_inside(); });
}

base::Status Worker::try_answer() {
  const auto answered = [&]() -> base::Status { return responder_.idle() ? HEDDLE_DONE : HEDDLE_AGAIN; };
  return gate_ == nullptr ? answered() : gate_->settled(answered);
}

base::Status Worker::try_drain() {
  const auto drained = [&]() -> base::Status { return outstanding_total_ > 0 ? HEDDLE_AGAIN : HEDDLE_DONE; };
  return gate_ == nullptr ? drained() : gate_->settled(drained);
}

}  // namespace heddle::engine
