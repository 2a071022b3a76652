#include "diagnosis/verdict_graph.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <iterator>
#include <numeric>
#include <set>

#include "diagnosis/verdict_rules.hpp"

namespace heddle::diagnosis {

namespace {

using Ranks = std::vector<std::uint32_t>;

constexpr std::uint64_t kSilentNs = 1'000'000'000;

bool from_anybody(const tap::Awaited& thing) {
  return duty_of(thing.cause) == Duty::send && thing.rank == tap::kNobody;
}

bool contains(const Ranks& ranks, std::uint32_t rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

void insert(Ranks& ranks, std::uint32_t rank) {
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
  if (at == ranks.end() || *at != rank) ranks.insert(at, rank);
}

// Whether the call is one that every rank makes once, at its end (leave, finalize), even if nothing
// else is known of the wait.
bool leaves(const tap::Wait& wait) {
  if (wait.step.has_value() || !wait.things.empty()) return false;
  for (const char* word : {"leave", "inalize"}) {
    if (wait.call.find(word) != std::string::npos) return true;
  }
  return false;
}

// A rank in such a call sends nothing more.
bool is_leaving(const tap::Wait& wait) {
  return leaves(wait) || (wait.step.has_value() && wait.step->operation.find("leave") != std::string::npos);
}

// Nobody ends such a call before all members have begun it. OpenSHMEM's reductions are for all.
bool needs_all(const tap::Step& step) {
  const std::string& name = step.operation;
  return name.starts_with("all") || std::ranges::any_of(std::array{"barrier", "sync", "_reduce", "collect", "alltoall"},
                                                        [&](const char* part) { return name.find(part) != name.npos; });
}

// Identifies a wait for any message.
std::string key_of(const tap::Wait& wait) {
  return wait.call + ": " + (wait.things.empty() ? std::string() : wait.things.front().tag);
}

}  // namespace

Graph::Graph(const std::vector<RankView>& views)
    : views_(views), size_(static_cast<std::uint32_t>(views.size())), facts_(views.size()) {
  for (std::uint32_t rank = 0; rank < size_; ++rank) sort_out(rank);
  for (std::uint32_t rank = 0; rank < size_; ++rank) set_doing_without_wait(rank);
  hold_meetings();
  make_nodes();
  for (std::uint32_t rank = 0; rank < size_; ++rank) connect(rank);
}

std::vector<const tap::Awaited*> Graph::things(std::uint32_t rank, const tap::Wait* wait) const {
  std::vector<const tap::Awaited*> all;
  const bool own = wait != nullptr && (wait->step.has_value() || !wait->things.empty());
  if (own) {
    for (const tap::Awaited& thing : wait->things) all.push_back(&thing);
    return all;
  }
  if ((wait != nullptr && leaves(*wait)) || !views_[rank].snapshot.has_value()) return all;
  const std::vector<tap::WorkerState>& workers = views_[rank].snapshot->workers;
  // A rank that polls waits for what the workers that it polls have under way. If some workers were
  // seen, the others do not count.
  const bool sees = wait == nullptr && std::ranges::any_of(workers, &tap::WorkerState::seen);
  for (const tap::WorkerState& worker : workers) {
    if (wait != nullptr && wait->worker != tap::kNobody && wait->worker != worker.index) continue;
    if (sees && !worker.seen) continue;
    for (const tap::Awaited& thing : worker.under_way) all.push_back(&thing);
  }
  // A receive from any rank may stay posted for good; the other things tell more.
  const bool idle = std::ranges::all_of(all, [](const auto* each) { return from_anybody(*each); });
  if (!idle) std::erase_if(all, [](const auto* each) { return from_anybody(*each); });
  return all;
}

// Decides which waits of the rank count: a wait for any message at all may last for good, as in the
// thread of a server.
void Graph::sort_out(std::uint32_t rank) {
  Facts& facts = facts_[rank];
  const RankView& view = views_[rank];
  const bool has_waits = view.snapshot.has_value() && !view.snapshot->waits.empty();
  const bool joins = view.presence == Presence::outside && has_waits;
  if (view.presence != Presence::here && !joins) {
    facts.doing = Doing::absent;
    return;
  }
  if (!view.snapshot.has_value()) {
    facts.doing = Doing::unanswered;
    return;
  }
  std::vector<const tap::Wait*> idle;
  for (const tap::Wait& wait : view.snapshot->waits) {
    const std::vector<const tap::Awaited*> awaited = things(rank, &wait);
    const bool any = std::all_of(awaited.begin(), awaited.end(), [](const auto* each) { return from_anybody(*each); });
    (any && !wait.step.has_value() && !leaves(wait) ? idle : facts.waits).push_back(&wait);
  }
  facts.idle = facts.waits.empty() && !idle.empty();
  if (facts.idle) {
    facts.waits = std::move(idle);
  } else {
    for (const tap::Wait* wait : idle) servers_.insert(key_of(*wait));
  }
}

void Graph::set_doing_without_wait(std::uint32_t rank) {
  Facts& facts = facts_[rank];
  if (facts.doing != Doing::waits) return;
  if (facts.idle) {
    const tap::Wait* first = facts.waits.front();
    std::erase_if(facts.waits, [this](const tap::Wait* wait) { return servers_.contains(key_of(*wait)); });
    if (facts.waits.empty()) facts.server = first;
  }
  for (const tap::Wait* wait : facts.waits) {
    if (facts.wait == nullptr || wait->waited_ns > facts.wait->waited_ns) facts.wait = wait;
  }
  if (facts.wait != nullptr) return;
  facts.doing = views_[rank].silent_ns >= kSilentNs ? Doing::computes : Doing::polls;
}

CollectiveMeeting* Graph::meeting_of(const tap::Wait& wait) {
  if (!wait.step.has_value() && !leaves(wait)) return nullptr;
  const tap::Step step = wait.step.value_or(tap::Step{0, 0, size_, {}, wait.call});
  const auto found = meetings_.find({step.team, step.number, step.operation});
  return found == meetings_.end() ? nullptr : &found->second;
}

void Graph::come(std::uint32_t rank, const tap::Step& step, const std::string& call, bool waits) {
  CollectiveMeeting& meeting = meetings_[{step.team, step.number, step.operation}];
  if (meeting.come.empty()) meeting.step = step;
  if (meeting.call.empty()) meeting.call = call;
  insert(meeting.come, rank);
  if (waits) insert(meeting.waiting, rank);
  if (step.number == 0) return;
  std::uint64_t& latest = latest_[step.team][rank];
  latest = std::max(latest, step.number);
}

void Graph::hold_meetings() {
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    const Facts& facts = facts_[rank];
    if (facts.doing == Doing::absent || facts.doing == Doing::unanswered) continue;
    for (const tap::Wait* wait : facts.waits) {
      if (wait->step.has_value()) {
        come(rank, *wait->step, wait->call, true);
      } else if (leaves(*wait)) {
        come(rank, {0, 0, size_, {}, wait->call}, wait->call, true);
      }
    }
    for (const tap::Step& step : views_[rank].snapshot->steps) come(rank, step, {}, facts.doing == Doing::polls);
    for (const tap::Passed& passed : views_[rank].snapshot->passed) {
      std::uint64_t& latest = latest_[passed.team][rank];
      latest = std::max(latest, passed.number + 1);  // at the next one, or on the way to it
    }
  }
  for (auto& [key, meeting] : meetings_) find_missing(meeting);
  for (Facts& facts : facts_) {
    if (facts.wait != nullptr) facts.meeting = meeting_of(*facts.wait);
  }
}

void Graph::find_missing(CollectiveMeeting& meeting) {
  const tap::Step& step = meeting.step;
  if (step.number == 0) {  // only ranks that are still in the job are awaited there
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
      const Presence presence = views_[rank].presence;
      const bool gone = presence == Presence::left || presence == Presence::dead;
      if (!gone && !contains(meeting.come, rank)) meeting.missing.push_back(rank);
    }
    for (std::uint32_t rank = 0; rank < size_ && meeting.missing.empty(); ++rank) {
      if (views_[rank].presence == Presence::dead) meeting.missing.push_back(rank);
    }
    return;
  }
  const LatestCalls& latest = latest_.at(step.team);
  Absentees absent = absentees_of(step, meeting.come, latest, size_);
  meeting.whole = absent.whole;
  meeting.missing = std::move(absent.ranks);
  std::ranges::copy_if(meeting.missing, std::back_inserter(meeting.behind),
                       [&](std::uint32_t rank) { return latest.contains(rank); });
  if (!meeting.missing.empty() || !meeting.whole) return;
  // All members have come. Those that do something else now do not move the call on.
  std::set_difference(meeting.come.begin(), meeting.come.end(), meeting.waiting.begin(), meeting.waiting.end(),
                      std::back_inserter(meeting.missing));
}

std::vector<const CollectiveMeeting*> Graph::meetings() const {
  std::vector<const CollectiveMeeting*> all;
  for (const auto& [key, meeting] : meetings_) all.push_back(&meeting);
  return all;
}

std::vector<std::uint32_t> Graph::waiters(std::uint32_t rank) const {
  std::set<std::uint32_t> waiting;
  for (const Edge& edge : edges_) {
    if (edge.to == rank && edge.from != rank) waiting.insert(edge.from);
  }
  for (const auto& [key, meeting] : meetings_) {
    if (contains(meeting.missing, rank)) waiting.insert(meeting.waiting.begin(), meeting.waiting.end());
  }
  waiting.erase(rank);
  return {waiting.begin(), waiting.end()};
}

void Graph::make_nodes() {
  arcs_.resize(size_ + 1);
  Ranks in_job;
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    if (views_[rank].presence == Presence::left) continue;
    in_job.push_back(rank);
    const tap::Wait* wait = facts_[rank].wait;
    if (wait == nullptr || !is_leaving(*wait)) able_.push_back(rank);
  }
  arcs_[size_] = able_.size() > 1 ? able_ : in_job;
  for (const auto& [key, meeting] : meetings_) {
    Node& node = nodes_[&meeting];
    node.missing = static_cast<std::uint32_t>(arcs_.size());
    // If nobody is missing, the node stands for the ranks that wait there.
    arcs_.push_back(meeting.missing.empty() ? meeting.waiting : meeting.missing);
    if (!meeting.whole) arcs_.back().push_back(size_);
    if (meeting.behind.empty()) continue;
    node.behind = static_cast<std::uint32_t>(arcs_.size());
    arcs_.push_back(meeting.behind);
  }
}

void Graph::connect(std::uint32_t rank) {
  Facts& facts = facts_[rank];
  if (facts.doing == Doing::polls) {
    for (const auto& [key, meeting] : meetings_) {
      if (contains(meeting.waiting, rank)) arcs_[rank].push_back(nodes_.at(&meeting).missing);
    }
    connect_wait(rank, nullptr);
  } else if (facts.doing == Doing::waits) {
    for (const tap::Wait* wait : facts.waits) connect_wait(rank, wait);
  } else {
    return;
  }
  const bool for_itself = !edges_.empty() && edges_.back().from == rank;
  if (!arcs_[rank].empty() || for_itself) return;
  facts.loose = true;
  arcs_[rank].push_back(size_);
}

void Graph::connect_wait(std::uint32_t rank, const tap::Wait* wait) {
  if (wait != nullptr) {
    if (const CollectiveMeeting* meeting = meeting_of(*wait); meeting != nullptr) {
      connect_meeting(rank, *meeting, wait);
      return;
    }
  }
  for (const tap::Awaited* thing : things(rank, wait)) {
    const Debtor debtor = debtor_of(*thing, rank, size_, able_);
    if (debtor.itself) {
      // If the rank waits for nothing else, it is an end by itself.
      if (wait != nullptr && facts_[rank].waits.size() == 1) edges_.push_back({rank, rank, wait, thing});
      continue;
    }
    if (!debtor.named) facts_[rank].loose = true;
    if (debtor.rank == tap::kNobody) {
      arcs_[rank].push_back(size_);
    } else {
      arcs_[rank].push_back(debtor.rank);
      edges_.push_back({rank, debtor.rank, wait, thing});
    }
  }
}

// The ranks that the wait names as missing are missing, though perhaps not the only ones if the
// call needs all members. If the wait names none, any rank that is not there may be missing.
void Graph::connect_meeting(std::uint32_t rank, const CollectiveMeeting& meeting, const tap::Wait* wait) {
  const Node& node = nodes_.at(&meeting);
  const auto latest = latest_.find(meeting.step.team);
  const auto passed = [&](std::uint32_t other) {
    return latest != latest_.end() && has_passed(latest->second, other, meeting.step.number);
  };
  bool said = false;
  for (const tap::Awaited& thing : wait->things) {
    if (thing.rank >= size_ || contains(meeting.waiting, thing.rank) || passed(thing.rank)) continue;
    arcs_[rank].push_back(thing.rank);
    said = true;
  }
  if (!said || needs_all(meeting.step)) arcs_[rank].push_back(node.missing);
  if (!said && !meeting.whole) facts_[rank].loose = true;
  if (said && node.behind != 0) arcs_[rank].push_back(node.behind);
}

bool Graph::runs_task(std::uint32_t rank) const {
  const RankView& view = views_[rank];
  return view.presence == Presence::here && view.snapshot.has_value() &&
         std::ranges::any_of(view.snapshot->workers, &tap::WorkerState::runs_task);
}

void Graph::find_waiters(End& end, const Arcs& reverse) const {
  for (const bool with_loose : {false, true}) {
    std::vector<bool> seen(reverse.size());
    std::deque<std::uint32_t> open(end.ranks.begin(), end.ranks.end());
    for (const std::uint32_t rank : end.ranks) seen[rank] = true;
    std::uint32_t found = 0;
    for (; !open.empty(); open.pop_front()) {
      for (const std::uint32_t from : reverse[open.front()]) {
        if (seen[from] || (!with_loose && from == size_)) continue;
        seen[from] = true;
        open.push_back(from);
        if (from >= size_) continue;
        ++found;
        if (!with_loose) insert(end.waiters, from);
      }
    }
    if (with_loose) end.loose_waiters = found - static_cast<std::uint32_t>(end.waiters.size());
  }
}

// The components that no arc leaves.
std::vector<End> Graph::terminal(const Arcs& arcs) const {
  const std::vector<std::uint32_t> component = components_of(arcs);
  std::set<std::uint32_t> open;
  for (std::uint32_t node = 0; node < arcs.size(); ++node) {
    for (const std::uint32_t to : arcs[node]) {
      if (component[node] != component[to]) open.insert(component[node]);
    }
  }
  std::map<std::uint32_t, End> by_component;
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    if (!open.contains(component[rank])) by_component[component[rank]].ranks.push_back(rank);
  }
  std::vector<End> ends;
  for (auto& [number, end] : by_component) ends.push_back(std::move(end));
  return ends;
}

// The components of several ranks from which no other such component is reached.
std::vector<End> Graph::innermost_cycles(const Arcs& arcs) const {
  const std::vector<std::uint32_t> component = components_of(arcs);
  std::map<std::uint32_t, End> found;
  for (std::uint32_t rank = 0; rank < size_; ++rank) found[component[rank]].ranks.push_back(rank);
  std::erase_if(found, [](const auto& each) { return each.second.ranks.size() < 2; });
  // Components are numbered so that each is reached by later ones only.
  std::vector<bool> reaches(arcs.size());  // by component: another one of several ranks
  std::vector<std::uint32_t> nodes(arcs.size());
  std::iota(nodes.begin(), nodes.end(), 0U);
  std::sort(nodes.begin(), nodes.end(), [&](auto a, auto b) { return component[a] < component[b]; });
  for (const std::uint32_t node : nodes) {
    for (const std::uint32_t to : arcs[node]) {
      const std::uint32_t other = component[to];
      if (other != component[node] && (reaches[other] || found.contains(other))) reaches[component[node]] = true;
    }
  }
  std::vector<End> ends;
  for (auto& [number, end] : found) {
    if (!reaches[number]) ends.push_back(std::move(end));
  }
  return ends;
}

// The ends within an end that is held together by ranks that wait loosely: these wait for some
// rank, but what the others wait for is known. More than two such ranks allow no conclusion.
std::vector<End> Graph::without_loose(const End& end) const {
  if (end.ranks.size() <= 2) return {end};
  Arcs firm = arcs_;
  for (auto& to : firm) std::erase(to, size_);
  firm[size_].clear();
  std::vector<End> inner;
  End single;
  for (End& each : terminal(firm)) {
    if (!contains(end.ranks, each.ranks.front())) continue;
    if (each.ranks.size() == 1) {
      single.ranks.push_back(each.ranks.front());
    } else {
      inner.push_back(std::move(each));
    }
  }
  // A rank that waits for these may be stuck without them, too, and then it does not only wait for
  // them.
  std::vector<End> stuck;
  std::set<std::uint32_t> within;
  for (const End& each : inner) within.insert(each.ranks.begin(), each.ranks.end());
  for (End& each : innermost_cycles(firm)) {
    if (contains(end.ranks, each.ranks.front()) && !within.contains(each.ranks.front()))
      stuck.push_back(std::move(each));
  }
  if (!stuck.empty()) return stuck;
  std::sort(single.ranks.begin(), single.ranks.end());
  if (single.ranks.size() > 2) return {end};
  if (!single.ranks.empty()) inner.push_back(std::move(single));
  return inner;
}

std::vector<End> Graph::ends() const {
  Arcs reverse(arcs_.size());
  for (std::uint32_t node = 0; node < arcs_.size(); ++node) {
    for (const std::uint32_t to : arcs_[node]) reverse[to].push_back(node);
  }
  std::vector<End> ends;
  for (const End& outer : terminal(arcs_)) {
    for (End& end : without_loose(outer)) {
      find_waiters(end, reverse);
      const bool waits = std::any_of(end.ranks.begin(), end.ranks.end(), [this](std::uint32_t rank) {
        return doing(rank) == Doing::waits || doing(rank) == Doing::polls;
      });
      if (waits || !end.waiters.empty() || end.loose_waiters > 0) ends.push_back(std::move(end));
    }
  }
  return ends;
}

Focus Graph::focus(const End& end) const {
  Focus focus;
  Arcs arcs(size_);
  std::vector<const Edge*> inside;
  for (const Edge& edge : edges_) {
    if (!contains(end.ranks, edge.to)) continue;
    if (contains(end.ranks, edge.from)) {
      arcs[edge.from].push_back(edge.to);
      inside.push_back(&edge);
    } else if (end.ranks.size() == 1) {
      focus.last.push_back(&edge);
    }
  }
  const std::vector<std::uint32_t> component = components_of(arcs);
  std::set<std::uint32_t> open;
  for (const Edge* edge : inside) {
    if (component[edge->from] != component[edge->to]) open.insert(component[edge->from]);
  }
  for (const Edge* edge : inside) {
    if (open.contains(component[edge->to])) continue;
    (component[edge->from] == component[edge->to] ? focus.cycles : focus.last).push_back(edge);
  }
  // A rank that points to a cycle only waits for it.
  std::set<std::uint32_t> cyclic;
  for (const Edge* edge : focus.cycles) cyclic.insert(component[edge->to]);
  std::erase_if(focus.last, [&](const Edge* edge) { return cyclic.contains(component[edge->to]); });
  if (end.ranks.size() == 1) return focus;
  const auto is_direct = [this](const Edge* edge) {
    const CollectiveMeeting* meeting = facts_[edge->to].meeting;
    return meeting == nullptr || contains(meeting->missing, edge->from);
  };
  std::ranges::copy_if(focus.last, std::back_inserter(focus.indirect), [&](const Edge* e) { return !is_direct(e); });
  std::erase_if(focus.last, [&](const Edge* e) { return !is_direct(e); });
  return focus;
}

// Tarjan's algorithm, without recursion.
std::vector<std::uint32_t> components_of(const std::vector<std::vector<std::uint32_t>>& arcs) {
  struct Visit {
    std::uint32_t node;
    std::size_t next = 0;
  };
  const auto count = static_cast<std::uint32_t>(arcs.size());
  std::vector<std::uint32_t> order(count), low(count), component(count, tap::kNobody), open;
  std::uint32_t seen = 0;
  std::uint32_t found = 0;
  std::vector<Visit> path;
  for (std::uint32_t root = 0; root < count; ++root) {
    if (order[root] != 0) continue;
    path.push_back({root});
    while (!path.empty()) {
      Visit& visit = path.back();
      const std::uint32_t node = visit.node;
      if (visit.next == 0 && order[node] == 0) {
        order[node] = low[node] = ++seen;
        open.push_back(node);
      }
      if (visit.next < arcs[node].size()) {
        const std::uint32_t to = arcs[node][visit.next++];
        if (order[to] == 0) {
          path.push_back({to});
        } else if (component[to] == tap::kNobody) {
          low[node] = std::min(low[node], order[to]);
        }
        continue;
      }
      if (low[node] == order[node]) {
        std::uint32_t member = 0;
        do {
          member = open.back();
          open.pop_back();
          component[member] = found;
        } while (member != node);
        ++found;
      }
      path.pop_back();
      if (!path.empty()) low[path.back().node] = std::min(low[path.back().node], low[node]);
    }
  }
  return component;
}

}  // namespace heddle::diagnosis
