#include "mpi/messages/internal.hpp"

#include <algorithm>
#include <cstring>

#include "mpi/messages/message.hpp"
#include "mpi/messages/request.hpp"

namespace heddle::mpi {

Route route_of(Comm& comm, int rank) {
  return {comm.lane, comm.members[static_cast<std::size_t>(rank)], comm.number};
}

InternalMessage::~InternalMessage() {
  // The sender may have given up because another member has died. A message that arrives later is
  // dropped.
  if (kind_ == Kind::receive) static_cast<void>(heddle_recv_cancel(lane_->worker, &receive_));
  if (kind_ != Kind::none) wait();
}

int InternalMessage::send(Comm& comm, int rank, int tag, const void* data, std::size_t bytes) {
  return send(route_of(comm, rank), tag, data, bytes);
}
int InternalMessage::receive(Comm& comm, int rank, int tag, void* data, std::size_t bytes) {
  return receive(route_of(comm, rank), tag, data, bytes);
}

int InternalMessage::send(const Route& route, int tag, const void* data, std::size_t bytes) {
  lane_ = route.lane;
  ended_.store(kPending, std::memory_order_relaxed);
  const std::uint64_t wire = wire_tag(route.member.number + kInternal, tag);
  const int code = post_send(*lane_, {route.member.peer, wire, data, bytes, HEDDLE_WHEN_LOCAL, &ended_});
  if (code == MPI_SUCCESS) kind_ = Kind::send;
  return code;
}

int InternalMessage::receive(const Route& route, int tag, void* data, std::size_t bytes) {
  lane_ = route.lane;
  const heddle_wanted wanted{route.member.peer, wire_tag(route.number + kInternal, tag), UINT64_MAX};
  const heddle_status status = heddle_recv(lane_->worker, &wanted, data, bytes, &receive_, nullptr);
  if (status < 0) return error_of_status(status);
  kind_ = Kind::receive;
  return MPI_SUCCESS;
}

bool InternalMessage::test(int* code) {
  *code = MPI_SUCCESS;
  if (kind_ == Kind::none) return true;
  if (kind_ == Kind::send) {
    if (ended_.load(std::memory_order_acquire) == kPending) progress(*lane_);
    if (ended_.load(std::memory_order_acquire) == kPending) return false;
    *code = ended_.load(std::memory_order_relaxed);
  } else {
    const heddle_status status = heddle_recv_wait(lane_->worker, &receive_, 0);
    if (status == HEDDLE_ERR_TIMEOUT) return false;
    *code = code_of(status);
  }
  kind_ = Kind::none;
  ++t_moves;
  return true;
}

int InternalMessage::wait() {
  if (kind_ == Kind::receive) {
    kind_ = Kind::none;
    return code_of(wait_receive(*lane_, receive_));
  }
  int code = MPI_SUCCESS;
  wait_until(*lane_, [&] { return test(&code); });
  return code;
}

int internal_send(Comm& comm, int rank, int tag, const void* data, std::size_t bytes) {
  InternalMessage message;
  const int code = message.send(comm, rank, tag, data, bytes);
  return code == MPI_SUCCESS ? message.wait() : code;
}

int internal_receive(Comm& comm, int rank, int tag, void* data, std::size_t bytes) {
  InternalMessage message;
  const int code = message.receive(comm, rank, tag, data, bytes);
  return code == MPI_SUCCESS ? message.wait() : code;
}

// ---- allgather ----------------------------------------------------------------------------------

// The algorithm of Bruck, Ho, Kipnis, Upfal and Weathersby (1997): in each round a process gets all
// parts of the process `have_` places after it. So the number of its parts doubles.
InternalAllgather::InternalAllgather(std::vector<Route> routes, std::size_t mine, int tag, void* all, std::size_t bytes)
    : routes_(std::move(routes)),
      mine_(mine),
      tag_(tag),
      bytes_(bytes),
      all_(static_cast<std::byte*>(all)),
      lane_(routes_[mine].lane),
      blocks_(routes_.size() * bytes) {
  std::memcpy(blocks_.data(), all_ + mine * bytes, bytes);
}

// All members are needed. A process that sees a death gives up, and a process that waits for it
// must not go on waiting.
bool InternalAllgather::has_dead() {
  constexpr std::uint32_t kLooks = 64;
  if (++looks_ % kLooks != 0) return false;
  return std::ranges::any_of(routes_, [](const Route& route) {
    return heddle_context_peer_status(g_job.context, route.member.peer.rank) < 0;
  });
}

bool InternalAllgather::begin_round(int* code) {
  const std::size_t size = routes_.size();
  coming_ = std::min(have_, size - have_);
  const Route& from = routes_[(mine_ + have_) % size];
  const Route& to = routes_[(mine_ + size - have_) % size];
  *code = in_.receive(from, tag_, blocks_.data() + have_ * bytes_, coming_ * bytes_);
  if (*code == MPI_SUCCESS) *code = out_.send(to, tag_, blocks_.data(), coming_ * bytes_);
  sent_ = received_ = false;
  return *code == MPI_SUCCESS;
}

bool InternalAllgather::step(int* code) {
  *code = MPI_SUCCESS;
  const std::size_t size = routes_.size();
  while (have_ < size) {
    if (coming_ == 0 && !begin_round(code)) return true;
    if (!received_) received_ = in_.test(code);
    if (*code != MPI_SUCCESS) return true;
    if (!sent_) sent_ = out_.test(code);
    if (*code != MPI_SUCCESS) return true;
    if (!received_ || !sent_) {
      if (!has_dead()) return false;
      *code = error(MPI_ERR_PROC_ABORTED, "a member has died");
      return true;
    }
    have_ += coming_;
    coming_ = 0;
  }
  for (std::size_t i = 0; i < size; ++i)
    std::memcpy(all_ + (mine_ + i) % size * bytes_, blocks_.data() + i * bytes_, bytes_);
  return true;
}

int internal_allgather(Comm& comm, int tag, const void* data, std::size_t bytes, void* all) {
  const auto mine = static_cast<std::size_t>(comm.rank);
  std::memcpy(static_cast<std::byte*>(all) + mine * bytes, data, bytes);
  if (comm.size() == 1) return MPI_SUCCESS;
  std::vector<Route> routes;
  for (int rank = 0; rank < comm.size(); ++rank) routes.push_back(route_of(comm, rank));
  InternalAllgather exchange(std::move(routes), mine, tag, all, bytes);
  int code = MPI_SUCCESS;
  wait_until(exchange.lane(), [&] { return exchange.step(&code); });
  return code;
}

}  // namespace heddle::mpi
