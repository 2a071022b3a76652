// Changes schedules for callers whose buffers are in place.
#include "collective/check_job.hpp"

namespace heddle::collective::checking {
namespace {

// The caller's buffer `from` of a rank is the same memory as the bytes of `to` from `offset` on.
struct Alias {
  bool there = false;
  Place from = Place::send;
  Place to = Place::receive;
  std::uint64_t offset = 0;
};

Alias alias_of(const Request& request, Rank rank, const Job::Bytes& buffers) {
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

void put_in_place(const Request& request, std::vector<Schedule>* schedules, Job* job) {
  std::vector<Alias> aliases;
  for (Rank rank = 0; rank < schedules->size(); ++rank) aliases.push_back(alias_of(request, rank, job->buffers[rank]));
  for (Schedule& schedule : *schedules) {
    for (Command& command : schedule.commands) {
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
