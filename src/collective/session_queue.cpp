#include "collective/session_queue.hpp"

#include <algorithm>
#include <cstring>

#include "base/copy.hpp"
#include "base/fence.hpp"

namespace heddle::collective {
namespace {

std::uint64_t offset_of(const Block& block) {
  return block.place == Place::beside ? beside_at(block.offset) : block.offset;
}

}  // namespace

void SessionQueue::bind_to(const Schedule& schedule, std::span<const RankMemory> ranks, Reduction reduction) {
  reduction_ = reduction;
  std::ranges::copy(ranks[schedule.rank].places, places_.begin());
  exposed_ = places_[static_cast<std::size_t>(Place::receive)];
  places_[static_cast<std::size_t>(Place::beside)] = reinterpret_cast<std::byte*>(ranks[schedule.rank].counters);
  steps_.reserve(schedule.commands.size());
  bool carries = false;
  for (std::uint32_t number = 0; number < schedule.queues; ++number) {
    Queue queue;
    queue.begin = queue.next = queue.credited = static_cast<std::uint32_t>(steps_.size());
    for (const ScheduleCommand& command : schedule.commands) {
      if (command.queue != number) continue;
      bind_command(command, schedule.rank, ranks, schedule);
      queue.carries = queue.carries || steps_.back().carrier != nullptr;
    }
    queue.end = static_cast<std::uint32_t>(steps_.size());
    carries = carries || queue.carries;
    if (queue.begin != queue.end) queues_.push_back(queue);
  }
  if (carries) ended_ = std::make_unique<std::atomic<std::int32_t>[]>(steps_.size());
}

void SessionQueue::prepare(const Schedule& schedule, CounterWord* counters) {
  for (std::size_t i = 0; i < schedule.counters.size(); ++i)
    counters[i].credits.store(schedule.counters[i].initial, std::memory_order_relaxed);
}

std::uint64_t* SessionQueue::sum_of(const CounterWord* counter) {
  const auto found = std::ranges::find(sums_, counter, [](const auto& entry) { return entry.first; });
  if (found != sums_.end()) return &found->second->given;
  // prepare() may not have been called yet, so the initial value is added at the first gift.
  return &sums_.emplace_back(counter, std::make_unique<Sum>()).second->given;
}

void SessionQueue::bind_command(const ScheduleCommand& command, Rank rank, std::span<const RankMemory> ranks,
                                const Schedule& schedule) {
  Step& step = steps_.emplace_back();
  step.action = command.action;
  for (std::size_t i = 0; i < step.dues.size(); ++i) {
    const CreditWait& wait = command.waits[i];
    if (wait.count > 0)
      step.dues[i] = {&ranks[rank].counters[wait.counter], wait.count, schedule.counters[wait.counter].per_run};
  }
  const bool here = command.action != Action::put || command.target == rank;
  const auto source = static_cast<std::size_t>(command.source.place);
  const RankMemory& target = ranks[here ? rank : command.target];
  step.bytes = command.source.bytes;
  step.credits = command.credits;
  if (step.bytes > 0) {
    step.source_offset = offset_of(command.source);
    if (command.action == Action::get)
      step.source = ranks[command.target].places[source] + step.source_offset;
    else
      step.source_base = command.action == Action::expose ? &exposed_ : &places_[source];
  }
  bind_target(command, target, here, step);
}

void SessionQueue::bind_target(const ScheduleCommand& command, const RankMemory& target, bool here, Step& step) {
  // Counters that others reach by carriers are written only by carriers, this rank's gifts
  // included.
  const bool carried = target.carrier != nullptr && (!here || command.shares);
  if (carried) {
    step.carrier = target.carrier;
    step.counter_number = command.counter;
    step.destination_place = command.destination.place;
    step.destination_offset = command.destination.offset;
  } else if (step.credits > 0) {
    step.counter = &target.counters[command.counter];
    step.bell = target.bell;
    if (!command.shares) step.given = sum_of(step.counter);
  }
  if (step.bytes == 0 || (carried && !here)) return;
  const auto place = static_cast<std::size_t>(command.destination.place);
  step.destination_offset = offset_of(command.destination);
  if (here) {
    step.destination_base = &places_[place];
  } else {
    std::byte* base = command.destination.place == Place::beside ? reinterpret_cast<std::byte*>(target.counters)
                                                                 : target.places[place];
    step.destination = base + step.destination_offset;
  }
}

void SessionQueue::give(Step& step) {
  if (step.counter == nullptr) return;
  if (step.given == nullptr) {
    step.counter->credits.fetch_add(step.credits, std::memory_order_release);
  } else {
    // This rank is the only writer of the counter, so a plain store of the sum does the addition.
    if (*step.given == 0) *step.given = step.counter->credits.load(std::memory_order_relaxed);
    *step.given += step.credits;
    step.counter->credits.store(*step.given, std::memory_order_release);
  }
  if (step.bell != nullptr) step.bell->published();
}

// False: the carrier cannot take it now.
bool SessionQueue::execute(Step& step) {
  if (step.bytes > 0) {
    const std::byte* source = step.source_base != nullptr ? *step.source_base + step.source_offset : step.source;
    if (step.carrier != nullptr && step.destination_base == nullptr) {
      std::atomic<std::int32_t>& ended = ended_[static_cast<std::size_t>(&step - steps_.data())];
      ended.store(0, std::memory_order_relaxed);
      if (!step.carrier->put(source, step.bytes, step.destination_place, step.destination_offset, &ended)) return false;
    } else {
      std::byte* destination =
          step.destination_base != nullptr ? *step.destination_base + step.destination_offset : step.destination;
      if (step.action == Action::reduce)
        reduction_.combine(destination, source, step.bytes, reduction_.argument);
      else if (source != destination)
        base::copy_data(destination, source, step.bytes);
    }
  }
  for (Due& due : step.dues) due.credits += due.per_run;
  return true;
}

// Gives the credits of puts that have arrived. False: more is to come.
bool SessionQueue::give_credits(Queue& queue) {
  for (; queue.credited < queue.next; ++queue.credited) {
    Step& step = steps_[queue.credited];
    if (step.carrier == nullptr) {
      give(step);
      continue;
    }
    if (step.bytes > 0 && step.destination_base == nullptr) {
      const std::int32_t ended = ended_[queue.credited].load(std::memory_order_acquire);
      if (ended == 0) return false;
      if (ended < 0) fail(static_cast<base::Status>(ended));
    }
    if (step.credits == 0 || status() != HEDDLE_DONE) continue;
    const base::Status given = step.carrier->give(step.counter_number, step.credits);
    if (given == HEDDLE_AGAIN) return false;
    if (given < 0) fail(given);
  }
  return queue.credited == queue.end;
}

// A carrier may read a source until its bytes have arrived. False: the step would write to such a
// source.
bool SessionQueue::sources_left(Queue& queue, const Step& step) {
  if (step.bytes == 0 || step.destination_base == nullptr) return true;
  static_cast<void>(give_credits(queue));
  const std::byte* begin = *step.destination_base + step.destination_offset;
  for (std::uint32_t i = queue.credited; i < queue.next; ++i) {
    const Step& before = steps_[i];
    if (before.carrier == nullptr || before.bytes == 0 || before.destination_base != nullptr) continue;
    const std::byte* source = *before.source_base + before.source_offset;
    if (source < begin + step.bytes && begin < source + before.bytes) return false;
  }
  return true;
}

bool SessionQueue::on_its_way(const Queue& queue) const {
  for (std::uint32_t i = queue.credited; queue.carries && i < queue.next; ++i) {
    const Step& step = steps_[i];
    if (step.carrier != nullptr && step.bytes > 0 && step.destination_base == nullptr &&
        ended_[i].load(std::memory_order_acquire) == 0)
      return true;
  }
  return false;
}

// For ThreadSanitizer: shows everything that a giver of this process wrote before it gave
// (loopback).
void SessionQueue::show_released(const Step& step) {
  for (const Due& due : step.dues) {
    if (due.counter != nullptr) base::show_acquire(const_cast<CounterWord*>(due.counter));
  }
}

// True: the queue has reached its end.
bool SessionQueue::advance_queue(Queue& queue) {
  while (queue.next < queue.end) {
    Step& step = steps_[queue.next];
    if (!released(step.dues[0]) || !released(step.dues[1])) break;
    if (base::has_thread_sanitizer()) [[unlikely]]
      show_released(step);
    if (step.bytes > allowance_) break;
    if (queue.carries && !sources_left(queue, step)) break;
    if (!execute(step)) break;
    if (allowance_ != kAll) allowance_ -= step.bytes;
    if (!queue.carries) give(step);
    ++queue.next;
  }
  return queue.carries ? give_credits(queue) : queue.next == queue.end;
}

std::vector<std::uint32_t> SessionQueue::awaited() {
  std::vector<std::uint32_t> counters;
  const queue::TryLock<>::Guard guard(lock_);
  if (!guard || done()) return counters;
  const auto* first = reinterpret_cast<const CounterWord*>(places_[static_cast<std::size_t>(Place::beside)]);
  for (std::size_t i = 0; i < open_; ++i) {
    if (queues_[i].next == queues_[i].end) continue;
    for (const Due& due : steps_[queues_[i].next].dues)
      if (!released(due)) counters.push_back(static_cast<std::uint32_t>(due.counter - first));
  }
  return counters;
}

void SessionQueue::begin_run(std::uint64_t run) {
  running_ = run;
  open_ = queues_.size();
  for (Queue& queue : queues_) queue.next = queue.credited = queue.begin;
}

bool SessionQueue::end_run(std::uint64_t run) {
  if (delivery_.bytes > allowance_) return false;
  if (status() == HEDDLE_DONE) base::copy_data(delivery_.to, delivery_.from, delivery_.bytes);
  complete(run);
  return true;
}

bool SessionQueue::advance_locked() {
  const std::uint64_t started = begun();
  if (completed(started)) return true;  // ended meanwhile
  if (running_ != started) begin_run(started);
  std::uint64_t executed = 0;
  // A queue's credits to a counter of its own rank may release another queue.
  for (bool moved = true; moved && open_ > 0 && status() == HEDDLE_DONE;) {
    moved = false;
    for (std::size_t i = 0; i < open_;) {
      const std::uint32_t before = queues_[i].next + queues_[i].credited;
      const bool ended = advance_queue(queues_[i]);
      const std::uint32_t steps = queues_[i].next + queues_[i].credited - before;
      moved = moved || steps > 0;
      executed += steps;
      if (!ended)
        ++i;
      else
        std::swap(queues_[i], queues_[--open_]);
    }
  }
  if (executed > 0) count(executed);
  if (status() != HEDDLE_DONE) {
    const bool waits = std::ranges::any_of(queues_, [this](const Queue& queue) { return on_its_way(queue); });
    return !waits && end_run(started);
  }
  return open_ == 0 && end_run(started);
}

}  // namespace heddle::collective
