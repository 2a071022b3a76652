// The communicators of this process and their numbers.
#pragma once

#include "mpi/communicators/comm.hpp"

namespace heddle::mpi {

// A communicator of the group without members, with a number of its own. Null: no memory, or no
// number is left.
Comm* new_comm(GroupPointer group, std::uint32_t* number);
// Of one that was not made after all, or is not used any more: it and its number are gone.
void discard_comm(Comm* comm);
// Where a rank of the job gets the messages of a communicator that it knows by that number.
Member member_of(std::uint32_t job_rank, std::uint32_t number);
// After its members are known: rank, lane and the ranks of the job's ranks.
void complete_comm(Comm& comm, int rank);

std::uint32_t number_of(const Comm* comm);  // for integer handles
Comm* comm_at(std::uint32_t number);

}  // namespace heddle::mpi
