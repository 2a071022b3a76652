// A rank for failure_test.cpp: ranks 0 and 2 repeat the operation named by the first argument
// towards rank 1, which kills itself from a second thread while the first serves them. Prints "told
// NS" (since the death) and "survived RANK".
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string_view>
#include <thread>
#include <vector>

#include "rank_support.hpp"

namespace heddle::tests {
namespace {

constexpr std::uint32_t kVictim = 1;
constexpr std::size_t kRegionBytes = std::size_t{1} << 20;
constexpr std::size_t kSignalAt = kRegionBytes - 64;  // outside what the operations write
constexpr std::size_t kLarge = std::size_t{256} << 10;
constexpr std::uint32_t kHandler = 7;
constexpr std::uint32_t kTalkHandler = 8;
constexpr std::uint64_t kRoundsBeforeDeath = 30;

// In rank 0's allocated region, mapped by all: it outlives the victim.
struct Board {
  // relaxed by the survivors; relaxed by the victim
  std::array<std::atomic<std::uint64_t>, 3> rounds;
  // release by the victim before it dies; acquire by the survivors once told
  std::atomic<std::int64_t> death_ns;
};
static_assert(sizeof(Board) <= 64);

struct Rank {
  heddle_context context{};
  heddle_worker worker{};
  std::uint32_t rank = 0;
  heddle_region own_allocated{};
  std::byte* allocated_memory = nullptr;
  std::vector<std::byte> registered_memory = std::vector<std::byte>(kRegionBytes);
  std::array<heddle_remote_region, 3> allocated{};
  std::array<heddle_remote_region, 3> registered{};
  Board* board = nullptr;
  std::uint64_t talked = 0;  // by the talk handler
};

// One operation in flight with the memory that belongs to it.
struct Slot {
  std::vector<std::byte> data = std::vector<std::byte>(kRegionBytes);
  std::array<heddle_segment, 3> segments{};
  std::uint64_t result = 0;
  std::uint64_t posted = 0;
  std::uint64_t fired = 0;
  heddle_status worst = HEDDLE_DONE;
};

void finished(void* arg, heddle_status status) {
  Slot& slot = *static_cast<Slot*>(arg);
  ++slot.fired;
  if (status != HEDDLE_DONE) slot.worst = status;
}

using Post = heddle_status (*)(Rank&, Slot&, const heddle_completion*);

heddle_remote victim(Rank& rank, std::uint64_t offset = 64) {
  return {rank.registered[kVictim], offset};
}
heddle_remote victim_direct(Rank& rank) {
  return {rank.allocated[kVictim], 64};
}

template <std::size_t kBytes>
heddle_status post_put(Rank& rank, Slot& slot, const heddle_completion* completion) {
  return heddle_try_put(rank.worker, slot.data.data(), kBytes, victim(rank), completion);
}
template <std::size_t kBytes>
heddle_status post_get(Rank& rank, Slot& slot, const heddle_completion* completion) {
  return heddle_try_get(rank.worker, slot.data.data(), kBytes, victim(rank), completion);
}
template <std::size_t kBytes>
heddle_status post_put_allocated(Rank& rank, Slot& slot, const heddle_completion* completion) {
  return heddle_try_put(rank.worker, slot.data.data(), kBytes, victim_direct(rank), completion);
}
template <std::size_t kBytes>
heddle_status post_get_allocated(Rank& rank, Slot& slot, const heddle_completion* completion) {
  return heddle_try_get(rank.worker, slot.data.data(), kBytes, victim_direct(rank), completion);
}
heddle_status post_atomic(Rank& rank, Slot&, const heddle_completion* completion) {
  return heddle_try_atomic(rank.worker, HEDDLE_ADD64, victim(rank), 1, completion);
}
heddle_status post_fetch(Rank& rank, Slot& slot, const heddle_completion* completion) {
  const heddle_fetch fetch{1, 0, &slot.result};
  return heddle_try_fetch_atomic(rank.worker, HEDDLE_ADD64, victim(rank), &fetch, completion);
}
heddle_status post_fetch_allocated(Rank& rank, Slot& slot, const heddle_completion* completion) {
  const heddle_fetch fetch{1, 0, &slot.result};
  return heddle_try_fetch_atomic(rank.worker, HEDDLE_ADD64, victim_direct(rank), &fetch, completion);
}
constexpr heddle_strided kShape{1000, 100, 1000, 2000};
heddle_status post_put_strided(Rank& rank, Slot& slot, const heddle_completion* completion) {
  return heddle_try_put_strided(rank.worker, slot.data.data(), victim(rank), &kShape, completion);
}
heddle_status post_get_strided(Rank& rank, Slot& slot, const heddle_completion* completion) {
  return heddle_try_get_strided(rank.worker, slot.data.data(), victim(rank), &kShape, completion);
}
void fill_list(Rank& rank, Slot& slot) {
  const std::array<std::size_t, 3> bytes = {8, 70000, 300};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    slot.segments[i] = {slot.data.data() + i * 100000, bytes[i], victim(rank, 64 + i * 100000)};
  }
}
heddle_status post_put_list(Rank& rank, Slot& slot, const heddle_completion* completion) {
  fill_list(rank, slot);
  return heddle_try_put_list(rank.worker, slot.segments.data(), slot.segments.size(), completion);
}
heddle_status post_get_list(Rank& rank, Slot& slot, const heddle_completion* completion) {
  fill_list(rank, slot);
  return heddle_try_get_list(rank.worker, slot.segments.data(), slot.segments.size(), completion);
}
heddle_status post_put_signal(Rank& rank, Slot& slot, const heddle_completion* completion) {
  const heddle_signal signal{victim(rank, kSignalAt), 1, HEDDLE_SIGNAL_ADD};
  return heddle_try_put_signal(rank.worker, slot.data.data(), kLarge, victim(rank), &signal, completion);
}
template <std::size_t kBytes>
heddle_status post_am(Rank& rank, Slot& slot, const heddle_completion* completion) {
  const std::uint64_t header = kBytes;
  const heddle_am_message message{kHandler, sizeof header, &header, slot.data.data(), kBytes};
  return heddle_try_am(rank.worker, {kVictim, 0}, &message, completion);
}

struct Operation {
  const char* name;
  Post post;
};
constexpr auto kOperations = std::to_array<Operation>({
    {"put-allocated", post_put_allocated<8>},
    {"put-allocated-large", post_put_allocated<kLarge>},
    {"get-allocated", post_get_allocated<8>},
    {"get-allocated-large", post_get_allocated<kLarge>},
    {"fetch-allocated", post_fetch_allocated},
    {"put", post_put<64>},
    {"put-large", post_put<kLarge>},
    {"get", post_get<64>},
    {"get-large", post_get<kLarge>},
    {"atomic", post_atomic},
    {"fetch", post_fetch},
    {"put-strided", post_put_strided},
    {"get-strided", post_get_strided},
    {"put-list", post_put_list},
    {"get-list", post_get_list},
    {"put-signal", post_put_signal},
    {"am", post_am<8>},
    {"am-large", post_am<kRegionBytes>},
    {"flush", post_put<kLarge>},
});

void told(Rank& rank) {
  const std::int64_t death = rank.board->death_ns.load(std::memory_order_acquire);
  check(death != 0, "a peer is said to have failed that lives");
  say("told", now_ns() - death);
}

// Each round a slot that is free is posted. Ends with the first PEER_FAILED, from a call or a
// completion, and then waits for what is in flight: every completion comes, once, with DONE or
// PEER_FAILED.
void until_told(Rank& rank, Post post) {
  std::vector<Slot> slots(4);
  const Deadline deadline("the death is not told to the operations");
  for (bool failed = false; !failed;) {
    for (Slot& slot : slots) {
      if (slot.posted != slot.fired) continue;
      const heddle_completion completion{finished, &slot, {}, HEDDLE_WHEN_REMOTE};
      const heddle_status status = post(rank, slot, &completion);
      if (status == HEDDLE_POSTED) ++slot.posted;
      if (status == HEDDLE_DONE) rank.board->rounds[rank.rank].fetch_add(1, std::memory_order_relaxed);
      if (status < 0) expect(status, HEDDLE_ERR_PEER_FAILED, "a call");
      failed |= status < 0;
    }
    const int events = heddle_worker_progress(rank.worker);
    check(events >= 0, "progress");
    for (Slot& slot : slots) {
      if (slot.fired > 0 && slot.posted == slot.fired)
        rank.board->rounds[rank.rank].fetch_add(1, std::memory_order_relaxed);
      if (slot.worst != HEDDLE_DONE) expect(slot.worst, HEDDLE_ERR_PEER_FAILED, "a completion");
      failed |= slot.worst != HEDDLE_DONE;
    }
    if (events == 0) deadline.idle();
  }
  told(rank);
  for (Slot& slot : slots) {
    while (slot.posted != slot.fired) {
      check(slot.fired < slot.posted, "a completion comes twice");
      if (heddle_worker_progress(rank.worker) == 0) deadline.idle();
    }
    if (slot.worst != HEDDLE_DONE) expect(slot.worst, HEDDLE_ERR_PEER_FAILED, "a completion");
  }
  const auto fired = slots;
  for (int i = 0; i < 100; ++i) check(heddle_worker_progress(rank.worker) >= 0, "progress after the death");
  for (std::size_t i = 0; i < slots.size(); ++i) check(slots[i].fired == fired[i].fired, "a completion comes twice");
}

// The blocking flush over operations that have no completion.
void until_flush_tells(Rank& rank, Post post) {
  Slot slot;
  const Deadline deadline("the death is not told to the flush");
  for (;;) {
    heddle_status status = HEDDLE_AGAIN;
    while ((status = post(rank, slot, nullptr)) == HEDDLE_AGAIN) {
      if (heddle_worker_progress(rank.worker) == 0) deadline.idle();
    }
    if (status != HEDDLE_ERR_PEER_FAILED) accepted(status, "a put without completion");
    const heddle_status flushed = heddle_flush(rank.worker, kVictim);
    if (flushed == HEDDLE_ERR_PEER_FAILED) break;
    done(flushed, "flush");
    expect(status < 0 ? status : HEDDLE_DONE, HEDDLE_DONE, "the put has failed, but the flush after it has not");
    rank.board->rounds[rank.rank].fetch_add(1, std::memory_order_relaxed);
  }
  told(rank);
}

void until_barrier_tells(Rank& rank) {
  for (;;) {
    const heddle_status status = heddle_context_barrier(rank.context, rank.worker, Deadline::kNs);
    if (status == HEDDLE_ERR_PEER_FAILED) break;
    done(status, "barrier");
    rank.board->rounds[rank.rank].fetch_add(1, std::memory_order_relaxed);
  }
  told(rank);
}

[[noreturn]] void die(Rank& rank, bool in_barriers) {
  // The main thread is somewhere in the midst of serving when this one ends the process.
  std::thread killer([&board = *rank.board] {
    const Deadline deadline("the survivors do not get on");
    for (const std::uint32_t survivor : {0U, 2U}) {
      while (board.rounds[survivor].load(std::memory_order_relaxed) < kRoundsBeforeDeath) deadline.idle();
    }
    say("pid", ::getpid());
    board.death_ns.store(now_ns(), std::memory_order_release);
    ::kill(::getpid(), SIGKILL);
  });
  for (;;) {
    if (in_barriers) done(heddle_context_barrier(rank.context, rank.worker, HEDDLE_FOREVER), "the victim's barrier");
    if (heddle_worker_progress(rank.worker) == 0) sched_yield();
  }
}

// The survivors, with each other: an atomic, a put with signal on both kinds of memory, and
// messages of both sizes.
void talk(Rank& rank) {
  const std::uint32_t other = 2 - rank.rank;
  Slot slot;
  for (std::size_t i = 0; i < kLarge; ++i) slot.data[i] = static_cast<std::byte>(i * 7 + rank.rank);
  for (const auto& regions : {rank.allocated, rank.registered}) {
    const heddle_signal signal{{regions[other], kSignalAt}, 1, HEDDLE_SIGNAL_ADD};
    accepted(heddle_put_signal(rank.worker, slot.data.data(), kLarge, {regions[other], 64}, &signal, nullptr),
             "put_signal");
    accepted(heddle_atomic(rank.worker, HEDDLE_ADD64, {regions[other], kSignalAt + 8}, 5, nullptr), "atomic");
  }
  for (const std::size_t bytes : {std::size_t{16}, kRegionBytes}) {
    const heddle_am_message message{kTalkHandler, 0, nullptr, slot.data.data(), bytes};
    accepted(heddle_am(rank.worker, {other, 0}, &message, nullptr), "am");
  }
  done(heddle_flush(rank.worker, other), "flush to the survivor");
  const Deadline deadline("the other survivor is not heard of");
  for (std::byte* memory : {rank.allocated_memory, rank.registered_memory.data()}) {
    for (const std::size_t at : {kSignalAt, kSignalAt + 8}) {
      const auto* word = reinterpret_cast<const std::uint64_t*>(memory + at);
      done(heddle_signal_wait(rank.worker, word, HEDDLE_EQ, at == kSignalAt ? 1 : 5, Deadline::kNs), "signal");
    }
    for (std::size_t i = 0; i < kLarge; ++i) {
      check(memory[64 + i] == static_cast<std::byte>(i * 7 + other), "the survivor's data");
    }
  }
  while (rank.talked != 16 + kRegionBytes) {
    check(rank.talked < 16 + kRegionBytes, "messages that nobody sent");
    if (heddle_worker_progress(rank.worker) == 0) deadline.idle();
  }
}

void survive(Rank& rank, const Operation* operation) {
  if (operation == nullptr) {
    until_barrier_tells(rank);
  } else if (std::string_view(operation->name) == "flush") {
    until_flush_tells(rank, operation->post);
  } else {
    until_told(rank, operation->post);
  }
  // An operation may meet the death before the launcher tells of it.
  const Deadline known("the death is not told by peer_status");
  while (heddle_context_peer_status(rank.context, kVictim) == HEDDLE_DONE) {
    if (heddle_worker_progress(rank.worker) == 0) known.idle();
  }
  expect(heddle_context_peer_status(rank.context, kVictim), HEDDLE_ERR_PEER_FAILED, "peer status");
  expect(heddle_flush(rank.worker, kVictim), HEDDLE_ERR_PEER_FAILED, "flush to the dead");
  check(heddle_worker_progress(rank.worker) >= 0, "progress");
  // Every kind of operation is refused from now on, in the call or by its completion.
  for (const Operation& each : kOperations) {
    Slot slot;
    const heddle_completion completion{finished, &slot, {}, HEDDLE_WHEN_REMOTE};
    const Deadline deadline(each.name);
    heddle_status status = HEDDLE_AGAIN;
    while ((status = each.post(rank, slot, &completion)) == HEDDLE_AGAIN) {
      if (heddle_worker_progress(rank.worker) == 0) deadline.idle();
    }
    while (status == HEDDLE_POSTED && slot.fired == 0) {
      if (heddle_worker_progress(rank.worker) == 0) deadline.idle();
    }
    expect(status == HEDDLE_POSTED ? slot.worst : status, HEDDLE_ERR_PEER_FAILED, each.name);
  }
  talk(rank);
  done(heddle_quiet(rank.worker), "quiet");
  expect(heddle_context_barrier(rank.context, rank.worker, Deadline::kNs), HEDDLE_ERR_PEER_FAILED,
         "barrier of the living");
  done(heddle_context_leave(rank.context), "leave");
  say("survived", rank.rank);
}

void ignore(const heddle_am_arrival* message, void*) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, message->header, sizeof bytes);
  check(message->payload_bytes == bytes, "a message's size");
}
void talked(const heddle_am_arrival* message, void* arg) {
  static_cast<Rank*>(arg)->talked += message->payload_bytes;
}

void set_up(Rank& rank) {
  done(heddle_context_join(nullptr, &rank.context), "join");
  done(heddle_context_rank(rank.context, &rank.rank), "rank");
  done(heddle_worker_open(rank.context, nullptr, &rank.worker), "worker");
  done(heddle_am_register(rank.context, kHandler, ignore, nullptr), "handler");
  done(heddle_am_register(rank.context, kTalkHandler, talked, &rank), "handler");
  done(heddle_region_alloc(rank.context, kRegionBytes, &rank.own_allocated), "alloc");
  void* address = nullptr;
  std::size_t bytes = 0;
  done(heddle_region_address(rank.own_allocated, &address, &bytes), "address");
  rank.allocated_memory = static_cast<std::byte*>(address);
  heddle_region registered{};
  done(heddle_region_register(rank.context, rank.registered_memory.data(), kRegionBytes, &registered), "register");
  done(heddle_region_exchange(rank.context, rank.own_allocated, rank.allocated.data()), "exchange");
  done(heddle_region_exchange(rank.context, registered, rank.registered.data()), "exchange");

  void* board = nullptr;
  done(heddle_remote_pointer({rank.allocated[0], 0}, &board), "the board is not mapped");
  rank.board = static_cast<Board*>(board);
  done(heddle_context_barrier(rank.context, rank.worker, Deadline::kNs), "barrier");
}

}  // namespace
}  // namespace heddle::tests

int main(int argc, char** argv) {
  using namespace heddle::tests;  // NOLINT
  // a call that blocks for ever ends the rank, and the test finds it missing
  ::alarm(80);
  const std::string_view name = argc > 1 ? argv[1] : "";
  const Operation* operation = nullptr;
  for (const Operation& each : kOperations) {
    if (name == each.name) operation = &each;
  }
  check(operation != nullptr || name == "barrier", "no such operation");
  Rank rank;
  set_up(rank);
  if (rank.rank == kVictim) die(rank, operation == nullptr);
  survive(rank, operation);
  return 0;
}
