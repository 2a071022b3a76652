// Collective operations in their three forms.
#include <algorithm>

#include "job.hpp"

namespace hangs {
namespace {

constexpr heddle_reduction kSum{HEDDLE_UINT64, HEDDLE_SUM, nullptr, nullptr, 0};

struct Buffers {
  std::vector<std::uint64_t> send;
  std::vector<std::uint64_t> receive;
};

heddle_status call_now(heddle_team team, const Call& call, Buffers& b) {
  const std::size_t bytes = call.count * sizeof(std::uint64_t);
  switch (call.op) {
    case Op::barrier:
      return heddle_barrier(team);
    case Op::allreduce:
      return heddle_allreduce(team, b.send.data(), b.receive.data(), call.count, &kSum);
    case Op::allgather:
      return heddle_allgather(team, b.send.data(), b.receive.data(), bytes);
    case Op::alltoall:
      return heddle_alltoall(team, b.send.data(), b.receive.data(), bytes);
    case Op::broadcast:
      return heddle_broadcast(team, b.send.data(), bytes, call.root);
    case Op::reduce:
      return heddle_reduce(team, b.send.data(), b.receive.data(), call.count, &kSum, call.root);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status begin(heddle_team team, const Call& call, Buffers& b, heddle_collective* c) {
  const std::size_t bytes = call.count * sizeof(std::uint64_t);
  switch (call.op) {
    case Op::barrier:
      return heddle_barrier_start(team, c);
    case Op::allreduce:
      return heddle_allreduce_start(team, b.send.data(), b.receive.data(), call.count, &kSum, c);
    case Op::allgather:
      return heddle_allgather_start(team, b.send.data(), b.receive.data(), bytes, c);
    case Op::alltoall:
      return heddle_alltoall_start(team, b.send.data(), b.receive.data(), bytes, c);
    case Op::broadcast:
      return heddle_broadcast_start(team, b.send.data(), bytes, call.root, c);
    case Op::reduce:
      return heddle_reduce_start(team, b.send.data(), b.receive.data(), call.count, &kSum, call.root, c);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status make(heddle_team team, const Call& call, Buffers& b, heddle_collective* c) {
  const std::size_t bytes = call.count * sizeof(std::uint64_t);
  switch (call.op) {
    case Op::barrier:
      return heddle_barrier_init(team, nullptr, c);
    case Op::allreduce:
      return heddle_allreduce_init(team, b.send.data(), b.receive.data(), call.count, &kSum, nullptr, c);
    case Op::allgather:
      return heddle_allgather_init(team, b.send.data(), b.receive.data(), bytes, nullptr, c);
    case Op::alltoall:
      return heddle_alltoall_init(team, b.send.data(), b.receive.data(), bytes, nullptr, c);
    case Op::broadcast:
      return heddle_broadcast_init(team, b.send.data(), bytes, call.root, nullptr, c);
    case Op::reduce:
      return heddle_reduce_init(team, b.send.data(), b.receive.data(), call.count, &kSum, call.root, nullptr, c);
  }
  return HEDDLE_ERR_ARGUMENT;
}

// The root's data go round as they are; for the others the sum is checked.
void check(Job& job, const Call& call, const Buffers& buffers) {
  std::uint64_t sum = 0;
  const auto members = members_of(*job.script, call.group, job.rank);
  for (const std::uint32_t member : members) sum += member + 1;
  if (call.op == Op::allreduce && buffers.receive[call.count - 1] != sum) hang_fail("allreduce", "has another sum");
  if (call.op == Op::broadcast && buffers.send[call.count - 1] != members[call.root] + 1) {
    hang_fail("broadcast", "has other data");
  }
}

}  // namespace

void collective(Job& job, const Call& call) {
  const heddle_team team = job.teams[static_cast<std::size_t>(call.group)];
  const std::size_t most = std::size_t{call.count} * job.ranks;
  Buffers buffers{std::vector<std::uint64_t>(most, job.rank + 1), std::vector<std::uint64_t>(most)};
  heddle_collective handle{};
  switch (call.way) {
    case Way::blocking:
      must(call_now(team, call, buffers), name_of(call.op));
      break;
    case Way::nonblocking:
      must(begin(team, call, buffers, &handle), name_of(call.op));
      must(heddle_collective_wait_on(handle, job.workers[0], HEDDLE_FOREVER), name_of(call.op));
      break;
    case Way::persistent:
      must(make(team, call, buffers, &handle), name_of(call.op));
      must(heddle_collective_start(handle), name_of(call.op));
      must(heddle_collective_wait(handle, HEDDLE_FOREVER), name_of(call.op));
      // No member starts it again, but its buffers are in use until all have completed.
      must(heddle_barrier(team), "barrier");
      must(heddle_collective_free(handle), name_of(call.op));
      break;
  }
  check(job, call, buffers);
}

}  // namespace hangs
