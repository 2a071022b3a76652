// The contents of all buffers, as sums of one random number per (run, rank, byte).

#include <utility>

#include "collective/check.hpp"
#include "collective/schedule.hpp"

namespace heddle::collective::checking {

namespace {

using Value = std::uint64_t;

// splitmix64 of the numbers that identify the byte.
Value contribution(std::uint64_t run, Rank rank, std::uint64_t byte) {
  std::uint64_t x = (run << 56U) ^ (std::uint64_t{rank} << 32U) ^ byte;
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

class Contents {
 public:
  explicit Contents(const CheckedJob& job) : job_(job), ranks_(job.schedules.size()), waste_(~std::uint64_t{0} >> 8U) {
    for (Rank rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank][0].resize(job.buffers[rank].send);
      ranks_[rank][1].resize(job.buffers[rank].receive);
      ranks_[rank][2].resize(job.schedules[rank].scratch_bytes);
      ranks_[rank][3].resize(job.schedules[rank].counters.size() * kBesideBytes);
      for (Value& value : ranks_[rank][2]) value = junk();
    }
    sum_all_ranks();
    find_listed();
  }

  bool run() {
    for (const Event& event : job_.events) {
      if (event.command != nullptr) {
        apply(event.rank, *event.command);
        continue;
      }
      if (event.run > 0) verify(event.rank, event.run - 1);
      if (event.run < job_.runs) fill(event.rank, event.run);
      if (!job_.verdict.proved()) return false;
    }
    return true;
  }

 private:
  using Places = std::array<std::vector<Value>, kPlaces>;

  Value junk() { return contribution(255, 0, --waste_); }

  [[nodiscard]] Value* at(Rank rank, const Block& block) {
    return ranks_[rank][static_cast<std::size_t>(block.place)].data() + block.offset;
  }

  void apply(Rank rank, const ScheduleCommand& command) {
    if (command.source.bytes == 0) return;
    const Value* from = at(command.action == Action::get ? command.target : rank, command.source);
    Value* to = at(command.action == Action::put ? command.target : rank, command.destination);
    for (std::uint64_t i = 0; i < command.source.bytes; ++i)
      to[i] = command.action == Action::reduce ? to[i] + from[i] : from[i];
  }

  void fill(Rank rank, std::uint32_t run) {
    Places& places = ranks_[rank];
    for (std::uint64_t i = 0; i < places[0].size(); ++i) places[0][i] = contribution(run, rank, i);
    const bool gives = job_.request.operation == Operation::broadcast && rank == job_.request.root;
    for (std::uint64_t i = 0; i < places[1].size(); ++i) places[1][i] = gives ? contribution(run, rank, i) : junk();
    if (job_.send_at[rank] != kNoPart)
      for (std::uint64_t i = 0; i < send_bytes(job_.request, rank); ++i)
        places[1][job_.send_at[rank] + i] = contribution(run, rank, i);
    if (!listed_.empty()) before_[rank] = places[1];
  }

  // If ranks list their blocks: finds, from the lists only, which rank and byte each byte of
  // receive comes from.
  void find_listed() {
    if (!lists_blocks(job_.request.operation)) return;
    listed_.resize(ranks_.size());
    before_.resize(ranks_.size());
    std::vector<Exchange> lists;
    for (Rank rank = 0; rank < ranks_.size(); ++rank) lists.push_back(exchange_of(job_.request, rank));
    for (Rank rank = 0; rank < ranks_.size(); ++rank) {
      listed_[rank].resize(ranks_[rank][1].size());
      for (Rank peer = 0; peer < ranks_.size(); ++peer) {
        const auto taken = of_peer(std::as_const(lists[rank].taken), peer);
        const auto given = of_peer(std::as_const(lists[peer].given), rank);
        if (taken.size() != given.size()) job_.fault("lists: two ranks list different numbers of blocks");
        for (std::size_t k = 0; k < std::min(taken.size(), given.size()); ++k)
          for (std::uint64_t i = 0; i < taken[k].bytes; ++i)
            listed_[rank][taken[k].here + i] = {true, peer, given[k].here + i};
      }
    }
  }

  // For reductions over all ranks: computed once instead of per rank.
  void sum_all_ranks() {
    const Operation operation = job_.request.operation;
    if (operation != Operation::reduce && operation != Operation::allreduce && operation != Operation::reduce_scatter)
      return;
    sums_.resize(job_.runs);
    for (std::uint32_t run = 0; run < job_.runs; ++run) {
      sums_[run].assign(send_bytes(job_.request, job_.request.root), 0);
      for (Rank rank = 0; rank < ranks_.size(); ++rank)
        for (std::uint64_t i = 0; i < sums_[run].size(); ++i) sums_[run][i] += contribution(run, rank, i);
    }
  }

  [[nodiscard]] Value expected(Rank rank, std::uint32_t run, std::uint64_t i) const {
    const AlgorithmRequest& request = job_.request;
    const auto source = static_cast<Rank>(request.bytes == 0 ? 0 : i / request.bytes);
    const std::uint64_t inner = request.bytes == 0 ? 0 : i % request.bytes;
    switch (request.operation) {
      case Operation::broadcast:
        return contribution(run, request.root, i);
      case Operation::reduce:
      case Operation::allreduce:
        return sums_[run][i];
      case Operation::reduce_scatter:
        return sums_[run][rank * request.bytes + i];
      case Operation::gather:
      case Operation::allgather:
        return contribution(run, source, inner);
      case Operation::scatter:
        return contribution(run, request.root, rank * request.bytes + i);
      case Operation::alltoall:
        return contribution(run, source, rank * request.bytes + inner);
      case Operation::scan: {
        Value sum = 0;
        for (Rank other = 0; other <= rank; ++other) sum += contribution(run, other, i);
        return sum;
      }
      case Operation::allgatherv:
      case Operation::alltoallv:
      case Operation::gatherv:
      case Operation::scatterv:
      case Operation::neighbor_alltoallv: {
        // Bytes between blocks do not change.
        const Listed& from = listed_[rank][i];
        return from.there ? contribution(run, from.rank, from.byte) : before_[rank][i];
      }
      case Operation::barrier:
      case Operation::kCount:
        return 0;
    }
    return 0;
  }

  void verify(Rank rank, std::uint32_t run) const {
    const std::vector<Value>& receive = ranks_[rank][1];
    for (std::uint64_t i = 0; i < receive.size(); ++i) {
      if (receive[i] == expected(rank, run, i)) continue;
      job_.fault("contents: rank " + std::to_string(rank) + " has a wrong byte " + std::to_string(i) + " of " +
                 std::to_string(receive.size()) + " in receive after run " + std::to_string(run));
      return;
    }
  }

  const CheckedJob& job_;
  std::vector<Places> ranks_;
  std::vector<std::vector<Value>> sums_;
  std::uint64_t waste_;
  struct Listed {
    bool there = false;
    Rank rank = 0;
    std::uint64_t byte = 0;
  };
  std::vector<std::vector<Listed>> listed_;  // by rank and byte of receive
  std::vector<std::vector<Value>> before_;   // receive at the beginning of the run
};

}  // namespace

bool check_contents(const CheckedJob& job) {
  return Contents(job).run();
}

// Changes schedules for callers whose buffers are in place.

namespace {

// The caller's buffer `from` of a rank is the same memory as the bytes of `to` from `offset` on.
struct Alias {
  bool there = false;
  Place from = Place::send;
  Place to = Place::receive;
  std::uint64_t offset = 0;
};

Alias alias_of(const AlgorithmRequest& request, Rank rank, const CheckedJob::Bytes& buffers) {
  if (buffers.send == 0 || buffers.receive == 0) return {};
  switch (request.operation) {
    case Operation::reduce:
    case Operation::allreduce:
    case Operation::scan:
      return {true, Place::send, Place::receive, 0};
    case Operation::gather:
    case Operation::allgather:
      return {true, Place::send, Place::receive, rank * request.bytes};
    case Operation::scatter:
      return {true, Place::receive, Place::send, rank * request.bytes};
    default:
      return {};
  }
}

void apply(const Alias& alias, Block* block) {
  if (!alias.there || block->bytes == 0 || block->place != alias.from) return;
  block->place = alias.to;
  block->offset += alias.offset;
}

}  // namespace

void put_in_place(const AlgorithmRequest& request, std::vector<Schedule>* schedules, CheckedJob* job) {
  std::vector<Alias> aliases;
  for (Rank rank = 0; rank < schedules->size(); ++rank) aliases.push_back(alias_of(request, rank, job->buffers[rank]));
  for (Schedule& schedule : *schedules) {
    for (ScheduleCommand& command : schedule.commands) {
      const Rank source = command.action == Action::get ? command.target : schedule.rank;
      const Rank destination = command.action == Action::put ? command.target : schedule.rank;
      apply(aliases[source], &command.source);
      apply(aliases[destination], &command.destination);
      const bool same = source == destination && command.source.place == command.destination.place &&
                        command.source.offset == command.destination.offset;
      // A run skips it. A reduction of a block with itself must not be skipped; it stays so that
      // the check finds it.
      if (same && command.action != Action::reduce) command.source.bytes = command.destination.bytes = 0;
    }
  }
  for (Rank rank = 0; rank < schedules->size(); ++rank) {
    if (!aliases[rank].there) continue;
    if (aliases[rank].from == Place::send) job->send_at[rank] = aliases[rank].offset;
    (aliases[rank].from == Place::send ? job->buffers[rank].send : job->buffers[rank].receive) = 0;
  }
}

}  // namespace heddle::collective::checking
