// A collective operation of the engine, with its arguments, to be called in any of the three forms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <heddle/heddle.h>
#include "mpi/communicators/comm.hpp"
#include "mpi/core/check.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

enum class Form : std::uint8_t { blocking, nonblocking, persistent };

// Where blocks lie, in bytes from an address.
struct BlockPlaces {
  std::vector<std::size_t> lengths;
  std::vector<std::size_t> offsets;
  [[nodiscard]] heddle_blocks blocks() const { return {lengths.data(), offsets.data(), 1}; }
};

enum class EngineCollective : std::uint8_t {
  barrier,
  broadcast,
  reduce,
  allreduce,
  gather,
  allgather,
  scatter,
  alltoall,
  reduce_scatter,
  scan,
  allgatherv,
  alltoallv,
  gatherv,
  scatterv,
  neighbor_alltoallv,
};

struct EngineCall {
  EngineCollective what = EngineCollective::barrier;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t amount = 0;  // bytes, or elements where there is a reduction
  std::uint32_t root = 0;
  heddle_reduction reduction{};
  BlockPlaces send_places;
  BlockPlaces receive_places;
  std::vector<std::uint32_t> sources;
  std::vector<std::uint32_t> targets;

  // `collective`: of the forms that have one.
  heddle_status call(heddle_team team, Form form, heddle_collective* collective) const;
  // The members' lists are compared in each call.
  [[nodiscard]] bool lists_blocks() const { return what >= EngineCollective::allgatherv; }
};

// Blocking collectives that go on with everything else while they wait: the engine is told once
// what a member that waits on the communicator's team does besides (set_waits()). Short operations
// run as persistent operations of the engine, which the communicator keeps ready, on memory of
// their own; the others are the engine's blocking ones.
//
// Threads must not call collectives of one communicator at the same time. But programs do so (a
// barrier of every thread of all processes), and other libraries let them. Here such calls run one
// after the other, except those that list blocks or consist of messages.

// The blocking call of an operation without lists, of a communicator with a team. All members make
// it alike.
struct BlockingCall {
  EngineCollective what = EngineCollective::barrier;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t amount = 0;  // as of an EngineCall
  std::uint32_t root = 0;
  const heddle_reduction* reduction = nullptr;
};
int run_blocking(Comm& comm, const BlockingCall& call);
// All members meet.
int run_barrier(Comm& comm);
// A call that lists blocks.
int run_listed(Comm& comm, const EngineCall& call);
// For a new communicator with a team: sees to it that members who wait in collectives go on with
// everything else meanwhile.
int set_waits(Comm& comm);

// The short path of blocking collectives. It takes intracommunicators with more than one member,
// and contiguous data that is not in place. It allocates no memory, and checks only whether it can
// take the call. All other calls go the long path, which finds errors.

// An intracommunicator with more than one member, without checks.
[[gnu::always_inline]] inline bool has_team(const Comm* comm) {
  return comm != nullptr && comm->team.id != 0 && !comm->inter() && !g_checks;
}
[[nodiscard]] inline bool has_member(const Comm& comm, int rank) {
  return static_cast<std::size_t>(rank) < comm.members.size();
}

struct ShortData {
  void* at = nullptr;  // null: not the short path
  std::size_t bytes = 0;
};
[[gnu::always_inline]] inline ShortData short_data(const void* buffer, MPI_Count count, MPI_Datatype datatype) {
  constexpr MPI_Count kMost = MPI_Count{1} << 31;
  const Type* const type = type_of(datatype);
  if (type == nullptr || !type->contiguous || !(type->predefined || type->committed) || buffer == MPI_IN_PLACE ||
      buffer == nullptr || static_cast<std::uint64_t>(count | type->size) >= static_cast<std::uint64_t>(kMost))
    return {};
  return {begin_of(buffer, *type), static_cast<std::size_t>(count) * static_cast<std::size_t>(type->size)};
}

}  // namespace heddle::mpi
