// The communicators of this process and their numbers.
#pragma once

#include "mpi/communicators/comm.hpp"

namespace heddle::mpi {

// A communicator of the group without members, with a number of its own. Null: no memory, or no
// number is left.
Comm* new_comm(GroupPointer group, std::uint32_t* number);
// Frees a communicator that was not made after all, or is not used any more, and its number.
void discard_comm(Comm* comm);
// Where a rank of the job receives the messages of a communicator that it knows by that number.
Member member_of(std::uint32_t job_rank, std::uint32_t number);
// Called when its members are known: sets rank, lane, and the table of ranks by rank in the job.
void complete_comm(Comm& comm, int rank);

std::uint32_t number_of(const Comm* comm);  // for integer handles
Comm* comm_at(std::uint32_t number);

}  // namespace heddle::mpi
