#include "collective/check.hpp"

#include <array>

namespace heddle::collective {
namespace checking {
namespace {

std::string text_of(const Block& block) {
  static constexpr std::array<const char*, kPlaces> kNames = {"send", "receive", "scratch", "beside"};
  return std::string(kNames.at(static_cast<std::size_t>(block.place))) + "[" + std::to_string(block.offset) + ", +" +
         std::to_string(block.bytes) + ")";
}

std::uint64_t bytes_of(const CheckedJob& job, Rank rank, Place place) {
  switch (place) {
    case Place::send:
      return job.buffers[rank].send;
    case Place::receive:
      return job.buffers[rank].receive;
    case Place::scratch:
      return job.schedules[rank].scratch_bytes;
    case Place::beside:
      return job.schedules[rank].counters.size() * kBesideBytes;
  }
  return 0;
}

bool inside(const CheckedJob& job, Rank rank, const Block& block) {
  const std::uint64_t size = bytes_of(job, rank, block.place);
  if (block.place == Place::beside && block.offset % kBesideBytes + block.bytes > kBesideBytes) return false;
  return block.bytes == 0 || (block.offset <= size && block.bytes <= size - block.offset);
}

// True: the link leads from one rank to the other. If a side of the torus is 2, both links of its
// axis do.
bool leads_to(const AlgorithmRequest& request, Rank from, Rank to, std::uint32_t link) {
  const std::uint32_t axis = link / 2;
  Rank stride = 1;
  for (std::uint32_t lower = 0; lower < axis; ++lower) stride *= request.shape[lower];
  const Rank extent = request.shape[axis];
  const Rank place = from / stride % extent;
  const Rank next = (place + (link % 2 == 0 ? 1 : extent - 1)) % extent;
  return to == from - place * stride + next * stride;
}

// The fault in the links that a schedule names; null: none.
const char* wrong_links(const CheckedJob& job, const Schedule& schedule) {
  const auto& [x, y, z] = job.request.shape;
  std::array<bool, kLinks> named{};
  for (std::uint32_t queue = 0; queue < schedule.queues; ++queue) {
    const std::uint32_t link = schedule.link_of(queue);
    if (link == kAnyLink) continue;
    if (link >= kLinks) return "a queue's link does not exist";
    if (std::uint64_t{x} * y * z != job.schedules.size()) return "it names links, and the ranks are no torus";
    if (named[link]) return "two queues have the same link";
    named[link] = true;
  }
  for (const ScheduleCommand& command : schedule.commands) {
    const std::uint32_t link = schedule.link_of(command.queue);
    if (link == kAnyLink || command.action != Action::put || command.source.bytes == 0) continue;
    if (command.target == schedule.rank || leads_to(job.request, schedule.rank, command.target, link)) continue;
    return "what a queue puts does not leave by its link";
  }
  return nullptr;
}

// The fault in the form of one command; null: none.
const char* wrong_form(const CheckedJob& job, const Schedule& schedule, const ScheduleCommand& command) {
  const Rank target = command.action == Action::put ? command.target : schedule.rank;
  if (target >= job.schedules.size()) return "its target is not a rank";
  const Rank from = command.action == Action::get ? command.target : schedule.rank;
  if (from >= job.schedules.size() || (command.action == Action::get && from == schedule.rank))
    return "it gets from a rank that is none, or itself";
  if (!inside(job, from, command.source)) return "its source is not inside the buffer";
  if (!inside(job, target, command.destination)) return "its destination is not inside the target's buffer";
  if (command.source.bytes != command.destination.bytes) return "source and destination differ in length";
  if (command.destination.bytes > 0 && command.destination.place == Place::send) return "it writes to send";
  if (command.destination.place == Place::beside && command.destination.bytes > 0 &&
      (command.credits == 0 || command.counter != command.destination.offset / kBesideBytes))
    return "it puts beside a counter that it does not give to";
  if (command.action == Action::nop && command.source.bytes > 0) return "a nop has no bytes";
  if (command.credits > 0 && command.counter >= job.schedules[target].counters.size())
    return "the counter it gives to does not exist";
  for (const CreditWait& wait : command.waits) {
    if (wait.count == 0) continue;
    if (wait.counter >= schedule.counters.size()) return "the counter it waits for does not exist";
    if (wait.count > schedule.counters[wait.counter].per_run) return "it waits for more credits than a run brings";
  }
  return nullptr;
}

}  // namespace

std::string describe(const CheckedJob& job, const Event& event) {
  std::string text = "rank " + std::to_string(event.rank) + " run " + std::to_string(event.run);
  if (event.command == nullptr) return text + " the caller";
  static constexpr std::array<const char*, 6> kNames = {"nop", "put", "get", "copy", "reduce", "expose"};
  const ScheduleCommand& command = *event.command;
  text += " queue " + std::to_string(event.queue - job.first_queue[event.rank]) + " command " +
          std::to_string(event.index) + " " + kNames.at(static_cast<std::size_t>(command.action));
  if (command.source.bytes > 0) text += " " + text_of(command.source);
  if (command.action == Action::put) text += " to rank " + std::to_string(command.target);
  if (command.destination.bytes > 0) text += " " + text_of(command.destination);
  return text;
}

bool check_form(const CheckedJob& job) {
  for (Rank rank = 0; rank < job.schedules.size(); ++rank) {
    const Schedule& schedule = job.schedules[rank];
    if (schedule.rank != rank || schedule.ranks != job.schedules.size())
      job.fault("the schedule at place " + std::to_string(rank) + " is that of rank " + std::to_string(schedule.rank) +
                " of " + std::to_string(schedule.ranks));
    std::vector<std::uint32_t> index(schedule.queues);
    for (const ScheduleCommand& command : schedule.commands) {
      if (command.queue >= schedule.queues) {
        job.fault("rank " + std::to_string(rank) + ": a command's queue does not exist");
        continue;
      }
      const Event event{&command, rank, job.first_queue[rank] + command.queue, ++index[command.queue], 0};
      if (const char* wrong = wrong_form(job, schedule, command)) job.fault(describe(job, event) + ": " + wrong);
    }
    if (const char* wrong = wrong_links(job, schedule)) job.fault("rank " + std::to_string(rank) + ": " + wrong);
  }
  return job.verdict.proved();
}

bool check_balance(const CheckedJob& job) {
  std::vector<std::vector<std::uint64_t>> given(job.schedules.size());
  for (Rank rank = 0; rank < given.size(); ++rank) given[rank].resize(job.schedules[rank].counters.size());
  for (const Schedule& schedule : job.schedules)
    for (const ScheduleCommand& command : schedule.commands)
      if (command.credits > 0)
        given[command.action == Action::put ? command.target : schedule.rank][command.counter] += command.credits;
  for (Rank rank = 0; rank < given.size(); ++rank)
    for (std::size_t counter = 0; counter < given[rank].size(); ++counter)
      if (given[rank][counter] != job.schedules[rank].counters[counter].per_run)
        job.fault("rank " + std::to_string(rank) + " counter " + std::to_string(counter) + " gets " +
                  std::to_string(given[rank][counter]) + " credits in a run, and counts with " +
                  std::to_string(job.schedules[rank].counters[counter].per_run));
  return job.verdict.proved();
}

bool check_givers(const CheckedJob& job) {
  constexpr Rank kNobody = ~Rank{0};
  std::vector<std::vector<Rank>> giver(job.schedules.size());
  std::vector<std::vector<bool>> several(job.schedules.size());
  for (Rank rank = 0; rank < giver.size(); ++rank) {
    giver[rank].resize(job.schedules[rank].counters.size(), kNobody);
    several[rank].resize(job.schedules[rank].counters.size());
  }
  const auto each_gift = [&](auto&& look) {
    for (const Schedule& schedule : job.schedules)
      for (const ScheduleCommand& command : schedule.commands)
        if (command.credits > 0)
          look(schedule.rank, command.action == Action::put ? command.target : schedule.rank, command);
  };
  each_gift([&](Rank from, Rank to, const ScheduleCommand& command) {
    Rank& first = giver[to][command.counter];
    if (first == kNobody) first = from;
    if (first != from) several[to][command.counter] = true;
  });
  each_gift([&](Rank from, Rank to, const ScheduleCommand& command) {
    if (several[to][command.counter] && !command.shares)
      job.fault("rank " + std::to_string(from) + " gives to counter " + std::to_string(command.counter) + " of rank " +
                std::to_string(to) + " as if it were alone, and others do too");
  });
  return job.verdict.proved();
}

// ---- execution ----------------------------------------------------------------------------------

namespace {

class Execution {
 public:
  explicit Execution(CheckedJob& job) : job_(job), ranks_(job.schedules.size()) {
    for (Rank rank = 0; rank < ranks_.size(); ++rank) {
      const Schedule& schedule = job.schedules[rank];
      State& state = ranks_[rank];
      state.order.resize(schedule.queues);
      for (const ScheduleCommand& command : schedule.commands) state.order[command.queue].push_back(&command);
      state.next.resize(schedule.queues);
      state.executed.resize(schedule.queues);
      for (const ScheduleCounter& counter : schedule.counters) state.credits.push_back(counter.initial);
      begin_run(rank);
    }
  }

  // True: all runs of all ranks have completed.
  bool run() {
    while (!look_.empty()) {
      const Rank rank = look_.back();
      look_.pop_back();
      ranks_[rank].listed = false;
      while (advance(rank)) {
      }
    }
    for (Rank rank = 0; rank < ranks_.size(); ++rank)
      if (ranks_[rank].run < job_.runs) report_stuck(rank);
    return job_.verdict.proved();
  }

 private:
  struct State {
    std::vector<std::vector<const ScheduleCommand*>> order;  // for one run, by queue
    // by queue: the next command of this run
    std::vector<std::size_t> next;
    std::vector<std::uint32_t> executed;  // by queue, over all runs
    std::vector<std::uint64_t> credits;
    std::uint32_t run = 0;
    bool listed = false;
  };

  void list(Rank rank) {
    if (ranks_[rank].listed) return;
    ranks_[rank].listed = true;
    look_.push_back(rank);
  }

  // The caller's turn before run state.run.
  void begin_run(Rank rank) {
    State& state = ranks_[rank];
    job_.events.push_back({nullptr, rank, job_.users_queue(rank), state.run + 1, state.run});
    state.next.assign(state.next.size(), 0);
    list(rank);
  }

  [[nodiscard]] bool may_run(Rank rank, const ScheduleCommand& command) const {
    const State& state = ranks_[rank];
    for (const CreditWait& wait : command.waits) {
      if (wait.count == 0) continue;
      const std::uint64_t base = std::uint64_t{state.run} * job_.schedules[rank].counters[wait.counter].per_run;
      if (state.credits[wait.counter] < base + wait.count) return false;
    }
    return true;
  }

  // Executes what can run now in this run. True: a command was executed, or the run has ended and
  // the next one has begun.
  bool advance(Rank rank) {
    State& state = ranks_[rank];
    if (state.run >= job_.runs) return false;
    bool moved = false;
    bool ended = true;
    for (std::size_t queue = 0; queue < state.order.size(); ++queue) {
      while (state.next[queue] < state.order[queue].size()) {
        const ScheduleCommand& command = *state.order[queue][state.next[queue]];
        if (!may_run(rank, command)) break;
        ++state.next[queue];
        moved = true;
        job_.events.push_back({&command, rank, job_.first_queue[rank] + static_cast<std::uint32_t>(queue),
                               ++state.executed[queue], state.run});
        if (command.credits == 0) continue;
        const Rank target = command.action == Action::put ? command.target : rank;
        ranks_[target].credits[command.counter] += command.credits;
        if (target != rank) list(target);
      }
      ended = ended && state.next[queue] == state.order[queue].size();
    }
    if (ended) {
      ++state.run;
      begin_run(rank);
      return state.run < job_.runs;
    }
    return moved;
  }

  void report_stuck(Rank rank) {
    const State& state = ranks_[rank];
    for (std::size_t queue = 0; queue < state.order.size(); ++queue) {
      if (state.next[queue] == state.order[queue].size()) continue;
      const ScheduleCommand& command = *state.order[queue][state.next[queue]];
      std::string text =
          "deadlock: " + describe(job_, {&command, rank, job_.first_queue[rank] + static_cast<std::uint32_t>(queue),
                                         state.executed[queue] + 1, state.run});
      for (const CreditWait& wait : command.waits) {
        if (wait.count == 0) continue;
        const std::uint64_t base = std::uint64_t{state.run} * job_.schedules[rank].counters[wait.counter].per_run;
        const auto has = static_cast<std::int64_t>(state.credits[wait.counter]) - static_cast<std::int64_t>(base);
        text += "; waits for " + std::to_string(wait.count) + " credits of counter " + std::to_string(wait.counter) +
                ", which has " + std::to_string(has);
      }
      job_.fault(text);
    }
  }

  CheckedJob& job_;
  std::vector<State> ranks_;
  std::vector<Rank> look_;
};

}  // namespace

bool execute(CheckedJob& job) {
  return Execution(job).run();
}

}  // namespace checking

std::string CheckResult::text() const {
  std::string all;
  for (const std::string& fault : faults) all += (all.empty() ? "" : "\n") + fault;
  return all;
}

CheckResult check(const AlgorithmRequest& request, const std::vector<Schedule>& schedules, Proof proof,
                  std::uint32_t runs, Buffers buffers) {
  CheckResult verdict;
  std::vector<Schedule> in_place;
  if (buffers == Buffers::in_place) in_place = schedules;
  checking::CheckedJob job{request, buffers == Buffers::in_place ? in_place : schedules, runs, verdict, {0}, {}, {},
                           {}};
  for (Rank rank = 0; rank < schedules.size(); ++rank)
    job.buffers.push_back({send_bytes(request, rank), receive_bytes(request, rank)});
  job.send_at.assign(schedules.size(), checking::kNoPart);
  if (buffers == Buffers::in_place) checking::put_in_place(request, &in_place, &job);
  for (const Schedule& schedule : schedules) job.first_queue.push_back(job.first_queue.back() + schedule.queues + 1);
  if (!checking::check_form(job) || !checking::check_balance(job) || !checking::check_givers(job) ||
      !checking::execute(job))
    return verdict;
  verdict.commands = job.events.size();
  if (proof == Proof::whole && !checking::check_order(job)) return verdict;
  static_cast<void>(checking::check_contents(job));
  return verdict;
}

}  // namespace heddle::collective
