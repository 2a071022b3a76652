// Collective operations in their three forms, from arguments to a checked collective::Call.
#include "collective/collective.hpp"
#include "api/arguments.hpp"
#include "api/collective_forms.hpp"
#include "collective/reduction.hpp"
#include "collective/team.hpp"
#include "heddle/collectives.h"

using namespace heddle::api;  // NOLINT: the C functions below are this file's public face
namespace base = heddle::base;
namespace collective = heddle::collective;
namespace engine = heddle::engine;
using collective::Call;
using collective::Operation;
using collective::Team;

namespace {

// The program's arguments.
struct Arguments {
  const char* function;  // with heddle_, for messages
  Operation operation;
  const void* send = nullptr;
  void* receive = nullptr;
  std::uint64_t amount = 0;  // bytes, or elements where there is a reduction
  std::uint32_t root = 0;
  bool reduces = false;
  const heddle_reduction* reduction = nullptr;
};

[[gnu::cold]] Status null_buffer(const Arguments& arguments, const char* name, std::uint64_t bytes) {
  return base::fail(HEDDLE_ERR_ARGUMENT, "%s: %s is null, and this member needs it for %llu bytes", arguments.function,
                    name, static_cast<unsigned long long>(bytes));
}
[[gnu::cold]] Status misaligned(const Arguments& arguments, const char* name, const void* address,
                                std::uint64_t alignment) {
  return base::fail(HEDDLE_ERR_ALIGNMENT, "%s: %s %p is not aligned to %llu bytes, as elements of %s are",
                    arguments.function, name, address, static_cast<unsigned long long>(alignment),
                    arguments.reduction != nullptr ? collective::name_of(arguments.reduction->type) : "this kind");
}
[[gnu::cold]] Status too_large(const Arguments& arguments, const Team& team) {
  return base::fail(HEDDLE_ERR_SIZE, "%s: %llu %s for each of %u members are more than 2^48 bytes", arguments.function,
                    static_cast<unsigned long long>(arguments.amount), arguments.reduces ? "elements" : "bytes",
                    team.size());
}

// Where `send` may lie relative to `receive` so that it is in place.
bool in_place(const Call& call, std::uint32_t rank) {
  const auto send = reinterpret_cast<std::uintptr_t>(call.send);
  const auto receive = reinterpret_cast<std::uintptr_t>(call.receive);
  const std::uint64_t before = rank * call.bytes;
  switch (call.operation) {
    case Operation::reduce:
    case Operation::allreduce:
    case Operation::scan:
      return send == receive;
    case Operation::gather:
    case Operation::allgather:
      return send == receive + before;
    case Operation::scatter:
      return receive == send + before;
    default:
      return false;
  }
}

Status check_buffers(const Arguments& arguments, std::uint64_t alignment, const Team& team, Call* call) {
  const collective::AlgorithmRequest request{call->operation, team.rank(),         team.size(), call->root,
                                             call->bytes,     call->element_bytes, 0,           {0, 0, 0}};
  const std::uint64_t send_bytes = collective::send_bytes(request, request.rank);
  const std::uint64_t receive_bytes = collective::receive_bytes(request, request.rank);
  // A buffer that is not needed is ignored.
  call->send = send_bytes == 0 ? nullptr : arguments.send;
  call->receive = receive_bytes == 0 ? nullptr : arguments.receive;
  if (send_bytes > 0 && call->send == nullptr) return null_buffer(arguments, "send", send_bytes);
  if (receive_bytes > 0 && call->receive == nullptr) {
    return null_buffer(arguments, call->operation == Operation::broadcast ? "data" : "receive", receive_bytes);
  }
  const auto send = reinterpret_cast<std::uintptr_t>(call->send);
  const auto receive = reinterpret_cast<std::uintptr_t>(call->receive);
  if (send % alignment != 0) return misaligned(arguments, "send", call->send, alignment);
  if (receive % alignment != 0) return misaligned(arguments, "receive", call->receive, alignment);
  if (send_bytes > 0 && receive_bytes > 0 && send < receive + receive_bytes && receive < send + send_bytes &&
      !in_place(*call, request.rank)) {
    return base::fail(HEDDLE_ERR_ARGUMENT,
                      "%s: send %p with %llu bytes and receive %p with %llu bytes overlap; keep them apart, or "
                      "exactly in place",
                      arguments.function, arguments.send, static_cast<unsigned long long>(send_bytes),
                      static_cast<const void*>(arguments.receive), static_cast<unsigned long long>(receive_bytes));
  }
  return HEDDLE_DONE;
}

// Checks the arguments and fills *call.
Status prepare(const Team& team, const Arguments& arguments, Call* call) {
  if (engine::inside_of() != nullptr) [[unlikely]] {
    return engine::reject_wait(arguments.function);
  }
  call->operation = arguments.operation;
  call->bytes = arguments.amount;
  call->root = arguments.root;
  if (collective::has_root(arguments.operation) && arguments.root >= team.size()) [[unlikely]] {
    return base::fail(HEDDLE_ERR_RANK, "%s: root %u: the team has members 0-%u", arguments.function, arguments.root,
                      team.size() - 1);
  }
  std::uint64_t alignment = 1;
  if (arguments.reduces) {
    if (arguments.reduction == nullptr) {
      return base::fail(HEDDLE_ERR_ARGUMENT, "%s: reduction is null; say how elements are combined",
                        arguments.function);
    }
    const auto named = collective::named_reduction(arguments.function, *arguments.reduction);
    if (!named) return named.status();
    call->reduction = named->reduction;
    call->reduction_name = named->name;
    call->element_bytes = named->element_bytes;
    alignment = named->alignment;
    if (__builtin_mul_overflow(arguments.amount, named->element_bytes, &call->bytes)) {
      return too_large(arguments, team);
    }
  }
  if (call->bytes > kMostCollectiveBytes / team.size()) [[unlikely]] {
    return too_large(arguments, team);
  }
  return check_buffers(arguments, alignment, team, call);
}

Status run(heddle_team handle, const Arguments& arguments) {
  return run_form(handle, [&](const Team& team, Call* call) { return prepare(team, arguments, call); });
}
Status begin(heddle_team handle, const Arguments& arguments, heddle_collective* collective) {
  const auto prepared = [&](const Team& team, Call* call) { return prepare(team, arguments, call); };
  return start_form(arguments.function, handle, prepared, collective);
}
Status make(heddle_team handle, const Arguments& arguments, const heddle_collective_options* options,
            heddle_collective* collective) {
  const auto prepared = [&](const Team& team, Call* call) { return prepare(team, arguments, call); };
  return init_form(arguments.function, handle, prepared, options, collective);
}

Arguments barrier_of(const char* function) {
  return {function, Operation::barrier};
}
Arguments broadcast_of(const char* function, void* data, std::size_t bytes, std::uint32_t root) {
  return {function, Operation::broadcast, nullptr, data, bytes, root};
}
Arguments move_of(const char* function, Operation operation, const void* send, void* receive, std::size_t bytes,
                  std::uint32_t root = 0) {
  return {function, operation, send, receive, bytes, root};
}
Arguments reduce_of(const char* function, Operation operation, const void* send, void* receive, std::size_t count,
                    const heddle_reduction* reduction, std::uint32_t root = 0) {
  return {function, operation, send, receive, count, root, true, reduction};
}

}  // namespace

heddle_status heddle_collective_start(heddle_collective handle) {
  auto* operation = find_handle<collective::Collective>(handle.id);
  if (operation == nullptr) return bad_handle("collective", handle.id);
  return guarded([&]() -> Status { return operation->start(); });
}

heddle_status heddle_collective_test(heddle_collective handle) {
  auto* operation = find_handle<collective::Collective>(handle.id);
  if (operation == nullptr) return bad_handle("collective", handle.id);
  if (engine::inside_of() != nullptr) return engine::reject_wait("heddle_collective_test");
  return guarded([&]() -> Status { return operation->test(); });
}

heddle_status heddle_collective_wait(heddle_collective handle, int64_t timeout_ns) {
  auto* operation = find_handle<collective::Collective>(handle.id);
  if (operation == nullptr) return bad_handle("collective", handle.id);
  if (engine::inside_of() != nullptr) return engine::reject_wait("heddle_collective_wait");
  return guarded([&]() -> Status { return operation->wait(timeout_ns); });
}

heddle_status heddle_collective_free(heddle_collective handle) {
  auto* operation = find_handle<collective::Collective>(handle.id);
  if (operation == nullptr) return bad_handle("collective", handle.id);
  if (!operation->persistent()) {
    return base::fail(
        HEDDLE_ERR_STATE,
        "heddle_collective_free: the operation is not persistent; heddle_collective_wait ends and closes it");
  }
  return guarded([&]() -> Status { return operation->close(); });
}

heddle_status heddle_collective_algorithm(heddle_collective handle, const char** name) {
  const auto* operation = find_handle<collective::Collective>(handle.id);
  if (operation == nullptr) return bad_handle("collective", handle.id);
  if (name == nullptr) return null_argument("collective_algorithm", "name");
  *name = operation->algorithm();
  return HEDDLE_DONE;
}

heddle_status heddle_collective_offloaded(heddle_collective handle, int* offloaded) {
  const auto* operation = find_handle<collective::Collective>(handle.id);
  if (operation == nullptr) return bad_handle("collective", handle.id);
  if (offloaded == nullptr) return null_argument("collective_offloaded", "offloaded");
  *offloaded = operation->offloaded() ? 1 : 0;
  return HEDDLE_DONE;
}

heddle_status heddle_collective_awaited(heddle_collective handle, uint32_t* member) {
  auto* operation = find_handle<collective::Collective>(handle.id);
  if (operation == nullptr) return bad_handle("collective", handle.id);
  if (member == nullptr) return null_argument("collective_awaited", "member");
  return guarded([&]() -> Status {
    const std::vector<collective::Rank> members = operation->awaited();
    *member = members.empty() ? HEDDLE_NO_RANK : members.front();
    return HEDDLE_DONE;
  });
}

heddle_status heddle_barrier(heddle_team team) {
  return run(team, barrier_of("heddle_barrier"));
}
heddle_status heddle_barrier_start(heddle_team team, heddle_collective* collective) {
  return begin(team, barrier_of("heddle_barrier_start"), collective);
}
heddle_status heddle_barrier_init(heddle_team team, const heddle_collective_options* options,
                                  heddle_collective* collective) {
  return make(team, barrier_of("heddle_barrier_init"), options, collective);
}

heddle_status heddle_broadcast(heddle_team team, void* data, size_t bytes, uint32_t root) {
  return run(team, broadcast_of("heddle_broadcast", data, bytes, root));
}
heddle_status heddle_broadcast_start(heddle_team team, void* data, size_t bytes, uint32_t root,
                                     heddle_collective* collective) {
  return begin(team, broadcast_of("heddle_broadcast_start", data, bytes, root), collective);
}
heddle_status heddle_broadcast_init(heddle_team team, void* data, size_t bytes, uint32_t root,
                                    const heddle_collective_options* options, heddle_collective* collective) {
  return make(team, broadcast_of("heddle_broadcast_init", data, bytes, root), options, collective);
}

heddle_status heddle_reduce(heddle_team team, const void* send, void* receive, size_t count,
                            const heddle_reduction* reduction, uint32_t root) {
  return run(team, reduce_of("heddle_reduce", Operation::reduce, send, receive, count, reduction, root));
}
heddle_status heddle_reduce_start(heddle_team team, const void* send, void* receive, size_t count,
                                  const heddle_reduction* reduction, uint32_t root, heddle_collective* collective) {
  return begin(team, reduce_of("heddle_reduce_start", Operation::reduce, send, receive, count, reduction, root),
               collective);
}
heddle_status heddle_reduce_init(heddle_team team, const void* send, void* receive, size_t count,
                                 const heddle_reduction* reduction, uint32_t root,
                                 const heddle_collective_options* options, heddle_collective* collective) {
  return make(team, reduce_of("heddle_reduce_init", Operation::reduce, send, receive, count, reduction, root), options,
              collective);
}

heddle_status heddle_allreduce(heddle_team team, const void* send, void* receive, size_t count,
                               const heddle_reduction* reduction) {
  return run(team, reduce_of("heddle_allreduce", Operation::allreduce, send, receive, count, reduction));
}
heddle_status heddle_allreduce_start(heddle_team team, const void* send, void* receive, size_t count,
                                     const heddle_reduction* reduction, heddle_collective* collective) {
  return begin(team, reduce_of("heddle_allreduce_start", Operation::allreduce, send, receive, count, reduction),
               collective);
}
heddle_status heddle_allreduce_init(heddle_team team, const void* send, void* receive, size_t count,
                                    const heddle_reduction* reduction, const heddle_collective_options* options,
                                    heddle_collective* collective) {
  return make(team, reduce_of("heddle_allreduce_init", Operation::allreduce, send, receive, count, reduction), options,
              collective);
}

heddle_status heddle_reduce_scatter(heddle_team team, const void* send, void* receive, size_t count,
                                    const heddle_reduction* reduction) {
  return run(team, reduce_of("heddle_reduce_scatter", Operation::reduce_scatter, send, receive, count, reduction));
}
heddle_status heddle_reduce_scatter_start(heddle_team team, const void* send, void* receive, size_t count,
                                          const heddle_reduction* reduction, heddle_collective* collective) {
  return begin(team,
               reduce_of("heddle_reduce_scatter_start", Operation::reduce_scatter, send, receive, count, reduction),
               collective);
}
heddle_status heddle_reduce_scatter_init(heddle_team team, const void* send, void* receive, size_t count,
                                         const heddle_reduction* reduction, const heddle_collective_options* options,
                                         heddle_collective* collective) {
  return make(team, reduce_of("heddle_reduce_scatter_init", Operation::reduce_scatter, send, receive, count, reduction),
              options, collective);
}

heddle_status heddle_scan(heddle_team team, const void* send, void* receive, size_t count,
                          const heddle_reduction* reduction) {
  return run(team, reduce_of("heddle_scan", Operation::scan, send, receive, count, reduction));
}
heddle_status heddle_scan_start(heddle_team team, const void* send, void* receive, size_t count,
                                const heddle_reduction* reduction, heddle_collective* collective) {
  return begin(team, reduce_of("heddle_scan_start", Operation::scan, send, receive, count, reduction), collective);
}
heddle_status heddle_scan_init(heddle_team team, const void* send, void* receive, size_t count,
                               const heddle_reduction* reduction, const heddle_collective_options* options,
                               heddle_collective* collective) {
  return make(team, reduce_of("heddle_scan_init", Operation::scan, send, receive, count, reduction), options,
              collective);
}

heddle_status heddle_gather(heddle_team team, const void* send, void* receive, size_t bytes, uint32_t root) {
  return run(team, move_of("heddle_gather", Operation::gather, send, receive, bytes, root));
}
heddle_status heddle_gather_start(heddle_team team, const void* send, void* receive, size_t bytes, uint32_t root,
                                  heddle_collective* collective) {
  return begin(team, move_of("heddle_gather_start", Operation::gather, send, receive, bytes, root), collective);
}
heddle_status heddle_gather_init(heddle_team team, const void* send, void* receive, size_t bytes, uint32_t root,
                                 const heddle_collective_options* options, heddle_collective* collective) {
  return make(team, move_of("heddle_gather_init", Operation::gather, send, receive, bytes, root), options, collective);
}

heddle_status heddle_allgather(heddle_team team, const void* send, void* receive, size_t bytes) {
  return run(team, move_of("heddle_allgather", Operation::allgather, send, receive, bytes));
}
heddle_status heddle_allgather_start(heddle_team team, const void* send, void* receive, size_t bytes,
                                     heddle_collective* collective) {
  return begin(team, move_of("heddle_allgather_start", Operation::allgather, send, receive, bytes), collective);
}
heddle_status heddle_allgather_init(heddle_team team, const void* send, void* receive, size_t bytes,
                                    const heddle_collective_options* options, heddle_collective* collective) {
  return make(team, move_of("heddle_allgather_init", Operation::allgather, send, receive, bytes), options, collective);
}

heddle_status heddle_scatter(heddle_team team, const void* send, void* receive, size_t bytes, uint32_t root) {
  return run(team, move_of("heddle_scatter", Operation::scatter, send, receive, bytes, root));
}
heddle_status heddle_scatter_start(heddle_team team, const void* send, void* receive, size_t bytes, uint32_t root,
                                   heddle_collective* collective) {
  return begin(team, move_of("heddle_scatter_start", Operation::scatter, send, receive, bytes, root), collective);
}
heddle_status heddle_scatter_init(heddle_team team, const void* send, void* receive, size_t bytes, uint32_t root,
                                  const heddle_collective_options* options, heddle_collective* collective) {
  return make(team, move_of("heddle_scatter_init", Operation::scatter, send, receive, bytes, root), options,
              collective);
}

heddle_status heddle_alltoall(heddle_team team, const void* send, void* receive, size_t bytes) {
  return run(team, move_of("heddle_alltoall", Operation::alltoall, send, receive, bytes));
}
heddle_status heddle_alltoall_start(heddle_team team, const void* send, void* receive, size_t bytes,
                                    heddle_collective* collective) {
  return begin(team, move_of("heddle_alltoall_start", Operation::alltoall, send, receive, bytes), collective);
}
heddle_status heddle_alltoall_init(heddle_team team, const void* send, void* receive, size_t bytes,
                                   const heddle_collective_options* options, heddle_collective* collective) {
  return make(team, move_of("heddle_alltoall_init", Operation::alltoall, send, receive, bytes), options, collective);
}
