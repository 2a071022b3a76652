#include "engine/ordering.hpp"

#include <algorithm>
#include <utility>

#include "base/fence.hpp"

namespace heddle::engine {

using transport::Command;
using transport::Opcode;

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

}  // namespace heddle::engine
