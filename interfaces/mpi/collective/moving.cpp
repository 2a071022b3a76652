#include "mpi/collective/moving.hpp"

#include <new>
#include <numeric>

#include "mpi/core/info.hpp"

namespace heddle::mpi {

namespace {

int check_way(const CallWay& way) {
  if (way.form == Form::blocking) return MPI_SUCCESS;
  if (way.request == nullptr) return null_argument("request");
  if (way.info != MPI_INFO_NULL && info_of(way.info) == nullptr) return bad_info(way.info);
  return MPI_SUCCESS;
}

int make_and_run(Call call, Comm& comm, const CallWay& way, const Build& build) {
  if (way.form == Form::blocking) {
    StepSchedule schedule(comm, way.form);
    schedule.caller = call;
    if (const int code = build(schedule); code != MPI_SUCCESS) return code;
    if (g_checks) schedule.compare(call);
    return schedule.run();
  }
  auto schedule = std::make_unique<StepSchedule>(comm, way.form);
  schedule->caller = call;
  if (const int code = build(*schedule); code != MPI_SUCCESS) return code;
  if (g_checks) schedule->compare(call);
  const bool again = way.form == Form::persistent;
  if (const int code = again ? schedule->make() : schedule->start(); code != MPI_SUCCESS) return code;
  return new_request(std::move(schedule), again, way.request);
}

// The block that this process sends to itself, and the buffers, which begin with the first blocks.
int check_own(const BufferBlock& from, const BufferBlock& to, const BufferBlock& first_from,
              const BufferBlock& first_to) {
  if (from.bytes() != to.bytes())
    return error(MPI_ERR_TRUNCATE, "this process sends itself %zu bytes, and receives %zu; both sides have to agree",
                 from.bytes(), to.bytes());
  const int code = check_apart(from, to);
  return code == MPI_SUCCESS ? check_apart(first_from, first_to) : code;
}

}  // namespace

int run_collective(Call call, MPI_Comm handle, const CallWay& way, const Build& build) {
  if (const int code = check_running(); code != MPI_SUCCESS) return told(call, code);
  Comm* const comm = comm_of(handle);
  if (comm == nullptr) return told(call, bad_comm(handle));
  if (const int code = check_way(way); code != MPI_SUCCESS) return told(call, comm, code);
  try {
    return told(call, comm, make_and_run(call, *comm, way, build));
  } catch (const std::bad_alloc&) {
    return told(call, comm, error(MPI_ERR_NO_MEM, "there is no memory for the buffers of a collective"));
  }
}

void add_barrier(StepSchedule& schedule) {
  if (!is_alone(schedule.communicator())) schedule.engine({});
}

void add_broadcast(StepSchedule& schedule, const BufferBlock& data, int root) {
  if (is_alone(schedule.communicator())) return;
  const Blocks blocks = Blocks::even(data, 1);
  const Wire wire = wire_of(schedule, blocks);
  const bool at_root = schedule.communicator().rank == root;
  if (at_root) add_pack(schedule, blocks, wire);
  EngineCall call;
  call.what = EngineCollective::broadcast;
  call.receive = wire.base;
  call.amount = data.bytes();
  call.root = static_cast<std::uint32_t>(root);
  schedule.engine(std::move(call));
  if (!at_root) add_unpack(schedule, blocks, wire);
}

int add_gather(StepSchedule& schedule, const BufferBlock* send, const Blocks& receive, int root, bool listed) {
  const int rank = schedule.communicator().rank;
  const bool at_root = rank == root;
  if (at_root && send != nullptr) {
    if (const int code = check_own(*send, receive[rank], *send, receive[0]); code != MPI_SUCCESS) return code;
    if (is_alone(schedule.communicator())) add_copy(schedule, *send, receive[0]);
  }
  if (is_alone(schedule.communicator())) return MPI_SUCCESS;
  EngineCall call;
  call.what = listed ? EngineCollective::gatherv : EngineCollective::gather;
  call.root = static_cast<std::uint32_t>(root);
  Wire to;
  const Blocks given = send == nullptr ? Blocks() : Blocks::even(*send, 1);
  if (at_root) to = wire_of_received(schedule, receive, &given);
  call.receive = to.base;
  if (send == nullptr) {
    call.send = to.at(rank);
    call.amount = receive[rank].bytes();
    if (to.packed) add_pack(schedule, receive[rank], to.at(rank));
  } else {
    const Wire from = wire_of(schedule, given);
    add_pack(schedule, given, from);
    call.send = from.base;
    call.amount = send->bytes();
  }
  call.receive_places = to.places;
  schedule.engine(std::move(call));
  if (at_root) add_unpack(schedule, receive, to);
  return MPI_SUCCESS;
}

int add_allgather(StepSchedule& schedule, const BufferBlock* send, const Blocks& receive) {
  const int rank = schedule.communicator().rank;
  if (send != nullptr) {
    if (const int code = check_own(*send, receive[rank], *send, receive[0]); code != MPI_SUCCESS) return code;
    if (is_alone(schedule.communicator())) add_copy(schedule, *send, receive[0]);
  }
  if (is_alone(schedule.communicator())) return MPI_SUCCESS;
  EngineCall call;
  call.what = receive.is_even() ? EngineCollective::allgather : EngineCollective::allgatherv;
  const Blocks given = send == nullptr ? Blocks() : Blocks::even(*send, 1);
  const Wire to = wire_of_received(schedule, receive, &given);
  call.receive = to.base;
  call.receive_places = to.places;
  call.amount = receive[rank].bytes();
  if (send == nullptr) {
    call.send = to.at(rank);
    if (to.packed) add_pack(schedule, receive[rank], to.at(rank));
  } else {
    const Wire from = wire_of(schedule, given);
    add_pack(schedule, given, from);
    call.send = from.base;
  }
  schedule.engine(std::move(call));
  add_unpack(schedule, receive, to);
  return MPI_SUCCESS;
}

int add_scatter(StepSchedule& schedule, const Blocks& send, const BufferBlock* receive, int root, bool listed) {
  const int rank = schedule.communicator().rank;
  const bool at_root = rank == root;
  if (at_root && receive != nullptr) {
    if (const int code = check_own(send[rank], *receive, send[0], *receive); code != MPI_SUCCESS) return code;
    if (is_alone(schedule.communicator())) add_copy(schedule, send[0], *receive);
  }
  if (is_alone(schedule.communicator())) return MPI_SUCCESS;
  EngineCall call;
  call.what = listed ? EngineCollective::scatterv : EngineCollective::scatter;
  call.root = static_cast<std::uint32_t>(root);
  Wire from;
  if (at_root) {
    from = wire_of(schedule, send);
    add_pack(schedule, send, from);
  }
  call.send = from.base;
  call.send_places = from.places;
  if (receive == nullptr) {
    call.receive = from.at(rank);
    call.amount = send[rank].bytes();
    schedule.engine(std::move(call));
    return MPI_SUCCESS;
  }
  const Blocks blocks = Blocks::even(*receive, 1);
  const Wire to = wire_of_received(schedule, blocks, at_root ? &send : nullptr);
  call.receive = to.base;
  call.amount = receive->bytes();
  schedule.engine(std::move(call));
  add_unpack(schedule, blocks, to);
  return MPI_SUCCESS;
}

int add_alltoall(StepSchedule& schedule, const Blocks* send, const Blocks& receive) {
  const int rank = schedule.communicator().rank;
  if (send != nullptr) {
    if (const int code = check_own((*send)[rank], receive[rank], (*send)[0], receive[0]); code != MPI_SUCCESS)
      return code;
    if (is_alone(schedule.communicator())) add_copy(schedule, (*send)[0], receive[0]);
  }
  if (is_alone(schedule.communicator())) return MPI_SUCCESS;
  const Blocks& sent = send == nullptr ? receive : *send;
  const Wire from = wire_of(schedule, sent, send == nullptr);
  const Wire to = wire_of_received(schedule, receive, send);
  add_pack(schedule, sent, from);
  EngineCall call;
  call.what = receive.is_even() ? EngineCollective::alltoall : EngineCollective::alltoallv;
  call.send = from.base;
  call.receive = to.base;
  call.send_places = from.places;
  call.receive_places = to.places;
  call.amount = receive.is_even() ? receive[rank].bytes() : 0;
  schedule.engine(std::move(call));
  add_unpack(schedule, receive, to);
  return MPI_SUCCESS;
}

// Collectives of intercommunicators: messages between all members of one group and all of the other
// that have data for each other.

namespace {

// All remote ranks.
std::vector<int> everybody(const Comm& comm) {
  std::vector<int> ranks(static_cast<std::size_t>(comm.remote_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// The i-th block goes to to[i], or comes from from[i].
void add_inter_exchange(StepSchedule& schedule, const Blocks& send, std::span<const int> to, const Blocks& receive,
                        std::span<const int> from) {
  Wire out;
  Wire in;
  if (!to.empty()) out = wire_of(schedule, send);
  if (!from.empty()) in = wire_of_received(schedule, receive, nullptr);
  add_pack(schedule, send, out);
  schedule.messages();
  Comm& comm = schedule.communicator();
  for (std::size_t i = 0; i < from.size(); ++i) {
    const int block = static_cast<int>(i);
    schedule.receive(comm, from[i], in.at(block), receive[block].bytes());
  }
  for (std::size_t i = 0; i < to.size(); ++i) {
    const int block = static_cast<int>(i);
    schedule.send(comm, to[i], out.at(block), send[block].bytes());
  }
  add_unpack(schedule, receive, in);
}

}  // namespace

void add_inter_barrier(StepSchedule& schedule) {
  schedule.use_messages();
  schedule.messages();
  for (const int rank : everybody(schedule.communicator())) {
    schedule.receive(schedule.communicator(), rank, nullptr, 0);
    schedule.send(schedule.communicator(), rank, nullptr, 0);
  }
}

void add_inter_broadcast(StepSchedule& schedule, const BufferBlock& data, int root) {
  schedule.use_messages();
  if (root == MPI_PROC_NULL) return;
  const std::vector<int> all = everybody(schedule.communicator());
  if (root == MPI_ROOT)
    add_inter_exchange(schedule, Blocks::same(data, schedule.communicator().remote_size()), all, {}, {});
  else
    add_inter_exchange(schedule, {}, {}, Blocks::even(data, 1), {&root, 1});
}

void add_inter_gather(StepSchedule& schedule, const BufferBlock& send, const Blocks& receive, int root) {
  schedule.use_messages();
  if (root == MPI_PROC_NULL) return;
  if (root == MPI_ROOT)
    add_inter_exchange(schedule, {}, {}, receive, everybody(schedule.communicator()));
  else
    add_inter_exchange(schedule, Blocks::even(send, 1), {&root, 1}, {}, {});
}

void add_inter_scatter(StepSchedule& schedule, const Blocks& send, const BufferBlock& receive, int root) {
  schedule.use_messages();
  if (root == MPI_PROC_NULL) return;
  if (root == MPI_ROOT)
    add_inter_exchange(schedule, send, everybody(schedule.communicator()), {}, {});
  else
    add_inter_exchange(schedule, {}, {}, Blocks::even(receive, 1), {&root, 1});
}

void add_inter_alltoall(StepSchedule& schedule, const Blocks& send, const Blocks& receive) {
  schedule.use_messages();
  const std::vector<int> all = everybody(schedule.communicator());
  add_inter_exchange(schedule, send, all, receive, all);
}

}  // namespace heddle::mpi
