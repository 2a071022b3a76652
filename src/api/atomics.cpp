// Atomic operations.
#include <cstring>

#include "api/arguments.hpp"
#include "memory/regions.hpp"

namespace heddle::api {
namespace {

[[gnu::cold]] Status explain_atomic(const Worker& worker, const RemoteRegion& remote, std::uint32_t op,
                                    std::uint64_t offset, bool fetching) {
  if (!wire::atomic_known(op)) return base::fail(HEDDLE_ERR_ARGUMENT, "%u is not a heddle_atomic_op", op);
  if (!fetching && (op & 7U) == HEDDLE_COMPARE_SWAP32) {
    return base::fail(HEDDLE_ERR_ARGUMENT,
                      "compare-swap needs heddle_fetch_atomic, which has the value to compare with");
  }
  const std::uint64_t width = wire::atomic_bytes(op);
  if (offset % width != 0) {
    return base::fail(HEDDLE_ERR_ALIGNMENT, "offset %llu is not a multiple of %llu, the width of the atomic",
                      static_cast<unsigned long long>(offset), static_cast<unsigned long long>(width));
  }
  if (const std::byte* at = remote.mapped();
      at != nullptr && (reinterpret_cast<std::uintptr_t>(at) + offset) % width != 0) {
    return base::fail(HEDDLE_ERR_ALIGNMENT,
                      "offset %llu: the region's memory begins at an address that is no multiple of %llu",
                      static_cast<unsigned long long>(offset), static_cast<unsigned long long>(width));
  }
  return explain_access(worker, remote, offset, width);
}

inline Status done(Worker& worker, std::uint64_t width, const heddle_completion* completion) {
  worker.counts().add_operation(&Tally::atomics, width);
  return counted(HEDDLE_DONE, completion);
}

inline bool directly(const RemoteRegion& remote, std::uint32_t op, std::uint64_t offset) {
  const std::uint64_t width = wire::atomic_bytes(op);
  // Regions are page-aligned when allocated; registered ones may not be, so the address decides.
  const bool there = width == 8 ? remote.direct_word(offset) : remote.direct_range(offset, width);
  return there && (reinterpret_cast<std::uintptr_t>(remote.direct + offset) & (width - 1)) == 0;
}

// On memory that is mapped.
[[gnu::always_inline]] inline Status fetch_now(Worker& worker, const engine::Requester::AtomicRequest& request,
                                               const heddle_completion* completion) {
  const uint64_t old =
      memory::execute_atomic(request.op, request.remote->direct + request.offset, request.operand, request.compare);
  if (request.op >= HEDDLE_ADD64) {
    if (request.result != nullptr) std::memcpy(request.result, &old, 8);
    return done(worker, 8, completion);
  }
  const auto low = static_cast<uint32_t>(old);
  if (request.result != nullptr) std::memcpy(request.result, &low, 4);
  return done(worker, 4, completion);
}

[[gnu::noinline]] Status slow(Worker& worker, const engine::Requester::AtomicRequest& request, bool fetching,
                              const heddle_completion* completion) {
  if (const Status status = explain_atomic(worker, *request.remote, request.op, request.offset, fetching);
      status != HEDDLE_DONE) {
    return status;
  }
  if (unmet(*request.remote)) {
    const Status status = meet(*request.remote);
    if (status == HEDDLE_AGAIN) return again(worker);
    if (status != HEDDLE_DONE) return status;
    if (directly(*request.remote, request.op, request.offset) && counter_fits(worker, completion)) {
      return fetch_now(worker, request, completion);
    }
    return slow(worker, request, fetching, completion);
  }
  engine::CallersCompletion resolved;
  if (const Status status = resolve(worker, completion, &resolved); status != HEDDLE_DONE) return status;
  request.remote->owner->tell_edge(*request.remote, request.offset);
  const Status status = worker::start(worker, worker::AtomicStart{request, request.remote->rank, resolved});
  if (status == HEDDLE_AGAIN) return again(worker);
  if (status >= 0) worker.counts().add_command(&Tally::atomics, wire::atomic_bytes(request.op));
  return counted(status, completion);
}

// Inline in both forms; the blocking form hardly ever needs more than this.
[[gnu::always_inline]] inline Status try_fetch(heddle_worker handle, heddle_atomic_op op, heddle_remote target,
                                               const heddle_fetch* fetch, const heddle_completion* completion) {
  Worker* worker = find_handle<Worker>(handle.id);
  RemoteRegion* remote = find_handle<RemoteRegion>(target.region.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (remote == nullptr) return bad_handle("remote region", target.region.id);
  if (fetch == nullptr) return null_argument("fetch_atomic", "fetch");
  if (fetch->result == nullptr) return null_argument("fetch_atomic", "fetch->result");
  if (wire::atomic_known(op) && directly(*remote, op, target.offset) && counter_fits(*worker, completion)) [[likely]] {
    const uint64_t old = memory::execute_atomic(op, remote->direct + target.offset, fetch->operand, fetch->compare);
    if (op >= HEDDLE_ADD64) {
      std::memcpy(fetch->result, &old, 8);
      return done(*worker, 8, completion);
    }
    const auto low = static_cast<uint32_t>(old);
    std::memcpy(fetch->result, &low, 4);
    return done(*worker, 4, completion);
  }
  return slow(*worker,
              {static_cast<uint32_t>(op), remote, target.offset, fetch->operand, fetch->compare, fetch->result}, true,
              completion);
}

}  // namespace
}  // namespace heddle::api

using namespace heddle::api;  // NOLINT: the C functions below are this file's public face

heddle_status heddle_try_atomic(heddle_worker handle, heddle_atomic_op op, heddle_remote target, uint64_t operand,
                                const heddle_completion* completion) {
  Worker* worker = find_handle<Worker>(handle.id);
  RemoteRegion* remote = find_handle<RemoteRegion>(target.region.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (remote == nullptr) return bad_handle("remote region", target.region.id);
  const bool known = heddle::wire::atomic_known(op) && (op & 7U) != HEDDLE_COMPARE_SWAP32;
  if (known && directly(*remote, op, target.offset) && counter_fits(*worker, completion)) [[likely]] {
    heddle::memory::apply_atomic(op, remote->direct + target.offset, operand);
    return done(*worker, heddle::wire::atomic_bytes(op), completion);
  }
  return slow(*worker, {static_cast<uint32_t>(op), remote, target.offset, operand, 0, nullptr}, false, completion);
}

heddle_status heddle_try_fetch_atomic(heddle_worker worker, heddle_atomic_op op, heddle_remote target,
                                      const heddle_fetch* fetch, const heddle_completion* completion) {
  return try_fetch(worker, op, target, fetch, completion);
}

heddle_status heddle_atomic(heddle_worker worker, heddle_atomic_op op, heddle_remote target, uint64_t operand,
                            const heddle_completion* completion) {
  return blocking("heddle_atomic", worker, [&] { return heddle_try_atomic(worker, op, target, operand, completion); });
}

heddle_status heddle_fetch_atomic(heddle_worker worker, heddle_atomic_op op, heddle_remote target,
                                  const heddle_fetch* fetch, const heddle_completion* completion) {
  const Status first = try_fetch(worker, op, target, fetch, completion);
  if (first != HEDDLE_AGAIN) [[likely]] {
    return first;
  }
  return blocking("heddle_fetch_atomic", worker,
                  [=] { return heddle_try_fetch_atomic(worker, op, target, fetch, completion); });
}

heddle_status heddle_fetch_atomic_wait(heddle_worker worker, heddle_atomic_op op, heddle_remote target,
                                       const heddle_fetch* fetch) {
  const auto at_once = [&](const RemoteRegion& remote) {
    return heddle::wire::atomic_known(op) && directly(remote, op, target.offset);
  };
  const auto post = [&](const heddle_completion* completion) {
    return heddle_fetch_atomic(worker, op, target, fetch, completion);
  };
  return until_ended("heddle_fetch_atomic_wait", worker, target.region.id, at_once, post);
}
