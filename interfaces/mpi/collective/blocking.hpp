// Blocking collectives that go on with everything else while they wait.
//
// The engine's blocking forms make no progress on a worker, so a member inside one would answer no
// peer: no long message, no window, no collective of several steps. Here a member waits on the
// communicator's lane, too, and looks at the rest in between. Short operations run as persistent
// operations of the engine, which the communicator keeps ready, on memory of their own. Before any
// other operation the members meet in such a barrier. So no member waits in the engine for a member
// that has not come yet.
//
// Threads must not call collectives of one communicator at the same time. But programs do so (a
// barrier of every thread of all processes), and other libraries let them. Here such calls run one
// after the other, except those that list blocks or consist of messages.
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
