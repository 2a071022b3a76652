// put and get: contiguous, strided, lists, with signal.
#include <cstring>

#include "api/arguments.hpp"
#include "base/copy.hpp"
#include "base/fence.hpp"

namespace heddle::api {
namespace {

using base::copy_bytes;
using engine::Kind;
using engine::Pieces;

constexpr std::size_t kWord = 8;

template <Kind kind>
inline void tally(Worker& worker, std::uint64_t bytes) {
  worker.counts().add_operation(kind == Kind::put ? &Tally::puts : &Tally::gets, bytes);
}

// By a command, if one command does all of it: the transport executes it whole, and the worker has
// no gate. False: nothing happened.
template <Kind kind>
[[gnu::always_inline]] inline bool by_one_command(Worker& worker, const engine::BlockTransfer& block,
                                                  const heddle_completion* completion, Status* status) {
  if (!worker.ownership().mine() || block.bytes == 0 || !accessible(worker, *block.remote, block.offset, block.bytes)) {
    return false;
  }
  transport::Command command(kind == Kind::put ? transport::Opcode::put : transport::Opcode::get);
  engine::CallersCompletion told;
  engine::Requester& requester = worker.core().requester;
  if (!requester.fits_one(block, &command) || !resolved(worker, completion, &told)) [[unlikely]]
    return false;
  *status = requester.post_reachable<kind>(command, told);
  return true;
}

// For memory that is mapped.
template <Kind kind>
[[gnu::always_inline]] inline Status copy_directly(Worker& worker, const engine::BlockTransfer& block,
                                                   const heddle_completion* completion) {
  if (!counter_fits(worker, completion)) return explain_completion(worker, *completion);
  std::byte* memory = block.remote->direct + block.offset;
  kind == Kind::put ? copy_bytes(memory, block.local, block.bytes) : copy_bytes(block.local, memory, block.bytes);
  tally<kind>(worker, block.bytes);
  return counted(HEDDLE_DONE, completion);
}

// The remaining work after the engine has answered.
template <Kind kind>
[[gnu::always_inline]] inline Status asked(Worker& worker, Status status, std::uint64_t bytes,
                                           const heddle_completion* completion) {
  if (status == HEDDLE_AGAIN) return again(worker);
  if (status >= 0) worker.counts().add_command(kind == Kind::put ? &Tally::puts : &Tally::gets, bytes);
  return counted(status, completion);
}

template <Kind kind>
Status slow(Worker& worker, std::byte* local, std::size_t bytes, RemoteRegion* remote, std::uint64_t offset,
            const heddle_completion* completion);

// The owner of the region has not been met yet.
template <Kind kind>
[[gnu::cold, gnu::noinline]] Status first_access(Worker& worker, const engine::BlockTransfer& block,
                                                 const heddle_completion* completion) {
  const Status status = meet(*block.remote);
  if (status != HEDDLE_DONE) return status == HEDDLE_AGAIN ? again(worker) : status;
  if (block.remote->direct_range(block.offset, block.bytes)) return copy_directly<kind>(worker, block, completion);
  return slow<kind>(worker, block.local, block.bytes, block.remote, block.offset, completion);
}

// Everything that is not direct, and every error.
template <Kind kind>
[[gnu::noinline]] Status slow(Worker& worker, std::byte* local, std::size_t bytes, RemoteRegion* remote,
                              std::uint64_t offset, const heddle_completion* completion) {
  const engine::BlockTransfer block{kind, local, bytes, remote, offset};
  if (!accessible(worker, *block.remote, block.offset, block.bytes)) [[unlikely]] {
    const Status status = explain_access(worker, *block.remote, block.offset, block.bytes);
    if (status != HEDDLE_DONE) return status;
    if (bytes > 0 && unmet(*remote)) return first_access<kind>(worker, block, completion);
  }
  if (block.bytes == 0) {
    // With no bytes, a counter that no longer exists is not an error; one that will be raised must
    // belong to this worker.
    const bool fits =
        counter_fits(worker, completion) || find_handle<OperationCounter>(completion->counter.id) == nullptr;
    return fits ? counted(HEDDLE_DONE, completion) : explain_completion(worker, *completion);
  }
  engine::CallersCompletion told;
  if (const Status status = resolve(worker, completion, &told); status != HEDDLE_DONE) return status;
  return asked<kind>(worker, worker::post(worker, block, told), bytes, completion);
}

template <Kind kind>
[[gnu::cold]] Status explain_arguments(heddle_worker worker, heddle_remote address) {
  if (find_handle<Worker>(worker.id) == nullptr) return bad_handle("worker", worker.id);
  if (find_handle<RemoteRegion>(address.region.id) == nullptr) return bad_handle("remote region", address.region.id);
  return null_argument(kind == Kind::put ? "put" : "get", kind == Kind::put ? "source" : "target");
}

// Handles every case, and makes the text of every error.
template <Kind kind>
[[gnu::always_inline]] inline Status try_any(heddle_worker handle, void* local, std::size_t bytes,
                                             heddle_remote address, const heddle_completion* completion) {
  Worker* worker = find_handle<Worker>(handle.id);
  RemoteRegion* remote = find_handle<RemoteRegion>(address.region.id);
  if (worker == nullptr || remote == nullptr || (local == nullptr && bytes != 0)) [[unlikely]] {
    return explain_arguments<kind>(handle, address);
  }
  const engine::BlockTransfer block{kind, static_cast<std::byte*>(local), bytes, remote, address.offset};
  if (remote->direct_range(address.offset, bytes)) return copy_directly<kind>(*worker, block, completion);
  Status status = HEDDLE_DONE;
  if (by_one_command<kind>(*worker, block, completion, &status)) return asked<kind>(*worker, status, bytes, completion);
  return slow<kind>(*worker, block.local, bytes, remote, address.offset, completion);
}

// The same, out of line. The arguments are in the registers in which the C functions got them, so
// that these functions need not save any. The address is passed in parts, since a struct would be
// stored and loaded.
template <Kind kind>
[[gnu::noinline]] Status try_out_of_line(heddle_worker handle, void* local, std::size_t bytes,
                                         heddle_remote_region region, std::uint64_t offset,
                                         const heddle_completion* completion) {
  return try_any<kind>(handle, local, bytes, {region, offset}, completion);
}
template <Kind kind>
[[gnu::cold]] Status retry(heddle_worker handle, void* local, std::size_t bytes, heddle_remote_region region,
                           std::uint64_t offset, const heddle_completion* completion) {
  Worker* worker = find_handle<Worker>(handle.id);
  return worker->until(
      {kind == Kind::put ? "heddle_put" : "heddle_get"},
      [=] { return try_out_of_line<kind>(handle, local, bytes, region, offset, completion); },
      [=](tap::Wait& wait) {
        describe_refused(*worker, wait);
        const RemoteRegion* remote = find_handle<RemoteRegion>(region.id);
        if (remote == nullptr) return;
        wait.things.push_back({.cause = tap::Cause::room,
                               .rank = remote->rank,
                               .bytes = bytes,
                               .what = kind == Kind::put ? "put" : "get",
                               .tag = {}});
      });
}
template <Kind kind>
[[gnu::noinline]] Status until_accepted(heddle_worker handle, void* local, std::size_t bytes,
                                        heddle_remote_region region, std::uint64_t offset,
                                        const heddle_completion* completion) {
  const Status first = try_any<kind>(handle, local, bytes, {region, offset}, completion);
  if (first != HEDDLE_AGAIN) [[likely]]
    return first;
  return retry<kind>(handle, local, bytes, region, offset, completion);
}

// Moves one word if the memory is mapped and nothing is wrong: the most frequent case. False:
// nothing happened.
template <Kind kind>
inline bool word_moved(heddle_worker handle, void* local, heddle_remote_region region, std::uint64_t offset,
                       const heddle_completion* completion) {
  RemoteRegion* remote = find_handle<RemoteRegion>(region.id);
  if (remote == nullptr || !remote->direct_word(offset))
    return false;  // checked first: so operations by commands lose least time here
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr || local == nullptr || !nothing_raised(completion)) return false;
  std::byte* memory = remote->direct + offset;
  kind == Kind::put ? std::memcpy(memory, local, kWord) : std::memcpy(local, memory, kWord);
  worker->counts().add(kind == Kind::put ? &Tally::word_puts : &Tally::word_gets);
  return true;
}

// Everything else goes to kOther. It is called in two places, so that the length of a word need not
// be kept.
template <Kind kind, auto kOther>
inline Status word_or(heddle_worker handle, void* local, std::size_t bytes, heddle_remote address,
                      const heddle_completion* completion) {
  if (bytes != kWord) return kOther(handle, local, bytes, address.region, address.offset, completion);
  if (word_moved<kind>(handle, local, address.region, address.offset, completion)) [[likely]] {
    return HEDDLE_DONE;
  }
  return kOther(handle, local, kWord, address.region, address.offset, completion);
}

// ---- strided ------------------------------------------------------------------------------------

// The extent of a strided access on one side; false: it does not fit 64 bits.
bool extent(std::uint64_t blocks, std::uint64_t stride, std::uint64_t block_bytes, std::uint64_t* bytes) {
  *bytes = 0;
  if (blocks == 0 || block_bytes == 0) return true;
  return !__builtin_mul_overflow(blocks - 1, stride, bytes) && !__builtin_add_overflow(*bytes, block_bytes, bytes);
}

Status check_shape(const heddle_strided& shape, std::uint64_t* remote_bytes) {
  const bool overlaps =
      shape.blocks > 1 && (shape.local_stride < shape.block_bytes || shape.remote_stride < shape.block_bytes);
  std::uint64_t local_bytes = 0;
  if (overlaps || !extent(shape.blocks, shape.local_stride, shape.block_bytes, &local_bytes) ||
      !extent(shape.blocks, shape.remote_stride, shape.block_bytes, remote_bytes)) {
    return base::fail(
        HEDDLE_ERR_ARGUMENT,
        "strided shape of %llu blocks of %llu bytes: strides %llu (local) and %llu (remote) must be at least "
        "the block, and the extent must fit 64 bits",
        static_cast<unsigned long long>(shape.blocks), static_cast<unsigned long long>(shape.block_bytes),
        static_cast<unsigned long long>(shape.local_stride), static_cast<unsigned long long>(shape.remote_stride));
  }
  return HEDDLE_DONE;
}

// A checked shape: the bytes that it covers at the remote side, and the bytes that are moved. A
// contiguous transfer is one block.
struct Covered {
  heddle_strided shape;
  std::uint64_t remote_bytes;
  std::uint64_t bytes;
};

// Computes the other fields from the shape.
Status cover(Covered* covered) {
  const Status status = check_shape(covered->shape, &covered->remote_bytes);
  covered->bytes = covered->remote_bytes == 0 ? 0 : covered->shape.blocks * covered->shape.block_bytes;
  return status;
}

template <Kind kind>
inline void copy_blocks(std::byte* near, std::byte* far, const Covered& covered) {
  const heddle_strided& shape = covered.shape;
  if (covered.bytes == 0) return;
  for (std::uint64_t left = shape.blocks;;) {
    kind == Kind::put ? copy_bytes(far, near, shape.block_bytes) : copy_bytes(near, far, shape.block_bytes);
    if (--left == 0) return;  // behind the last block a stride may lead to any address
    near += shape.local_stride;
    far += shape.remote_stride;
  }
}

template <Kind kind>
Status try_strided(heddle_worker handle, void* local, heddle_remote address, const heddle_strided* shape,
                   const heddle_completion* completion) {
  Worker* worker = find_handle<Worker>(handle.id);
  RemoteRegion* remote = find_handle<RemoteRegion>(address.region.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (remote == nullptr) return bad_handle("remote region", address.region.id);
  if (shape == nullptr) return null_argument("put_strided or get_strided", "shape");
  Covered covered{*shape, 0, 0};
  if (const Status status = cover(&covered); status != HEDDLE_DONE) return status;
  const std::uint64_t remote_bytes = covered.remote_bytes;
  const std::uint64_t bytes = covered.bytes;
  if (local == nullptr && remote_bytes != 0) return null_argument("put_strided or get_strided", "the local address");
  engine::CallersCompletion resolved;
  if (const Status status = resolve(*worker, completion, &resolved); status != HEDDLE_DONE) return status;
  if (remote->direct_range(address.offset, remote_bytes)) {
    copy_blocks<kind>(static_cast<std::byte*>(local), remote->direct + address.offset, covered);
    tally<kind>(*worker, bytes);
    return HEDDLE_DONE;
  }
  if (const Status status = explain_access(*worker, *remote, address.offset, remote_bytes); status != HEDDLE_DONE) {
    return status;
  }
  if (bytes == 0) return HEDDLE_DONE;
  if (unmet(*remote)) {
    const Status status = meet(*remote);
    if (status == HEDDLE_AGAIN) return again(*worker);
    return status == HEDDLE_DONE ? try_strided<kind>(handle, local, address, shape, completion) : status;
  }
  const Pieces pieces(static_cast<std::byte*>(local), remote, address.offset, *shape);
  const Status status = worker::start(*worker, worker::TransferStart{kind, pieces, remote->rank, resolved});
  if (status == HEDDLE_AGAIN) return again(*worker);
  if (status >= 0) {
    worker->counts().add_command(kind == Kind::put ? &Tally::puts : &Tally::gets, bytes);
  }
  return status;
}

// ---- lists --------------------------------------------------------------------------------------

struct ListSummary {
  std::uint64_t bytes = 0;
  std::uint32_t rank = engine::kManyRanks;
  bool direct = true;
  bool unmet = false;
};

Status check_list(const Worker& worker, const heddle_segment* segments, std::size_t count, ListSummary* summary) {
  for (std::size_t i = 0; i < count; ++i) {
    const heddle_segment& segment = segments[i];
    RemoteRegion* remote = find_handle<RemoteRegion>(segment.remote.region.id);
    if (remote == nullptr) return bad_handle("remote region of a segment", segment.remote.region.id);
    if (segment.local == nullptr && segment.bytes != 0)
      return null_argument("put_list or get_list", "the local address of a segment");
    if (!remote->direct_range(segment.remote.offset, segment.bytes)) {
      summary->direct = false;
      const Status status = explain_access(worker, *remote, segment.remote.offset, segment.bytes);
      if (status != HEDDLE_DONE) return status;
      if (unmet(*remote) && segment.bytes > 0) summary->unmet = true;
    }
    if (__builtin_add_overflow(summary->bytes, segment.bytes, &summary->bytes)) {
      return base::fail(HEDDLE_ERR_SIZE, "the segments' bytes do not fit 64 bits");
    }
    if (i == 0) summary->rank = remote->rank;
    if (remote->rank != summary->rank) summary->rank = engine::kManyRanks;
  }
  return HEDDLE_DONE;
}

// Meets the owners of a list's regions.
Status meet_list(const heddle_segment* segments, std::size_t count) {
  Status all = HEDDLE_DONE;
  for (std::size_t i = 0; i < count; ++i) {
    if (segments[i].bytes == 0) continue;
    const Status status = meet_now(segments[i].remote.region.id);
    if (status != HEDDLE_DONE && status != HEDDLE_AGAIN) return status;
    if (status == HEDDLE_AGAIN) all = status;  // the cards of the others are asked for meanwhile
  }
  return all;
}

template <Kind kind>
Status try_list(heddle_worker handle, const heddle_segment* segments, std::size_t count_of,
                const heddle_completion* completion) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (segments == nullptr && count_of > 0) return null_argument("put_list or get_list", "segments");
  ListSummary summary;
  if (const Status status = check_list(*worker, segments, count_of, &summary); status != HEDDLE_DONE) return status;
  engine::CallersCompletion resolved;
  if (const Status status = resolve(*worker, completion, &resolved); status != HEDDLE_DONE) return status;
  if (summary.unmet) {
    const Status status = meet_list(segments, count_of);
    if (status == HEDDLE_AGAIN) return again(*worker);
    return status == HEDDLE_DONE ? try_list<kind>(handle, segments, count_of, completion) : status;
  }
  if (summary.direct) {
    for (std::size_t i = 0; i < count_of; ++i) {
      const heddle_segment& segment = segments[i];
      std::byte* far = find_handle<RemoteRegion>(segment.remote.region.id)->direct + segment.remote.offset;
      kind == Kind::put ? copy_bytes(far, segment.local, segment.bytes) : copy_bytes(segment.local, far, segment.bytes);
    }
    tally<kind>(*worker, summary.bytes);
    return HEDDLE_DONE;
  }
  const Status status =
      worker::start(*worker, worker::TransferStart{kind, Pieces(segments, count_of), summary.rank, resolved});
  if (status == HEDDLE_AGAIN) return again(*worker);
  if (status >= 0) {
    worker->counts().add_command(kind == Kind::put ? &Tally::puts : &Tally::gets, summary.bytes);
  }
  return status;
}

// ---- put with signal ----------------------------------------------------------------------------

Status check_signal(const char* function, const Worker& worker, const RemoteRegion& data, const heddle_signal* signal,
                    RemoteRegion** word) {
  if (signal == nullptr) return null_argument(function, "signal");
  *word = find_handle<RemoteRegion>(signal->word.region.id);
  if (*word == nullptr) return bad_handle("remote region of the signal", signal->word.region.id);
  if (signal->op != HEDDLE_SIGNAL_SET && signal->op != HEDDLE_SIGNAL_ADD) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "signal operation %d is neither HEDDLE_SIGNAL_SET nor HEDDLE_SIGNAL_ADD",
                      static_cast<int>(signal->op));
  }
  if (signal->word.offset % 8 != 0) {
    return base::fail(HEDDLE_ERR_ALIGNMENT, "the signal's offset %llu is not a multiple of 8",
                      static_cast<unsigned long long>(signal->word.offset));
  }
  if (const std::byte* at = (*word)->mapped();
      at != nullptr && (reinterpret_cast<std::uintptr_t>(at) + signal->word.offset) % 8 != 0) {
    return base::fail(HEDDLE_ERR_ALIGNMENT, "the signal's offset %llu: the region's memory is not 8-byte aligned",
                      static_cast<unsigned long long>(signal->word.offset));
  }
  if ((*word)->rank != data.rank) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "the signal is on rank %u, its data on rank %u: they must be on one rank",
                      (*word)->rank, data.rank);
  }
  if ((*word)->direct_range(signal->word.offset, 8)) return HEDDLE_DONE;
  return explain_access(worker, **word, signal->word.offset, 8);
}

Status try_blocks_signal(const char* function, heddle_worker handle, const void* source, heddle_remote target,
                         const Covered& covered, const heddle_signal* signal, const heddle_completion* completion) {
  Worker* worker = find_handle<Worker>(handle.id);
  RemoteRegion* remote = find_handle<RemoteRegion>(target.region.id);
  RemoteRegion* word = nullptr;
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (remote == nullptr) return bad_handle("remote region", target.region.id);
  if (source == nullptr && covered.bytes != 0) return null_argument(function, "source");
  if (const Status status = check_signal(function, *worker, *remote, signal, &word); status != HEDDLE_DONE)
    return status;
  engine::CallersCompletion resolved;
  if (const Status status = resolve(*worker, completion, &resolved); status != HEDDLE_DONE) return status;
  if (remote->direct_range(target.offset, covered.remote_bytes) && word->direct_range(signal->word.offset, 8)) {
    copy_blocks<Kind::put>(static_cast<std::byte*>(const_cast<void*>(source)), remote->direct + target.offset, covered);
    const std::atomic_ref<std::uint64_t> at(*reinterpret_cast<std::uint64_t*>(word->direct + signal->word.offset));
    heddle::base::show_release(word->direct + signal->word.offset);
    heddle::base::show_told();
    // Release: the data is written first. Partner: the acquire load in heddle_signal_wait, or the
    // user's own.
    signal->op == HEDDLE_SIGNAL_SET ? at.store(signal->value, std::memory_order_release)
                                    : static_cast<void>(at.fetch_add(signal->value, std::memory_order_release));
    tally<Kind::put>(*worker, covered.bytes);
    return HEDDLE_DONE;
  }
  if (const Status status = explain_access(*worker, *remote, target.offset, covered.remote_bytes);
      status != HEDDLE_DONE) {
    return status;
  }
  for (RemoteRegion* one : {word, remote}) {
    if (!unmet(*one) || (one == remote && covered.bytes == 0)) continue;
    const Status status = meet(*one);
    if (status == HEDDLE_AGAIN) return again(*worker);
    if (status != HEDDLE_DONE) return status;
    return try_blocks_signal(function, handle, source, target, covered, signal, completion);
  }
  // Empty blocks are dropped: their number does not matter.
  const heddle_strided shape = covered.bytes == 0 ? heddle_strided{} : covered.shape;
  const Pieces pieces(static_cast<std::byte*>(const_cast<void*>(source)), remote, target.offset, shape);
  heddle::base::show_told();
  // check_signal() has found it
  word->owner->tell_edge(*word, signal->word.offset);  // NOLINT(clang-analyzer-core.NullDereference)
  const Status status = worker::start(
      *worker, worker::PutSignalStart{pieces, remote->rank, word, signal->word.offset, *signal, resolved});
  if (status == HEDDLE_AGAIN) return again(*worker);
  if (status >= 0) {
    worker->counts().add_command(&Tally::puts, covered.bytes);
  }
  return status;
}

Status try_put_signal(heddle_worker handle, const void* source, std::size_t bytes, heddle_remote target,
                      const heddle_signal* signal, const heddle_completion* completion) {
  return try_blocks_signal("put_signal", handle, source, target, {{bytes, 1, 0, 0}, bytes, bytes}, signal, completion);
}

Status try_put_strided_signal(heddle_worker handle, const void* source, heddle_remote target,
                              const heddle_strided* shape, const heddle_signal* signal,
                              const heddle_completion* completion) {
  if (shape == nullptr) return null_argument("put_strided_signal", "shape");
  Covered covered{*shape, 0, 0};
  if (const Status status = cover(&covered); status != HEDDLE_DONE) return status;
  return try_blocks_signal("put_strided_signal", handle, source, target, covered, signal, completion);
}

}  // namespace
}  // namespace heddle::api

using namespace heddle::api;  // NOLINT: the C functions below are this file's public face

heddle_status heddle_try_put(heddle_worker worker, const void* source, size_t bytes, heddle_remote target,
                             const heddle_completion* completion) {
  return word_or<Kind::put, try_out_of_line<Kind::put>>(worker, const_cast<void*>(source), bytes, target, completion);
}
heddle_status heddle_try_get(heddle_worker worker, void* target, size_t bytes, heddle_remote source,
                             const heddle_completion* completion) {
  return word_or<Kind::get, try_out_of_line<Kind::get>>(worker, target, bytes, source, completion);
}
heddle_status heddle_put(heddle_worker worker, const void* source, size_t bytes, heddle_remote target,
                         const heddle_completion* completion) {
  return word_or<Kind::put, until_accepted<Kind::put>>(worker, const_cast<void*>(source), bytes, target, completion);
}
heddle_status heddle_get(heddle_worker worker, void* target, size_t bytes, heddle_remote source,
                         const heddle_completion* completion) {
  return word_or<Kind::get, until_accepted<Kind::get>>(worker, target, bytes, source, completion);
}

heddle_status heddle_get_wait(heddle_worker worker, void* target, size_t bytes, heddle_remote source) {
  if (bytes == kWord && word_moved<Kind::get>(worker, target, source.region, source.offset, nullptr)) [[likely]] {
    return HEDDLE_DONE;
  }
  const auto at_once = [&](const RemoteRegion& remote) { return remote.direct_range(source.offset, bytes); };
  // an empty one meets nobody
  const std::uint64_t remote = bytes != 0 ? source.region.id : 0;
  return until_ended("heddle_get_wait", worker, remote, at_once, [&](const heddle_completion* completion) {
    return heddle_get(worker, target, bytes, source, completion);
  });
}

heddle_status heddle_try_put_strided(heddle_worker worker, const void* source, heddle_remote target,
                                     const heddle_strided* shape, const heddle_completion* completion) {
  return counted(try_strided<Kind::put>(worker, const_cast<void*>(source), target, shape, completion), completion);
}
heddle_status heddle_try_get_strided(heddle_worker worker, void* target, heddle_remote source,
                                     const heddle_strided* shape, const heddle_completion* completion) {
  return counted(try_strided<Kind::get>(worker, target, source, shape, completion), completion);
}
heddle_status heddle_put_strided(heddle_worker worker, const void* source, heddle_remote target,
                                 const heddle_strided* shape, const heddle_completion* completion) {
  return blocking("heddle_put_strided", worker,
                  [&] { return heddle_try_put_strided(worker, source, target, shape, completion); });
}
heddle_status heddle_get_strided(heddle_worker worker, void* target, heddle_remote source, const heddle_strided* shape,
                                 const heddle_completion* completion) {
  return blocking("heddle_get_strided", worker,
                  [&] { return heddle_try_get_strided(worker, target, source, shape, completion); });
}

heddle_status heddle_try_put_list(heddle_worker worker, const heddle_segment* segments, size_t count,
                                  const heddle_completion* completion) {
  return counted(try_list<Kind::put>(worker, segments, count, completion), completion);
}
heddle_status heddle_try_get_list(heddle_worker worker, const heddle_segment* segments, size_t count,
                                  const heddle_completion* completion) {
  return counted(try_list<Kind::get>(worker, segments, count, completion), completion);
}
heddle_status heddle_put_list(heddle_worker worker, const heddle_segment* segments, size_t count,
                              const heddle_completion* completion) {
  return blocking("heddle_put_list", worker, [&] { return heddle_try_put_list(worker, segments, count, completion); });
}
heddle_status heddle_get_list(heddle_worker worker, const heddle_segment* segments, size_t count,
                              const heddle_completion* completion) {
  return blocking("heddle_get_list", worker, [&] { return heddle_try_get_list(worker, segments, count, completion); });
}

heddle_status heddle_try_put_signal(heddle_worker worker, const void* source, size_t bytes, heddle_remote target,
                                    const heddle_signal* signal, const heddle_completion* completion) {
  return counted(try_put_signal(worker, source, bytes, target, signal, completion), completion);
}
heddle_status heddle_put_signal(heddle_worker worker, const void* source, size_t bytes, heddle_remote target,
                                const heddle_signal* signal, const heddle_completion* completion) {
  return blocking("heddle_put_signal", worker,
                  [&] { return heddle_try_put_signal(worker, source, bytes, target, signal, completion); });
}
heddle_status heddle_try_put_strided_signal(heddle_worker worker, const void* source, heddle_remote target,
                                            const heddle_strided* shape, const heddle_signal* signal,
                                            const heddle_completion* completion) {
  return counted(try_put_strided_signal(worker, source, target, shape, signal, completion), completion);
}
heddle_status heddle_put_strided_signal(heddle_worker worker, const void* source, heddle_remote target,
                                        const heddle_strided* shape, const heddle_signal* signal,
                                        const heddle_completion* completion) {
  return blocking("heddle_put_strided_signal", worker,
                  [&] { return heddle_try_put_strided_signal(worker, source, target, shape, signal, completion); });
}
