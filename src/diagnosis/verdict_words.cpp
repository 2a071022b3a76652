#include "diagnosis/verdict_rules.hpp"

#include <algorithm>
#include <iterator>
#include <map>

namespace heddle::diagnosis {
namespace {

using Ranks = std::vector<std::uint32_t>;

constexpr std::size_t kMostSentence = 600;

bool is_among(const Ranks& ranks, std::uint32_t rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

// A text that has a verb of its own cannot follow "for".
bool is_clause(const std::string& text) {
  for (const char* word : {" is ", " are ", " awaits ", " has ", " have "}) {
    if (text.find(word) != std::string::npos) return true;
  }
  return text.starts_with("it ") || text.starts_with("for ");
}

}  // namespace

std::string seconds(std::uint64_t ns) {
  if (ns < 1'000'000'000) return std::to_string(ns / 1'000'000) + " ms";
  return std::to_string(ns / 1'000'000'000) + " s";
}

std::string team_of(const tap::Step& step) {
  if (!step.team_name.empty()) return step.team_name;
  return step.team == 0 ? std::string("the job") : "team " + std::to_string(step.team);
}

std::string name_of(const CollectiveMeeting& meeting) {
  const tap::Step& step = meeting.step;
  if (step.number == 0) return step.operation;
  return step.operation + " #" + std::to_string(step.number) + " of " + team_of(step);
}

std::string as_line(std::string text) {
  for (char& c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7f) c = ' ';
  }
  if (text.size() <= kMostSentence) return text;
  std::size_t end = kMostSentence - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

std::string Words::who(const Ranks& ranks) const {
  std::string list = tap::list_of(ranks);
  const std::size_t comma = list.rfind(", ");
  if (comma != std::string::npos && list.find(" more") == std::string::npos) list.replace(comma, 2, " and ");
  return std::string(rank_word_) + (ranks.size() == 1 ? " " : "s ") + list;
}

std::string Words::thing(const tap::Awaited& thing, std::uint32_t waiter) const {
  const bool known = thing.rank < graph_.size();
  std::string other = thing.rank == waiter ? "itself" : known ? who(thing.rank) : std::string("any ") + rank_word_;
  const std::string worker = thing.worker == tap::kNobody ? "" : " (worker " + std::to_string(thing.worker) + ")";
  const std::string what = thing.what.empty() ? "operation" : thing.what;
  const std::string sized = what + (thing.bytes == 0 ? "" : " of " + std::to_string(thing.bytes) + " bytes");
  const std::string tag = thing.tag.empty() ? "" : " with " + thing.tag;
  switch (thing.cause) {
    case tap::Cause::answer:
      return other + worker + " to answer its " + sized;
    case tap::Cause::room:
      return "room at " + other + worker + " for its " + sized;
    case tap::Cause::receive:
      return (thing.tag.empty() ? std::string("a message") : "a message with " + thing.tag) + " from " + other;
    case tap::Cause::unreceived:
      return other + " to receive its " + sized + tag;
    case tap::Cause::credit:
      return other + " to receive the messages before its " + sized + tag;
    case tap::Cause::tasks:
      return other + " to run its tasks";
    case tap::Cause::collective:
      return other;
    case tap::Cause::word:
      return std::string("a word of its memory to be written") + (known && thing.rank != waiter ? " by " + other : "");
    case tap::Cause::lock:
      return thing.rank == waiter ? "a lock that it holds already" : lock_of(known ? other : std::string());
    case tap::Cause::partition:
      return other + " to do its part of a partitioned message" + tag;
    case tap::Cause::own:
      return "another thread of its own";
    case tap::Cause::unknown:
      break;
  }
  return what + (known ? " (" + other + ")" : "");
}

std::string Words::awaited(std::uint32_t rank, const tap::Wait* wait) const {
  if (wait != nullptr && !wait->awaited.empty()) return wait->awaited;
  const std::vector<const tap::Awaited*> things = graph_.things(rank, wait);
  if (things.empty()) return {};
  const std::string more = things.size() == 1 ? "" : " and " + std::to_string(things.size() - 1) + " more";
  return thing(*things.front(), rank) + more;
}

std::string Words::not_named(const Edge& edge) const {
  if (edge.thing->rank != edge.to) return " (only " + who(edge.to) + " can still do that)";
  const std::string text = awaited(edge.from, edge.wait);
  if (edge.to == edge.from && (edge.wait == nullptr || edge.wait->awaited.empty())) return {};
  const std::string name = who(edge.to);
  const std::size_t at = text.find(name);
  const std::size_t end = at + name.size();
  if (at != std::string::npos && (end == text.size() || text[end] < '0' || text[end] > '9')) return {};
  return " (" + thing(*edge.thing, edge.from) + ")";
}

std::string Words::waits(std::uint32_t rank, const tap::Wait* wait, bool plural) const {
  const std::string text = awaited(rank, wait);
  std::string verb = plural ? "wait" : "waits";
  if (wait == nullptr) {
    verb = plural ? "poll in a loop" : "polls in a loop";
  } else if (!wait->call.empty()) {
    verb += " in " + wait->call;
  }
  if (text.empty()) return verb;
  return is_clause(text) ? verb + " (" + text + ")" : verb + " for " + text;
}

std::string Words::does(std::uint32_t rank, bool plural) const {
  const RankView& view = graph_.view(rank);
  const std::string is = plural ? "are " : "is ";
  const std::string has = plural ? "have " : "has ";
  const tap::Wait* server = graph_.server(rank);
  const std::string besides =
      server == nullptr ? "" : ", but for a thread that waits for any message in " + server->call;
  switch (graph_.doing(rank)) {
    case Doing::absent:
      if (view.presence == Presence::stopped) return is + "stopped";
      if (view.presence == Presence::left) return has + "left the job";
      return view.presence == Presence::dead ? has + "died" : has + "not joined the job";
    case Doing::unanswered:
      return plural ? "do not answer" : "does not answer";
    case Doing::computes:
      return has + "not called the library for " + seconds(view.silent_ns) +
             (graph_.runs_task(rank) ? ", in a handler of class USER that does not return" : "") + besides;
    case Doing::polls:
    case Doing::waits:
      break;
  }
  const CollectiveMeeting* meeting = graph_.meeting(rank);
  if (meeting != nullptr) return is + "in " + name_of(*meeting);
  if (graph_.doing(rank) == Doing::polls && awaited(rank, nullptr).empty()) {
    return (plural ? "call" : "calls") + std::string(" the library again and again and ") +
           (plural ? "wait" : "waits") + " in no call" + besides;
  }
  return waits(rank, graph_.wait(rank), plural);
}

std::string Words::does_with_others(const Ranks& ranks) const {
  std::string text = does(ranks.front(), ranks.size() > 1);
  const CollectiveMeeting* meeting = graph_.meeting(ranks.front());
  if (meeting == nullptr) return text;
  Ranks others;
  std::set_difference(meeting->waiting.begin(), meeting->waiting.end(), ranks.begin(), ranks.end(),
                      std::back_inserter(others));
  if (!others.empty()) text += (others.size() == 1 ? ", as is " : ", as are ") + who(others);
  return text;
}

std::string Words::waiting_for(const Ranks& ranks, const Ranks& waiters) const {
  const std::string them = ranks.size() == 1 ? "it" : "them";
  const auto verb = [](const Ranks& some) { return some.size() == 1 ? " waits for " : " wait for "; };
  const auto awaits = [&](const CollectiveMeeting& meeting) {
    return std::any_of(ranks.begin(), ranks.end(), [&](std::uint32_t rank) { return is_among(meeting.missing, rank); });
  };
  const CollectiveMeeting* largest = nullptr;
  for (const CollectiveMeeting* meeting : graph_.meetings()) {
    const bool of_these = std::any_of(waiters.begin(), waiters.end(),
                                      [&](std::uint32_t rank) { return is_among(meeting->waiting, rank); });
    if (!of_these || !awaits(*meeting)) continue;
    if (largest == nullptr || meeting->waiting.size() > largest->waiting.size()) largest = meeting;
  }
  Ranks told;
  std::string text;
  if (largest != nullptr) {
    told = largest->waiting;
    text = who(told) + verb(told) + them + " in " + name_of(*largest);
  }
  Ranks direct;
  const Edge* first = nullptr;
  for (const Edge& edge : graph_.edges()) {
    if (!is_among(ranks, edge.to) || !is_among(waiters, edge.from) || is_among(told, edge.from)) continue;
    if (first == nullptr) first = &edge;
    if (direct.empty() || direct.back() != edge.from) direct.push_back(edge.from);
  }
  if (first != nullptr) {
    if (!text.empty()) text += ", ";
    const std::uint32_t worker = first->thing->worker;
    const std::string which =
        worker == tap::kNobody || ranks.size() > 1 ? "" : " (its worker " + std::to_string(worker) + ")";
    const std::string call = first->wait == nullptr ? " in a loop" : " in " + first->wait->call;
    text += direct.size() == 1 ? who(direct) + " " + waits(first->from, first->wait)
                               : who(direct) + verb(direct) + them + which + call;
    if (direct.size() == 1) text += not_named(*first);
    told.insert(told.end(), direct.begin(), direct.end());
    std::sort(told.begin(), told.end());
  }
  Ranks rest;
  for (const std::uint32_t rank : waiters) {
    if (!is_among(told, rank)) rest.push_back(rank);
  }
  if (!rest.empty()) text += (text.empty() ? "" : ", and ") + who(rest) + verb(rest) + (told.empty() ? them : "these");
  return text;
}

std::string Words::loose_ranks(const std::set<std::uint32_t>& but) const {
  constexpr std::size_t kMostTold = 3;
  std::map<std::string, Ranks> by_call;
  for (std::uint32_t rank = 0; rank < graph_.size(); ++rank) {
    const tap::Wait* wait = graph_.wait(rank);
    if (graph_.loose(rank) && !but.contains(rank))
      by_call[wait == nullptr ? std::string() : wait->call].push_back(rank);
  }
  std::vector<Ranks> groups;
  for (auto& [call, ranks] : by_call) groups.push_back(std::move(ranks));
  // The fewer, the more they tell.
  std::ranges::sort(groups,
                    [](const Ranks& a, const Ranks& b) { return a.size() != b.size() ? a.size() < b.size() : a < b; });
  std::string text;
  for (std::size_t i = 0; i < groups.size() && i < kMostTold; ++i) {
    text += (i == 0 ? "" : ", ") + who(groups[i]) + " " + does(groups[i].front(), groups[i].size() > 1);
  }
  return text;
}

}  // namespace heddle::diagnosis
