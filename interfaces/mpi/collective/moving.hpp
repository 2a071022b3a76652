// Collectives that move data, added to a schedule. On intracommunicators the engine does them, on
// intercommunicators they go by messages. The caller has checked the arguments. Null `send` or
// `receive` blocks: in place.
#pragma once

#include <span>

#include "mpi/collective/blocks.hpp"

namespace heddle::mpi {

// How a call is made.
struct CallWay {
  Form form = Form::blocking;
  MPI_Info info = MPI_INFO_NULL;
  MPI_Request* request = nullptr;
};
inline CallWay nonblocking(MPI_Request* request) {
  return {Form::nonblocking, MPI_INFO_NULL, request};
}
inline CallWay persistent(MPI_Info info, MPI_Request* request) {
  return {Form::persistent, info, request};
}

// Makes a schedule by build(schedule), which returns an error's code, and runs it.
using Build = std::function<int(StepSchedule&)>;
int run_collective(Call call, MPI_Comm handle, const CallWay& way, const Build& build);

// The communicator has one member, and no team.
[[nodiscard]] inline bool is_alone(const Comm& comm) {
  return comm.team.id == 0;
}

void add_barrier(StepSchedule& schedule);
void add_broadcast(StepSchedule& schedule, const BufferBlock& data, int root);
// `listed`: the v form. `receive`: at the root.
int add_gather(StepSchedule& schedule, const BufferBlock* send, const Blocks& receive, int root, bool listed);
int add_allgather(StepSchedule& schedule, const BufferBlock* send, const Blocks& receive);
// `send`: at the root.
int add_scatter(StepSchedule& schedule, const Blocks& send, const BufferBlock* receive, int root, bool listed);
int add_alltoall(StepSchedule& schedule, const Blocks* send, const Blocks& receive);

// ---- intercommunicators -------------------------------------------------------------------------

void add_inter_barrier(StepSchedule& schedule);
void add_inter_broadcast(StepSchedule& schedule, const BufferBlock& data, int root);
void add_inter_gather(StepSchedule& schedule, const BufferBlock& send, const Blocks& receive, int root);
void add_inter_scatter(StepSchedule& schedule, const Blocks& send, const BufferBlock& receive, int root);
void add_inter_alltoall(StepSchedule& schedule, const Blocks& send, const Blocks& receive);

}  // namespace heddle::mpi
