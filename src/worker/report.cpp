#include "worker/worker.hpp"

#include <sched.h>

#include <array>
#include <cstdio>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "engine/handlers.hpp"
#include "worker/gate.hpp"
#include "worker/sharing.hpp"

namespace heddle::worker {
namespace {

constexpr std::uint32_t kMostLines = 16;  // operations that are told one by one
// Attempts to look at a worker while another thread is inside, which may have lost its core there.
constexpr std::uint64_t kSettleNs = 200'000'000;

unsigned long long number(std::uint64_t value) {
  return value;
}

using Text = std::array<char, 128>;

Text rank_text(const Context& context, std::uint32_t rank) {
  Text text{};
  if (rank == engine::kManyRanks) {
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
What what(const engine::Operation& operation) {
  switch (operation.kind) {
    case engine::Kind::put:
      return {"put", "to"};
    case engine::Kind::get:
      return {"get", "from"};
    case engine::Kind::atomic:
      return {"atomic", "on"};
    case engine::Kind::message:
      return {"message", "to"};
    case engine::Kind::protocol:
      return {operation.owner->words().name, "to"};
    case engine::Kind::protocol_work:  // not of the pool
      break;
  }
  return {"", ""};
}

std::uint64_t bytes_of(const engine::Operation& operation) {
  if (operation.plain) return operation.payload_bytes;
  switch (operation.kind) {
    case engine::Kind::put:
    case engine::Kind::get:
      return operation.pieces.bytes();
    case engine::Kind::atomic:
      return wire::atomic_bytes(operation.atomic_op);
    case engine::Kind::message:
    case engine::Kind::protocol:
      return operation.payload_bytes;
    case engine::Kind::protocol_work:
      break;
  }
  return 0;
}

// For the verdict: told whatever stage the operation is in.
tap::Awaited awaited_of(const engine::Operation& operation) {
  using tap::Cause;
  tap::Awaited awaited;
  awaited.what = what(operation).name;
  awaited.bytes = bytes_of(operation);
  awaited.rank = operation.rank == engine::kManyRanks ? tap::kNobody : operation.rank;
  if (operation.kind == engine::Kind::message) awaited.worker = operation.target.worker;
  if (operation.served > 0) {
    awaited.cause = Cause::answer;
    awaited.rank = operation.served_rank;
    awaited.worker = operation.served_worker;
  } else if (operation.unfinished > 0 || operation.unfreed > 0) {
    awaited.cause = Cause::answer;
  } else {
    awaited.cause = operation.posted ? Cause::own : Cause::room;
  }
  if (operation.kind == engine::Kind::protocol) operation.owner->explain(operation, &awaited);
  return awaited;
}

void find_running(const Worker& worker, engine::Findings& findings) {
  findings.state.runs_task = running(worker.core()).task;
  if (!findings.state.runs_task) return;
  findings.say("worker %u: a handler of class USER has been called and has not returned", worker.index());
}

// Reports what waits outside the gate.
void find_queued(Worker& worker, engine::Findings& findings) {
  if (worker.gate() != nullptr && worker.gate()->queued_records() > 0) {
    findings.say("worker %u: %llu records of commands wait in its queue; %s starts them", worker.index(),
                 number(worker.gate()->queued_records()),
                 worker.sharing() == Sharing::offload ? "its executor" : "who makes progress on it");
  }
  find_running(worker, findings);
  findings.state.unhandled = worker.messages().unhandled();
  if (findings.state.unhandled != tap::kNobody) {
    findings.say("worker %u: active messages were dropped, since no handler was registered for their number, %u",
                 worker.index(), findings.state.unhandled);
  }
  const protocol::Tasks& tasks = worker.messages().tasks();
  findings.state.tasks = tasks.stored();
  if (findings.state.tasks > 0) {
    findings.say("worker %u: %llu USER messages wait for a thread that calls heddle_run_tasks", worker.index(),
                 number(findings.state.tasks));
  }
}

// Reports messages to workers that their ranks have not opened: they have no operation any more.
void find_unopened(Worker& worker, engine::Findings& findings) {
  std::array<transport::TransportWorker::Unopened, tap::kMostListed> found{};
  const std::size_t count = worker.core().transport.unopened(found);
  for (const auto& [target, messages] : std::span(found).first(count)) {
    findings.say("worker %u: %llu %s sent to worker %u of rank %u, which is not open there, or not connected yet",
                 worker.index(), number(messages), messages == 1 ? "message was" : "messages were", target.worker,
                 target.rank);
    findings.state.unopened.push_back({target.rank, target.worker, messages});
  }
}

// Reports commands without a slot, of which only the number is known.
void find_unnotified(Worker& worker, engine::Findings& findings) {
  std::vector<std::uint32_t> unnotified(worker.size());
  for (std::uint32_t rank = 0; rank < worker.size(); ++rank)
    unnotified[rank] = worker.core().operations.under_way_to(rank);
  for (const engine::Operation& operation : worker.core().operations.slots()) {
    if (operation.live && operation.rank != engine::kManyRanks) --unnotified[operation.rank];
  }
  std::uint32_t told = 0;
  for (std::uint32_t rank = 0; rank < worker.size(); ++rank) {
    if (unnotified[rank] == 0 || told++ >= kMostLines) continue;
    findings.say(
        "%u puts, gets or messages without a completion, for rank %u: in the hands of the transport, which moves "
        "when this worker is advanced, and the peer's",
        unnotified[rank], rank);
    tap::Awaited awaited;
    awaited.cause = tap::Cause::answer;
    awaited.rank = rank;
    awaited.what = "put, get or message";
    findings.under_way(std::move(awaited));
  }
}

void find_operation(Worker& worker, engine::Findings& findings, const engine::Operation& operation) {
  const auto [name, towards] = what(operation);
  const Text rank = rank_text(worker.context(), operation.rank);
  const char* posted = operation.posted ? "posted" : "partly posted";
  std::array<char, 256> stage;
  if (operation.served > 0) {
    const bool closed = worker.core().transport.closed({operation.served_rank, operation.served_worker});
    const char* awaited =
        operation.kind == engine::Kind::protocol ? operation.owner->words().waits : "waits for the answer of";
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
  findings.say("%s of %llu bytes %s %s: %s", name, number(bytes_of(operation)), towards, rank.data(), stage.data());
}

}  // namespace

// Used when a program waits by itself, or closes a worker.
void report_operations(Worker& worker) {
  const base::Log& log = worker.context().environment().log;
  try {
    const std::uint64_t end = worker.context().clock().now_ns() + kSettleNs;
    for (;;) {
      engine::Findings findings(worker.context());
      const bool told = look_inside(worker, findings);
      if (told || worker.context().clock().now_ns() >= end) {
        for (const std::string& line : findings.lines) log.say("  %s", line.c_str());
        return;
      }
      sched_yield();
    }
  } catch (const std::bad_alloc&) {
    log.say("  worker %u: there is no memory to tell what it has under way", worker.index());
  }
}

// False: another thread is inside, and the findings say so.
bool look_inside(Worker& worker, engine::Findings& findings) {
  bool told = worker.gate() == nullptr;
  bool failed = false;
  const auto look = [&] {
    try {
      find_inside(worker, findings);
    } catch (const std::bad_alloc&) {
      failed = true;  // inside the gate nothing is thrown
    }
  };
  told ? look() : static_cast<void>(told = worker.gate()->look(look));
  if (failed) throw std::bad_alloc();
  findings.state.held = !told;
  if (told) return true;
  findings.say(
      "worker %u: another thread is inside and does not leave: it is in a handler, a callback or a call of "
      "heddle_run_on_engine that waits, or it was stopped",
      worker.index());
  find_queued(worker, findings);
  return false;
}

// For waits that report themselves, which happens often: without lines, and without what protocols
// keep.
void look_under_way(Worker& worker, engine::Findings& findings) {
  bool failed = false;
  const auto look = [&] {
    try {
      std::uint32_t told = 0;
      for (const engine::Operation& operation : worker.core().operations.slots()) {
        if (!operation.live || told++ >= kMostLines) continue;
        findings.under_way(awaited_of(operation));
      }
      find_unnotified(worker, findings);
    } catch (const std::bad_alloc&) {
      failed = true;  // inside the gate nothing is thrown
    }
  };
  worker.gate() == nullptr ? look() : static_cast<void>(worker.gate()->look(look));
  if (failed) throw std::bad_alloc();
}

void find_inside(Worker& worker, engine::Findings& findings) {
  const std::uint32_t under_way = worker.core().operations.under_way();
  findings.say("worker %u: polled %llu times; %u %s under way%s", worker.index(), number(worker.core().stats.polls),
               under_way, under_way == 1 ? "operation is" : "operations are",
               worker.core().responder.idle() ? "" : "; answers to peers wait for room");
  std::uint32_t told = 0;
  for (const engine::Operation& operation : worker.core().operations.slots()) {
    if (!operation.live || told++ >= kMostLines) continue;
    find_operation(worker, findings, operation);
    findings.under_way(awaited_of(operation));
  }
  if (told > kMostLines) findings.say("and %u more", told - kMostLines);
  find_unnotified(worker, findings);
  for (const engine::Protocol* protocol : worker.completer().protocols()) protocol->report(findings);
  find_unopened(worker, findings);
  find_queued(worker, findings);
  findings.state.untaken = worker.core().transport.has_untaken();
}

void look_from_outside(Worker& worker, bool still, engine::Findings& findings) {
  findings.state.held = still && running(worker.core()).handler;
  if (findings.state.held) {
    findings.say("worker %u: its thread is in a handler or callback and does not leave", worker.index());
  }
  find_queued(worker, findings);
}

void show(Worker& worker, tap::DebugWorker& shown) {
  shown.handle = worker.core().handle.id;
  shown.index = worker.index();
  tap::set_text(shown.mode, mode_numbered(static_cast<std::uint32_t>(worker.sharing()))->name);
  shown.value("polls", worker.core().stats.polls);
  worker.core().operations.show(shown);
  worker.tagged().show(shown);
  worker.messages().tasks().show(shown);
  if (worker.gate() != nullptr) worker.gate()->show(shown);
}

// Any thread.
Glimpse glimpse(Worker& worker) {
  const std::uint64_t posted = worker.counts().glimpse();
  Glimpse seen{worker.moved() + posted, posted};
  if (worker.gate() == nullptr) {
    seen.calls += base::peek(worker.core().stats.polls);
  } else if (worker.sharing() != Sharing::offload) {
    seen.calls += worker.gate()->entries() + worker.gate()->polls();
  }
  return seen;
}

}  // namespace heddle::worker
