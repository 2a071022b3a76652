#include "collective/schedule.hpp"

#include <algorithm>

#include "collective/exchange.hpp"

namespace heddle::collective {

const char* name_of(Operation operation) {
  static constexpr std::array<const char*, static_cast<std::size_t>(Operation::kCount)> kNames = {
      "barrier",        "broadcast", "reduce",     "allreduce", "gather",  "allgather", "scatter",           "alltoall",
      "reduce_scatter", "scan",      "allgatherv", "alltoallv", "gatherv", "scatterv",  "neighbor_alltoallv"};
  return kNames.at(static_cast<std::size_t>(operation));
}

bool has_root(Operation operation) {
  return operation == Operation::broadcast || operation == Operation::reduce || operation == Operation::gather ||
         operation == Operation::scatter;
}

bool lists_blocks(Operation operation) {
  switch (operation) {
    case Operation::allgatherv:
    case Operation::alltoallv:
    case Operation::gatherv:
    case Operation::scatterv:
    case Operation::neighbor_alltoallv:
      return true;
    default:
      return false;
  }
}

std::uint64_t send_bytes(const Request& request, Rank rank) {
  switch (request.operation) {
    case Operation::barrier:
    case Operation::broadcast:
    case Operation::kCount:
      return 0;
    case Operation::scatter:
      return rank == request.root ? request.bytes * request.ranks : 0;
    case Operation::alltoall:
    case Operation::reduce_scatter:
      return request.bytes * request.ranks;
    case Operation::reduce:
    case Operation::allreduce:
    case Operation::gather:
    case Operation::allgather:
    case Operation::scan:
      return request.bytes;
    case Operation::allgatherv:
    case Operation::alltoallv:
    case Operation::gatherv:
    case Operation::scatterv:
    case Operation::neighbor_alltoallv:
      return extent(exchange_of(request, rank).given);
  }
  return 0;
}

std::uint64_t receive_bytes(const Request& request, Rank rank) {
  switch (request.operation) {
    case Operation::barrier:
    case Operation::kCount:
      return 0;
    case Operation::reduce:
      return rank == request.root ? request.bytes : 0;
    case Operation::gather:
      return rank == request.root ? request.bytes * request.ranks : 0;
    case Operation::allgather:
    case Operation::alltoall:
      return request.bytes * request.ranks;
    case Operation::broadcast:
    case Operation::allreduce:
    case Operation::scatter:
    case Operation::reduce_scatter:
    case Operation::scan:
      return request.bytes;
    case Operation::allgatherv:
    case Operation::alltoallv:
    case Operation::gatherv:
    case Operation::scatterv:
    case Operation::neighbor_alltoallv:
      return extent(exchange_of(request, rank).taken);
  }
  return 0;
}

SessionFit runs_on_session_queues(const Schedule& schedule) {
  struct Queue {
    bool begun = false;
    bool free = false;
    std::uint32_t counter = 0;
    std::uint32_t commands = 0;
  };
  constexpr std::uint32_t kMostCredits = 15;  // SPS is a field of 4 bits
  std::vector<Queue> queues(schedule.queues);
  const auto no = [](const char* reason) { return SessionFit{false, reason}; };
  for (const Command& command : schedule.commands) {
    if (command.action != Action::put && command.action != Action::nop) return no("it computes or copies");
    if (command.credits > kMostCredits) return no("a put gives more than 15 credits");
    if (command.action == Action::nop && command.credits > 0) return no("a nop gives credits");
    if (command.waits[1].count > 0) return no("a command waits for two counters");
    Queue& queue = queues[command.queue];
    const Wait& first = command.waits[0];
    if (!queue.begun) {
      queue.begun = true;
      queue.free = first.count == 0;
      queue.counter = first.counter;
    }
    ++queue.commands;
    if (queue.free ? first.count != 0 : first.counter != queue.counter || first.count != queue.commands)
      return no("a queue's i-th command does not wait for its i-th credit");
  }
  return {};
}

Builder& Builder::counter(std::uint32_t number, std::uint32_t per_run, std::uint32_t initial) {
  if (schedule_.counters.size() <= number) schedule_.counters.resize(number + 1);
  schedule_.counters[number] = {initial, per_run};
  return *this;
}

Builder& Builder::link(std::uint32_t queue, std::uint32_t number) {
  if (schedule_.links.size() <= queue) schedule_.links.resize(queue + 1, kAnyLink);
  schedule_.links[queue] = number;
  return *this;
}

std::uint64_t Builder::scratch(std::uint64_t bytes) {
  const std::uint64_t begin = schedule_.scratch_bytes;
  schedule_.scratch_bytes += bytes;
  return begin;
}

Command& Builder::add(std::uint32_t queue, Action action) {
  schedule_.queues = std::max(schedule_.queues, queue + 1);
  Command& command = schedule_.commands.emplace_back();
  command.queue = queue;
  command.action = action;
  return command;
}

Command& Builder::put(std::uint32_t queue, Block source, Rank target, Block destination) {
  Command& command = add(queue, Action::put);
  command.source = source;
  command.target = target;
  command.destination = destination;
  return command;
}

Command& Builder::signal(std::uint32_t queue, Rank target, std::uint32_t counter, std::uint32_t credits) {
  Command& command = add(queue, Action::put);
  command.target = target;
  return give(command, counter, credits);
}

Command& Builder::signal_shared(std::uint32_t queue, Rank target, std::uint32_t counter, std::uint32_t credits) {
  Command& command = signal(queue, target, counter, credits);
  command.shares = true;
  return command;
}

Command& Builder::copy(std::uint32_t queue, Block source, Block destination) {
  Command& command = add(queue, Action::copy);
  command.source = source;
  command.destination = destination;
  return command;
}

Command& Builder::get(std::uint32_t queue, Rank target, Block source, Block destination) {
  Command& command = add(queue, Action::get);
  command.source = source;
  command.target = target;
  command.destination = destination;
  return command;
}

Command& Builder::expose(std::uint32_t queue, Block block) {
  Command& command = add(queue, Action::expose);
  command.source = command.destination = block;
  return command;
}

Command& Builder::reduce(std::uint32_t queue, Block source, Block destination) {
  Command& command = add(queue, Action::reduce);
  command.source = source;
  command.destination = destination;
  return command;
}

Command& Builder::nop(std::uint32_t queue) {
  return add(queue, Action::nop);
}

Command& wait(Command& command, std::uint32_t counter, std::uint32_t count) {
  Wait& free = command.waits[0].count == 0 ? command.waits[0] : command.waits[1];
  free = {counter, count};
  return command;
}

Command& give(Command& command, std::uint32_t counter, std::uint32_t credits) {
  command.counter = counter;
  command.credits = credits;
  return command;
}

Command& give_shared(Command& command, std::uint32_t counter, std::uint32_t credits) {
  command.shares = true;
  return give(command, counter, credits);
}

}  // namespace heddle::collective
