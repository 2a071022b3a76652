// Collectives of intercommunicators: messages between all members of one group and all of the other
// that have data for each other.
#include <numeric>

#include "mpi/collective/moving.hpp"

namespace heddle::mpi {
namespace {

// All remote ranks.
std::vector<int> everybody(const Comm& comm) {
  std::vector<int> ranks(static_cast<std::size_t>(comm.remote_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// The i-th block goes to to[i], or comes from from[i].
void add_inter_exchange(Schedule& schedule, const Blocks& send, std::span<const int> to, const Blocks& receive,
                        std::span<const int> from) {
  Wire out;
  Wire in;
  if (!to.empty()) out = wire_of(schedule, send);
  if (!from.empty()) in = wire_of_received(schedule, receive, nullptr);
  add_pack(schedule, send, out);
  schedule.messages();
  Comm& comm = schedule.communicator();
  for (std::size_t i = 0; i < from.size(); ++i) {
    const int block = static_cast<int>(i);
    schedule.receive(comm, from[i], in.at(block), receive[block].bytes());
  }
  for (std::size_t i = 0; i < to.size(); ++i) {
    const int block = static_cast<int>(i);
    schedule.send(comm, to[i], out.at(block), send[block].bytes());
  }
  add_unpack(schedule, receive, in);
}

}  // namespace

void add_inter_barrier(Schedule& schedule) {
  schedule.use_messages();
  schedule.messages();
  for (const int rank : everybody(schedule.communicator())) {
    schedule.receive(schedule.communicator(), rank, nullptr, 0);
    schedule.send(schedule.communicator(), rank, nullptr, 0);
  }
}

void add_inter_broadcast(Schedule& schedule, const Block& data, int root) {
  schedule.use_messages();
  if (root == MPI_PROC_NULL) return;
  const std::vector<int> all = everybody(schedule.communicator());
  if (root == MPI_ROOT)
    add_inter_exchange(schedule, Blocks::same(data, schedule.communicator().remote_size()), all, {}, {});
  else
    add_inter_exchange(schedule, {}, {}, Blocks::even(data, 1), {&root, 1});
}

void add_inter_gather(Schedule& schedule, const Block& send, const Blocks& receive, int root) {
  schedule.use_messages();
  if (root == MPI_PROC_NULL) return;
  if (root == MPI_ROOT)
    add_inter_exchange(schedule, {}, {}, receive, everybody(schedule.communicator()));
  else
    add_inter_exchange(schedule, Blocks::even(send, 1), {&root, 1}, {}, {});
}

void add_inter_scatter(Schedule& schedule, const Blocks& send, const Block& receive, int root) {
  schedule.use_messages();
  if (root == MPI_PROC_NULL) return;
  if (root == MPI_ROOT)
    add_inter_exchange(schedule, send, everybody(schedule.communicator()), {}, {});
  else
    add_inter_exchange(schedule, {}, {}, Blocks::even(receive, 1), {&root, 1});
}

void add_inter_alltoall(Schedule& schedule, const Blocks& send, const Blocks& receive) {
  schedule.use_messages();
  const std::vector<int> all = everybody(schedule.communicator());
  add_inter_exchange(schedule, send, all, receive, all);
}

}  // namespace heddle::mpi
