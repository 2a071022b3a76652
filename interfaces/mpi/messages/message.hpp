// A message on its way: its arguments, the lanes that it uses, its post, and the wait for a
// receive.
#pragma once

#include "mpi/communicators/comm.hpp"
#include "mpi/core/progress.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

// Checks of the arguments of sends and receives. The caller has a communicator that exists.

// The data of a message. The type is not held.
struct Data {
  void* buffer = nullptr;
  MPI_Count count = 0;
  Type* type = nullptr;
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(count * type->size); }
};

// Checks buffer, count and type.
int read_data(const void* buffer, MPI_Count count, MPI_Datatype datatype, Data* data);
// A rank to which messages go, or MPI_PROC_NULL.
int check_target(const Comm& comm, int rank, const char* argument);
// The same; MPI_ANY_SOURCE is valid too.
int check_source(const Comm& comm, int rank);
int check_tag(int tag);
// A tag, or MPI_ANY_TAG.
int check_wanted_tag(int tag);

// The lanes that a message uses. Usually they follow from the communicator, at both ends. If the
// receiver has asserted that it never uses MPI_ANY_TAG (Comm::by_tag), they follow from the
// communicator and the tag. Then threads that use one communicator with tags of their own share
// nothing. Messages of one tag use the same lanes, so they stay in order. A receive of one tag from
// any source looks at one lane.

// Successive tags and numbers go to successive lanes, and tags that are multiples of a power of two
// not all to one.
[[nodiscard]] inline std::uint32_t lane_by_tag(std::uint32_t number, int tag, std::uint32_t lanes) {
  auto bits = static_cast<std::uint32_t>(tag);
  bits ^= bits >> 16;
  bits ^= bits >> 8;
  bits ^= bits >> 4;
  return (number / 2 + bits) % lanes;
}

// A message of this process to a member.
struct SendWay {
  Lane& lane;
  heddle_peer target;
};
[[gnu::always_inline]] inline SendWay way_to(const Comm& comm, const MemberAddress& to, int tag) {
  if (!to.by_tag) [[likely]]
    return {*comm.lane, to.peer};
  const auto lanes = static_cast<std::uint32_t>(g_job.lanes.size());
  return {*g_job.lanes[lane_by_tag(comm.number, tag, lanes)],
          {to.peer.rank, lane_by_tag(to.number, tag, g_job.lanes_of[to.peer.rank])}};
}

// The lane on which this process receives messages of a tag. MPI_ANY_TAG: not with Comm::by_tag.
[[gnu::always_inline]] inline Lane& receiving_lane(const Comm& comm, int tag) {
  if (!comm.by_tag) [[likely]]
    return *comm.lane;
  return *g_job.lanes[lane_by_tag(comm.number, tag, static_cast<std::uint32_t>(g_job.lanes.size()))];
}
// The worker that a member sends them from.
[[gnu::always_inline]] inline heddle_peer sending_peer(const Comm& comm, const MemberAddress& from, int tag) {
  if (!comm.by_tag) [[likely]]
    return from.peer;
  return {from.peer.rank, lane_by_tag(from.number, tag, g_job.lanes_of[from.peer.rank])};
}

// The messages that a receive takes, in the engine's terms.

// `source` is a rank or MPI_ANY_SOURCE, `tag` a tag or MPI_ANY_TAG.
[[gnu::always_inline]] inline heddle_wanted wanted_of(const Comm& comm, int source, int tag) {
  heddle_wanted wanted;
  wanted.source = source == MPI_ANY_SOURCE ? heddle_peer{HEDDLE_ANY, HEDDLE_ANY}
                                           : sending_peer(comm, comm.members[static_cast<std::size_t>(source)], tag);
  wanted.tag = wire_tag(comm.number, tag == MPI_ANY_TAG ? 0 : tag);
  wanted.mask = tag == MPI_ANY_TAG ? kNumberMask : UINT64_MAX;
  return wanted;
}

// Sends on their way to the engine.

// Sends: *send.ended, kPending before the call, becomes MPI_SUCCESS or an error's class when the
// source may be reused (LOCAL) or the message was received (MATCHED); perhaps in this call, perhaps
// on another thread. A send that the engine does not take now waits in the lane. An error of the
// arguments is returned, with its text, and stored in *ended too.
int post_send(Lane& lane, const WaitingSend& send);
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
