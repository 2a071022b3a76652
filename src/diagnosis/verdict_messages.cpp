// Rules about messages that exist, but do not match the receive that waits.
#include <algorithm>

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
      if (thing->cause == tap::Cause::unreceived && thing->rank < graph.size()) {
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
    if (thing->cause != tap::Cause::receive || !says_tag(thing->tag)) continue;
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
    if (thing->cause != tap::Cause::receive || thing->rank < about_.graph.size() || !says_tag(thing->tag)) continue;
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
    if (edge->thing->cause == tap::Cause::receive) search.consider_receive(*edge);
  }
  for (const Edge* edge : about.edges()) {
    if (edge->thing->cause == tap::Cause::unreceived) search.consider_send(*edge);
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

}  // namespace heddle::diagnosis
