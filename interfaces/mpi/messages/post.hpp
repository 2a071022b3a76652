// Sends on their way to the engine.
#pragma once

#include "mpi/core/progress.hpp"

namespace heddle::mpi {

// Sends: *send.ended, kPending before the call, becomes MPI_SUCCESS or an error's class when the
// source may be reused (LOCAL) or the message was received (MATCHED); perhaps in this call, perhaps
// on another thread. A send that the engine does not take now waits in the lane. An error of the
// arguments is returned, with its text, and stored in *ended too.
int post_send(Lane& lane, const Waiting& send);
// Tries the sends that wait. Returns whether one left.
bool post_waiting(Lane& lane);
// The same of all lanes.
bool post_all_waiting();
// True: sends to this worker have to wait behind others.
bool must_wait(Lane& lane, heddle_peer target);

// Acquire: a thread that sees the end sees the data. Partner: the engine's release store.
inline heddle_status load_status(const heddle_receive& receive) {
  return __atomic_load_n(&receive.status, __ATOMIC_ACQUIRE);
}
inline bool has_ended(const heddle_receive& receive) {
  return load_status(receive) != HEDDLE_POSTED;
}

// A rank to which the communicator's messages go has died, as far as is known.
bool has_dead_member(const Comm& comm);
// For callers that ask repeatedly and do not wait: until a rank has died, each call looks at only
// so many members.
bool sees_dead_member(const Comm& comm, std::uint32_t looks = 1);

// The messages that a receive takes, for reports.
struct Sought {
  const char* call = "a call of MPI";
  const Comm* comm = nullptr;  // null: it is the library's own
  int peer = MPI_PROC_NULL;
  int tag = 0;
  bool matched = false;  // its message was claimed before
};
// Waits for a receive that was posted. Makes progress on everything that others may wait for. If it
// takes messages of all members of the communicator and one of them dies, it ends with PEER_FAILED,
// since that member might have sent the message. If it takes messages of one rank only, the engine
// notices that rank's death.
heddle_status wait_receive(Lane& lane, heddle_receive& receive, const Sought& sought = {});
// For reports about jobs that hang.
void tell_sought(heddle_wait_facts& facts, const Sought& sought);
// heddle_name_tag.
void name_tag(std::uint64_t tag, std::uint64_t mask, char* text, std::size_t bytes);

}  // namespace heddle::mpi
