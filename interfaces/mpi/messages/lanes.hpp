// The lanes that a message uses. Usually they follow from the communicator, at both ends. If the
// receiver has asserted that it never uses MPI_ANY_TAG (Comm::by_tag), they follow from the
// communicator and the tag. Then threads that use one communicator with tags of their own share
// nothing. Messages of one tag use the same lanes, so they stay in order. A receive of one tag from
// any source looks at one lane.
#pragma once

#include "mpi/communicators/comm.hpp"

namespace heddle::mpi {

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
[[gnu::always_inline]] inline SendWay way_to(const Comm& comm, const Member& to, int tag) {
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
[[gnu::always_inline]] inline heddle_peer sending_peer(const Comm& comm, const Member& from, int tag) {
  if (!comm.by_tag) [[likely]]
    return from.peer;
  return {from.peer.rank, lane_by_tag(from.number, tag, g_job.lanes_of[from.peer.rank])};
}

}  // namespace heddle::mpi
