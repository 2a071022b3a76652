#include "collective/schedule.hpp"

#include <algorithm>
#include <map>
#include <utility>

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

std::uint64_t send_bytes(const AlgorithmRequest& request, Rank rank) {
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

std::uint64_t receive_bytes(const AlgorithmRequest& request, Rank rank) {
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
  for (const ScheduleCommand& command : schedule.commands) {
    if (command.action != Action::put && command.action != Action::nop) return no("it computes or copies");
    if (command.credits > kMostCredits) return no("a put gives more than 15 credits");
    if (command.action == Action::nop && command.credits > 0) return no("a nop gives credits");
    if (command.waits[1].count > 0) return no("a command waits for two counters");
    Queue& queue = queues[command.queue];
    const CreditWait& first = command.waits[0];
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

ScheduleCommand& Builder::add(std::uint32_t queue, Action action) {
  schedule_.queues = std::max(schedule_.queues, queue + 1);
  ScheduleCommand& command = schedule_.commands.emplace_back();
  command.queue = queue;
  command.action = action;
  return command;
}

ScheduleCommand& Builder::put(std::uint32_t queue, Block source, Rank target, Block destination) {
  ScheduleCommand& command = add(queue, Action::put);
  command.source = source;
  command.target = target;
  command.destination = destination;
  return command;
}

ScheduleCommand& Builder::signal(std::uint32_t queue, Rank target, std::uint32_t counter, std::uint32_t credits) {
  ScheduleCommand& command = add(queue, Action::put);
  command.target = target;
  return give(command, counter, credits);
}

ScheduleCommand& Builder::signal_shared(std::uint32_t queue, Rank target, std::uint32_t counter,
                                        std::uint32_t credits) {
  ScheduleCommand& command = signal(queue, target, counter, credits);
  command.shares = true;
  return command;
}

ScheduleCommand& Builder::copy(std::uint32_t queue, Block source, Block destination) {
  ScheduleCommand& command = add(queue, Action::copy);
  command.source = source;
  command.destination = destination;
  return command;
}

ScheduleCommand& Builder::get(std::uint32_t queue, Rank target, Block source, Block destination) {
  ScheduleCommand& command = add(queue, Action::get);
  command.source = source;
  command.target = target;
  command.destination = destination;
  return command;
}

ScheduleCommand& Builder::expose(std::uint32_t queue, Block block) {
  ScheduleCommand& command = add(queue, Action::expose);
  command.source = command.destination = block;
  return command;
}

ScheduleCommand& Builder::reduce(std::uint32_t queue, Block source, Block destination) {
  ScheduleCommand& command = add(queue, Action::reduce);
  command.source = source;
  command.destination = destination;
  return command;
}

ScheduleCommand& Builder::nop(std::uint32_t queue) {
  return add(queue, Action::nop);
}

ScheduleCommand& wait(ScheduleCommand& command, std::uint32_t counter, std::uint32_t count) {
  CreditWait& free = command.waits[0].count == 0 ? command.waits[0] : command.waits[1];
  free = {counter, count};
  return command;
}

ScheduleCommand& give(ScheduleCommand& command, std::uint32_t counter, std::uint32_t credits) {
  command.counter = counter;
  command.credits = credits;
  return command;
}

ScheduleCommand& give_shared(ScheduleCommand& command, std::uint32_t counter, std::uint32_t credits) {
  command.shares = true;
  return give(command, counter, credits);
}

namespace {

// Equal blocks, one after the other.
Exchange uniform(const AlgorithmRequest& request, Rank rank) {
  Exchange made;
  const bool spread = request.operation == Operation::alltoallv || request.operation == Operation::scatterv;
  const bool one_gives = request.operation == Operation::scatterv;
  const bool one_takes = request.operation == Operation::gatherv;
  for (Rank peer = 0; peer < request.ranks; ++peer) {
    if ((!one_gives || rank == request.root) && (!one_takes || peer == request.root))
      made.given.push_back({peer, request.bytes, spread ? peer * request.bytes : 0});
    if ((!one_gives || peer == request.root) && (!one_takes || rank == request.root))
      made.taken.push_back({peer, request.bytes, one_gives ? 0 : peer * request.bytes});
  }
  lay_out(rank, &made);
  return made;
}

// A ring: one block to the next rank and one to the previous, which may be the same rank, or this
// one.
Exchange ring(const AlgorithmRequest& request, Rank rank, bool kept) {
  const Rank next = (rank + 1) % request.ranks;
  const Rank last = (rank + request.ranks - 1) % request.ranks;
  const std::uint64_t bytes = request.bytes;
  Exchange made;
  made.kept = kept;
  made.given = {{next, bytes, 0}, {last, bytes, bytes}};
  made.taken = {{last, bytes, 0}, {next, bytes, bytes}};
  lay_out(rank, &made);
  return made;
}

// Fills in the values that the peers would tell, without making their lists, which may be very
// many.
void acquaint_uniform(const AlgorithmRequest& request, Rank rank, bool kept, Exchange* made) {
  made->kept = kept;
  for (ListedBlock& message : made->given) {
    message.kept = kept && message.peer != rank;
    // A rank's blocks for itself go to receive, not to scratch.
    const Rank before = message.kept && message.peer < rank ? rank - 1 : rank;
    message.there = request.operation == Operation::scatterv ? 0 : before * request.bytes;
  }
  for (ListedBlock& message : made->taken) {
    // The slots of the peer: all ranks except itself, or only the root.
    message.slot = request.operation == Operation::gatherv ? 0 : rank - (message.peer < rank ? 1 : 0);
  }
}

// Sorts by peer; blocks of one peer stay in the order in which they are listed.
void put_in_order(std::vector<ListedBlock>& messages) {
  for (std::uint32_t i = 0; i < messages.size(); ++i) messages[i].slot = i;
  std::ranges::sort(messages, {}, [](const ListedBlock& message) { return std::pair(message.peer, message.slot); });
  for (ListedBlock& message : messages) message.slot = 0;
}

template <class Messages>
auto range_of(Messages& messages, Rank peer) {
  const auto [first, last] = std::ranges::equal_range(messages, peer, {}, &ListedBlock::peer);
  return std::span(first, last);
}

// Records where the k-th block that `from` gives to `to` is put.
void introduce(const Exchange& to, std::span<ListedBlock> given, std::span<const ListedBlock> taken, bool self) {
  const std::size_t count = std::min(given.size(), taken.size());
  for (std::size_t k = 0; k < count; ++k) {
    given[k].kept = to.kept && !self;
    given[k].there = given[k].kept ? taken[k].there : taken[k].here;
  }
}

Exchange ring_among_others(const AlgorithmRequest& request, Rank rank, bool kept) {
  Exchange made = ring(request, rank, kept);
  for (const Rank peer : {(rank + 1) % request.ranks, (rank + request.ranks - 1) % request.ranks}) {
    const Exchange theirs = ring(request, peer, kept);
    introduce(theirs, of_peer(made.given, peer), of_peer(theirs.taken, rank), peer == rank);
    for (ListedBlock& message : of_peer(made.taken, peer)) message.slot = of_peer(theirs.given, rank).front().slot;
  }
  return made;
}

}  // namespace

Exchange exchange_of(const AlgorithmRequest& request, Rank rank, bool kept) {
  if (!request.exchanges.empty()) return request.exchanges.size() == 1 ? request.exchanges[0] : request.exchanges[rank];
  if (request.operation == Operation::neighbor_alltoallv) return ring_among_others(request, rank, kept);
  Exchange made = uniform(request, rank);
  acquaint_uniform(request, rank, kept, &made);
  return made;
}

std::uint64_t extent(std::span<const ListedBlock> messages) {
  std::uint64_t end = 0;
  for (const ListedBlock& message : messages)
    if (message.bytes > 0) end = std::max(end, message.here + message.bytes);
  return end;
}

void lay_out(Rank rank, Exchange* exchange) {
  put_in_order(exchange->given);
  put_in_order(exchange->taken);
  std::uint32_t slots = 0;
  Rank last = rank;
  for (ListedBlock& message : exchange->given) {
    if (message.peer == rank || message.bytes == 0) continue;
    if (message.peer != last) ++slots;
    last = message.peer;
    message.slot = slots - 1;
  }
  std::uint64_t at = 0;
  for (ListedBlock& message : exchange->taken) {
    if (message.peer == rank) continue;
    message.there = at;
    at += message.bytes;
  }
  // A rank's blocks for itself go directly from list to list.
  introduce(*exchange, of_peer(exchange->given, rank), of_peer(exchange->taken, rank), true);
}

std::span<ListedBlock> of_peer(std::vector<ListedBlock>& messages, Rank peer) {
  return range_of(messages, peer);
}

std::span<const ListedBlock> of_peer(const std::vector<ListedBlock>& messages, Rank peer) {
  return range_of(messages, peer);
}

std::uint64_t kept_bytes(Rank rank, const Exchange& exchange) {
  std::uint64_t bytes = 0;
  for (const ListedBlock& message : exchange.taken)
    if (exchange.kept && message.peer != rank) bytes += message.bytes;
  return bytes;
}

void acquaint(std::span<Exchange> all) {
  for (Rank from = 0; from < all.size(); ++from) {
    for (Rank to = 0; to < all.size(); ++to) {
      const std::span<ListedBlock> given = of_peer(all[from].given, to);
      const std::span<ListedBlock> taken = of_peer(all[to].taken, from);
      introduce(all[to], given, taken, from == to);
      const auto first = std::ranges::find_if(given, [](const ListedBlock& message) { return message.bytes > 0; });
      for (ListedBlock& message : taken) message.slot = first != given.end() ? first->slot : 0;
    }
  }
}

namespace {

std::string text_of(const Block& block) {
  static constexpr std::array<const char*, kPlaces> kNames = {"send", "receive", "scratch", "beside"};
  return std::string(kNames.at(static_cast<std::size_t>(block.place))) + "[" + std::to_string(block.offset) + ".." +
         std::to_string(block.offset + block.bytes) + ")";
}

std::string waits_of(const ScheduleCommand& command) {
  std::string text;
  for (const CreditWait& wait : command.waits)
    if (wait.count > 0)
      text += (text.empty() ? "when c" : " and c") + std::to_string(wait.counter) + " >= " + std::to_string(wait.count);
  return text.empty() ? "at once" : text;
}

std::string link_text(std::uint32_t link) {
  if (link == kAnyLink) return "";
  static constexpr std::array<const char*, kLinks> kNames = {"+x", "-x", "+y", "-y", "+z", "-z"};
  return std::string(", link ") + kNames.at(link);
}

std::string act_of(const ScheduleCommand& command) {
  const std::string target = " rank " + std::to_string(command.target);
  const bool bytes = command.source.bytes > 0;
  switch (command.action) {
    case Action::nop:
      return "nop";
    case Action::put:
      if (!bytes) return "signal" + target;
      return "put " + text_of(command.source) + " to" + target + " " + text_of(command.destination);
    case Action::get:
      return "get " + text_of(command.source) + " of" + target + " to " + text_of(command.destination);
    case Action::expose:
      return "expose " + text_of(command.source);
    case Action::copy:
      return "copy " + text_of(command.source) + " to " + text_of(command.destination);
    case Action::reduce:
      return "reduce " + text_of(command.source) + " into " + text_of(command.destination);
  }
  return "";
}

}  // namespace

std::string text_of(const Schedule& schedule) {
  std::string text = "rank " + std::to_string(schedule.rank) + " of " + std::to_string(schedule.ranks) + ": " +
                     std::to_string(schedule.commands.size()) + " commands, " + std::to_string(schedule.scratch_bytes) +
                     " bytes of its own\n";
  for (std::size_t i = 0; i < schedule.counters.size(); ++i) {
    const ScheduleCounter& counter = schedule.counters[i];
    if (counter.per_run == 0) continue;
    text += "  counter c" + std::to_string(i) + ": " + std::to_string(counter.per_run) + " a run";
    if (counter.initial > 0) text += ", " + std::to_string(counter.initial) + " at first";
    text += "\n";
  }
  for (std::uint32_t queue = 0; queue < schedule.queues; ++queue) {
    bool first = true;
    for (const ScheduleCommand& command : schedule.commands) {
      if (command.queue != queue) continue;
      if (first) text += "  queue " + std::to_string(queue) + link_text(schedule.link_of(queue)) + "\n";
      first = false;
      text += "    " + waits_of(command) + ": " + act_of(command);
      if (command.credits > 0) text += ", +" + std::to_string(command.credits) + " c" + std::to_string(command.counter);
      text += "\n";
    }
  }
  return text;
}

std::string dot_of(const std::string& title, const std::vector<Schedule>& schedules) {
  std::string text = "digraph \"" + title + "\" {\n  node [shape=circle];\n";
  for (const Schedule& schedule : schedules) {
    text += "  " + std::to_string(schedule.rank) + ";\n";
    std::map<Rank, std::uint64_t> bytes;
    for (const ScheduleCommand& command : schedule.commands)
      if (command.action == Action::put && command.target != schedule.rank)
        bytes[command.target] += command.source.bytes;
    for (const ScheduleCommand& command : schedule.commands)
      if (command.action == Action::get)
        text += "  " + std::to_string(command.target) + " -> " + std::to_string(schedule.rank) + " [label=\"" +
                std::to_string(command.source.bytes) + "\"];\n";
    for (const auto& [target, sum] : bytes)
      text += "  " + std::to_string(schedule.rank) + " -> " + std::to_string(target) +
              (sum == 0 ? " [style=dashed];\n" : " [label=\"" + std::to_string(sum) + "\"];\n");
  }
  return text + "}\n";
}

}  // namespace heddle::collective
