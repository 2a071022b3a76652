#include "collective/session_queue.hpp"

#include <algorithm>
#include <cstring>

namespace heddle::collective {

SessionQueue::SessionQueue(const Schedule& schedule, std::span<const RankMemory> ranks, Reduction reduction)
    : reduction_(reduction) {
  steps_.reserve(schedule.commands.size());
  for (std::uint32_t number = 0; number < schedule.queues; ++number) {
    Queue queue;
    queue.begin = queue.next = static_cast<std::uint32_t>(steps_.size());
    for (const Command& command : schedule.commands)
      if (command.queue == number) bind(command, schedule.rank, ranks, schedule);
    queue.end = static_cast<std::uint32_t>(steps_.size());
    if (queue.begin != queue.end) queues_.push_back(queue);
  }
}

void SessionQueue::prepare(const Schedule& schedule, CounterWord* counters) {
  for (std::size_t i = 0; i < schedule.counters.size(); ++i)
    counters[i].credits.store(schedule.counters[i].initial, std::memory_order_relaxed);
}

std::uint64_t* SessionQueue::sum_of(const CounterWord* counter) {
  const auto found = std::ranges::find(sums_, counter, [](const auto& entry) { return entry.first; });
  if (found != sums_.end()) return found->second.get();
  // prepare() may not have been called yet, so what is there at first is added at the first gift.
  return sums_.emplace_back(counter, std::make_unique<std::uint64_t>(0)).second.get();
}

void SessionQueue::bind(const Command& command, Rank rank, std::span<const RankMemory> ranks,
                        const Schedule& schedule) {
  Step& step = steps_.emplace_back();
  step.action = command.action;
  for (std::size_t i = 0; i < step.dues.size(); ++i) {
    const Wait& wait = command.waits[i];
    if (wait.count > 0)
      step.dues[i] = {&ranks[rank].counters[wait.counter], wait.count, schedule.counters[wait.counter].per_run};
  }
  const RankMemory& target = ranks[command.action == Action::put ? command.target : rank];
  step.bytes = command.source.bytes;
  if (step.bytes > 0) {
    step.source = ranks[rank].places[static_cast<std::size_t>(command.source.place)] + command.source.offset;
    step.destination = target.places[static_cast<std::size_t>(command.destination.place)] + command.destination.offset;
  }
  if (command.credits == 0) return;
  step.counter = &target.counters[command.counter];
  step.credits = command.credits;
  if (!command.shares) step.given = sum_of(step.counter);
}

void SessionQueue::execute(Step& step) {
  if (step.action == Action::reduce) {
    reduction_.combine(step.destination, step.source, step.bytes, reduction_.argument);
  } else if (step.bytes > 0 && step.source != step.destination) {
    std::memcpy(step.destination, step.source, step.bytes);
  }
  for (Due& due : step.dues) due.credits += due.per_run;
  if (step.counter == nullptr) return;
  if (step.given == nullptr) {
    step.counter->credits.fetch_add(step.credits, std::memory_order_release);
    return;
  }
  // Alone: nobody else writes the counter, so a plain store of the sum is the addition.
  if (*step.given == 0) *step.given = step.counter->credits.load(std::memory_order_relaxed);
  *step.given += step.credits;
  step.counter->credits.store(*step.given, std::memory_order_release);
}

// True: it has come to its end.
bool SessionQueue::advance_queue(Queue& queue) {
  while (queue.next < queue.end) {
    Step& step = steps_[queue.next];
    if (!released(step.dues[0]) || !released(step.dues[1])) return false;
    execute(step);
    ++queue.next;
  }
  return true;
}

bool SessionQueue::advance_locked() {
  // Acquire, partner: the release store in start().
  const std::uint64_t started = started_.load(std::memory_order_acquire);
  if (running_ != started) {
    running_ = started;
    open_ = queues_.size();
    for (Queue& queue : queues_) queue.next = queue.begin;
  }
  // What a queue gives to a counter of its own rank may release another one.
  for (bool moved = true; moved && open_ > 0;) {
    moved = false;
    for (std::size_t i = 0; i < open_;) {
      const std::uint32_t before = queues_[i].next;
      const bool ended = advance_queue(queues_[i]);
      moved = moved || queues_[i].next != before;
      if (!ended)
        ++i;
      else
        std::swap(queues_[i], queues_[--open_]);
    }
  }
  if (open_ > 0) return false;
  completed_.store(started, std::memory_order_release);
  return true;
}

}  // namespace heddle::collective
