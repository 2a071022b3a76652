// Sends and receives: the short paths, which the C functions contain. Calls that they do not take
// go on in messages/.
#pragma once

#include <units/messages.hpp>
#include "mpi/core/arguments.hpp"
#include "mpi/messages/message.hpp"
#include "mpi/messages/request.hpp"

namespace heddle::mpi {

struct SendHow {
  Mode mode = Mode::standard;
  bool persistent = false;
};
int send_any(Call call, Mode mode, const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
             MPI_Comm comm);
int isend_any(Call call, const SendHow& how, const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
              MPI_Comm comm, MPI_Request* request);
int recv_any(Call call, void* buf, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
             MPI_Status* status);

int irecv_any(Call call, void* buf, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
              MPI_Request* request);
// Handles a plain receive that the engine did not take, or that has failed at once.
int irecv_not_posted(Call call, Request* made, heddle_status status, MPI_Request* request);

// Waits for a receive that the engine has taken, or ends one that has ended.
int recv_posted(Call call, Comm& comm, const WantedMessages& wanted, heddle_receive& receive, heddle_status status,
                MPI_Status* out);

// The longest message that lies in the engine's command, so that its source may be reused when it
// is accepted.
inline constexpr std::size_t kInlineBytes = 48;
// How long a receive waits on its own lane before it makes progress on everything else.
inline constexpr std::int64_t kFirstWaitNs = 1'000'000;

// Sends a short message of a contiguous type. False: it cannot be sent that way.
[[gnu::always_inline]] inline bool send_short(const void* buf, MPI_Count count, MPI_Datatype datatype, int dest,
                                              int tag, MPI_Comm handle) {
  const Comm* const comm = comm_of(handle);
  const Plain plain = plain_of(datatype);
  if (comm == nullptr || plain.size == 0 || buf == nullptr) [[unlikely]]
    return false;
  const auto to = static_cast<std::size_t>(static_cast<unsigned>(dest));
  if (static_cast<unsigned>(tag) > static_cast<unsigned>(kTagUb) || to >= comm->members.size()) [[unlikely]]
    return false;
  if (static_cast<std::uint64_t>(count) > kInlineBytes) return false;
  const std::size_t bytes = static_cast<std::size_t>(count) * plain.size;
  const MemberAddress& member = comm->members[to];
  const SendWay way = way_to(*comm, member, tag);
  if (bytes > kInlineBytes || way.lane.waiting.load(std::memory_order_relaxed) != 0) return false;
  const heddle_status status = heddle_try_send(way.lane.worker, way.target, wire_tag(member.number, tag),
                                               static_cast<const std::byte*>(buf) + plain.begin, bytes, nullptr);
  return status == HEDDLE_DONE || status == HEDDLE_POSTED;
}

[[gnu::always_inline]] inline int send(Call call, const void* buf, MPI_Count count, MPI_Datatype datatype, int dest,
                                       int tag, MPI_Comm comm) {
  if (send_short(buf, count, datatype, dest, tag, comm)) [[likely]]
    return MPI_SUCCESS;
  return send_any(call, Mode::standard, buf, count, datatype, dest, tag, comm);
}

[[gnu::always_inline]] inline int isend(Call call, const void* buf, MPI_Count count, MPI_Datatype datatype, int dest,
                                        int tag, MPI_Comm comm, MPI_Request* request) {
  if (request != nullptr && send_short(buf, count, datatype, dest, tag, comm)) [[likely]] {
    *request = handle_of(&g_sent);
    return MPI_SUCCESS;
  }
  return isend_any(call, {}, buf, count, datatype, dest, tag, comm, request);
}

// Whether the short paths take a receive: into one block of memory, with arguments that are right.
[[gnu::always_inline]] inline bool receives_shortly(const Comm* comm, const Plain& plain, const void* buf,
                                                    MPI_Count count, int source, int tag) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 31;
  if (comm == nullptr || plain.size == 0 || buf == nullptr || static_cast<std::uint64_t>(count) > kMost) [[unlikely]]
    return false;
  const bool from_one = static_cast<std::size_t>(static_cast<unsigned>(source)) < comm->members.size();
  const bool one_tag = static_cast<unsigned>(tag) <= static_cast<unsigned>(kTagUb);
  return (from_one || source == MPI_ANY_SOURCE) && (one_tag || (tag == MPI_ANY_TAG && !comm->by_tag));
}

// Receives into a contiguous buffer. Unusual cases take the long path.
[[gnu::always_inline]] inline int recv(Call call, void* buf, MPI_Count count, MPI_Datatype datatype, int source,
                                       int tag, MPI_Comm handle, MPI_Status* status) {
  Comm* const comm = comm_of(handle);
  const Plain plain = plain_of(datatype);
  if (!receives_shortly(comm, plain, buf, count, source, tag)) [[unlikely]]
    return recv_any(call, buf, count, datatype, source, tag, handle, status);
  heddle_receive receive;
  const heddle_wanted wanted = wanted_of(*comm, source, tag);
  const WantedMessages asked{source, tag, static_cast<std::size_t>(count) * plain.size};
  const heddle_worker worker = receiving_lane(*comm, tag).worker;
  heddle_status outcome =
      heddle_recv(worker, &wanted, static_cast<std::byte*>(buf) + plain.begin, asked.room, &receive, nullptr);
  if (outcome == HEDDLE_POSTED) outcome = heddle_recv_wait(worker, &receive, kFirstWaitNs);
  if (outcome != HEDDLE_DONE) [[unlikely]] {
    if (outcome == HEDDLE_ERR_TIMEOUT) outcome = HEDDLE_POSTED;
    return recv_posted(call, *comm, asked, receive, outcome, status);
  }
  if (status != MPI_STATUS_IGNORE) {
    status->MPI_SOURCE = source >= 0 ? source : comm->rank_of_job(receive.source.rank);
    status->MPI_TAG = tag_of(receive.tag);
    set_bytes(status, static_cast<MPI_Count>(receive.bytes));
    set_cancelled(status, false);
  }
  return MPI_SUCCESS;
}

[[gnu::always_inline]] inline int irecv(Call call, void* buf, MPI_Count count, MPI_Datatype datatype, int source,
                                        int tag, MPI_Comm handle, MPI_Request* request) {
  Comm* const comm = comm_of(handle);
  const Plain plain = plain_of(datatype);
  if (request == nullptr || !receives_shortly(comm, plain, buf, count, source, tag)) [[unlikely]]
    return irecv_any(call, buf, count, datatype, source, tag, handle, request);
  Request* const made = take_kept();
  if (made == nullptr) [[unlikely]]
    return irecv_any(call, buf, count, datatype, source, tag, handle, request);
  Lane& lane = receiving_lane(*comm, tag);
  made->kind = Request::Kind::receive;
  made->active = made->plain = true;
  made->comm = comm;
  made->lane = &lane;
  made->peer = source;
  made->tag = tag;
  made->packed_bytes = static_cast<std::size_t>(count) * plain.size;
  const heddle_wanted wanted = wanted_of(*comm, source, tag);
  const heddle_status status = heddle_recv(lane.worker, &wanted, static_cast<std::byte*>(buf) + plain.begin,
                                           made->packed_bytes, &made->receive, nullptr);
  if (status < 0) [[unlikely]]
    return irecv_not_posted(call, made, status, request);
  *request = handle_of(made);
  return MPI_SUCCESS;
}

inline int ssend(Call call, const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm) {
  return send_any(call, Mode::synchronous, buf, count, datatype, dest, tag, comm);
}
inline int rsend(Call call, const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm) {
  return send(call, buf, count, datatype, dest, tag, comm);
}
inline int bsend(Call call, const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm) {
  return send_any(call, Mode::buffered, buf, count, datatype, dest, tag, comm);
}
inline int issend(Call call, const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                  MPI_Request* request) {
  return isend_any(call, {Mode::synchronous, false}, buf, count, datatype, dest, tag, comm, request);
}
inline int irsend(Call call, const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                  MPI_Request* request) {
  return isend(call, buf, count, datatype, dest, tag, comm, request);
}
inline int ibsend(Call call, const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                  MPI_Request* request) {
  return isend_any(call, {Mode::buffered, false}, buf, count, datatype, dest, tag, comm, request);
}
inline int send_init(Call call, const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
                     MPI_Comm comm, MPI_Request* request) {
  return isend_any(call, {Mode::standard, true}, buf, count, datatype, dest, tag, comm, request);
}
inline int ssend_init(Call call, const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
                      MPI_Comm comm, MPI_Request* request) {
  return isend_any(call, {Mode::synchronous, true}, buf, count, datatype, dest, tag, comm, request);
}
inline int rsend_init(Call call, const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
                      MPI_Comm comm, MPI_Request* request) {
  return isend_any(call, {Mode::ready, true}, buf, count, datatype, dest, tag, comm, request);
}
inline int bsend_init(Call call, const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
                      MPI_Comm comm, MPI_Request* request) {
  return isend_any(call, {Mode::buffered, true}, buf, count, datatype, dest, tag, comm, request);
}

}  // namespace heddle::mpi
