// Active messages, tagged messages, partitioned ones.
#include <algorithm>

#include "rank.hpp"

namespace heddle::tests::api {
namespace {

void network(const heddle_am_arrival* message, void*) {
  if (message->header_bytes > HEDDLE_AM_HEADER_BYTES) std::abort();
  Rank::from_inside(true);
}
void user(const heddle_am_arrival* message, void*) {
  if (message->header_bytes > HEDDLE_AM_HEADER_BYTES) std::abort();
  Rank::from_inside(false);
}

std::uint32_t handler_number(Rank& rank) {
  if (rank.chance(10)) return rank.odd32();
  return static_cast<std::uint32_t>(rank.below(4)) + (rank.chance(50) ? HEDDLE_AM_USER : 0);
}

void enlist(Rank& rank) {
  const heddle_context context = rank.chance(80) ? rank.main() : rank.pick(rank.contexts);
  const std::uint32_t number = handler_number(rank);
  heddle_am_handler const fn = rank.chance(15) ? nullptr : number >= HEDDLE_AM_USER ? user : network;
  HEDDLE_CALL(rank, heddle_am_register, context, number, fn, static_cast<void*>(nullptr));
}

void run_tasks(Rank& rank) {
  const heddle_worker worker = rank.pick(rank.workers);
  const std::int64_t time = rank.timeout();
  HEDDLE_CALL(rank, heddle_run_tasks, worker,
              rank.chance(80) ? 1 + static_cast<std::uint32_t>(rank.below(8)) : rank.odd32(), time);
}

void am(Rank& rank, const char* name, decltype(heddle_am)* fn) {
  const heddle_worker worker = rank.pick(rank.workers);
  heddle_am_message made{};
  made.handler = handler_number(rank);
  made.header_bytes = static_cast<std::uint32_t>(rank.chance(80) ? rank.below(66) : rank.odd());
  made.header = rank.maybe_null(rank.keep(std::min<std::size_t>(made.header_bytes, HEDDLE_AM_HEADER_BYTES)));
  // Longer than any message may be, if longer than the memory.
  made.payload_bytes = rank.chance(90) ? rank.fitting() : std::max<std::size_t>(rank.odd(), std::size_t{1} << 40);
  made.payload = rank.maybe_null(rank.data(0, made.payload_bytes));
  const auto* message = rank.maybe_null<const heddle_am_message>(rank.keep_one(made));
  rank.call(name, fn, worker, rank.peer(), message, rank.completion());
}

std::uint64_t tag(Rank& rank) {
  return rank.chance(80) ? rank.below(4) : rank.odd();
}

void send(Rank& rank, const char* name, decltype(heddle_send)* fn) {
  const heddle_worker worker = rank.pick(rank.workers);
  const std::size_t bytes =
      rank.chance(93) ? rank.fitting() : std::max<std::size_t>(rank.odd(), (std::size_t{1} << 56) + 1);
  const heddle_peer to = rank.peer();
  rank.call(name, fn, worker, to, tag(rank), static_cast<const void*>(rank.maybe_null(rank.data(0, bytes))), bytes,
            rank.completion());
}

heddle_wanted* wanted(Rank& rank) {
  heddle_wanted made{rank.peer(), tag(rank), rank.chance(50) ? UINT64_MAX : rank.odd()};
  if (rank.chance(30)) made.source.rank = HEDDLE_ANY;
  if (rank.chance(60)) made.source.worker = HEDDLE_ANY;
  return rank.maybe_null(rank.keep_one(made));
}

// The memory there must belong to this call alone: the library owns it while the receive waits.
Receive& fresh(Rank& rank) {
  return rank.receives.emplace_back();
}
// One that was posted or claimed on this worker, or that never was one. Null: there is none such.
Receive* earlier(Rank& rank, heddle_worker worker, bool claimed) {
  for (int attempt = 0; attempt < 8 && !rank.receives.empty(); ++attempt) {
    Receive& one = rank.receives[rank.below(rank.receives.size())];
    if (one.worker == worker.id && (claimed ? one.claimed : one.posted)) return &one;
  }
  return rank.chance(50) ? nullptr : &fresh(rank);
}

void receive(Rank& rank, const char* name, decltype(heddle_recv)* fn) {
  const heddle_worker worker = rank.pick(rank.workers);
  const std::size_t bytes = rank.fitting();
  Receive& one = fresh(rank);
  const heddle_wanted* want = wanted(rank);
  void* room = rank.maybe_null(rank.data(2 + rank.below(2), bytes));
  const auto status = rank.call(name, fn, worker, want, room, bytes, &one.receive, rank.completion());
  one.worker = worker.id;
  one.posted = status == HEDDLE_POSTED;
}

void wait(Rank& rank) {
  const heddle_worker worker = rank.pick(rank.workers);
  const std::int64_t time = rank.timeout();
  Receive* one = earlier(rank, worker, false);
  if (one != nullptr && !one->posted) one->receive.status = rank.chance(50) ? HEDDLE_DONE : HEDDLE_AGAIN;
  HEDDLE_CALL(rank, heddle_recv_wait, worker, one == nullptr ? nullptr : &one->receive, time);
}

void cancel(Rank& rank, const char* name, decltype(heddle_recv_cancel)* fn) {
  const heddle_worker worker = rank.pick(rank.workers);
  Receive* one = earlier(rank, worker, false);
  rank.call(name, fn, worker, one == nullptr ? nullptr : &one->receive);
}

void probe(Rank& rank) {
  const heddle_worker worker = rank.pick(rank.workers);
  HEDDLE_CALL(rank, heddle_try_probe, worker, static_cast<const heddle_wanted*>(wanted(rank)),
              rank.maybe_null(&fresh(rank).receive));
}
void claim(Rank& rank) {
  const heddle_worker worker = rank.pick(rank.workers);
  Receive& one = fresh(rank);
  const auto status =
      HEDDLE_CALL(rank, heddle_try_claim, worker, static_cast<const heddle_wanted*>(wanted(rank)), &one.receive);
  one.worker = worker.id;
  one.claimed = status == HEDDLE_DONE;
}
void take(Rank& rank, const char* name, decltype(heddle_recv_claimed)* fn) {
  const heddle_worker worker = rank.pick(rank.workers);
  const std::size_t bytes = rank.chance(30) ? 0 : rank.fitting();
  Receive* one = earlier(rank, worker, true);
  void* room = bytes == 0 ? nullptr : rank.data(2 + rank.below(2), bytes);
  const auto status =
      rank.call(name, fn, worker, room, bytes, one == nullptr ? nullptr : &one->receive, rank.completion());
  if (one == nullptr || status == HEDDLE_AGAIN || (status < 0 && one->receive.status == status && !one->claimed))
    return;
  // Refused: a claimed message stays claimed.
  if (status == HEDDLE_ERR_ARGUMENT || status == HEDDLE_ERR_HANDLE || status == HEDDLE_ERR_STATE) return;
  one->claimed = false;
  one->posted = status == HEDDLE_POSTED;
}

// Partitions times bytes that the memory has, or more than any operation may have.
template <class Fn, class Data>
void partitioned(Rank& rank, const char* name, Fn* fn, Data* data) {
  const heddle_worker worker = rank.pick(rank.workers);
  std::uint32_t parts = static_cast<std::uint32_t>(rank.fitting(64));
  std::size_t bytes = rank.fitting(4096);
  if (rank.chance(10)) bytes = (std::size_t{1} << 48) + 1 + rank.odd() / 2;
  if (rank.chance(5)) parts = HEDDLE_MOST_PARTITIONS + 1 + rank.odd32() / 2;
  auto* made = rank.maybe_null(rank.keep_one(heddle_partitioned{}));
  const heddle_peer peer = rank.peer();
  const bool live = rank.partitioned.live.size() < 24;
  if (!live && made != nullptr) return rank.not_bad();
  if (rank.call(name, fn, worker, rank.maybe_null(data), parts, bytes, peer, tag(rank), made) != HEDDLE_DONE) return;
  rank.partitioned.add(*made, rank.owner(worker));
}

heddle_partitioned any_partitioned(Rank& rank) {
  return rank.pick(rank.partitioned);
}
std::uint32_t part(Rank& rank) {
  return rank.chance(85) ? static_cast<std::uint32_t>(rank.below(16)) : rank.odd32();
}
void pready(Rank& rank) {
  const heddle_partitioned one = any_partitioned(rank);
  HEDDLE_CALL(rank, heddle_pready, one, part(rank));
}
void pready_range(Rank& rank) {
  const heddle_partitioned one = any_partitioned(rank);
  const std::uint32_t low = rank.chance(60) ? 0 : part(rank);
  HEDDLE_CALL(rank, heddle_pready_range, one, low, rank.chance(50) ? part(rank) : low);
}
void parrived(Rank& rank) {
  const heddle_partitioned one = any_partitioned(rank);
  HEDDLE_CALL(rank, heddle_parrived, one, part(rank));
}
void wait_partitioned(Rank& rank) {
  const heddle_partitioned one = any_partitioned(rank);
  const std::int64_t time = rank.timeout();
  HEDDLE_CALL(rank, heddle_partitioned_wait, one, time);
}
void free_partitioned(Rank& rank) {
  const heddle_partitioned one = any_partitioned(rank);
  const heddle_status status = HEDDLE_CALL(rank, heddle_partitioned_free, one);
  if (status == HEDDLE_DONE || status == HEDDLE_ERR_HANDLE) rank.partitioned.remove(one);
}

}  // namespace

#define HEDDLE_ROW(function, when, ...) {#function, When::when, [](Rank& rank) { __VA_ARGS__; }}
#define HEDDLE_BOTH(operation, body)                                                                          \
  HEDDLE_ROW(heddle_try_##operation, anywhere, body(rank, "heddle_try_" #operation, heddle_try_##operation)), \
      HEDDLE_ROW(heddle_##operation, turn, body(rank, "heddle_" #operation, heddle_##operation))

std::vector<Row> message_rows() {
  return {
      HEDDLE_ROW(heddle_am_register, anywhere, enlist(rank)),
      HEDDLE_ROW(heddle_run_tasks, anywhere, run_tasks(rank)),
      HEDDLE_BOTH(am, am),
      HEDDLE_BOTH(send, send),
      HEDDLE_BOTH(recv, receive),
      HEDDLE_ROW(heddle_recv_wait, anywhere, wait(rank)),
      HEDDLE_BOTH(recv_cancel, cancel),
      HEDDLE_ROW(heddle_try_probe, anywhere, probe(rank)),
      HEDDLE_ROW(heddle_try_claim, anywhere, claim(rank)),
      HEDDLE_BOTH(recv_claimed, take),
      HEDDLE_ROW(
          heddle_psend_init, anywhere,
          partitioned(rank, "heddle_psend_init", heddle_psend_init, static_cast<const void*>(rank.data(0, kBig)))),
      HEDDLE_ROW(heddle_precv_init, anywhere,
                 partitioned(rank, "heddle_precv_init", heddle_precv_init, static_cast<void*>(rank.data(3, kBig)))),
      HEDDLE_ROW(heddle_partitioned_start, anywhere,
                 HEDDLE_CALL(rank, heddle_partitioned_start, any_partitioned(rank))),
      HEDDLE_ROW(heddle_pready, anywhere, pready(rank)),
      HEDDLE_ROW(heddle_pready_range, anywhere, pready_range(rank)),
      HEDDLE_ROW(heddle_parrived, anywhere, parrived(rank)),
      HEDDLE_ROW(heddle_partitioned_bytes, anywhere,
                 HEDDLE_CALL(rank, heddle_partitioned_bytes, any_partitioned(rank),
                             rank.maybe_null(rank.keep_one(std::uint64_t{})))),
      HEDDLE_ROW(heddle_partitioned_test, anywhere, HEDDLE_CALL(rank, heddle_partitioned_test, any_partitioned(rank))),
      HEDDLE_ROW(heddle_partitioned_wait, anywhere, wait_partitioned(rank)),
      HEDDLE_ROW(heddle_partitioned_free, anywhere, free_partitioned(rank)),
  };
}

}  // namespace heddle::tests::api
