// Finds by vector clocks which events are ordered whatever the network does, and whether all
// conflicting accesses are ordered.
//
// An event knows of another event if it cannot happen before that one. It knows of the event before
// it in its queue, of the caller's turn that began its run, and of the events whose credits it
// needs. Which credits it needs depends on what is known already: credits that are given only after
// the waiting command cannot have helped it. So the clocks are computed again until nothing is
// added; each round is sound if the one before was.
#include <algorithm>
#include <map>

#include "collective/check.hpp"

namespace heddle::collective::checking {
namespace {

constexpr EventId kNobody = ~EventId{0};

// Events of one queue that give credits to one counter, in order.
struct Stream {
  std::vector<EventId> givers;
  std::vector<std::uint64_t> credits;  // sum up to and with each giver
};

// At `observer`, everything that the queue sent to this rank up to `giver` has been stored.
struct Observation {
  std::uint32_t giver_index;
  EventId observer;
};

class Order {
 public:
  explicit Order(const CheckedJob& job)
      : job_(job), width_(job.first_queue.back()), clocks_(job.events.size() * width_), known_(job.events.size()) {
    find_streams();
  }

  bool run() {
    while (propagate()) {
    }
    collect_observations();
    for (Rank rank = 0; rank < job_.schedules.size() && job_.verdict.proved(); ++rank) check_accesses(rank);
    if (job_.request.operation == Operation::barrier) check_barrier();
    return job_.verdict.proved();
  }

 private:
  struct Access {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    EventId event = 0;
    bool write = false;
    bool remote = false;  // stored at some time after the event
  };

  [[nodiscard]] const Event& event(EventId id) const { return job_.events[id]; }
  [[nodiscard]] std::uint32_t* clock(EventId id) { return clocks_.data() + std::size_t{id} * width_; }
  [[nodiscard]] const std::uint32_t* clock(EventId id) const { return clocks_.data() + std::size_t{id} * width_; }

  // `first` is `second`, or `second` knows of it.
  [[nodiscard]] bool knows(EventId second, EventId first) const {
    return clock(second)[event(first).queue] >= event(first).index;
  }

  void find_streams() {
    std::vector<std::map<std::pair<std::uint32_t, std::uint32_t>, Stream>> by_counter(job_.schedules.size());
    for (EventId id = 0; id < job_.events.size(); ++id) {
      const Event& giver = event(id);
      if (giver.command == nullptr || giver.command->credits == 0) continue;
      const Rank target = giver.command->action == Action::put ? giver.command->target : giver.rank;
      // A queue's puts to its own rank may arrive after its later local commands.
      const std::uint32_t local = giver.command->action == Action::put ? 0 : 1;
      Stream& stream = by_counter[target][{giver.command->counter, 2 * giver.queue + local}];
      stream.credits.push_back((stream.credits.empty() ? 0 : stream.credits.back()) + giver.command->credits);
      stream.givers.push_back(id);
    }
    streams_.resize(job_.schedules.size());
    for (Rank rank = 0; rank < streams_.size(); ++rank) {
      streams_[rank].resize(job_.schedules[rank].counters.size());
      for (auto& [key, stream] : by_counter[rank]) streams_[rank][key.first].push_back(std::move(stream));
    }
  }

  // The last giver of `stream` whose credits must have arrived before `waiting` could run;
  // `waiting` needs `needed` credits. kNobody: none. `spare`: what all streams of the counter
  // together could have given before.
  [[nodiscard]] EventId surely_before(const Stream& stream, std::int64_t needed, std::uint64_t spare,
                                      std::uint64_t own) const {
    const std::int64_t sure = needed - static_cast<std::int64_t>(spare - own);
    if (sure <= 0) return kNobody;
    const auto found = std::ranges::lower_bound(stream.credits, static_cast<std::uint64_t>(sure));
    return found == stream.credits.end() ? kNobody
                                         : stream.givers[static_cast<std::size_t>(found - stream.credits.begin())];
  }

  // Credits of the stream that can have arrived before `waiting`: from givers that do not know of
  // it.
  [[nodiscard]] std::uint64_t possible(const Stream& stream, EventId waiting) const {
    const auto after =
        std::ranges::partition_point(stream.givers, [&](EventId giver) { return !knows(giver, waiting); });
    return after == stream.givers.begin() ? 0
                                          : stream.credits[static_cast<std::size_t>(after - stream.givers.begin()) - 1];
  }

  // The givers that `id` waits for, by the clocks of the last round.
  void find_givers(EventId id, std::vector<EventId>* givers) const {
    givers->clear();
    const Event& waiting = event(id);
    for (const CreditWait& wait : waiting.command->waits) {
      if (wait.count == 0) continue;
      const ScheduleCounter& counter = job_.schedules[waiting.rank].counters[wait.counter];
      const std::int64_t needed =
          std::int64_t{waiting.run} * counter.per_run + wait.count - static_cast<std::int64_t>(counter.initial);
      const std::vector<Stream>& streams = streams_[waiting.rank][wait.counter];
      std::uint64_t spare = 0;
      for (const Stream& stream : streams) spare += possible(stream, id);
      for (const Stream& stream : streams) {
        const EventId giver = surely_before(stream, needed, spare, possible(stream, id));
        if (giver != kNobody) givers->push_back(giver);
      }
    }
  }

  bool join(EventId id, EventId other) {
    bool grown = false;
    std::uint32_t* mine = clock(id);
    const std::uint32_t* theirs = clock(other);
    for (std::uint32_t i = 0; i < width_; ++i) {
      if (theirs[i] <= mine[i]) continue;
      mine[i] = theirs[i];
      grown = true;
    }
    return grown;
  }

  // One round over all events; true: a clock has grown.
  bool propagate() {
    bool grown = false;
    std::vector<EventId> last(width_, kNobody);
    std::vector<EventId> givers;
    for (EventId id = 0; id < job_.events.size(); ++id) {
      const Event& now = event(id);
      std::uint32_t& own = clock(id)[now.queue];
      if (own < now.index) {
        own = now.index;
        grown = true;
      }
      if (now.command == nullptr) {
        for (std::uint32_t queue = job_.first_queue[now.rank]; queue < job_.first_queue[now.rank + 1]; ++queue)
          if (last[queue] != kNobody) grown |= join(id, last[queue]);
      } else {
        if (last[now.queue] != kNobody) grown |= join(id, last[now.queue]);
        grown |= join(id, last[job_.users_queue(now.rank)]);
        find_givers(id, &givers);
        for (const EventId giver : givers) grown |= join(id, giver);
        if (known_[id] != givers) {
          known_[id] = givers;
          grown = true;
        }
      }
      last[now.queue] = id;
    }
    return grown;
  }

  void collect_observations() {
    for (EventId id = 0; id < job_.events.size(); ++id)
      for (const EventId giver : known_[id])
        if (event(giver).command->action == Action::put)
          observations_[{event(giver).queue, event(id).rank}].push_back({event(giver).index, id});
  }

  // True: what the put `giver` stores at `rank` is there before `later` happens.
  [[nodiscard]] bool stored_before(EventId giver, Rank rank, EventId later) const {
    const auto found = observations_.find({event(giver).queue, rank});
    if (found == observations_.end()) return false;
    return std::ranges::any_of(found->second, [&](const Observation& seen) {
      return seen.giver_index >= event(giver).index && knows(later, seen.observer);
    });
  }

  [[nodiscard]] bool before(const Access& first, const Access& second, Rank rank) const {
    if (!first.remote) return knows(second.event, first.event);
    if (second.remote && event(first.event).queue == event(second.event).queue)
      return event(first.event).index < event(second.event).index;
    return stored_before(first.event, rank, second.event);
  }

  // All accesses to one place of one rank, sorted by their begin.
  [[nodiscard]] std::vector<Access> accesses(Rank rank, Place place) const {
    std::vector<Access> all;
    const auto add = [&](const Block& block, EventId id, bool write, bool remote) {
      if (block.bytes > 0 && block.place == place)
        all.push_back({block.offset, block.offset + block.bytes, id, write, remote});
    };
    for (EventId id = 0; id < job_.events.size(); ++id) {
      const Event& now = event(id);
      if (now.command == nullptr) {
        if (now.rank != rank || place == Place::scratch || place == Place::beside) continue;
        const Block whole{place, 0, place == Place::send ? job_.buffers[rank].send : job_.buffers[rank].receive};
        add(whole, id, true, false);
        continue;
      }
      const bool put = now.command->action == Action::put;
      const bool get = now.command->action == Action::get;
      if ((get ? now.command->target : now.rank) == rank) add(now.command->source, id, false, false);
      if ((put ? now.command->target : now.rank) == rank) add(now.command->destination, id, true, put);
    }
    std::ranges::sort(all, [](const Access& a, const Access& b) { return a.begin < b.begin; });
    return all;
  }

  void check_accesses(Rank rank) const {
    for (const Place place : {Place::send, Place::receive, Place::scratch, Place::beside}) {
      const std::vector<Access> all = accesses(rank, place);
      for (std::size_t i = 0; i < all.size(); ++i)
        for (std::size_t j = i + 1; j < all.size() && all[j].begin < all[i].end; ++j) {
          if (!all[i].write && !all[j].write) continue;
          if (before(all[i], all[j], rank) || before(all[j], all[i], rank)) continue;
          job_.fault("not ordered, at bytes " + std::to_string(all[j].begin) + " and on of rank " +
                     std::to_string(rank) + ": " + describe(job_, event(all[i].event)) + "; and " +
                     describe(job_, event(all[j].event)));
          if (job_.verdict.faults.size() >= kMostFaults) return;
        }
    }
  }

  // Checks that no rank's run ends before all ranks' runs have begun.
  void check_barrier() const {
    for (EventId id = 0; id < job_.events.size(); ++id) {
      const Event& end = event(id);
      if (end.command != nullptr || end.run == 0) continue;
      for (Rank rank = 0; rank < job_.schedules.size(); ++rank) {
        if (clock(id)[job_.users_queue(rank)] >= end.run) continue;
        job_.fault("rank " + std::to_string(end.rank) + " may leave barrier " + std::to_string(end.run - 1) +
                   " before rank " + std::to_string(rank) + " has come");
        return;
      }
    }
  }

  const CheckedJob& job_;
  std::size_t width_;
  // per event, one number per queue of all ranks
  std::vector<std::uint32_t> clocks_;
  // per event: the givers whose credits it needs
  std::vector<std::vector<EventId>> known_;
  std::vector<std::vector<std::vector<Stream>>> streams_;  // per rank and counter
  // by giving queue and rank
  std::map<std::pair<std::uint32_t, Rank>, std::vector<Observation>> observations_;
};

}  // namespace

bool check_order(const CheckedJob& job) {
  return Order(job).run();
}

}  // namespace heddle::collective::checking
