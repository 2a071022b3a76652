#include "diagnosis/verdict.hpp"

#include <algorithm>
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
  const Meeting* meeting = graph.meeting(longest);
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
        if (thing.cause != tap::Cause::lock || thing.rank != tap::kNobody) continue;
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

}  // namespace heddle::diagnosis
