// Rules about messages that exist but do not match the receive that waits, and about ranks that are
// not in the same collective call.

#include <algorithm>
#include <map>
#include <span>
#include <tuple>

#include "diagnosis/verdict_rules.hpp"

namespace heddle::diagnosis {

namespace {

bool says_tag(const std::string& tag) {
  return !tag.empty() && tag.find("any") == std::string::npos;
}

// All that the rank has under way, whether a thread waits for it or not.
std::vector<const tap::Awaited*> all_things(const Graph& graph, std::uint32_t rank) {
  std::vector<const tap::Awaited*> all;
  const RankView& view = graph.view(rank);
  if (!view.snapshot.has_value()) return all;
  for (const tap::Wait& wait : view.snapshot->waits) {
    for (const tap::Awaited& thing : wait.things) all.push_back(&thing);
  }
  for (const tap::WorkerState& worker : view.snapshot->workers) {
    for (const tap::Awaited& thing : worker.under_way) all.push_back(&thing);
  }
  return all;
}

// A message that has come to `to`, or is offered there, and that no receive has matched.
struct Letter {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t worker = tap::kNobody;  // of `to`
  bool arrived = false;
  std::string tag;
};

std::vector<Letter> letters(const Graph& graph) {
  std::vector<Letter> all;
  for (std::uint32_t rank = 0; rank < graph.size(); ++rank) {
    if (!graph.view(rank).snapshot.has_value()) continue;
    for (const tap::WorkerState& worker : graph.view(rank).snapshot->workers) {
      for (const tap::Kept& kept : worker.kept) {
        if (kept.rank < graph.size()) all.push_back({kept.rank, rank, worker.index, true, kept.tag});
      }
    }
    for (const tap::Awaited* thing : all_things(graph, rank)) {
      if (duty_of(thing->cause) == Duty::receive && thing->rank < graph.size()) {
        all.push_back({rank, thing->rank, thing->worker, false, thing->tag});
      }
    }
  }
  std::erase_if(all, [](const Letter& letter) { return letter.tag.empty(); });
  return all;
}

// In order: the first ones tell most.
enum class Sign { other_tag, other_worker, other_receiver, other_sender, none };

struct Clue {
  Sign sign = Sign::none;
  std::string sentence;
  std::set<std::uint32_t> culprits;
};

class Search {
 public:
  explicit Search(const Case& about) : about_(about), letters_(letters(about.graph)) {}

  void consider_receive(const Edge& edge);
  void consider_send(const Edge& edge);
  void consider_any_source(std::uint32_t rank);
  [[nodiscard]] const Clue& best() const { return best_; }

 private:
  // Compares the receive that waits with a message that it does not match.
  void compare(const Edge& edge, const Letter& letter);
  void take(Sign sign, const std::string& sentence, const std::set<std::uint32_t>& culprits) {
    if (sign < best_.sign) best_ = {sign, sentence, culprits};
  }
  [[nodiscard]] std::string who(std::uint32_t rank) const { return about_.words.who(rank); }
  [[nodiscard]] std::string receiver(std::uint32_t rank, const tap::Wait* wait, const std::string& tag) const {
    const std::string in =
        wait == nullptr ? " polls for a message with " : " waits in " + wait->call + " for a message with ";
    return who(rank) + in + tag + " from ";
  }

  const Case& about_;
  std::vector<Letter> letters_;
  Clue best_;
};

void Search::consider_receive(const Edge& edge) {
  if (!says_tag(edge.thing->tag)) return;
  for (const Letter& letter : letters_) compare(edge, letter);
}

void Search::compare(const Edge& edge, const Letter& letter) {
  const std::string& tag = edge.thing->tag;
  const std::string waits = receiver(edge.from, edge.wait, tag) + who(edge.to);
  const std::string has_sent = letter.arrived ? ", which has sent " : ", which sends ";
  const std::uint32_t worker = edge.wait == nullptr ? tap::kNobody : edge.wait->worker;
  const bool of_sender = letter.from == edge.to;
  const bool at_receiver = letter.to == edge.from;
  const std::set<std::uint32_t> both{edge.from, edge.to};
  if (of_sender && at_receiver && letter.tag != tag) {
    take(Sign::other_tag, waits + has_sent + letter.tag, both);
  } else if (of_sender && at_receiver && worker != tap::kNobody && letter.worker != tap::kNobody &&
             letter.worker != worker) {
    const std::string there = "it to worker " + std::to_string(letter.worker);
    take(Sign::other_worker, waits + " on worker " + std::to_string(worker) + has_sent + there, both);
  } else if (of_sender && !at_receiver && letter.tag == tag) {
    take(Sign::other_receiver, waits + has_sent + "it to " + who(letter.to) + ", where nobody receives it", both);
  } else if (!of_sender && at_receiver && letter.tag == tag) {
    const std::string other = "; the message with " + tag + " that is there comes from " + who(letter.from);
    take(Sign::other_sender, waits + ", which has not sent it" + other, both);
  }
}

// The receiver may want another message from this sender, or this message from another sender.
void Search::consider_send(const Edge& edge) {
  const std::string& tag = edge.thing->tag;
  if (tag.empty()) return;
  const std::string sends = who(edge.from) + " sends " + tag + " to " + who(edge.to) +
                            (edge.wait == nullptr ? std::string() : " (" + edge.wait->call + ")");
  const std::string waits = ", which waits for ";
  for (const tap::Awaited* thing : all_things(about_.graph, edge.to)) {
    if (duty_of(thing->cause) != Duty::send || !says_tag(thing->tag)) continue;
    const bool anybody = thing->rank >= about_.graph.size();
    if ((thing->rank == edge.from || anybody) && thing->tag != tag) {
      take(Sign::other_tag, sends + waits + thing->tag + (anybody ? " from anybody" : " from it"),
           {edge.from, edge.to});
    } else if (thing->rank != edge.from && !anybody && thing->tag == tag) {
      take(Sign::other_sender, sends + waits + "it from " + who(thing->rank), {edge.from, edge.to});
    }
  }
}

void Search::consider_any_source(std::uint32_t rank) {
  const tap::Wait* wait = about_.graph.wait(rank);
  for (const tap::Awaited* thing : about_.graph.things(rank, wait)) {
    if (duty_of(thing->cause) != Duty::send || thing->rank < about_.graph.size() || !says_tag(thing->tag)) continue;
    std::set<std::uint32_t> senders;
    std::string sent;
    for (const Letter& letter : letters_) {
      if (letter.to != rank || letter.tag == thing->tag) continue;
      senders.insert(letter.from);
      if (sent.empty()) sent = who(letter.from) + (letter.arrived ? " has sent it " : " sends it ") + letter.tag;
    }
    if (senders.empty()) continue;
    std::set<std::uint32_t> culprits{rank};
    if (senders.size() == 1) culprits.insert(*senders.begin());
    take(Sign::other_tag, receiver(rank, wait, thing->tag) + "anybody; " + sent, culprits);
  }
}

}  // namespace

std::optional<Verdict> wrong_message(const Case& about) {
  if (about.sink() != tap::kNobody) return {};  // it may be about to send or to receive it
  Search search(about);
  for (const Edge* edge : about.edges()) {
    if (duty_of(edge->thing->cause) == Duty::send) search.consider_receive(*edge);
  }
  for (const Edge* edge : about.edges()) {
    if (duty_of(edge->thing->cause) == Duty::receive) search.consider_send(*edge);
  }
  // If several ranks wait loosely, each of them may be the reason for the others' waiting.
  const auto loose = std::count_if(about.end.ranks.begin(), about.end.ranks.end(),
                                   [&](std::uint32_t rank) { return about.graph.loose(rank); });
  if (about.focus.cycles.empty() && loose == 1) {
    for (const std::uint32_t rank : about.end.ranks) {
      const bool owes = std::any_of(about.focus.last.begin(), about.focus.last.end(),
                                    [rank](const Edge* edge) { return edge->to == rank; });
      if (about.graph.loose(rank) && (owes || about.focus.last.empty())) search.consider_any_source(rank);
    }
  }
  if (search.best().sign == Sign::none) return {};
  return blame(search.best().culprits, search.best().sentence);
}

// Rules about ranks that wait for each other because they are not in the same call.

namespace {

using Ranks = std::vector<std::uint32_t>;

constexpr std::size_t kMostGroups = 4;  // that are told

bool share_one(const Ranks& some, const Ranks& others) {
  return std::any_of(some.begin(), some.end(),
                     [&](std::uint32_t rank) { return std::binary_search(others.begin(), others.end(), rank); });
}

std::string are_in(const Words& words, const Ranks& ranks, const std::string& what) {
  return words.who(ranks) + (ranks.size() == 1 ? " is in " : " are in ") + what;
}

std::string number_of(const CollectiveMeeting& meeting) {
  return meeting.step.operation + " #" + std::to_string(meeting.step.number);
}

// The ranks that wait at each call of the team, with the culprits' call first.
std::string calls_of_team(const Case& about, const std::vector<const CollectiveMeeting*>& first, std::uint64_t team) {
  std::vector<const CollectiveMeeting*> all = first;
  for (const CollectiveMeeting* meeting : about.graph.meetings()) {
    if (meeting->step.team != team || meeting->waiting.empty() || meeting->step.number == 0) continue;
    if (std::find(all.begin(), all.end(), meeting) == all.end()) all.push_back(meeting);
  }
  std::string text;
  for (std::size_t i = 0; i < all.size() && i < kMostGroups; ++i) {
    const Ranks& ranks = all[i]->waiting.empty() ? all[i]->come : all[i]->waiting;
    if (i == 0) {
      text = are_in(about.words, ranks, number_of(*all[i]) + " of " + team_of(all[i]->step));
    } else {
      text += (i == 1 ? ", " : "; ") + are_in(about.words, ranks, number_of(*all[i])) + (i == 1 ? " of it" : "");
    }
  }
  return text;
}

// Members that made another call of the same number.
std::optional<Verdict> other_operation(const Case& about, const CollectiveMeeting& here) {
  std::vector<const CollectiveMeeting*> same;
  bool inside = false;
  for (const CollectiveMeeting* meeting : about.graph.meetings()) {
    if (meeting->step.team != here.step.team || meeting->step.number != here.step.number) continue;
    same.push_back(meeting);
    inside = inside || (meeting != &here && share_one(about.end.ranks, meeting->come));
  }
  if (!inside) return {};
  const auto most = std::max_element(
      same.begin(), same.end(),
      [](const CollectiveMeeting* a, const CollectiveMeeting* b) { return a->come.size() < b->come.size(); });
  const std::size_t largest = (*most)->come.size();
  std::vector<const CollectiveMeeting*> minority;
  for (const CollectiveMeeting* meeting : same) {
    if (meeting->come.size() < largest) minority.push_back(meeting);
  }
  const std::size_t equals = same.size() - minority.size();
  // If several groups are the largest, a group in the operation that the others make next has left
  // out one call.
  if (equals > 1) {
    for (const CollectiveMeeting* next : about.graph.meetings()) {
      if (next->step.team != here.step.team || next->step.number != here.step.number + 1) continue;
      for (const CollectiveMeeting* meeting : same) {
        if (meeting->step.operation == next->step.operation && minority.empty()) minority.push_back(meeting);
      }
    }
  }
  if (minority.empty()) minority = same;
  std::set<std::uint32_t> culprits;
  for (const CollectiveMeeting* meeting : minority) culprits.insert(meeting->come.begin(), meeting->come.end());
  return blame(culprits, calls_of_team(about, minority, here.step.team));
}

// All others have gone on to later calls.
std::optional<Verdict> other_number(const Case& about, const CollectiveMeeting& here) {
  if (!here.missing.empty() || !here.whole || here.waiting != about.end.ranks) return {};
  const CollectiveMeeting* ahead = nullptr;
  for (const CollectiveMeeting* meeting : about.graph.meetings()) {
    if (meeting->step.team != here.step.team || meeting->step.number <= here.step.number) continue;
    if (ahead == nullptr || meeting->waiting.size() > ahead->waiting.size()) ahead = meeting;
  }
  if (ahead == nullptr || ahead->waiting.empty()) return {};
  const std::size_t behind = here.waiting.size();
  const bool more = ahead->waiting.size() < behind;
  const CollectiveMeeting& odd = more ? *ahead : here;
  const std::uint64_t calls = ahead->step.number - here.step.number;
  const std::string differs = std::to_string(calls) + (calls == 1 ? " call " : " calls ") + (more ? "more" : "fewer");
  std::set<std::uint32_t> culprits(odd.waiting.begin(), odd.waiting.end());
  if (ahead->waiting.size() == behind && behind == 1) culprits.insert(ahead->waiting.front());
  return blame(culprits, calls_of_team(about, {&odd}, here.step.team) + ": " + about.words.who(odd.waiting) +
                             (odd.waiting.size() == 1 ? " has made " : " have made ") + differs);
}

// Ranks of an end that do the same.
struct Group {
  Ranks ranks;
  const CollectiveMeeting* meeting = nullptr;
  bool by_word = false;  // they wait for a word of their memory
  std::size_t everywhere = 0;
  std::size_t conflicts = 0;  // groups that wait for this one, and this one for them
};

bool waits_for(const Case& about, const Group& some, const Group& others) {
  if (some.meeting != nullptr) return share_one(others.ranks, some.meeting->missing);
  return std::any_of(some.ranks.begin(), some.ranks.end(), [&](std::uint32_t rank) { return about.graph.loose(rank); });
}

// The group most to blame comes first: the one in conflict with most groups, then the smallest one.
void order(const Case& about, std::vector<Group>& groups) {
  for (Group& group : groups) {
    for (const Group& other : groups) {
      const bool conflict = &group != &other && waits_for(about, group, other) && waits_for(about, other, group);
      group.conflicts += conflict ? 1 : 0;
    }
  }
  std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    if (a.conflicts != b.conflicts) return a.conflicts > b.conflicts;
    if (a.ranks.size() != b.ranks.size()) return a.ranks.size() < b.ranks.size();
    if (a.everywhere != b.everywhere) return a.everywhere < b.everywhere;
    return a.ranks < b.ranks;
  });
}

// The number of the word that the rank waits for; 0: it waits for no word, or the word has no
// number.
std::uint64_t place_of(const Case& about, std::uint32_t rank) {
  const std::vector<const tap::Awaited*> things = about.graph.things(rank, about.graph.wait(rank));
  return things.size() == 1 && duty_of(things.front()->cause) == Duty::write ? things.front()->bytes : 0;
}

std::vector<Group> groups_of(const Case& about) {
  std::map<std::tuple<const CollectiveMeeting*, std::string, std::uint64_t>, Group> found;
  for (const std::uint32_t rank : about.end.ranks) {
    const tap::Wait* wait = about.graph.wait(rank);
    const CollectiveMeeting* meeting = about.graph.meeting(rank);
    const std::string call = meeting == nullptr && wait != nullptr ? wait->call : std::string();
    Group& group = found[{meeting, call, meeting == nullptr ? place_of(about, rank) : 0}];
    group.ranks.push_back(rank);
    group.meeting = meeting;
    group.everywhere = meeting == nullptr ? group.ranks.size() : meeting->waiting.size();
    for (const tap::Awaited* thing : about.graph.things(rank, wait)) {
      group.by_word = group.by_word || duty_of(thing->cause) == Duty::write;
    }
  }
  std::vector<Group> groups;
  for (auto& [key, group] : found) groups.push_back(std::move(group));
  order(about, groups);
  return groups;
}

std::string told(const Case& about, const Group& group, const std::set<std::uint32_t>& culprits) {
  const bool blamed = culprits.contains(group.ranks.front());
  if (blamed || group.meeting == nullptr) {
    return about.words.who(group.ranks) + " " + about.words.does_with_others(group.ranks) +
           (group.by_word && group.meeting == nullptr ? ", which nobody writes" : "");
  }
  std::string text = are_in(about.words, group.meeting->waiting, name_of(*group.meeting));
  if (!share_one(listed(culprits), group.meeting->missing)) return text;
  return text + (group.meeting->waiting.size() == 1 ? " and waits for " : " and wait for ") +
         (culprits.size() == 1 ? "it" : "them");
}

// The ranks that wait for the end and are not in a call that the text mentions already.
Ranks not_told(const Case& about, const std::vector<Group>& groups) {
  Ranks left;
  for (const std::uint32_t rank : about.end.waiters) {
    const CollectiveMeeting* meeting = about.graph.meeting(rank);
    const bool told = meeting != nullptr && std::any_of(groups.begin(), groups.end(),
                                                        [&](const Group& group) { return group.meeting == meeting; });
    if (!told) left.push_back(rank);
  }
  return left;
}

}  // namespace

std::optional<Verdict> other_call(const Case& about) {
  for (const CollectiveMeeting* meeting : about.graph.meetings()) {
    if (meeting->step.number == 0 || !share_one(about.end.ranks, meeting->waiting)) continue;
    if (auto verdict = other_operation(about, *meeting)) return verdict;
    if (auto verdict = other_number(about, *meeting)) return verdict;
  }
  return {};
}

// If several groups would be blamed, and some of them wait for words of memory, only the smallest
// are blamed: what more ranks wait for is more likely what the program means.
std::vector<const Group*> narrowed(std::vector<const Group*> blamed) {
  constexpr std::size_t kFew = 2;  // few enough to say that one of them is wrong
  std::size_t by_word = 0;
  std::size_t ranks = 0;
  for (const Group* group : blamed) {
    by_word += group->by_word && group->meeting == nullptr ? 1 : 0;
    ranks += group->ranks.size();
  }
  if (by_word == 0 || (by_word < blamed.size() && ranks <= kFew)) return blamed;
  const auto size = [](const Group* group) { return group->ranks.size(); };
  const std::size_t least = size(*std::ranges::min_element(blamed, {}, size));
  std::erase_if(blamed, [&](const Group* group) { return size(group) > least; });
  return blamed;
}

// The largest group is right. Between two ranks there is no way to tell.
std::optional<Verdict> odd_one_out(const Case& about) {
  if (about.sink() != tap::kNobody) return {};
  const std::vector<Group> groups = groups_of(about);
  // A group only waits if no group that it waits for waits for it in turn.
  const auto in_conflict =
      static_cast<std::size_t>(std::ranges::count_if(groups, [](const Group& group) { return group.conflicts > 0; }));
  const std::span contending = std::span(groups).first(in_conflict > 1 ? in_conflict : groups.size());
  const Group& largest = contending.back();
  if (groups.size() == 1 && (about.end.ranks.size() > 2 || largest.meeting != nullptr)) return {};
  if (!about.focus.indirect.empty() && groups.front().conflicts == 0) return {};
  const auto smaller = [&](const Group& group) {
    const Group& first = groups.front();
    if (first.conflicts > groups[groups.size() > 1 ? 1 : 0].conflicts) return &group == &first;
    return group.ranks.size() < largest.ranks.size() || group.everywhere < largest.everywhere;
  };
  const bool all = about.end.ranks.size() <= 2 || std::ranges::none_of(contending, smaller);
  std::vector<const Group*> blamed;
  for (const Group& group : contending) {
    if (all || smaller(group)) blamed.push_back(&group);
  }
  std::set<std::uint32_t> culprits;
  for (const Group* group : narrowed(std::move(blamed))) culprits.insert(group->ranks.begin(), group->ranks.end());
  std::string sentence;
  for (std::size_t i = 0; i < groups.size() && i < kMostGroups; ++i) {
    sentence += (i == 0 ? "" : "; ") + told(about, groups[i], culprits);
  }
  if (groups.size() == 2 && about.end.ranks.size() == 2) sentence += ": each waits for the other";
  const std::string outside = about.words.waiting_for(about.end.ranks, not_told(about, groups));
  return blame(culprits, sentence + (outside.empty() ? "" : "; " + outside));
}

}  // namespace heddle::diagnosis
