// Ranks that do not make the progress that others wait for.
#include <algorithm>
#include <map>

#include "diagnosis/verdict_rules.hpp"

namespace heddle::diagnosis {
namespace {

using Ranks = std::vector<std::uint32_t>;

const tap::WorkerState* worker_of(const Case& about, std::uint32_t rank, std::uint32_t index) {
  const RankView& view = about.graph.view(rank);
  if (!view.snapshot.has_value()) return nullptr;
  for (const tap::WorkerState& worker : view.snapshot->workers) {
    if (worker.index == index) return &worker;
  }
  return nullptr;
}

std::uint64_t stored_tasks(const Case& about, std::uint32_t rank) {
  const RankView& view = about.graph.view(rank);
  if (!view.snapshot.has_value() || about.graph.doing(rank) == Doing::absent) return 0;
  std::uint64_t stored = 0;
  for (const tap::WorkerState& worker : view.snapshot->workers) stored += worker.tasks;
  return stored;
}

// True: a rank waits until this rank receives a message. Messages stored there for its handlers do
// not matter then.
bool owes_receive(const Case& about, std::uint32_t rank) {
  return std::ranges::any_of(about.graph.edges(), [rank](const Edge& edge) {
    return edge.to == rank && is_by_receiving(duty_of(edge.thing->cause));
  });
}

// The rank at the end that has messages of class USER and does not run them; kNobody: none has, or
// several have.
std::uint32_t idle_with_tasks(const Case& about) {
  std::set<std::uint32_t> named;
  for (const Edge* edge : about.edges()) {
    if (duty_of(edge->thing->cause) == Duty::run_tasks) named.insert(edge->to);
  }
  if (named.empty()) {
    for (const std::uint32_t rank : about.end.ranks) {
      if (stored_tasks(about, rank) > 0 && !owes_receive(about, rank)) named.insert(rank);
    }
  }
  return named.size() == 1 && about.graph.doing(*named.begin()) != Doing::absent ? *named.begin() : tap::kNobody;
}

// The sentence about such a rank.
std::string has_tasks(const Case& about, std::uint32_t rank) {
  const std::uint64_t stored = stored_tasks(about, rank);
  const std::string count = stored == 0 ? std::string("all the USER messages that it has room for")
                                        : std::to_string(stored) + " USER message" + (stored == 1 ? "" : "s");
  std::string text = about.words.who(rank) + " has " + count + " and no thread of it calls heddle_run_tasks: it " +
                     about.words.does(rank);
  const Waiting waiting = waiting_for(about, rank, tap::Cause::tasks);
  if (!waiting.ranks.empty()) {
    return text + "; " + about.words.who(waiting.ranks) + (waiting.ranks.size() == 1 ? " waits" : " wait") +
           " for room for another" + in_call(waiting.first->wait);
  }
  const std::string others = about.words.waiting_for({rank}, about.graph.waiters(rank));
  return text + and_waiting(others.empty() ? about.words.loose_ranks({rank}) : others);
}

// A rank that waits loosely may wait for something that any other rank has to do.
bool waits_for_anybody(const Case& about) {
  if (about.sink() != tap::kNobody || !about.focus.cycles.empty()) return false;
  return std::ranges::any_of(about.end.ranks, [&](std::uint32_t rank) { return about.graph.loose(rank); });
}

// The worker of `rank` that a thread does not leave; if there are several, one that others wait
// for, if any do.
const tap::WorkerState* held_worker(const Case& about, std::uint32_t rank) {
  const RankView& view = about.graph.view(rank);
  if (!view.snapshot.has_value() || about.graph.doing(rank) == Doing::absent) return nullptr;
  const tap::WorkerState* found = nullptr;
  for (const tap::WorkerState& worker : view.snapshot->workers) {
    if (!worker.held) continue;
    if (found == nullptr) found = &worker;
    for (const Edge& edge : about.graph.edges()) {
      if (edge.to == rank && edge.thing->worker == worker.index) return &worker;
    }
  }
  return found;
}

// Why no thread makes progress on that worker; empty: some thread may.
std::string why_unattended(const Case& about, std::uint32_t rank, std::uint32_t index) {
  const RankView& view = about.graph.view(rank);
  if (!view.snapshot.has_value() || index == tap::kNobody) return {};
  for (const tap::Wait& wait : view.snapshot->waits) {
    if (wait.worker == index) return {};
  }
  const tap::WorkerState* worker = worker_of(about, rank, index);
  const std::string number = std::to_string(index);
  if (worker == nullptr) {
    return view.snapshot->workers.size() < tap::kMostListed ? "has no worker " + number + " open" : std::string();
  }
  return worker->seen ? std::string() : "has no thread that makes progress on its worker " + number;
}

// A worker of the program on which no thread makes progress; with_untaken: one to which messages
// have come. Null: there is none.
const tap::WorkerState* unattended_worker(const Case& about, std::uint32_t rank, bool with_untaken = false) {
  const RankView& view = about.graph.view(rank);
  if (!view.snapshot.has_value() || about.graph.doing(rank) == Doing::absent) return nullptr;
  for (const tap::WorkerState& worker : view.snapshot->workers) {
    if (worker.internal || (with_untaken && !worker.untaken)) continue;
    if (!why_unattended(about, rank, worker.index).empty()) return &worker;
  }
  return nullptr;
}

// Messages to a worker number that their targets have not opened.
struct Lost {
  std::uint32_t worker = tap::kNobody;
  std::uint64_t messages = 0;
  std::set<std::uint32_t> senders;
  std::set<std::uint32_t> targets;
};

// True: the rank has told of all its workers, and this number is not among them.
bool has_not_opened(const Case& about, std::uint32_t rank, std::uint32_t worker) {
  if (rank >= about.graph.size() || about.graph.doing(rank) == Doing::absent) return false;
  const RankView& view = about.graph.view(rank);
  return view.snapshot.has_value() && view.snapshot->workers.size() < tap::kMostListed &&
         worker_of(about, rank, worker) == nullptr;
}

// The messages lost to the worker number that most ranks are involved in. The targets are at the
// end; they may be anywhere if a rank there waits for any rank.
Lost lost_messages(const Case& about) {
  const bool anywhere = waits_for_anybody(about);
  std::map<std::uint32_t, Lost> by_number;
  for (std::uint32_t rank = 0; rank < about.graph.size(); ++rank) {
    if (!about.graph.view(rank).snapshot.has_value()) continue;
    for (const tap::WorkerState& worker : about.graph.view(rank).snapshot->workers) {
      if (worker.internal) continue;  // a rank opens its own at its collectives
      for (const tap::Unopened& sent : worker.unopened) {
        if (!has_not_opened(about, sent.rank, sent.worker)) continue;
        if (!anywhere && std::ranges::find(about.end.ranks, sent.rank) == about.end.ranks.end()) continue;
        Lost& lost = by_number[sent.worker];
        lost.worker = sent.worker;
        lost.messages += sent.messages;
        lost.senders.insert(rank);
        lost.targets.insert(sent.rank);
      }
    }
  }
  const auto size = [](const auto& one) { return one.second.senders.size() + one.second.targets.size(); };
  const auto most = std::ranges::max_element(by_number, {}, size);
  return most == by_number.end() ? Lost() : most->second;
}

}  // namespace

std::optional<Verdict> held(const Case& about) {
  std::set<std::uint32_t> ranks;
  for (const std::uint32_t rank : about.end.ranks) {
    if (held_worker(about, rank) != nullptr) ranks.insert(rank);
  }
  if (ranks.empty() || ranks.size() > 2) return {};
  std::string text;
  for (const std::uint32_t rank : ranks) {
    text += std::string(text.empty() ? "a thread" : "; and one") + " of " + about.words.who(rank) +
            " does not leave worker " + std::to_string(held_worker(about, rank)->index) +
            ": it is in a handler or callback that waits; the rank " + about.words.does(rank);
  }
  const Ranks all = listed(ranks);
  return blame(ranks, text + and_waiting(about.words.waiting_for(all, about.graph.waiters(all.front()))));
}

std::optional<Verdict> tasks_not_run(const Case& about) {
  const std::uint32_t rank = idle_with_tasks(about);
  if (rank == tap::kNobody || about.graph.runs_task(rank)) return {};
  return blame({rank}, has_tasks(about, rank));
}

std::optional<Verdict> unattended(const Case& about) {
  for (const Edge* edge : about.edges()) {
    if (!is_by_looking(duty_of(edge->thing->cause))) continue;
    const std::string why = why_unattended(about, edge->to, edge->thing->worker);
    if (why.empty()) continue;
    std::set<std::uint32_t> culprits{edge->to};
    const Waiting waiting = waiting_for(about, edge->to, edge->thing->cause);
    if (waiting.ranks.size() == 1) culprits.insert(edge->from);
    return blame(culprits, about.words.who(edge->to) + " " + why + ", and " + about.words.does_with_others(edge->to) +
                               "; " + about.words.who(edge->from) + " " + about.words.waits(edge->from, edge->wait) +
                               about.words.not_named(*edge));
  }
  return {};
}

// The sender believes that the messages are on their way.
std::optional<Verdict> unopened(const Case& about) {
  if (about.sink() != tap::kNobody) return {};  // it may be about to open it
  const Lost lost = lost_messages(about);
  if (lost.targets.empty()) return {};
  const bool one = lost.targets.size() == 1;
  const Ranks senders = listed(lost.senders);
  const Ranks targets = listed(lost.targets);
  const std::string target = about.words.who(targets);
  std::string text = about.words.who(senders) + (senders.size() == 1 ? " has" : " have") + " sent " +
                     std::to_string(lost.messages) + (lost.messages == 1 ? " message" : " messages") + " to worker " +
                     std::to_string(lost.worker) + " of " + target + ", which " +
                     (one ? target + " has not opened" : std::string("these have not opened"));
  text += "; " + about.words.who(targets.front()) + " " + about.words.does_with_others(targets.front());
  // Either the target opens too few workers, or the sender has the wrong number.
  std::set<std::uint32_t> culprits = lost.targets;
  if (one && senders.size() == 1) {
    culprits.insert(senders.front());
    if (senders != targets) text += "; " + about.words.who(senders) + " " + about.words.does(senders.front());
  }
  return blame(culprits, text);
}

std::optional<Verdict> task_does_not_end(const Case& about) {
  if (!waits_for_anybody(about)) return {};
  std::set<std::uint32_t> ranks;
  for (std::uint32_t rank = 0; rank < about.graph.size(); ++rank) {
    if (about.graph.runs_task(rank)) ranks.insert(rank);
  }
  if (ranks.empty() || ranks.size() > 2) return {};
  std::string text;
  for (const std::uint32_t rank : ranks) {
    const std::uint64_t behind = stored_tasks(about, rank);
    text += std::string(text.empty() ? "a handler" : "; and one") + " of class USER of " + about.words.who(rank) +
            " does not return" + (behind == 0 ? "" : ", and " + std::to_string(behind) + " messages wait behind it") +
            ": the rank " + about.words.does_with_others(rank);
  }
  return blame(ranks, text + and_waiting(about.words.loose_ranks(ranks)));
}

std::optional<Verdict> tasks_elsewhere(const Case& about) {
  if (!waits_for_anybody(about)) return {};
  std::uint32_t named = tap::kNobody;
  for (std::uint32_t rank = 0; rank < about.graph.size(); ++rank) {
    if (stored_tasks(about, rank) == 0 || about.graph.runs_task(rank) || owes_receive(about, rank)) continue;
    if (named != tap::kNobody) return {};
    named = rank;
  }
  if (named == tap::kNobody) return {};
  return blame({named}, has_tasks(about, named));
}

// The message was dropped, so a rank that waits for the effect of its handler waits for ever.
std::optional<Verdict> unhandled(const Case& about) {
  if (!waits_for_anybody(about)) return {};
  std::set<std::uint32_t> ranks;
  std::string text;
  for (std::uint32_t rank = 0; rank < about.graph.size(); ++rank) {
    const RankView& view = about.graph.view(rank);
    if (!view.snapshot.has_value() || about.graph.doing(rank) == Doing::absent) continue;
    const auto& workers = view.snapshot->workers;
    const auto found =
        std::ranges::find_if(workers, [](const tap::WorkerState& worker) { return worker.unhandled != tap::kNobody; });
    if (found == workers.end()) continue;
    text += std::string(text.empty() ? "" : "; ") + about.words.who(rank) +
            " has dropped an active message to worker " + std::to_string(found->index) +
            ": no handler was registered there for its number, " + std::to_string(found->unhandled) +
            " (heddle_am_register, before peers send); " + about.words.who(rank) + " " +
            about.words.does_with_others(rank);
    ranks.insert(rank);
  }
  if (ranks.empty() || ranks.size() > 2) return {};
  return blame(ranks, text + and_waiting(about.words.loose_ranks(ranks)));
}

std::optional<Verdict> untaken(const Case& about) {
  if (!waits_for_anybody(about)) return {};
  std::set<std::uint32_t> ranks;
  std::string text;
  for (std::uint32_t rank = 0; rank < about.graph.size(); ++rank) {
    const tap::WorkerState* worker = unattended_worker(about, rank, true);
    if (worker == nullptr) continue;
    text += std::string(text.empty() ? "messages" : "; and some") + " have come to worker " +
            std::to_string(worker->index) + " of " + about.words.who(rank) +
            ", and no thread makes progress there (by a wait on it, heddle_worker_progress or heddle_run_tasks): " +
            about.words.who(rank) + " " + about.words.does_with_others(rank);
    ranks.insert(rank);
  }
  if (ranks.empty() || ranks.size() > 2) return {};
  return blame(ranks, text + and_waiting(about.words.loose_ranks(ranks)));
}

// If such a worker has no gate, its arrivals cannot be seen. If it is the only such worker, its
// rank or the waiting rank is wrong.
std::optional<Verdict> unattended_alone(const Case& about) {
  if (!waits_for_anybody(about)) return {};
  std::set<std::uint32_t> waiting;
  for (const std::uint32_t rank : about.end.ranks) {
    const auto things = about.graph.things(rank, about.graph.wait(rank));
    const bool open =
        std::ranges::all_of(things, [](const tap::Awaited* each) { return duty_of(each->cause) == Duty::unknown; });
    if (about.graph.loose(rank) && open) waiting.insert(rank);
  }
  if (waiting.size() != 1) return {};
  const tap::WorkerState* found = nullptr;
  std::uint32_t owner = tap::kNobody;
  for (std::uint32_t rank = 0; rank < about.graph.size(); ++rank) {
    const tap::WorkerState* worker = waiting.contains(rank) ? nullptr : unattended_worker(about, rank);
    if (worker == nullptr) continue;
    if (owner != tap::kNobody) return {};
    owner = rank;
    found = worker;
  }
  if (owner == tap::kNobody) return {};
  const std::uint32_t waiter = *waiting.begin();
  return blame({owner, waiter}, about.words.who(waiter) + " " + about.words.does(waiter) + "; no thread of " +
                                    about.words.who(owner) + " makes progress on its worker " +
                                    std::to_string(found->index) + " or runs its tasks (heddle_run_tasks): " +
                                    about.words.who(owner) + " " + about.words.does_with_others(owner));
}

}  // namespace heddle::diagnosis
