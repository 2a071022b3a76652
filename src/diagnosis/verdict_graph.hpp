// The ranks' snapshots as a graph of ranks that wait for each other, and the ends of the graph,
// where the blame lies.
//
// A rank waits for another one because of an edge (the other owes it something: a message, an
// answer, a lock), because of a meeting (a collective call to which the other has not come), or
// loosely: for any rank, as when it waits for a word of its memory. An end is a set of ranks that
// wait for each other and for no other rank, or a rank that waits for no rank. A rank that only
// waits for an end is not to blame.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "diagnosis/owed.hpp"
#include "diagnosis/verdict.hpp"

namespace heddle::diagnosis {

enum class Doing : std::uint8_t {
  absent,      // outside of the job, or its process does not run
  unanswered,  // it has not said what it does
  computes,    // it is in its own code
  polls,       // it calls the library all the time and waits in no call
  waits
};

struct Edge {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  const tap::Wait* wait = nullptr;  // null: `from` polls
  const tap::Awaited* thing = nullptr;
};

// A collective call that some ranks are in.
struct CollectiveMeeting {
  tap::Step step;    // number 0: a call that is known by its name only
  std::string call;  // of one of them
  std::vector<std::uint32_t> waiting;
  std::vector<std::uint32_t> come;     // those, and ranks that only started it
  std::vector<std::uint32_t> missing;  // in rising order, as the others
  std::vector<std::uint32_t> behind;   // of these: seen at an earlier call, or at another one
  bool whole = true;                   // all members are known; else anybody may be missing
};

struct End {
  std::vector<std::uint32_t> ranks;
  std::vector<std::uint32_t> waiters;  // wait for these, directly or not, not loosely
  std::uint32_t loose_waiters = 0;
};

// The edges of an end that tell most: its cycles; otherwise the edges to ranks that owe something
// and wait themselves in a collective call, or loosely. If the end is one rank: the edges to it.
struct Focus {
  std::vector<const Edge*> cycles;
  std::vector<const Edge*> last;      // debtor waits for the waiter: one is wrong
  std::vector<const Edge*> indirect;  // the debtor waits for other ranks first
};

class Graph {
 public:
  explicit Graph(const std::vector<RankView>& views);

  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] const RankView& view(std::uint32_t rank) const { return views_[rank]; }
  [[nodiscard]] Doing doing(std::uint32_t rank) const { return facts_[rank].doing; }
  // The wait that tells most; null: it does not wait.
  [[nodiscard]] const tap::Wait* wait(std::uint32_t rank) const { return facts_[rank].wait; }
  // The things that the rank waits for in this wait: those that the call names, or those that its
  // worker has under way. Null `wait`: the rank polls.
  [[nodiscard]] std::vector<const tap::Awaited*> things(std::uint32_t rank, const tap::Wait* wait) const;
  // The meeting of that wait; null: the wait is in no collective call.
  [[nodiscard]] const CollectiveMeeting* meeting(std::uint32_t rank) const { return facts_[rank].meeting; }
  [[nodiscard]] bool loose(std::uint32_t rank) const { return facts_[rank].loose; }
  // For a rank that computes or polls: the wait of its thread that waits for any message; other
  // ranks have such a server's thread besides their own waits. Null: it has none.
  [[nodiscard]] const tap::Wait* server(std::uint32_t rank) const { return facts_[rank].server; }
  // True: a handler of class USER of the rank has not returned.
  [[nodiscard]] bool runs_task(std::uint32_t rank) const;
  [[nodiscard]] const std::vector<Edge>& edges() const { return edges_; }
  // The ranks that may still send, in rising order: those that are not about to leave.
  [[nodiscard]] const std::vector<std::uint32_t>& able() const { return able_; }
  [[nodiscard]] std::vector<const CollectiveMeeting*> meetings() const;

  // The ranks that wait for the rank itself, not for others that wait for it.
  [[nodiscard]] std::vector<std::uint32_t> waiters(std::uint32_t rank) const;
  [[nodiscard]] std::vector<End> ends() const;
  [[nodiscard]] Focus focus(const End& end) const;

 private:
  using Arcs = std::vector<std::vector<std::uint32_t>>;
  using Key = std::tuple<std::uint64_t, std::uint64_t, std::string>;  // team, number, operation
  struct Facts {
    Doing doing = Doing::waits;
    const tap::Wait* wait = nullptr;
    const CollectiveMeeting* meeting = nullptr;
    const tap::Wait* server = nullptr;
    bool loose = false;
    bool idle = false;                    // it waits for any message at all, and for nothing else
    std::vector<const tap::Wait*> waits;  // those that count
  };
  struct Node {
    std::uint32_t missing = 0;
    std::uint32_t behind = 0;  // 0: nobody is
  };

  void sort_out(std::uint32_t rank);
  void set_doing_without_wait(std::uint32_t rank);
  void hold_meetings();
  void come(std::uint32_t rank, const tap::Step& step, const std::string& call, bool waits);
  void find_missing(CollectiveMeeting& meeting);
  void make_nodes();
  void connect(std::uint32_t rank);
  void connect_wait(std::uint32_t rank, const tap::Wait* wait);
  void connect_meeting(std::uint32_t rank, const CollectiveMeeting& meeting, const tap::Wait* wait);
  [[nodiscard]] CollectiveMeeting* meeting_of(const tap::Wait& wait);
  [[nodiscard]] std::vector<End> terminal(const Arcs& arcs) const;
  [[nodiscard]] std::vector<End> innermost_cycles(const Arcs& arcs) const;
  [[nodiscard]] std::vector<End> without_loose(const End& end) const;
  void find_waiters(End& end, const Arcs& reverse) const;

  const std::vector<RankView>& views_;
  std::uint32_t size_;
  std::vector<Facts> facts_;
  std::map<Key, CollectiveMeeting> meetings_;
  std::map<const CollectiveMeeting*, Node> nodes_;
  // By team.
  std::map<std::uint64_t, LatestCalls> latest_;
  std::set<std::string> servers_;  // waits for any message, of ranks that also wait otherwise
  std::vector<std::uint32_t> able_;
  std::vector<Edge> edges_;
  // Nodes: the ranks, then "anybody", then two for each meeting: missing ranks, ranks behind.
  Arcs arcs_;
};

// The numbers of the strongly connected components of nodes, by node.
[[nodiscard]] std::vector<std::uint32_t> components_of(const std::vector<std::vector<std::uint32_t>>& arcs);

}  // namespace heddle::diagnosis
