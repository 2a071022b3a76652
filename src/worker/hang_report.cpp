#include "worker/hang_report.hpp"

#include <memory>
#include <new>

#include <sched.h>

#include <array>
#include <cstdio>

#include "worker/gate.hpp"
#include "worker/modes.hpp"
#include "worker/worker.hpp"

namespace heddle::engine {
namespace {

constexpr std::uint32_t kMostLines = 16;  // operations that are told one by one
// At a worker that another thread is inside of: it may have lost its core there.
constexpr std::uint64_t kLookNs = 200'000'000;
constexpr std::uint64_t kSecond = 1'000'000'000;

unsigned long long number(std::uint64_t value) {
  return value;
}

using Text = std::array<char, 128>;

Text rank_text(const Context& context, std::uint32_t rank) {
  Text text{};
  if (rank == kManyRanks) {
    std::snprintf(text.data(), text.size(), "several ranks");
  } else {
    const bool failed = context.failed(rank);
    std::snprintf(text.data(), text.size(), "rank %u%s", rank, failed ? " (which has failed)" : "");
  }
  return text;
}

struct What {
  const char* name;
  const char* towards;
};
What what(const Operation& operation) {
  switch (operation.kind) {
    case Kind::put:
      return {"put", "to"};
    case Kind::get:
      return {"get", "from"};
    case Kind::atomic:
      return {"atomic", "on"};
    case Kind::message:
      return {"message", "to"};
    case Kind::protocol:
      return {operation.owner->words().name, "to"};
    case Kind::protocol_work:  // not of the pool
      break;
  }
  return {"", ""};
}

std::uint64_t bytes_of(const Operation& operation) {
  if (operation.plain) return operation.payload_bytes;
  switch (operation.kind) {
    case Kind::put:
    case Kind::get:
      return operation.pieces.bytes();
    case Kind::atomic:
      return wire::atomic_bytes(operation.atomic_op);
    case Kind::message:
    case Kind::protocol:
      return operation.payload_bytes;
    case Kind::protocol_work:
      break;
  }
  return 0;
}

}  // namespace

bool Watch::due() {
  const std::uint64_t period = context_.environment().config.number(base::Var::hang_seconds) * kSecond;
  if (period == 0) return false;
  const std::uint64_t now = context_.clock().now_ns();
  if (waited_.next_ns == 0) waited_.next_ns = now + period;
  if (now < waited_.next_ns) return false;
  waited_.next_ns += period;
  ++waited_.reports;
  return true;
}

void Watch::report(const char* awaited) {
  const base::Log& log = context_.environment().log;
  const auto seconds = number(waited_.reports * context_.environment().config.number(base::Var::hang_seconds));
  const char* colon = awaited[0] == '\0' ? "" : ": ";
  if (worker_ == nullptr) {
    log.say("%s has waited %llu s%s%s", call_, seconds, colon, awaited);
  } else {
    const Mode& mode = *mode_numbered(static_cast<std::uint32_t>(worker_->sharing()));
    log.say("%s has waited %llu s on worker %u (%s: %s)%s%s", call_, seconds, worker_->index(), mode.name,
            mode.moved_by, colon, awaited);
  }
  if (scope_ == Scope::all) {
    context_.report_operations();
  } else if (worker_ != nullptr) {
    worker_->report_operations();
  }
}

void Worker::report_operations() {
  const base::Log& log = context_.environment().log;
  const auto report = [&] { report_inside(); };
  bool told = gate_ == nullptr;
  if (told) report();
  for (const std::uint64_t end = context_.clock().now_ns() + kLookNs; !told && context_.clock().now_ns() < end;) {
    told = gate_->look(report);
    if (!told) sched_yield();
  }
  if (!told) {
    log.say(
        "  worker %u: another thread is inside and does not leave: it is in a handler, a callback or a call of "
        "heddle_run_on_engine that waits, or it was stopped",
        index_);
  }
  if (gate_ != nullptr && gate_->queued_records() > 0) {
    log.say("  worker %u: %llu records of commands wait in its queue; %s starts them", index_,
            number(gate_->queued_records()),
            sharing_ == Sharing::offload ? "its executor" : "who makes progress on it");
  }
  if (messages_.tasks().stored() > 0) {
    log.say("  worker %u: %llu USER messages wait for a thread that calls heddle_run_tasks", index_,
            number(messages_.tasks().stored()));
  }
}

void Worker::report_inside() {
  const base::Log& log = context_.environment().log;
  log.say("  worker %u: polled %llu times; %u operations are under way%s", index_, number(core_.stats.polls),
          core_.operations.under_way(), core_.responder.idle() ? "" : "; answers to peers wait for room");
  if (aggregator_ != nullptr && aggregator_->waiting_messages() > 0) {
    log.say("  %llu small messages wait together for room in the transport; the peer must make progress to make room",
            number(aggregator_->waiting_messages()));
  }
  std::uint32_t told = 0;
  for (const Operation& operation : core_.operations.slots()) {
    if (operation.live && told++ < kMostLines) report_operation(operation);
  }
  if (told > kMostLines) log.say("  and %u more", told - kMostLines);
  report_unnotified();
  for (const Protocol* protocol : completer_.protocols()) protocol->report();
}

// What has no slot: only its number is known.
void Worker::report_unnotified() {
  const std::unique_ptr<std::uint32_t[]> unnotified(new (std::nothrow) std::uint32_t[size_]);
  if (unnotified == nullptr) return;  // inside the gate nothing is thrown
  for (std::uint32_t rank = 0; rank < size_; ++rank) unnotified[rank] = core_.operations.under_way_to(rank);
  for (const Operation& operation : core_.operations.slots()) {
    if (operation.live && operation.rank != kManyRanks) --unnotified[operation.rank];
  }
  std::uint32_t told = 0;
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    if (unnotified[rank] == 0 || told++ >= kMostLines) continue;
    context_.environment().log.say(
        "  %u puts, gets or messages without a completion, for rank %u: in the hands of the transport, which moves "
        "when this worker is advanced, and the peer's",
        unnotified[rank], rank);
  }
}

void Worker::report_operation(const Operation& operation) {
  const auto [name, towards] = what(operation);
  const Text rank = rank_text(context_, operation.rank);
  const char* posted = operation.posted ? "posted" : "partly posted";
  std::array<char, 256> stage;
  if (operation.served > 0) {
    const bool closed = transport_->closed({operation.served_rank, operation.served_worker});
    const char* awaited = operation.kind == Kind::protocol ? operation.owner->words().waits : "waits for the answer of";
    std::snprintf(stage.data(), stage.size(), "%s; %s rank %u, where a thread must make progress on worker %u%s",
                  posted, awaited, operation.served_rank, operation.served_worker, closed ? " (which is closed)" : "");
  } else if (operation.unfinished > 0 || operation.unfreed > 0) {
    std::snprintf(stage.data(), stage.size(),
                  "%s; in the hands of the transport, which moves when this worker is advanced, "
                  "and the peer's",
                  posted);
  } else if (operation.posted) {
    std::snprintf(stage.data(), stage.size(), "finished; the next progress on this worker tells it");
  } else {
    std::snprintf(stage.data(), stage.size(),
                  "not posted, for the transport takes no more; the peer must make progress to "
                  "make room");
  }
  context_.environment().log.say("  %s of %llu bytes %s %s: %s", name, number(bytes_of(operation)), towards,
                                 rank.data(), stage.data());
}

}  // namespace heddle::engine
