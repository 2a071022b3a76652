// Workers and regions.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "api/arguments.hpp"
#include "worker/sharing.hpp"

using namespace heddle::api;  // NOLINT: the C functions below are this file's public face
namespace base = heddle::base;
namespace engine = heddle::engine;
namespace worker = heddle::worker;

namespace {

Status read_sharing(const Context& context, heddle_sharing asked, Sharing* sharing) {
  if (asked == HEDDLE_SHARING_DEFAULT) {
    *sharing = context.default_sharing();
    return HEDDLE_DONE;
  }
  if (asked == HEDDLE_SHARING_MUTEX) asked = HEDDLE_SHARING_SHARED;  // as worker.h says
  const worker::Mode* mode = worker::mode_numbered(static_cast<std::uint32_t>(asked));
  if (mode == nullptr) {
    return base::fail(HEDDLE_ERR_UNSUPPORTED, "sharing mode %d is none of this version's (HEDDLE_SHARING_…): %s",
                      static_cast<int>(asked), worker::mode_names().c_str());
  }
  *sharing = mode->sharing;
  return HEDDLE_DONE;
}

}  // namespace

heddle_status heddle_worker_open(heddle_context handle, const heddle_worker_options* options, heddle_worker* worker) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (worker == nullptr) return null_argument("worker_open", "worker");
  *worker = {};
  heddle_worker_options own{};
  if (const Status status = read_options("worker options", options, kFirstWorkerOptions, &own); status != HEDDLE_DONE) {
    return status;
  }
  return guarded([&]() -> Status {
    Context::WorkerOptions wanted;
    wanted.no_help = own.no_help != 0;
    wanted.user = own.user;
    wanted.attends = own.attends != 0;
    if (const Status status = read_sharing(*context, own.sharing, &wanted.sharing); status != HEDDLE_DONE) {
      return status;
    }
    auto opened = context->open_worker(wanted);
    if (!opened) return opened.status();
    worker->id = context->handle_of(*opened);
    return HEDDLE_DONE;
  });
}

heddle_status heddle_worker_close(heddle_worker handle) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (heddle::engine::inside_of() != nullptr) return heddle::engine::reject_wait("heddle_worker_close");
  if (heddle::engine::RunningTask::of(worker->core())) return heddle::engine::reject_end("heddle_worker_close");
  return guarded([&]() -> Status { return worker->context().close_worker(worker); });
}

heddle_status heddle_worker_index(heddle_worker handle, uint32_t* index) {
  const Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (index == nullptr) return null_argument("worker_index", "index");
  *index = worker->index();
  return HEDDLE_DONE;
}

heddle_status heddle_worker_mode(heddle_worker handle, heddle_sharing* mode) {
  const Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (mode == nullptr) return null_argument("worker_mode", "mode");
  *mode = static_cast<heddle_sharing>(worker->sharing());
  return HEDDLE_DONE;
}

heddle_status heddle_worker_user(heddle_worker handle, void** user) {
  const Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (user == nullptr) return null_argument("worker_user", "user");
  *user = worker->traits().user;
  return HEDDLE_DONE;
}

heddle_status heddle_worker_stats_read(heddle_worker handle, heddle_worker_stats* stats) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (stats == nullptr) return null_argument("worker_stats_read", "stats");
  return write_results("worker stats", worker->read_stats(), kFirstWorkerStats, stats);
}

namespace {

// Where the memory of a region is kept; adopted: alone, or with the rest of its last page.
enum class Kept : std::uint8_t { there, adopted, adopted_whole };

base::Result<Region*> open_kept(engine::Objects& objects, void* address, size_t bytes, Kept kept) {
  if (kept == Kept::there) return objects.open_region(address, bytes);
  if (kept == Kept::adopted) return objects.adopt_region(address, bytes, bytes);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (reinterpret_cast<uintptr_t>(address) % page != 0) {
    return base::fail(HEDDLE_ERR_ARGUMENT,
                      "whole_pages: memory at %p does not begin at a page (of %zu bytes): allocate it with mmap or "
                      "aligned_alloc, or adopt it without whole_pages",
                      address, page);
  }
  return objects.adopt_region(address, bytes, (bytes + page - 1) / page * page);
}

Status open_region(const char* function, heddle_context handle, void* address, size_t bytes, Kept kept,
                   heddle_region* region) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (region == nullptr) return null_argument(function, "region");
  *region = {};
  if (bytes == 0) return base::fail(HEDDLE_ERR_SIZE, "a region of 0 bytes: at least 1 is needed");
  return guarded([&]() -> Status {
    auto opened = open_kept(context->objects(), address, bytes, kept);
    if (!opened) return opened.status();
    region->id = context->objects().handle_of(*opened);
    return HEDDLE_DONE;
  });
}

Status register_region(const char* function, heddle_context context, void* address, size_t bytes, Kept kept,
                       heddle_region* region) {
  if (address == nullptr) return null_argument(function, "address");
  uintptr_t end = 0;
  if (__builtin_add_overflow(reinterpret_cast<uintptr_t>(address), bytes, &end)) {
    return base::fail(HEDDLE_ERR_SIZE, "%zu bytes from %p leave the address space", bytes, address);
  }
  return open_region(function, context, address, bytes, kept, region);
}

Status give(Context& context, const base::Result<RemoteRegion*>& imported, heddle_remote_region* remote) {
  if (!imported) return imported.status();
  remote->id = context.objects().handle_of(*imported);
  return HEDDLE_DONE;
}

// Imports the region of each rank into all[rank]. If one import fails, it imports none, and all of
// them are null. Each rank begins with its own region, so that not all ranks ask for the same card
// at once, and asks for some cards ahead. In a large job a peer is met at the first access to its
// memory, if the transport can do that: few programs access the memory of all ranks, and meeting a
// peer takes time (decision 0045). If a rank dies after all have exchanged, that is no error here,
// since others may have imported its region before: each operation on that region reports the
// death.
Status import_all(Context& context, const std::vector<std::vector<std::byte>>& parts, heddle_remote_region* all) {
  const bool large = parts.size() > context.environment().config.number(base::Var::meet_ranks);
  const auto late = [&](uint32_t rank) { return large && context.transport().imports_late(rank); };
  constexpr size_t kAhead = 32;
  const size_t size = parts.size();
  const auto at = [&](size_t i) { return static_cast<uint32_t>((context.rank() + i) % size); };
  std::fill_n(all, size, heddle_remote_region{});
  for (size_t i = 0; i < size + kAhead; ++i) {
    if (i < size && !late(at(i))) context.transport().prepare_import(at(i));
    if (i < kAhead) continue;
    const uint32_t rank = at(i - kAhead);
    engine::Objects& objects = context.objects();
    // also when memory is exhausted, none of them stays open
    const Status status = guarded([&] {
      const Status imported =
          give(context, late(rank) ? objects.import_late(parts[rank]) : objects.import(parts[rank]), &all[rank]);
      return imported == HEDDLE_ERR_PEER_FAILED ? give(context, objects.import_failed(parts[rank]), &all[rank])
                                                : imported;
    });
    if (status == HEDDLE_DONE) continue;
    for (size_t undo = 0; undo < size; ++undo) {
      if (all[undo].id != 0) heddle_remote_region_release(all[undo]);
    }
    std::fill_n(all, size, heddle_remote_region{});
    return status;
  }
  return HEDDLE_DONE;
}

}  // namespace

heddle_status heddle_region_alloc(heddle_context context, size_t bytes, heddle_region* region) {
  return open_region("region_alloc", context, nullptr, bytes, Kept::there, region);
}

heddle_status heddle_region_register(heddle_context context, void* address, size_t bytes, heddle_region* region) {
  return register_region("region_register", context, address, bytes, Kept::there, region);
}

heddle_status heddle_region_register_with(heddle_context context, void* address, size_t bytes,
                                          const heddle_region_options* options, heddle_region* region) {
  heddle_region_options own{};
  const Status status = read_options("region options", options, kFirstRegionOptions, &own);
  if (status != HEDDLE_DONE) return status;
  if (own.adopt == 0 && own.whole_pages != 0) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "whole_pages is for memory that is adopted: set `adopt` too");
  }
  const Kept adopted = own.whole_pages != 0 ? Kept::adopted_whole : Kept::adopted;
  return register_region("region_register_with", context, address, bytes, own.adopt != 0 ? adopted : Kept::there,
                         region);
}

heddle_status heddle_region_release(heddle_region handle) {
  Region* region = find_handle<Region>(handle.id);
  if (region == nullptr) return bad_handle("region", handle.id);
  return guarded([&]() -> Status {
    region->owner->close_region(region);
    return HEDDLE_DONE;
  });
}

heddle_status heddle_region_address(heddle_region handle, void** address, size_t* bytes) {
  const Region* region = find_handle<Region>(handle.id);
  if (region == nullptr) return bad_handle("region", handle.id);
  if (address != nullptr) *address = region->memory.address;
  if (bytes != nullptr) *bytes = region->memory.bytes;
  return HEDDLE_DONE;
}

heddle_status heddle_region_pack(heddle_region handle, void* buffer, size_t* bytes) {
  const Region* region = find_handle<Region>(handle.id);
  if (region == nullptr) return bad_handle("region", handle.id);
  if (buffer == nullptr) return null_argument("region_pack", "buffer");
  if (bytes == nullptr) return null_argument("region_pack", "bytes");
  const std::size_t needed = region->owner->packed_bytes(*region);
  if (*bytes < needed) {
    return base::fail(HEDDLE_ERR_SIZE,
                      "room for %zu bytes, this packed region needs %zu (at most HEDDLE_PACKED_REGION_BYTES)", *bytes,
                      needed);
  }
  const auto packed = region->owner->pack(*region);
  std::memcpy(buffer, packed.data(), needed);
  *bytes = needed;
  return HEDDLE_DONE;
}

heddle_status heddle_region_unpack(heddle_context handle, const void* buffer, size_t bytes,
                                   heddle_remote_region* remote) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (buffer == nullptr) return null_argument("region_unpack", "buffer");
  if (remote == nullptr) return null_argument("region_unpack", "remote");
  *remote = {};
  return guarded([&] {
    return give(*context, context->objects().import({static_cast<const std::byte*>(buffer), bytes}), remote);
  });
}

heddle_status heddle_region_exchange(heddle_context handle, heddle_region region_handle, heddle_remote_region* all) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  const Region* region = find_handle<Region>(region_handle.id);
  if (region == nullptr) return bad_handle("region", region_handle.id);
  if (region->owner != &context->objects())
    return base::fail(HEDDLE_ERR_ARGUMENT, "the region belongs to another context");
  if (all == nullptr) return null_argument("region_exchange", "all");
  return guarded([&]() -> Status {
    const auto packed = context->objects().pack(*region);
    std::vector<std::vector<std::byte>> parts;
    const Status arrived = context->exchange({heddle::worker::Collective::region_exchange, packed}, &parts);
    if (arrived != HEDDLE_DONE) return arrived;
    return import_all(*context, parts, all);
  });
}

heddle_status heddle_remote_region_release(heddle_remote_region handle) {
  RemoteRegion* remote = find_handle<RemoteRegion>(handle.id);
  if (remote == nullptr) return bad_handle("remote region", handle.id);
  return guarded([&]() -> Status {
    remote->owner->close_remote(remote);
    return HEDDLE_DONE;
  });
}

heddle_status heddle_remote_region_rank(heddle_remote_region handle, uint32_t* rank) {
  const RemoteRegion* remote = find_handle<RemoteRegion>(handle.id);
  if (remote == nullptr) return bad_handle("remote region", handle.id);
  if (rank == nullptr) return null_argument("remote_region_rank", "rank");
  *rank = remote->rank;
  return HEDDLE_DONE;
}

heddle_status heddle_remote_region_bytes(heddle_remote_region handle, uint64_t* bytes) {
  const RemoteRegion* remote = find_handle<RemoteRegion>(handle.id);
  if (remote == nullptr) return bad_handle("remote region", handle.id);
  if (bytes == nullptr) return null_argument("remote_region_bytes", "bytes");
  *bytes = remote->bytes;
  return HEDDLE_DONE;
}

namespace {

// Waits for the owner, but not in a handler.
Status meet_owner(const char* call, RemoteRegion& remote, uint64_t handle) {
  if (engine::inside_of() == nullptr) return guarded([&] { return remote.owner->meet_wait(handle); });
  const Status status = meet(remote);
  return status == HEDDLE_AGAIN ? engine::reject_wait(call) : status;
}

// The region that the address names, met, and the range checked.
Status find_met(const char* call, heddle_remote address, size_t bytes, RemoteRegion** found) {
  RemoteRegion* remote = find_handle<RemoteRegion>(address.region.id);
  if (remote == nullptr) return bad_handle("remote region", address.region.id);
  if (!remote->range(address.offset, bytes)) {
    return base::fail(HEDDLE_ERR_RANGE, "%zu bytes at offset %llu leave the region of rank %u, which has %llu bytes",
                      bytes, static_cast<unsigned long long>(address.offset), remote->rank,
                      static_cast<unsigned long long>(remote->bytes));
  }
  if (unmet(*remote)) {
    const Status status = meet_owner(call, *remote, address.region.id);
    if (status != HEDDLE_DONE) return status;
    remote = find_handle<RemoteRegion>(address.region.id);
    if (remote == nullptr) return bad_handle("remote region", address.region.id);
  }
  *found = remote;
  return HEDDLE_DONE;
}

}  // namespace

heddle_status heddle_remote_mapped(heddle_remote address, size_t bytes, int* mapped) {
  RemoteRegion* remote = find_handle<RemoteRegion>(address.region.id);
  if (remote == nullptr) return bad_handle("remote region", address.region.id);
  if (mapped == nullptr) return null_argument("remote_mapped", "mapped");
  *mapped = 0;
  const Status status = find_met("heddle_remote_mapped", address, bytes, &remote);
  if (status == HEDDLE_DONE) *mapped = remote->direct_range(address.offset, bytes) ? 1 : 0;
  return status;
}

heddle_status heddle_remote_pointer(heddle_remote address, void** pointer) {
  RemoteRegion* remote = find_handle<RemoteRegion>(address.region.id);
  if (remote == nullptr) return bad_handle("remote region", address.region.id);
  if (pointer == nullptr) return null_argument("remote_pointer", "address");
  *pointer = nullptr;
  if (const Status status = find_met("heddle_remote_pointer", address, 0, &remote); status != HEDDLE_DONE) {
    return status;
  }
  // loaded first: while it is unmet, another thread may write `direct`
  const bool failed = remote->is(RemoteRegion::Barred::failed);
  if (remote->direct == nullptr && failed) {
    return base::fail(HEDDLE_ERR_PEER_FAILED,
                      "rank %u, the owner of the region, has failed or left, and its memory was not mapped before",
                      remote->rank);
  }
  if (remote->direct == nullptr) {
    return base::fail(HEDDLE_ERR_UNSUPPORTED, "the region of rank %u cannot be mapped here; use put and get",
                      remote->rank);
  }
  const heddle::transport::RemoteMemory& memory = remote->memory;
  if (!memory.all_direct() &&
      (address.offset < memory.edge_before || address.offset >= memory.bytes - memory.edge_after)) {
    return base::fail(
        HEDDLE_ERR_UNSUPPORTED,
        "offset %llu of the region of rank %u lies outside of its whole pages, which alone are mapped; use "
        "put and get",
        static_cast<unsigned long long>(address.offset), remote->rank);
  }
  *pointer = remote->direct + address.offset;
  return HEDDLE_DONE;
}

heddle_status heddle_try_run_on_engine(heddle_worker handle, void (*fn)(void* arg), void* arg,
                                       const heddle_completion* completion) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (fn == nullptr) return null_argument("run_on_engine", "fn");
  heddle::engine::CallersCompletion resolved;
  if (const Status status = resolve(*worker, completion, &resolved); status != HEDDLE_DONE) return status;
  // the rank that an unreported error would name; calls have none
  const uint32_t rank = worker->context().rank();
  const Status status = heddle::worker::start(*worker, heddle::worker::CallStart{fn, arg, rank, resolved});
  return status == HEDDLE_AGAIN ? again(*worker) : counted(status, completion);
}

heddle_status heddle_run_on_engine(heddle_worker worker, void (*fn)(void* arg), void* arg,
                                   const heddle_completion* completion) {
  return blocking("heddle_run_on_engine", worker,
                  [&] { return heddle_try_run_on_engine(worker, fn, arg, completion); });
}
