#include "engine/tracing.hpp"

#include <algorithm>
#include <new>

#include "engine/operation.hpp"
#include "wire/tagged.hpp"

namespace heddle::engine {

using base::TraceEvent;
using base::TraceRecord;
using transport::Command;
using transport::Opcode;

namespace {

// Nobody looking for arrivals for so long is worth a record: about 20 µs.
constexpr std::uint64_t kAwayTicks = 50'000;

// Of a token; kNoSlot: nobody is told of its end.
constexpr std::uint64_t kNoSlot = ~std::uint64_t{0};
// In its place, of long puts and gets. No operation has it.
constexpr std::uint64_t kLongSlot = 0xFF'FFF0;
constexpr std::uint64_t kLongBytes = 16384;
std::uint64_t slot_of(transport::Token token) {
  const Role role = OperationPool::role(token);
  const bool has = role == Role::command || role == Role::carrier || role == Role::reply;
  return has ? token & 0xFFFFFFFFU : kNoSlot;
}

// A message of its kind, or a word about such messages.
std::uint8_t detail_of(std::uint32_t immediate) {
  const bool word = wire::kind_of(immediate) == wire::Kind::tagged && wire::is_word(immediate);
  return word ? base::kTraceWord : 0;
}

// A long put or get of which nobody is told that it has ended: the trace is, to say how long it
// took.
bool is_long(const Command& command) {
  return (command.done || slot_of(command.token) == kNoSlot) && command.opcode != Opcode::message &&
         command.bytes >= kLongBytes;
}

}  // namespace

TracingWorker::TracingWorker(std::unique_ptr<transport::TransportWorker> inner, base::Tracer& tracer,
                             const Place& place)
    : ForwardingWorker(std::move(inner)), tracer_(tracer), place_(place), sent_(place.ranks), received_(place.ranks) {}

std::uint64_t TracingWorker::next_number(Numbers& numbers, std::uint32_t rank, std::uint32_t worker) {
  if (rank >= place_.ranks || worker >= place_.max_workers) return 0;
  std::unique_ptr<std::uint64_t[]>& row = numbers[rank];
  if (row == nullptr) row.reset(new (std::nothrow) std::uint64_t[place_.max_workers]());
  if (row == nullptr) {  // without memory it cannot be told any more which message is which
    counts_ = false;
  }
  return counts_ ? ++row[worker] : 0;
}

std::size_t TracingWorker::post(std::span<Command> batch) {
  base::TraceRing* const ring = tracer_.ring();
  // Before, so that nothing arrives before it was posted.
  const std::uint64_t ticks = ring != nullptr ? ring->time_of_many() : 0;
  if (ring != nullptr && ticks != 0 && ring->asks_for_core_time(ticks)) ring->note_core_time();
  const std::size_t accepted = inner_->post(batch);
  for (const Command& command : batch.first(accepted)) {
    if (ring != nullptr) {
      note_posted(*ring, command, ticks);
      if (is_long(command)) command.done ? note_end_of_long(*ring, ring->time()) : static_cast<void>(++long_ones_);
    } else if (command.opcode == Opcode::message) {
      static_cast<void>(next_number(sent_, command.rank, command.worker));
    }
  }
  if (accepted < batch.size() && ring != nullptr) note_refused(*ring, batch[accepted], ticks);
  return accepted;
}

void TracingWorker::note_posted(base::TraceRing& ring, const Command& command, std::uint64_t ticks) {
  const bool message = command.opcode == Opcode::message;
  const std::uint64_t slot = is_long(command) ? kLongSlot : command.done ? kNoSlot : slot_of(command.token);
  TraceRecord record{};
  record.ticks = ticks;
  record.id = message ? next_number(sent_, command.rank, command.worker) : 0;
  record.bytes = base::trace_size(message && !command.inlined ? command.packet_bytes() : command.bytes, slot + 1);
  record.rank = command.rank;
  record.peer = static_cast<std::uint8_t>(command.worker);
  record.worker = static_cast<std::uint8_t>(place_.index);
  record.event = TraceEvent::posted;
  record.detail = (message ? detail_of(command.immediate) : static_cast<std::uint8_t>(command.opcode)) & 0xFU;
  record.kind = message ? wire::row_of(command.immediate) & 0xFU : 0;
  ring.add(record);
}

void TracingWorker::note_end_of_long(base::TraceRing& ring, std::uint64_t ticks) {
  TraceRecord record{};
  record.ticks = ticks;
  record.id = kLongSlot;
  record.worker = static_cast<std::uint8_t>(place_.index);
  record.event = TraceEvent::ended;
  ring.add(record);
}

// Callers that poll and try again would fill the ring: those in a row are one record.
void TracingWorker::note_refused(base::TraceRing& ring, const Command& command, std::uint64_t ticks) {
  if (ticks == 0) ticks = ring.time();
  TraceRecord* const last = ring.last(TraceEvent::refused);
  if (last != nullptr && last->rank == command.rank && last->worker == place_.index) {
    ++last->id;
    last->bytes = ticks;
    return;
  }
  TraceRecord record{};
  record.ticks = ticks;
  record.id = 1;
  record.bytes = ticks;
  record.rank = command.rank;
  record.peer = static_cast<std::uint8_t>(command.worker);
  record.worker = static_cast<std::uint8_t>(place_.index);
  record.event = TraceEvent::refused;
  record.detail = static_cast<std::uint8_t>(command.opcode) & 0xFU;
  ring.add(record);
}

std::size_t TracingWorker::poll(std::span<transport::Completion> completions) {
  const std::size_t found = inner_->poll(completions);
  base::TraceRing* const ring = tracer_.ring();
  const std::uint64_t now = ring != nullptr ? ring->time() : base::ticks();
  if (now - looked_ > kAwayTicks && ring != nullptr) note_away(*ring, now);
  looked_ = now;
  for (const transport::Completion& completion : completions.first(found)) {
    if (ring != nullptr) {
      note(*ring, completion, now);
    } else if (completion.event == transport::Event::message) {
      static_cast<void>(next_number(received_, completion.rank, completion.worker));
    }
  }
  return found;
}

void TracingWorker::note(base::TraceRing& ring, const transport::Completion& completion, std::uint64_t ticks) {
  TraceRecord record{};
  record.ticks = ticks;
  record.worker = static_cast<std::uint8_t>(place_.index);
  if (completion.event == transport::Event::message) {
    record.id = next_number(received_, completion.rank, completion.worker);
    record.bytes = completion.bytes;
    record.rank = completion.rank;
    record.peer = static_cast<std::uint8_t>(completion.worker);
    record.event = TraceEvent::arrived;
    record.detail = detail_of(completion.immediate) & 0xFU;
    record.kind = wire::row_of(completion.immediate) & 0xFU;
  } else {
    record.id = slot_of(completion.token);
    if (record.id == kNoSlot && long_ones_ > 0) {
      --long_ones_;
      return note_end_of_long(ring, ticks);
    }
    if (record.id == kNoSlot) return;
    record.event = TraceEvent::ended;
    record.detail = completion.event == transport::Event::source_free ? 1 : 0;
    record.kind = static_cast<std::uint8_t>(std::min<int>(-completion.status, 15)) & 0xFU;
  }
  ring.add(record);
}

void TracingWorker::note_away(base::TraceRing& ring, std::uint64_t now) {
  TraceRecord record{};
  record.ticks = now;
  record.id = looked_;
  record.worker = static_cast<std::uint8_t>(place_.index);
  record.event = TraceEvent::away;
  ring.add(record);
}

}  // namespace heddle::engine
