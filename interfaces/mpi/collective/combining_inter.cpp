// Reductions over the other group of an intercommunicator. Contributions are combined in the order
// of ranks.
#include "mpi/collective/combining.hpp"

namespace heddle::mpi {
namespace {

// Adds the sends of this process's vector to a set of messages.
void add_sends(Schedule& schedule, const Operand& from, std::size_t bytes, int first, int end) {
  for (int rank = first; rank < end; ++rank) schedule.send(schedule.communicator(), rank, from.at, bytes);
}
// Adds the receives of all remote vectors, into one piece of memory.
std::byte* add_receives(Schedule& schedule, std::size_t bytes) {
  const int remote = schedule.communicator().remote_size();
  std::byte* const all = schedule.room(static_cast<std::size_t>(remote) * bytes);
  for (int rank = 0; rank < remote; ++rank)
    schedule.receive(schedule.communicator(), rank, all + static_cast<std::size_t>(rank) * bytes, bytes);
  return all;
}

}  // namespace

void add_inter_reduce(Schedule& schedule, const Reducing& what, int root) {
  schedule.use_messages();
  if (root == MPI_PROC_NULL) return;
  const Reducer& reducer = reducer_of(schedule, what);
  if (root == MPI_ROOT) {
    if (what.receive.bytes() == 0) return;
    schedule.messages();
    std::byte* const all = add_receives(schedule, bytes_of(reducer, what.receive.count));
    return add_fold(schedule, reducer, all, static_cast<std::size_t>(schedule.communicator().remote_size()),
                    what.receive);
  }
  if (what.send.bytes() == 0) return;
  const Operand from = operand_of(schedule, reducer, what.send);
  add_load(schedule, reducer, what.send, from);
  schedule.messages();
  add_sends(schedule, from, bytes_of(reducer, what.send.count), root, root + 1);
}

void add_inter_allreduce(Schedule& schedule, const Reducing& what) {
  schedule.use_messages();
  if (what.send.bytes() == 0) return;
  const Reducer& reducer = reducer_of(schedule, what);
  const int remote = schedule.communicator().remote_size();
  const Operand from = operand_of(schedule, reducer, what.send);
  add_load(schedule, reducer, what.send, from);
  schedule.messages();
  std::byte* const all = add_receives(schedule, bytes_of(reducer, what.receive.count));
  add_sends(schedule, from, bytes_of(reducer, what.send.count), 0, remote);
  add_fold(schedule, reducer, all, static_cast<std::size_t>(remote), what.receive);
}

// The first member of each group combines the other group's vectors, and gives the members of its
// own their blocks.
void add_inter_reduce_scatter(Schedule& schedule, const Reducing& what, const std::vector<MPI_Count>& counts) {
  schedule.use_messages();
  if (what.send.bytes() == 0) return;
  Comm& comm = schedule.communicator();
  const Reducer& reducer = reducer_of(schedule, what);
  const auto count = static_cast<std::size_t>(what.send.count);
  const std::size_t bytes = bytes_of(reducer, what.send.count);
  const Operand from = operand_of(schedule, reducer, what.send);
  const Operand mine{schedule.room(bytes_of(reducer, what.receive.count)), true};
  add_load(schedule, reducer, what.send, from);
  schedule.messages();
  add_sends(schedule, from, bytes, 0, 1);
  if (comm.rank != 0) {
    schedule.messages();
    if (what.receive.count > 0) schedule.receive(*comm.local, 0, mine.at, bytes_of(reducer, what.receive.count));
    return add_store(schedule, reducer, what.receive, mine);
  }
  const auto remote = static_cast<std::size_t>(comm.remote_size());
  std::byte* const all = add_receives(schedule, bytes);
  std::byte* const result = all + (remote - 1) * bytes;
  const auto combine = [&reducer, all, remote, bytes, count] { reducer.fold(all, remote, bytes, count); };
  schedule.local(combine);
  schedule.messages();
  std::size_t offset = bytes_of(reducer, counts[0]);
  for (int rank = 1; rank < comm.size(); ++rank) {
    const std::size_t length = bytes_of(reducer, counts[static_cast<std::size_t>(rank)]);
    if (length > 0) schedule.send(*comm.local, rank, result + offset, length);
    offset += length;
  }
  add_store(schedule, reducer, what.receive, {result, true});
}

}  // namespace heddle::mpi
