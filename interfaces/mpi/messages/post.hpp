// Sends on their way to the engine.
#pragma once

#include "mpi/core/progress.hpp"

namespace heddle::mpi {

// Sends: *send.ended, kPending before the call, becomes MPI_SUCCESS or an error's class when the
// source may be reused (LOCAL) or the message was received (MATCHED); perhaps in this call, perhaps
// on another thread. What the engine does not take now waits in the lane. An error of the arguments
// is returned, with its text; *ended has it, too.
int post_send(Lane& lane, const Waiting& send);
// Tries the sends that wait. Returns whether one left.
bool post_waiting(Lane& lane);
// The same of all lanes.
bool post_all_waiting();
// True: sends to this worker have to wait behind others.
bool must_wait(Lane& lane, heddle_peer target);

// Acquire: who sees the end sees the data. Partner: the engine's release store.
inline heddle_status load_status(const heddle_receive& receive) {
  return __atomic_load_n(&receive.status, __ATOMIC_ACQUIRE);
}
inline bool has_ended(const heddle_receive& receive) {
  return load_status(receive) != HEDDLE_POSTED;
}

// A rank to which the communicator's messages go has died, as far as is known.
bool has_dead_member(const Comm& comm);
// For who asks again and again and does not wait: before one has died, each call looks at so many
// members only.
bool sees_dead_member(const Comm& comm, std::uint32_t looks = 1);

// What a receive asks for.
struct Sought {
  const char* call = "a call of MPI";
  const Comm* comm = nullptr;  // null: it is the library's own
  int peer = MPI_PROC_NULL;
  int tag = 0;
  bool matched = false;  // its message was claimed before
};
// Waits for a receive that was posted. Makes progress on everything that others may wait for. If it
// takes messages of all members of the communicator, and one of them dies, it ends with
// PEER_FAILED, since the message may have been that one's. The death of one rank the engine
// notices.
heddle_status wait_receive(Lane& lane, heddle_receive& receive, const Sought& sought = {});
// For reports about jobs that hang.
void tell_sought(heddle_wait_facts& facts, const Sought& sought);
// heddle_name_tag.
void name_tag(std::uint64_t tag, std::uint64_t mask, char* text, std::size_t bytes);

}  // namespace heddle::mpi
