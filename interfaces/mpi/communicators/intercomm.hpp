// Intercommunicators: two groups whose members send to each other. All functions are collective
// over both groups.
#pragma once

#include <span>
#include <vector>

#include "mpi/communicators/comm.hpp"

namespace heddle::mpi {

// What a group's leaders tell each other.
struct Bridge {
  Comm* local = nullptr;  // an intracommunicator of this side
  int leader = 0;         // of `local`
  // At the leader: the way to the other side's leader, by messages of this communicator.
  Comm* peer = nullptr;
  int remote_leader = 0;
  int tag = 0;  // internal
};
int make_inter(const Bridge& bridge, Comm** made);
int duplicate_inter(Comm& parent, Comm** made);
// Made of the members of each side's group. *made null: one side is empty, or this process is in
// neither.
int create_inter(Comm& parent, GroupPointer group, Comm** made);
// `mine` of all members of both groups, in their order.
int gather_both(Comm& inter, std::span<const std::byte> mine, std::vector<std::byte>* ours,
                std::vector<std::byte>* theirs);
int split_inter(Comm& parent, int colour, int key, MPI_Comm* newcomm);

}  // namespace heddle::mpi
