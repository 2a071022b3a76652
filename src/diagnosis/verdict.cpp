#include "diagnosis/verdict.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "diagnosis/verdict_rules.hpp"

namespace heddle::diagnosis {

namespace {

using Ranks = std::vector<std::uint32_t>;

// Ends of one rank each that have the same description, so that one sentence names them all.
void join_alike(Case& about, const std::vector<End>& ends) {
  about.waiters = about.end.waiters;
  const std::uint32_t rank = about.sink();
  about.alike = about.end.ranks;
  if (rank == tap::kNobody) return;
  std::set<std::uint32_t> alike{rank};
  std::set<std::uint32_t> waiters(about.waiters.begin(), about.waiters.end());
  for (const End& other : ends) {
    if (other.ranks.size() != 1 || other.waiters.empty() != about.end.waiters.empty()) continue;
    const std::uint32_t twin = other.ranks.front();
    if (about.graph.doing(twin) != about.graph.doing(rank)) continue;
    if (about.graph.view(twin).presence != about.graph.view(rank).presence) continue;
    if (about.graph.runs_task(twin) != about.graph.runs_task(rank)) continue;
    alike.insert(twin);
    waiters.insert(other.waiters.begin(), other.waiters.end());
  }
  about.alike.assign(alike.begin(), alike.end());
  about.waiters.assign(waiters.begin(), waiters.end());
}

// The lower, the better. First comes an end that is a rank which is gone and awaited: nothing else
// explains a hang so well. A rank that waits loosely comes later, since it may wait because of any
// other end. Then the number of ranks whose waiting the end explains decides, then the rule that
// fits.
using Weight = std::tuple<bool, bool, std::int64_t, std::int64_t, std::size_t>;

Weight weigh(const Case& about, std::size_t rule) {
  std::int64_t waiting = static_cast<std::int64_t>(about.end.waiters.size());
  for (const std::uint32_t rank : about.end.ranks) waiting += about.graph.wait(rank) != nullptr ? 1 : 0;
  const bool gone = about.sink() != tap::kNobody && about.graph.doing(about.sink()) == Doing::absent;
  const bool loose = std::ranges::all_of(about.end.ranks, [&](std::uint32_t rank) { return about.graph.loose(rank); });
  return {!(gone && !about.end.waiters.empty()), loose && about.focus.cycles.empty(), -waiting,
          -std::int64_t{about.end.loose_waiters}, rule};
}

std::optional<Verdict> verdict_of(const Graph& graph, const Words& words) {
  const std::vector<End> ends = graph.ends();
  std::optional<Verdict> best;
  Weight least;
  for (const End& end : ends) {
    Case about{graph, words, end, graph.focus(end), {}, {}};
    join_alike(about, ends);
    for (std::size_t rule = 0; rule < rules().size(); ++rule) {
      const Weight weight = weigh(about, rule);
      if (best.has_value() && !(weight < least)) break;  // the next rules weigh no less
      std::optional<Verdict> verdict = rules()[rule](about);
      if (!verdict.has_value()) continue;
      best = std::move(verdict);
      least = weight;
      break;
    }
  }
  return best;
}

// No rank is known to wait. It is unknown what stopped ranks, and ranks that do not answer, would
// do; a stopped rank keeps the job from ending.
Verdict nobody_waits(const Graph& graph, const Words& words) {
  Ranks stopped;
  Ranks silent;
  Ranks others;
  for (std::uint32_t rank = 0; rank < graph.size(); ++rank) {
    const bool stops = graph.view(rank).presence == Presence::stopped;
    const bool answers = graph.doing(rank) != Doing::unanswered;
    (stops ? stopped : answers ? others : silent).push_back(rank);
  }
  std::string text;
  for (const Ranks& ranks : {stopped, silent}) {
    if (ranks.empty()) continue;
    const std::int64_t pid = ranks.size() == 1 ? graph.view(ranks.front()).pid : 0;
    text += (text.empty() ? "" : "; ") + words.who(ranks) + (pid > 0 ? " (pid " + std::to_string(pid) + ") " : " ") +
            words.does(ranks.front(), ranks.size() > 1);
  }
  if (!others.empty()) {
    text += (text.empty() ? "" : "; ") + words.who(others) + (others.size() == 1 ? " waits" : " wait") +
            " in no call of the library: " + words.who(others.front()) + " " + words.does(others.front());
  }
  return {text.empty() ? "the job has no ranks" : text, stopped};
}

bool anybody_waits(const Graph& graph) {
  for (std::uint32_t rank = 0; rank < graph.size(); ++rank) {
    if (graph.wait(rank) != nullptr) return true;
  }
  return false;
}

// No rank can be named: the text says what is known.
std::string no_verdict(const Graph& graph, const Words& words) {
  Ranks waiting;
  std::uint32_t longest = tap::kNobody;
  for (std::uint32_t rank = 0; rank < graph.size(); ++rank) {
    const tap::Wait* wait = graph.wait(rank);
    if (wait == nullptr) continue;
    waiting.push_back(rank);
    if (longest == tap::kNobody || wait->waited_ns > graph.wait(longest)->waited_ns) longest = rank;
  }
  const CollectiveMeeting* meeting = graph.meeting(longest);
  if (meeting != nullptr && meeting->waiting == waiting && meeting->missing.empty()) {
    return words.who(waiting) + (waiting.size() == 1 ? " is in " : " are all in ") + name_of(*meeting) +
           ", and it does not end";
  }
  return words.who(waiting) + (waiting.size() == 1 ? " waits" : " wait") +
         ", and nobody can be named: " + words.who(longest) + " " + words.waits(longest, graph.wait(longest)) + " (" +
         seconds(graph.wait(longest)->waited_ns) + ")";
}

// The only rank that has not told which locks it holds, so that it must hold those that no other
// rank holds; kNobody: there are none or several such ranks, or a list may be incomplete.
std::uint32_t silent_holder(const std::vector<RankView>& ranks) {
  constexpr std::size_t kWhole = 32;  // shorter lists are complete, whichever code makes them
  std::uint32_t silent = tap::kNobody;
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    const RankView& view = ranks[rank];
    if (view.snapshot.has_value() && view.snapshot->held.size() >= kWhole) return tap::kNobody;
    if (view.snapshot.has_value() || view.presence == Presence::outside) continue;
    if (silent != tap::kNobody) return tap::kNobody;
    silent = rank;
  }
  return silent;
}

// The holder of a lock does not know which ranks wait for it, and these do not know the holder.
void name_holders(std::vector<RankView>& ranks) {
  std::map<std::uint64_t, std::uint32_t> holders;
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].snapshot.has_value()) continue;
    for (const std::uint64_t key : ranks[rank].snapshot->held) holders.emplace(key, rank);
  }
  const std::uint32_t silent = silent_holder(ranks);
  for (RankView& view : ranks) {
    if (!view.snapshot.has_value()) continue;
    for (tap::Wait& wait : view.snapshot->waits) {
      for (tap::Awaited& thing : wait.things) {
        if (duty_of(thing.cause) != Duty::release || thing.rank != tap::kNobody) continue;
        const auto found = holders.find(thing.bytes);
        if (found != holders.end()) {
          thing.rank = found->second;
        } else if (thing.bytes != 0) {
          thing.rank = silent;
        }
      }
    }
  }
}

}  // namespace

Verdict judge(std::vector<RankView> ranks, const char* rank_word) {
  name_holders(ranks);
  const Graph graph(ranks);
  const Words words(graph, rank_word);
  Verdict verdict;
  if (std::optional<Verdict> found = verdict_of(graph, words); found.has_value()) {
    verdict = std::move(*found);
  } else if (anybody_waits(graph)) {
    verdict.sentence = no_verdict(graph, words);
  } else {
    verdict = nobody_waits(graph, words);
  }
  verdict.sentence = as_line(std::move(verdict.sentence));
  return verdict;
}

namespace {

using Ranks = std::vector<std::uint32_t>;

std::string holds_lock(const Case& about, std::uint32_t holder) {
  const Waiting waiting = waiting_for(about, holder, tap::Cause::lock);
  const std::string waits = about.words.who(waiting.ranks) + (waiting.ranks.size() == 1 ? " waits" : " wait") + " for" +
                            in_call(waiting.first->wait);
  const std::string name = about.words.who(holder);
  const std::string does = about.words.does_with_others(holder);
  if (about.graph.doing(holder) == Doing::absent) return name + ", which " + does + ", holds the lock that " + waits;
  return name + " holds the lock that " + waits + ", and " + does;
}

std::optional<Verdict> lock_holder(const Case& about) {
  if (!about.focus.cycles.empty()) return {};
  for (const Edge* edge : about.focus.last) {
    if (duty_of(edge->thing->cause) == Duty::release) return blame({edge->to}, holds_lock(about, edge->to));
  }
  return {};
}

// The verdict on an end that is one rank with this `doing`, and on other ends like it.
std::optional<Verdict> sink(const Case& about, Doing doing) {
  const std::uint32_t rank = about.sink();
  if (rank == tap::kNobody || about.graph.doing(rank) != doing) return {};
  std::string text = about.words.who(about.alike);
  const std::int64_t pid = about.graph.view(rank).pid;
  if (doing != Doing::computes && about.alike.size() == 1 && pid > 0) text += " (pid " + std::to_string(pid) + ")";
  text += " " + about.words.does(rank, about.alike.size() > 1);
  std::string waiting = about.words.waiting_for(about.alike, about.waiters);
  if (waiting.empty()) waiting = about.words.loose_ranks();
  return blame({about.alike.begin(), about.alike.end()}, text + and_waiting(waiting));
}

std::optional<Verdict> gone(const Case& about) {
  return sink(about, Doing::absent);
}
std::optional<Verdict> computing(const Case& about) {
  return sink(about, Doing::computes);
}
std::optional<Verdict> unanswered(const Case& about) {
  return sink(about, Doing::unanswered);
}

// The shortest way from `start` back to it, as edges.
std::vector<const Edge*> way_back(const std::map<std::uint32_t, std::vector<const Edge*>>& out, std::uint32_t start) {
  std::map<std::uint32_t, const Edge*> came_by;
  std::deque<std::uint32_t> open{start};
  while (!open.empty() && !came_by.contains(start)) {
    const auto edges = out.find(open.front());
    open.pop_front();
    if (edges == out.end()) continue;
    for (const Edge* edge : edges->second) {
      if (came_by.emplace(edge->to, edge).second) open.push_back(edge->to);
    }
  }
  std::vector<const Edge*> way;
  if (!came_by.contains(start)) return way;
  for (std::uint32_t at = start; way.empty() || at != start; at = way.back()->from) way.push_back(came_by.at(at));
  std::reverse(way.begin(), way.end());
  return way;
}

std::vector<const Edge*> shortest_cycle(const Focus& focus) {
  constexpr std::size_t kMostStarts = 64;
  std::map<std::uint32_t, std::vector<const Edge*>> out;
  for (const Edge* edge : focus.cycles) out[edge->from].push_back(edge);
  std::vector<const Edge*> best;
  std::size_t starts = 0;
  for (const auto& [rank, edges] : out) {
    if (starts++ == kMostStarts) break;
    const std::vector<const Edge*> way = way_back(out, rank);
    if (!way.empty() && (best.empty() || way.size() < best.size())) best = way;
  }
  return best;
}

// What each rank of the cycle waits for from the next one; empty: they wait for different things.
std::string common_reason(const std::vector<const Edge*>& cycle) {
  const auto all = [&](const auto& is) {
    return std::ranges::all_of(cycle, [&](const Edge* edge) { return is(duty_of(edge->thing->cause)); });
  };
  const Edge& first = *cycle.front();
  const std::string call = first.wait == nullptr || first.wait->call.empty() ? "" : first.wait->call;
  const std::string what = first.thing->what.empty() ? "message" : first.thing->what;
  const std::string sized =
      what + (first.thing->bytes == 0 ? "" : " of " + std::to_string(first.thing->bytes) + " bytes");
  const std::string in_brackets = " (" + call + (call.empty() ? "" : ", ") + sized + ")";
  if (all(is_by_receiving)) return "each send to the next" + in_brackets + " and none receives";
  const std::string in = call.empty() ? "" : " in " + call;
  if (all([](Duty duty) { return duty == Duty::send; }))
    return "each wait" + in + " for a message from the next and none sends";
  if (all([](Duty duty) { return duty == Duty::release; })) return "each wait" + in + " for a lock that the next holds";
  return {};
}

std::optional<Verdict> cycle(const Case& about) {
  constexpr std::size_t kMostTold = 8;
  const std::vector<const Edge*> way = shortest_cycle(about.focus);
  if (way.empty()) return {};
  std::set<std::uint32_t> ranks;
  std::string arrows = std::to_string(way.front()->from);
  std::string each;
  for (std::size_t i = 0; i < way.size(); ++i) {
    const Edge& edge = *way[i];
    ranks.insert(edge.from);
    if (i < 2 * kMostTold || i + 1 == way.size()) arrows += " -> " + std::to_string(edge.to);
    if (i >= kMostTold) continue;
    each += (i == 0 ? "" : ", ") + about.words.who(edge.from) + " " + about.words.waits(edge.from, edge.wait) +
            about.words.not_named(edge);
  }
  if (way.size() == 1) {
    return blame(ranks, each + and_waiting(about.words.waiting_for(listed(ranks), about.end.waiters)));
  }
  const std::string reason = common_reason(way);
  if (!reason.empty()) return blame(ranks, about.words.who(listed(ranks)) + " " + reason + ": " + arrows);
  return blame(ranks, each + ": each waits for the next, " + arrows);
}

std::string reason_of(const Case& about, const Edge& edge, bool several) {
  switch (duty_of(edge.thing->cause)) {
    case Duty::send:
      return several ? "has not sent their messages and " : "has not sent it and ";
    case Duty::take: {
      std::uint64_t kept = 0;
      for (const tap::WorkerState& worker : about.graph.view(edge.to).snapshot->workers) {
        for (const tap::Kept& each : worker.kept) kept += each.rank == edge.from ? each.messages : 0;
      }
      if (kept == 0) return "does not receive and ";
      return "has " + std::to_string(kept) + (kept == 1 ? " message of " : " messages of ") +
             about.words.who(edge.from) + " that it has not received, and ";
    }
    case Duty::receive:
      return "does not receive and ";
    case Duty::do_part:
      return "has not done its part and ";
    default:
      return {};
  }
}

// Blames the ranks that the edges point to, which wait loosely or in a collective call.
std::optional<Verdict> owes(const Case& about, const std::vector<const Edge*>& edges) {
  if (about.sink() != tap::kNobody) return {};
  std::map<std::uint32_t, std::set<std::uint32_t>> waiting;
  std::set<std::uint32_t> all_waiting;
  std::size_t most = 0;
  for (const Edge* edge : edges) {
    waiting[edge->to].insert(edge->from);
    all_waiting.insert(edge->from);
    most = std::max(most, waiting[edge->to].size());
  }
  if (waiting.empty()) return {};
  std::set<std::uint32_t> debtors;
  for (const auto& [rank, from] : waiting) {
    if (from.size() == most) debtors.insert(rank);
  }
  const auto first =
      std::find_if(edges.begin(), edges.end(), [&](const Edge* edge) { return debtors.contains(edge->to); });
  const Edge& edge = **first;
  const std::string debtor = about.words.who(edge.to);
  if (debtors.size() > 1 && all_waiting.size() == 1) {
    return blame(all_waiting, about.words.who(edge.from) + " " + about.words.waits(edge.from, edge.wait) +
                                  "; of those that it waits for, " + debtor + " " +
                                  about.words.does_with_others(edge.to));
  }
  std::set<std::uint32_t> culprits = debtors;
  if (most > 1) {
    const Ranks from = listed(waiting.at(edge.to));
    return blame(culprits, debtor + " " + reason_of(about, edge, true) + about.words.does_with_others(edge.to) + "; " +
                               about.words.who(from) + " wait for it" + in_call(edge.wait));
  }
  // Either the debtor owes it, or the waiting rank should not wait for it.
  if (debtors.size() == 1) culprits.insert(edge.from);
  return blame(culprits, about.words.who(edge.from) + " " + about.words.waits(edge.from, edge.wait) +
                             about.words.not_named(edge) + "; " + debtor + " " + reason_of(about, edge, false) +
                             about.words.does_with_others(edge.to));
}

std::optional<Verdict> owes_directly(const Case& about) {
  return owes(about, about.focus.last);
}
std::optional<Verdict> owes_at_last(const Case& about) {
  return owes(about, about.focus.indirect);
}

}  // namespace

Ranks listed(const std::set<std::uint32_t>& ranks) {
  return {ranks.begin(), ranks.end()};
}

std::string and_waiting(const std::string& text) {
  return text.empty() ? text : "; " + text;
}

std::string in_call(const tap::Wait* wait) {
  return wait == nullptr || wait->call.empty() ? std::string() : " in " + wait->call;
}

Waiting waiting_for(const Case& about, std::uint32_t to, tap::Cause cause) {
  std::set<std::uint32_t> ranks;
  Waiting waiting;
  for (const Edge& edge : about.graph.edges()) {
    if (edge.to != to || edge.thing->cause != cause || edge.from == to) continue;
    ranks.insert(edge.from);
    if (waiting.first == nullptr) waiting.first = &edge;
  }
  waiting.ranks = listed(ranks);
  return waiting;
}

Verdict blame(const std::set<std::uint32_t>& culprits, std::string sentence) {
  return {std::move(sentence), listed(culprits)};
}

std::uint32_t Case::sink() const {
  if (end.ranks.size() != 1) return tap::kNobody;
  const Doing doing = graph.doing(end.ranks.front());
  return doing == Doing::waits || doing == Doing::polls ? tap::kNobody : end.ranks.front();
}

std::vector<const Edge*> Case::edges() const {
  std::vector<const Edge*> all = focus.cycles;
  all.insert(all.end(), focus.last.begin(), focus.last.end());
  return all;
}

std::span<const Rule> rules() {
  static constexpr std::array<Rule, 19> kRules = {
      lock_holder,      gone,          held,        tasks_not_run,     other_call,      wrong_message, computing,
      unattended,       unopened,      cycle,       task_does_not_end, tasks_elsewhere, unhandled,     untaken,
      unattended_alone, owes_directly, odd_one_out, owes_at_last,      unanswered};
  return kRules;
}

}  // namespace heddle::diagnosis
