#include "engine/tapped.hpp"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "base/fence.hpp"
#include "engine/operations.hpp"
#include "tap/probes.hpp"
#include "wire/messages.hpp"

namespace heddle::engine {

using tap::TraceEvent;
using tap::TraceRecord;
using transport::Command;
using transport::Opcode;

namespace {

// If no thread has looked for arrivals for so long, that is worth a record: about 20 µs.
constexpr std::uint64_t kAwayTicks = 50'000;

// The slot of a token; kNoSlot: the command has no completion.
constexpr std::uint64_t kNoSlot = ~std::uint64_t{0};
constexpr std::uint64_t kLongBytes = 16384;
std::uint64_t slot_of(transport::Token token) {
  const Role role = OperationPool::role(token);
  const bool has = role == Role::command || role == Role::carrier || role == Role::reply;
  return has ? token & 0xFFFFFFFFU : kNoSlot;
}

// A trace says what a command was by the number of its opcode.
constexpr bool is_traced_as(Opcode opcode, std::uint8_t number) {
  return static_cast<std::uint8_t>(opcode) == number;
}
static_assert(is_traced_as(Opcode::message, tap::kTraceMessage) && is_traced_as(Opcode::put, tap::kTracePut) &&
              is_traced_as(Opcode::get, tap::kTraceGet) && is_traced_as(Opcode::atomic, tap::kTraceAtomic) &&
              is_traced_as(Opcode::kCount, tap::kTraceWord));

static_assert(wire::row_of(wire::Kind::active_message) == tap::kTraceActive &&
              wire::row_of(wire::Kind::request) == tap::kTraceRequest &&
              wire::row_of(wire::Kind::reply) == tap::kTraceReply && wire::row_of(wire::Kind::user) == tap::kTraceUser);

// The first part of a message that goes in parts.
bool is_piped(std::uint32_t immediate) {
  return immediate == wire::encode_word(wire::Word::piped);
}

// kTraceWord for a word about messages, kTraceMessage for a message itself.
std::uint8_t detail_of(std::uint32_t immediate) {
  const bool word = wire::kind_of(immediate) == wire::Kind::tagged && wire::is_word(immediate);
  return word && !is_piped(immediate) ? tap::kTraceWord : tap::kTraceMessage;
}

// Of a message that goes in parts, by its first one: as if it went whole.
std::uint64_t piped_bytes(const void* packet) {
  wire::PipedHeader head;
  std::memcpy(&head, packet, sizeof head);
  return head.bytes + sizeof head.tag;
}

std::uint64_t message_bytes(const Command& command) {
  if (is_piped(command.immediate) && command.header != nullptr) return piped_bytes(command.header);
  return command.inlined ? command.bytes : command.packet_bytes();
}

// A long put or get without a completion. The trace gets its end, to say how long it took.
bool is_long(const Command& command) {
  return (command.done || slot_of(command.token) == kNoSlot) && command.opcode != Opcode::message &&
         command.bytes >= kLongBytes;
}

}  // namespace

TracingWorker::TracingWorker(std::unique_ptr<transport::TransportWorker> inner, tap::Tracer& tracer, const Place& place)
    : ForwardingWorker(std::move(inner)), tracer_(tracer), place_(place), sent_(place.ranks), received_(place.ranks) {}

// The first of `count`.
inline std::uint64_t TracingWorker::next_number(Numbers& numbers, std::uint32_t rank, std::uint32_t worker,
                                                std::uint64_t count) {
  if (rank >= place_.ranks || worker >= place_.max_workers) return 0;
  if (numbers[rank] == nullptr) [[unlikely]]
    make_row(numbers[rank]);
  if (!counts_) [[unlikely]]
    return 0;
  std::uint64_t& number = numbers[rank][worker];
  number += count;
  return number - count + 1;
}

[[gnu::noinline]] void TracingWorker::make_row(std::unique_ptr<std::uint64_t[]>& row) {
  row.reset(new (std::nothrow) std::uint64_t[place_.max_workers]());
  // without memory it cannot be told any more which message is which
  if (row == nullptr) counts_ = false;
}

std::size_t TracingWorker::post(std::span<Command> batch) {
  if (batch.size() != 1 || !is_same(batch.front()) || !same_.repeat.suffices()) return post_others(batch);
  if (inner_->post(batch) == 0) [[unlikely]] {
    note_refused(*tracer_.ring(), batch.front(), 0);
    return 0;
  }
  same_.repeat.note();
  ++*same_.number;
  return 1;
}

[[gnu::noinline]] std::size_t TracingWorker::post_others(std::span<Command> batch) {
  tap::TraceRing* const ring = tracer_.ring();
  // The time is taken before the post, so that nothing arrives before it was posted.
  const std::uint64_t ticks = ring != nullptr ? ring->time_of_many() : 0;
  if (ring != nullptr && ticks != 0 && ring->asks_for_core_time(ticks)) ring->note_core_time();
  same_.repeat.end();
  const std::size_t accepted = inner_->post(batch);
  for (const Command& command : batch.first(accepted)) {
    if (ring != nullptr) {
      note_posted(*ring, command, ticks);
    } else if (command.opcode == Opcode::message) {
      static_cast<void>(next_number(sent_, command.rank, command.worker));
    }
  }
  if (accepted < batch.size() && ring != nullptr) note_refused(*ring, batch[accepted], ticks);
  return accepted;
}

inline bool TracingWorker::is_same(const Command& command) const {
  return command.opcode == Opcode::message && command.inlined && command.bytes == same_.bytes &&
         command.token == same_.token && command.rank == same_.rank && command.worker == same_.worker &&
         command.immediate == same_.immediate;
}

[[gnu::noinline]] void TracingWorker::note_posted(tap::TraceRing& ring, const Command& command, std::uint64_t ticks) {
  const bool message = command.opcode == Opcode::message;
  const std::uint64_t slot = is_long(command) ? tap::kTraceLongSlot : command.done ? kNoSlot : slot_of(command.token);
  const std::uint32_t detail = message ? detail_of(command.immediate) : static_cast<std::uint32_t>(command.opcode);
  const tap::TraceNote note{message ? next_number(sent_, command.rank, command.worker) : 0,
                            tap::trace_size(message ? message_bytes(command) : command.bytes, slot + 1),
                            tap::TraceNote::who_of(TraceEvent::posted, command.rank, command.worker, place_.index,
                                                   detail, message ? wire::row_of(command.immediate) : 0)};
  // The trace must show which operation a slot belongs to.
  if (slot != kNoSlot) ring.add(note.record(ticks));
  if (slot == tap::kTraceLongSlot)
    return command.done ? note_end_of_long(ring, ring.time()) : static_cast<void>(++long_ones_);
  if (slot != kNoSlot) return;
  ring.add_alike(note, ticks);
  if (note.id == 0 || !command.inlined || slot_of(command.token) != kNoSlot) return;
  same_.number = &sent_[command.rank][command.worker];
  same_.bytes = command.bytes;
  same_.token = command.token;
  same_.rank = command.rank;
  same_.worker = command.worker;
  same_.immediate = command.immediate;
  same_.repeat.begin(ring);
}

void TracingWorker::note_end_of_long(tap::TraceRing& ring, std::uint64_t ticks) {
  TraceRecord record{};
  record.ticks = ticks;
  record.id = tap::kTraceLongSlot;
  record.worker = static_cast<std::uint8_t>(place_.index);
  record.event = TraceEvent::ended;
  ring.add(record);
}

// Callers that poll and try again would fill the ring, so several in a row are one record.
void TracingWorker::note_refused(tap::TraceRing& ring, const Command& command, std::uint64_t ticks) {
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
  tap::TraceRing* const ring = tracer_.ring();
  const std::uint64_t now = ring != nullptr ? ring->time() : base::ticks();
  if (now - looked_ > kAwayTicks && ring != nullptr) note_away(*ring, now);
  looked_ = now;
  if (ring != nullptr) {
    for (auto left = completions.first(found); !left.empty();) left = left.subspan(note(*ring, left, now));
    return found;
  }
  for (const transport::Completion& completion : completions.first(found)) {
    if (completion.event == transport::Event::message) {
      static_cast<void>(next_number(received_, completion.rank, completion.worker));
    }
  }
  return found;
}

// Returns how many were noted; equal messages are noted together.
std::size_t TracingWorker::note(tap::TraceRing& ring, std::span<const transport::Completion> found,
                                std::uint64_t ticks) {
  const transport::Completion& first = found.front();
  if (first.event != transport::Event::message) {
    for (std::uint32_t i = std::max(first.ends(), 1U); i > 0; --i) note_ended(ring, first, ticks);
    return 1;
  }
  const std::uint32_t row = wire::row_of(first.immediate);
  const std::uint8_t detail = detail_of(first.immediate);
  const auto alike = [&](const transport::Completion& one) {
    return one.event == transport::Event::message && one.rank == first.rank && one.worker == first.worker &&
           one.bytes == first.bytes &&
           (one.immediate == first.immediate ||
            (wire::row_of(one.immediate) == row && detail_of(one.immediate) == detail));
  };
  const bool piped = is_piped(first.immediate) && first.bytes >= sizeof(wire::PipedHeader);
  std::size_t times = 1;
  while (!piped && times < found.size() && alike(found[times])) ++times;
  const tap::TraceNote note{
      next_number(received_, first.rank, first.worker, times), piped ? piped_bytes(first.data) : first.bytes,
      tap::TraceNote::who_of(TraceEvent::arrived, first.rank, first.worker, place_.index, detail, row)};
  ring.add_alike(note, ticks, times);
  return times;
}

void TracingWorker::note_ended(tap::TraceRing& ring, const transport::Completion& completion, std::uint64_t ticks) {
  TraceRecord record{};
  record.ticks = ticks;
  record.worker = static_cast<std::uint8_t>(place_.index);
  record.id = slot_of(completion.token);
  if (record.id == kNoSlot && long_ones_ > 0) {
    --long_ones_;
    return note_end_of_long(ring, ticks);
  }
  if (record.id == kNoSlot) return;
  record.event = TraceEvent::ended;
  record.detail = completion.event == transport::Event::source_free ? 1 : 0;
  record.kind = static_cast<std::uint8_t>(std::min<int>(-completion.status, 15)) & 0xFU;
  ring.add(record);
}

void TracingWorker::note_away(tap::TraceRing& ring, std::uint64_t now) {
  TraceRecord record{};
  record.ticks = now;
  record.id = looked_;
  record.worker = static_cast<std::uint8_t>(place_.index);
  record.event = TraceEvent::away;
  ring.add(record);
}

using transport::Event;

ProbingWorker::ProbingWorker(std::unique_ptr<transport::TransportWorker> inner, std::uint32_t index)
    : ForwardingWorker(std::move(inner)), index_(index) {}

std::size_t ProbingWorker::post(std::span<Command> batch) {
  const std::size_t accepted = inner_->post(batch);
  for (const Command& command : batch.first(accepted)) {
    const bool packet = command.opcode == Opcode::message && !command.inlined;
    tap::probe_posted({.worker = index_,
                       .opcode = static_cast<std::uint32_t>(command.opcode),
                       .rank = command.rank,
                       .peer = command.worker,
                       .bytes = packet ? command.packet_bytes() : command.bytes,
                       .token = command.done ? 0 : command.token});
  }
  if (accepted < batch.size()) {
    const Command& first = batch[accepted];
    tap::probe_refused(index_, static_cast<std::uint32_t>(first.opcode), first.rank, first.worker);
  }
  return accepted;
}

std::size_t ProbingWorker::poll(std::span<transport::Completion> completions) {
  const std::size_t found = inner_->poll(completions);
  for (const transport::Completion& completion : completions.first(found)) {
    if (completion.event == Event::message) {
      tap::probe_arrived(index_, completion.rank, completion.worker, completion.bytes,
                         wire::row_of(completion.immediate));
    }
    for (std::uint32_t i = completion.ends(); i > 0; --i) {
      tap::probe_ended(index_, completion.token, completion.status);
    }
  }
  return found;
}

namespace {

void call_probed(const heddle_am_arrival* arrival, void* arg) {
  const Handler& inner = *static_cast<const Handler*>(arg);
  tap::probe_handler_begin(arrival->handler, arrival->source.rank, arrival->source.worker, arrival->payload_bytes);
  inner.fn(arrival, inner.arg);
  tap::probe_handler_end(arrival->handler);
}

}  // namespace

Handler probed(const Handler& inner) {
  return {call_probed, const_cast<Handler*>(&inner)};
}

namespace {

bool is_message(const Command& command) {
  return command.opcode == Opcode::message;
}

// The program's memory is checked all the same: a thread that writes to it meanwhile makes a race.
void show_message(const Command& command) {
  if (!command.inlined) base::show_read(command.local, command.bytes);
  base::show_release(base::order_of_messages(command.rank, command.worker));
}

}  // namespace

OrderingWorker::OrderingWorker(std::unique_ptr<transport::TransportWorker> inner, std::uint32_t rank,
                               std::uint32_t index)
    : ForwardingWorker(std::move(inner)), here_(base::order_of_messages(rank, index)) {}

std::size_t OrderingWorker::post(std::span<Command> batch) {
  const bool messages = std::ranges::all_of(batch, is_message);
  for (const Command& command : batch) {
    if (is_message(command)) show_message(command);
  }
  const base::HiddenAccesses hidden(messages);
  const std::size_t accepted = inner_->post(batch);
  // Some posts do not say that they leave: see Gate::post_now().
  base::show_release(here_);
  return accepted;
}

std::size_t OrderingWorker::poll(std::span<transport::Completion> completions) {
  const std::size_t found = inner_->poll(completions);
  base::show_acquire(here_);  // also for what was done inside before: Completer::advance()
  return found;
}

void Findings::say(const char* format, ...) {
  std::array<char, 512> text{};
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  lines.emplace_back(text.data());
}

void Findings::under_way(tap::Awaited&& awaited) {
  if (state.under_way.size() < tap::kMostListed) state.under_way.push_back(std::move(awaited));
}

void Findings::kept(std::uint32_t rank, std::uint32_t worker, std::uint64_t tag) {
  std::string text = tag_text(tag);
  const auto same = std::ranges::find_if(
      state.kept, [&](const tap::Kept& one) { return one.rank == rank && one.worker == worker && one.tag == text; });
  if (same != state.kept.end()) {
    ++same->messages;
  } else if (state.kept.size() < tap::kMostListed) {
    state.kept.push_back({rank, worker, 1, std::move(text)});
  }
}

}  // namespace heddle::engine
