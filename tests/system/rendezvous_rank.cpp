// A rank for rendezvous_test.cpp: of two that exchange a long tagged message one kills itself in
// the stage that the arguments name.
//
//   sender|receiver   what rank 1 is, which dies
//   STAGE             shown: the receive is posted, nothing is sent; sent: the message is sent,
//                     nobody has made progress; pushed, fetched: the sender, or the receiver, has
//                     made STEPS steps; both: both have, at once; done: the one that dies has heard
//                     of the end, the other has not
//   STEPS
//
// Prints "pid PID" of the dead, "status NUMBER" that the survivor has heard, and "survived RANK".
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>
#include <vector>

#include "rank_support.hpp"

namespace heddle::tests {
namespace {

constexpr std::uint32_t kVictim = 1;
constexpr std::size_t kBytes = std::size_t{16} << 20;
constexpr std::size_t kWarmBytes = std::size_t{256} << 10;
constexpr std::uint64_t kWarmTag = 1;
constexpr std::uint64_t kTag = 2;
constexpr std::uint64_t kWarmMessages = 3;

// In the survivor's allocated region, mapped by both. Release and acquire: what one has done before
// it says so is done.
struct Board {
  std::atomic<std::uint64_t> posted;  // warm receives
  std::atomic<std::uint64_t> warmed;  // warm sends that have ended
  std::atomic<std::uint64_t> enough;  // no more of them
  std::atomic<std::uint64_t> stage;
  std::atomic<std::int32_t> victim;  // its process
};
// Counts of the message, in the order of its events.
constexpr std::uint64_t kShown = 1;
constexpr std::uint64_t kSent = 2;
constexpr std::uint64_t kReached = 3;  // the survivor has done its part: die
constexpr std::uint64_t kDying = 4;

struct Rank {
  heddle_context context{};
  heddle_worker worker{};
  std::uint32_t rank = 0;
  Board* board = nullptr;
  bool sends = false;
  std::string_view stage;
  std::uint64_t steps = 0;
  std::vector<std::byte> data = std::vector<std::byte>(kBytes);
  heddle_receive receive{};
  std::uint64_t fired = 0;
  heddle_status status = HEDDLE_POSTED;
  [[nodiscard]] std::uint32_t peer() const { return 1 - rank; }
};

std::byte content(std::size_t i) {
  return static_cast<std::byte>(i * 13 + (i >> 9));
}

void finished(void* arg, heddle_status status) {
  auto* rank = static_cast<Rank*>(arg);
  ++rank->fired;
  rank->status = status;
}

int turn(const Rank& rank) {
  const int events = heddle_worker_progress(rank.worker);
  check(events >= 0, "progress");
  return events;
}

void await(const std::atomic<std::uint64_t>& word, std::uint64_t least, const char* what) {
  const Deadline deadline(what);
  while (word.load(std::memory_order_acquire) < least) deadline.idle();
}

void post_receive(Rank& rank, std::uint64_t tag, std::size_t bytes) {
  const heddle_wanted wanted{{rank.peer(), 0}, tag, UINT64_MAX};
  const heddle_completion completion{finished, &rank, {}, HEDDLE_WHEN_REMOTE};
  const heddle_status status = heddle_recv(rank.worker, &wanted, rank.data.data(), bytes, &rank.receive, &completion);
  expect(status, HEDDLE_POSTED, "recv");
}

// False: the call itself has said that the peer has failed.
bool post_send(Rank& rank, std::uint64_t tag, std::size_t bytes) {
  const heddle_completion completion{finished, &rank, {}, HEDDLE_WHEN_REMOTE};
  const heddle_status status = heddle_send(rank.worker, {rank.peer(), 0}, tag, rank.data.data(), bytes, &completion);
  if (status == HEDDLE_ERR_PEER_FAILED || status == HEDDLE_DONE) {
    finished(&rank, status);
    return status == HEDDLE_DONE;
  }
  expect(status, HEDDLE_POSTED, "send");
  return true;
}

void until_ended(const Rank& rank, std::uint64_t fired, const char* what) {
  const Deadline deadline(what);
  while (rank.fired < fired) {
    if (turn(rank) == 0) deadline.idle();
  }
}

// A few messages, so that both are connected.
void get_acquainted(Rank& rank) {
  Board& board = *rank.board;
  for (std::uint64_t i = 1; board.enough.load(std::memory_order_acquire) == 0; ++i) {
    if (rank.sends) {
      await(board.posted, i, "no receive is posted");
      check(post_send(rank, kWarmTag, kWarmBytes), "the other has failed");
      until_ended(rank, i, "a message does not end");
      if (i == kWarmMessages) board.enough.store(1, std::memory_order_release);
      board.warmed.store(i, std::memory_order_release);
    } else {
      post_receive(rank, kWarmTag, kWarmBytes);
      board.posted.store(i, std::memory_order_release);
      until_ended(rank, i, "a message does not end");
      await(board.warmed, i, "the sender does not go on");
    }
    expect(rank.status, HEDDLE_DONE, "a message");
  }
  rank.fired = 0;
  rank.status = HEDDLE_POSTED;
}

[[noreturn]] void die(const Rank& rank) {
  say("pid", ::getpid());
  rank.board->stage.store(kDying, std::memory_order_release);
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

// Till the process is gone, of which the library need not know yet.
void await_death(const Rank& rank) {
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, rank.board->victim.load(std::memory_order_acquire), 0));
  if (pidfd < 0) return;  // it is gone, and its launcher knows
  pollfd end{pidfd, POLLIN, 0};
  check(::poll(&end, 1, static_cast<int>(Deadline::kNs / 1'000'000)) == 1, "the other does not die");
  ::close(pidfd);
}

// It looks at its rings and copies available data, this number of times, after the time that the
// sender leaves to the receiver.
void make_steps(const Rank& rank) {
  for (const std::int64_t end = now_ns() + 10'000; now_ns() < end;) sched_yield();
  for (std::uint64_t i = 0; i < rank.steps; ++i) turn(rank);
}

// Up to the stage, in which rank 1 dies.
void reach(Rank& rank) {
  Board& board = *rank.board;
  const bool victim = rank.rank == kVictim;
  if (rank.sends) {
    for (std::size_t i = 0; i < kBytes; ++i) rank.data[i] = content(i);
    await(board.stage, kShown, "no receive is posted");
    if (rank.stage == "shown") {
      if (victim) die(rank);
      await(board.stage, kDying, "the receiver does not die");
      await_death(rank);
      post_send(rank, kTag, kBytes);
      return;
    }
    check(post_send(rank, kTag, kBytes), "the other has failed");
    board.stage.store(kSent, std::memory_order_release);
  } else {
    post_receive(rank, kTag, kBytes);
    board.stage.store(kShown, std::memory_order_release);
    if (rank.stage == "shown") {
      if (victim) die(rank);
      await(board.stage, kDying, "the sender does not die");
      await_death(rank);
      return;
    }
    await(board.stage, kSent, "nothing is sent");
  }
  const bool moves = rank.stage == "both" || rank.stage == (rank.sends ? "pushed" : "fetched");
  if (moves) make_steps(rank);
  if (rank.stage == "done" && victim) until_ended(rank, 1, "the message does not end");
  // A rank without work waits until the other has done its part, unless that one dies.
  const bool survivor_moves = rank.stage == "both" || rank.stage == (rank.sends == victim ? "fetched" : "pushed");
  if (!victim && survivor_moves) board.stage.store(kReached, std::memory_order_release);
  if (victim && survivor_moves) await(board.stage, kReached, "the survivor does not come so far");
  if (victim) die(rank);
  await(board.stage, kDying, "the other does not die");
  await_death(rank);
}

void survive(Rank& rank) {
  until_ended(rank, 1, "the death is not told");
  say("status", rank.status);
  if (!rank.sends) {
    expect(rank.receive.status, rank.status, "the receive's status");
    for (std::size_t i = 0; rank.status == HEDDLE_DONE && i < kBytes; ++i) {
      check(rank.data[i] == content(i), "the data of a message that is said to be there");
    }
  }
  // The buffer is the program's again.
  std::fill(rank.data.begin(), rank.data.end(), std::byte{0x5A});
  const Deadline known("the death is not told by peer_status");
  while (heddle_context_peer_status(rank.context, kVictim) == HEDDLE_DONE) {
    if (turn(rank) == 0) known.idle();
  }
  for (int i = 0; i < 1000; ++i) turn(rank);
  check(rank.fired == 1, "a completion comes twice");
  for (const std::byte byte : rank.data) check(byte == std::byte{0x5A}, "a buffer is written to after the end");
  expect(heddle_flush(rank.worker, kVictim), HEDDLE_ERR_PEER_FAILED, "flush to the dead");
  done(heddle_quiet(rank.worker), "quiet");
  done(heddle_context_leave(rank.context), "leave");
  say("survived", rank.rank);
}

void set_up(Rank& rank) {
  done(heddle_context_join(nullptr, &rank.context), "join");
  done(heddle_context_rank(rank.context, &rank.rank), "rank");
  done(heddle_worker_open(rank.context, nullptr, &rank.worker), "worker");
  heddle_region own{};
  done(heddle_region_alloc(rank.context, sizeof(Board), &own), "alloc");
  std::array<heddle_remote_region, 2> regions{};
  done(heddle_region_exchange(rank.context, own, regions.data()), "exchange");
  void* board = nullptr;
  done(heddle_remote_pointer({regions[1 - kVictim], 0}, &board), "the board is not mapped");
  rank.board = static_cast<Board*>(board);
  if (rank.rank == kVictim) rank.board->victim.store(::getpid(), std::memory_order_release);
  done(heddle_context_barrier(rank.context, rank.worker, Deadline::kNs), "barrier");
}

}  // namespace
}  // namespace heddle::tests

int main(int argc, char** argv) {
  using namespace heddle::tests;  // NOLINT
  // a call that blocks for ever ends the rank, and the test finds it missing
  ::alarm(80);
  check(argc == 4, "sender|receiver STAGE STEPS");
  Rank rank;
  set_up(rank);
  rank.sends = (std::string_view(argv[1]) == "sender") == (rank.rank == kVictim);
  rank.stage = argv[2];
  rank.steps = std::strtoull(argv[3], nullptr, 10);
  get_acquainted(rank);
  reach(rank);
  survive(rank);
  return 0;
}
