// A rank for bundle_death_test.cpp: two threads of rank 0 pour short messages into one offload
// worker, for ranks 1 and 2 by turns of several; rank 2 kills itself in the midst of them. Rank 0
// says "told" for each thread that hears of it; it and rank 1 say "survived RANK" when all for rank
// 1 have come, in their order.
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "rank_support.hpp"

namespace heddle::tests {
namespace {

constexpr std::uint32_t kLiving = 1;
constexpr std::uint32_t kVictim = 2;
constexpr std::uint32_t kHandler = 5;
constexpr std::uint64_t kBeforeDeath = 3000;
constexpr std::uint64_t kThreads = 2;
constexpr std::uint64_t kRun = 6;  // messages to one rank before some go to the other

struct Header {
  std::uint64_t thread;
  std::uint64_t number;
  std::uint64_t last;  // 1: none comes after it
};

struct Rank {
  heddle_context context{};
  heddle_worker worker{};
  std::uint32_t rank = 0;
  std::array<std::uint64_t, kThreads> next{};
  std::uint64_t arrived = 0;
  std::uint64_t ended = 0;
};

void on_message(const heddle_am_arrival* message, void* arg) {
  Rank& rank = *static_cast<Rank*>(arg);
  Header header{};
  check(message->header_bytes == sizeof header && message->payload_bytes == 0, "a message's size");
  std::memcpy(&header, message->header, sizeof header);
  check(header.thread < kThreads && rank.next[header.thread] == header.number, "a message is lost or doubled");
  ++rank.next[header.thread];
  rank.ended += header.last;
  if (++rank.arrived == kBeforeDeath && rank.rank == kVictim) {
    say("pid", ::getpid());
    ::kill(::getpid(), SIGKILL);
  }
}

heddle_status send(const Rank& rank, std::uint32_t to, const Header& header) {
  const heddle_am_message message{kHandler, sizeof header, &header, nullptr, 0};
  const Deadline deadline("a message cannot be posted");
  heddle_status status{};
  while ((status = heddle_try_am(rank.worker, {to, 0}, &message, nullptr)) == HEDDLE_AGAIN) {
    check(heddle_worker_progress(rank.worker) >= 0, "progress");
    deadline.idle();
  }
  return status;
}

void pour(const Rank& rank, std::uint64_t thread) {
  std::array<std::uint64_t, 3> next{};
  const Deadline deadline("the death is not told");
  bool told = false;
  for (std::uint64_t round = 0; !told; ++round) {
    for (const std::uint32_t to : {kVictim, kLiving}) {
      for (std::uint64_t i = 0; i < kRun; ++i) {
        const heddle_status status = send(rank, to, {thread, next[to]++, 0});
        if (to == kVictim && status == HEDDLE_ERR_PEER_FAILED) {
          told = true;
        } else {
          accepted(status, "am");
        }
      }
    }
    if (round % 16 != 0) continue;
    const heddle_status status = heddle_flush(rank.worker, kVictim);
    if (status != HEDDLE_DONE) expect(status, HEDDLE_ERR_PEER_FAILED, "flush");
    told |= status != HEDDLE_DONE;
    deadline.idle();
  }
  say("told", static_cast<long long>(next[kVictim]));
  accepted(send(rank, kLiving, {thread, next[kLiving]++, 1}), "am");
}

void survive(const Rank& rank) {
  if (rank.rank == 0) {
    std::thread other([&rank] { pour(rank, 1); });
    pour(rank, 0);
    other.join();
    // An operation may meet the death before the launcher tells of it.
    const Deadline known("the death is not told by peer_status");
    while (heddle_context_peer_status(rank.context, kVictim) == HEDDLE_DONE) {
      check(heddle_worker_progress(rank.worker) >= 0, "progress");
      known.idle();
    }
    expect(heddle_flush(rank.worker, kVictim), HEDDLE_ERR_PEER_FAILED, "flush to the dead");
    done(heddle_flush(rank.worker, kLiving), "flush to the living");
    return;
  }
  const Deadline deadline("messages do not come");
  while (rank.ended < kThreads) {
    check(heddle_worker_progress(rank.worker) >= 0, "progress");
    deadline.idle();
  }
}

}  // namespace
}  // namespace heddle::tests

int main(int, char**) {
  using namespace heddle::tests;
  ::alarm(80);
  static Rank rank;
  done(heddle_context_join(nullptr, &rank.context), "join");
  done(heddle_context_rank(rank.context, &rank.rank), "rank");
  done(heddle_am_register(rank.context, kHandler, on_message, &rank), "handler");
  done(heddle_worker_open(rank.context, nullptr, &rank.worker), "worker");
  done(heddle_context_barrier(rank.context, rank.worker, Deadline::kNs), "barrier");
  survive(rank);  // the victim does not come back
  say("survived", rank.rank);
  done(heddle_context_leave(rank.context), "leave");
  return 0;
}
