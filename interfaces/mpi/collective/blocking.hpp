// Blocking collectives that go on with everything else while they wait.
//
// The engine's blocking forms make no progress on a worker, so a member inside one would answer no
// peer: no long message, no window, no collective of several steps. Here a member waits on the
// communicator's lane, too, and looks at the rest in between. What is short runs as a persistent
// operation of the engine that the communicator keeps ready, on memory of its own. Before anything
// else the members meet in such a barrier; then none of them waits in the engine for one that is
// elsewhere.
//
// Threads must not call collectives of one communicator at once, but programs do (a barrier of
// every thread of all processes), and other libraries let them: one after the other, but for those
// that list blocks or are made of messages.
#pragma once

#include "mpi/collective/engine_call.hpp"
#include "mpi/communicators/comm.hpp"

namespace heddle::mpi {

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
// Waits until the run of an operation ends.
int wait_collective(const Comm& comm, heddle_collective collective);

}  // namespace heddle::mpi
