// Puts, gets, atomics, signals, and the waits for them.
#include <algorithm>

#include "rank.hpp"

namespace heddle::tests::api {
namespace {

heddle_worker any_worker(Rank& rank) {
  return rank.pick(rank.workers, 94);
}

void put(Rank& rank, const char* name, decltype(heddle_put)* fn) {
  const std::size_t bytes = rank.transfer_bytes();
  const void* source = rank.maybe_null(rank.data(0, bytes));
  if (source == nullptr && bytes > 0 && bytes <= kBig) source = rank.data(0, bytes);
  const heddle_worker worker = any_worker(rank);
  const heddle_remote remote = rank.remote();
  rank.not_bad();  // no bytes: nothing is looked at
  rank.call(name, fn, worker, source, bytes, remote, rank.completion());
}

void get(Rank& rank, const char* name, decltype(heddle_get)* fn) {
  const std::size_t bytes = rank.transfer_bytes();
  const heddle_worker worker = any_worker(rank);
  const heddle_remote remote = rank.remote();
  rank.not_bad();
  rank.call(name, fn, worker, static_cast<void*>(rank.data(1, bytes)), bytes, remote, rank.completion());
}

heddle_strided* shape(Rank& rank) {
  heddle_strided made{rank.transfer_bytes(), rank.chance(70) ? rank.fitting(64) : rank.odd(), 0, 0};
  made.local_stride = rank.chance(60) ? made.block_bytes + rank.fitting(64) : rank.odd();
  made.remote_stride = rank.chance(60) ? made.block_bytes + rank.fitting(64) : rank.odd();
  // The local memory needs as much room as the remote region has: no call checks it.
  __extension__ typedef unsigned __int128 Wide;
  const auto extent = [&](std::uint64_t stride) {
    return made.blocks == 0 ? Wide{0} : static_cast<Wide>(stride) * (made.blocks - 1) + made.block_bytes;
  };
  if (extent(made.remote_stride) <= kBig && extent(made.local_stride) > kBig) made.local_stride = made.remote_stride;
  return rank.maybe_null(rank.keep_one(made));
}

void put_strided(Rank& rank, const char* name, decltype(heddle_put_strided)* fn) {
  const heddle_worker worker = any_worker(rank);
  const heddle_remote remote = rank.remote();
  rank.not_bad();
  const heddle_strided* strided = shape(rank);
  rank.call(name, fn, worker, static_cast<const void*>(rank.data(0, kBig)), remote, strided, rank.completion());
}
void get_strided(Rank& rank, const char* name, decltype(heddle_get_strided)* fn) {
  const heddle_worker worker = any_worker(rank);
  const heddle_remote remote = rank.remote();
  rank.not_bad();
  const heddle_strided* strided = shape(rank);
  rank.call(name, fn, worker, static_cast<void*>(rank.data(1, kBig)), remote, strided, rank.completion());
}

void put_strided_signal(Rank& rank, const char* name, decltype(heddle_put_strided_signal)* fn) {
  const heddle_worker worker = any_worker(rank);
  const heddle_remote remote = rank.remote();
  const heddle_strided* strided = shape(rank);
  const auto* signal = rank.maybe_null(
      rank.keep_one(heddle_signal{rank.remote(true), rank.odd(), rank.enumeration<heddle_signal_op>(1)}));
  rank.call(name, fn, worker, static_cast<const void*>(rank.data(0, kBig)), remote, strided, signal, rank.completion());
}

void get_wait(Rank& rank) {
  const std::size_t bytes = rank.transfer_bytes();
  const heddle_worker worker = any_worker(rank);
  const heddle_remote remote = rank.remote();
  rank.not_bad();
  HEDDLE_CALL(rank, heddle_get_wait, worker, static_cast<void*>(rank.data(1, bytes)), bytes, remote);
}

void list(Rank& rank, const char* name, decltype(heddle_put_list)* fn, std::size_t buffer) {
  const heddle_worker worker = any_worker(rank);
  const std::size_t count = rank.fitting(24);
  auto* segments = static_cast<heddle_segment*>(rank.keep(count * sizeof(heddle_segment)));
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t bytes = rank.chance(95) ? rank.fitting(4096) : rank.odd();
    segments[i] = {rank.data(buffer, bytes), bytes, rank.remote()};
    if (rank.chance(95) && !rank.remotes.live.empty())
      segments[i].remote = {rank.remotes.live[0].handle, rank.below(4096)};
  }
  rank.not_bad();
  const auto* given = static_cast<const heddle_segment*>(rank.maybe_null(segments));
  rank.call(name, fn, worker, given, count, rank.completion());
}

void put_signal(Rank& rank, const char* name, decltype(heddle_put_signal)* fn) {
  const std::size_t bytes = rank.transfer_bytes();
  const heddle_worker worker = any_worker(rank);
  const heddle_remote remote = rank.remote();
  const auto* signal = rank.maybe_null(
      rank.keep_one(heddle_signal{rank.remote(true), rank.odd(), rank.enumeration<heddle_signal_op>(1)}));
  rank.call(name, fn, worker, static_cast<const void*>(rank.data(0, bytes)), bytes, remote, signal, rank.completion());
}

void wait_signal(Rank& rank) {
  const heddle_worker worker = any_worker(rank);
  const std::int64_t time = rank.timeout();
  auto* words = static_cast<std::byte*>(rank.keep(16));
  const void* word = words + (rank.chance(90) ? 0 : rank.below(8));
  HEDDLE_CALL(rank, heddle_signal_wait, worker, rank.maybe_null(static_cast<const std::uint64_t*>(word)),
              rank.enumeration<heddle_compare>(5), rank.chance(50) ? 0 : rank.odd(), time);
}

void atomic(Rank& rank, const char* name, decltype(heddle_atomic)* fn) {
  const heddle_worker worker = any_worker(rank);
  const heddle_remote remote = rank.remote(true);
  rank.call(name, fn, worker, rank.enumeration<heddle_atomic_op>(14), remote, rank.odd(), rank.completion());
}
void fetch_atomic(Rank& rank, const char* name, decltype(heddle_fetch_atomic)* fn) {
  const heddle_worker worker = any_worker(rank);
  const heddle_remote remote = rank.remote(true);
  const heddle_fetch made{rank.odd(), rank.odd(), rank.maybe_null(rank.keep(8))};
  rank.call(name, fn, worker, rank.enumeration<heddle_atomic_op>(14), remote,
            rank.maybe_null<const heddle_fetch>(rank.keep_one(made)), rank.completion());
}

void fetch_atomic_wait(Rank& rank) {
  const heddle_worker worker = any_worker(rank);
  const heddle_remote remote = rank.remote(true);
  const heddle_fetch made{rank.odd(), rank.odd(), rank.maybe_null(rank.keep(8))};
  HEDDLE_CALL(rank, heddle_fetch_atomic_wait, worker, rank.enumeration<heddle_atomic_op>(14), remote,
              rank.maybe_null<const heddle_fetch>(rank.keep_one(made)));
}

template <class Fn>
void one_worker(Rank& rank, const char* name, Fn* fn) {
  const heddle_worker worker = any_worker(rank);
  if (!rank.settle(worker)) return rank.not_bad();
  rank.call(name, fn, worker);
}
template <class Fn>
void one_rank(Rank& rank, const char* name, Fn* fn) {
  const heddle_worker worker = any_worker(rank);
  if (!rank.settle(worker)) return rank.not_bad();
  rank.call(name, fn, worker, rank.rank_number());
}

}  // namespace

#define HEDDLE_ROW(function, when, ...) {#function, When::when, [](Rank& rank) { __VA_ARGS__; }}
#define HEDDLE_BOTH(operation, body)                                                                          \
  HEDDLE_ROW(heddle_try_##operation, anywhere, body(rank, "heddle_try_" #operation, heddle_try_##operation)), \
      HEDDLE_ROW(heddle_##operation, turn, body(rank, "heddle_" #operation, heddle_##operation))

std::vector<Row> transfer_rows() {
  return {
      HEDDLE_BOTH(put, put),
      HEDDLE_BOTH(get, get),
      HEDDLE_BOTH(put_strided, put_strided),
      HEDDLE_BOTH(get_strided, get_strided),
      HEDDLE_ROW(heddle_try_put_list, anywhere, list(rank, "heddle_try_put_list", heddle_try_put_list, 0)),
      HEDDLE_ROW(heddle_put_list, turn, list(rank, "heddle_put_list", heddle_put_list, 0)),
      HEDDLE_ROW(heddle_try_get_list, anywhere, list(rank, "heddle_try_get_list", heddle_try_get_list, 1)),
      HEDDLE_ROW(heddle_get_list, turn, list(rank, "heddle_get_list", heddle_get_list, 1)),
      HEDDLE_BOTH(put_signal, put_signal),
      HEDDLE_BOTH(put_strided_signal, put_strided_signal),
      HEDDLE_ROW(heddle_get_wait, turn, get_wait(rank)),
      HEDDLE_ROW(heddle_fetch_atomic_wait, turn, fetch_atomic_wait(rank)),
      HEDDLE_ROW(heddle_signal_wait, anywhere, wait_signal(rank)),
      HEDDLE_BOTH(atomic, atomic),
      HEDDLE_BOTH(fetch_atomic, fetch_atomic),
      HEDDLE_ROW(heddle_fence, turn, one_worker(rank, "heddle_fence", heddle_fence)),
      HEDDLE_BOTH(flush, one_rank),
      HEDDLE_BOTH(quiet, one_worker),
  };
}

}  // namespace heddle::tests::api
