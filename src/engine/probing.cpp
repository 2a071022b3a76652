#include "engine/probing.hpp"

#include <utility>

#include "tap/probes.hpp"
#include "wire/messages.hpp"

namespace heddle::engine {

using transport::Command;
using transport::Event;
using transport::Opcode;

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

}  // namespace heddle::engine
