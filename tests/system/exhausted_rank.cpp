// A rank for storm_test.cpp: rank 0 floods rank 1 with tagged messages that nobody receives and
// with USER messages that nobody runs. The address space of rank 1 ends long before the credit of
// rank 0 does. When the flood is over rank 1 gets memory again and takes what was kept: each
// message was taken, or dropped and counted.
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <vector>

#include "rank_support.hpp"

namespace heddle::tests {
namespace {

constexpr std::uint32_t kUser = HEDDLE_AM_USER + 1;
constexpr std::size_t kBytes = 4096;
constexpr std::uint64_t kEnough = 200;
constexpr std::size_t kLeft = std::size_t{3} << 20;

// In the region of rank 1, mapped by both.
struct Board {
  std::uint64_t dropped;   // by rank 1, in its own words; relaxed
  std::uint64_t accepted;  // by rank 0; relaxed: `over` orders it
  std::uint64_t over;      // release by rank 0, acquire by rank 1
};

struct Rank {
  heddle_context context{};
  heddle_worker worker{};
  std::uint32_t rank = 0;
  std::array<heddle_remote_region, 2> boards{};
  Board* board = nullptr;
  std::atomic<std::uint64_t> handled{0};
};

void on_user(const heddle_am_arrival* message, void* arg) {
  check(message->payload_bytes == kBytes && *static_cast<const unsigned char*>(message->payload) == 0x5A,
        "a message's content");
  static_cast<Rank*>(arg)->handled.fetch_add(1, std::memory_order_relaxed);
}

heddle_worker_stats stats_of(const Rank& rank) {
  heddle_worker_stats stats{};
  stats.size = sizeof stats;
  done(heddle_worker_stats_read(rank.worker, &stats), "stats");
  return stats;
}

// Until the receiver has dropped some; it may hold its sender back meanwhile.
void flood(Rank& rank) {
  const std::vector<std::byte> data(kBytes, std::byte{0x5A});
  const heddle_am_message message{kUser, 0, nullptr, data.data(), data.size()};
  void* pointer = nullptr;
  done(heddle_remote_pointer({rank.boards[1], 0}, &pointer), "the board is not mapped");
  Board& board = *static_cast<Board*>(pointer);
  const Deadline deadline("the receiver does not run out of memory");
  for (std::uint64_t i = 0; std::atomic_ref(board.dropped).load(std::memory_order_relaxed) < kEnough;) {
    const heddle_status status = i % 2 == 0 ? heddle_try_send(rank.worker, {1, 0}, 1, data.data(), data.size(), nullptr)
                                            : heddle_try_am(rank.worker, {1, 0}, &message, nullptr);
    if (status == HEDDLE_AGAIN) {
      check(heddle_worker_progress(rank.worker) >= 0, "progress");
      deadline.idle();
      continue;
    }
    accepted(status, "a message");
    std::atomic_ref(board.accepted).store(++i, std::memory_order_relaxed);
  }
  std::atomic_ref(board.over).store(1, std::memory_order_release);
  done(heddle_flush(rank.worker, 1), "flush");
}

// Limits this process's address space to its present size and this many bytes.
rlimit narrow(std::size_t more) {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  check(static_cast<bool>(file >> pages), "statm");
  rlimit before{};
  check(::getrlimit(RLIMIT_AS, &before) == 0, "getrlimit");
  rlimit less = before;
  less.rlim_cur = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + more;
  check(::setrlimit(RLIMIT_AS, &less) == 0, "setrlimit");
  return before;
}

void suffer(Rank& rank) {
  const rlimit before = narrow(kLeft);
  const Deadline deadline("the flood does not end");
  while (std::atomic_ref(rank.board->over).load(std::memory_order_acquire) == 0) {
    check(heddle_worker_progress(rank.worker) >= 0, "progress");
    std::atomic_ref(rank.board->dropped).store(stats_of(rank).dropped, std::memory_order_relaxed);
    deadline.idle();
  }
  check(::setrlimit(RLIMIT_AS, &before) == 0, "setrlimit");
  // Takes the messages that are still on their way, and then the kept ones.
  const Deadline taken("a message is neither taken nor counted as dropped");
  std::vector<std::byte> data(kBytes);
  std::uint64_t received = 0;
  heddle_receive receive{};
  const heddle_wanted wanted{{HEDDLE_ANY, HEDDLE_ANY}, 1, UINT64_MAX};
  heddle_status posted = HEDDLE_AGAIN;
  const std::uint64_t accepted = std::atomic_ref(rank.board->accepted).load(std::memory_order_relaxed);
  while (received + rank.handled.load() + stats_of(rank).dropped < accepted) {
    check(heddle_run_tasks(rank.worker, 1000, 0) >= 0, "run_tasks");
    if (posted != HEDDLE_POSTED) {
      data.assign(kBytes, std::byte{0});
      posted = heddle_try_recv(rank.worker, &wanted, data.data(), data.size(), &receive, nullptr);
    } else {
      posted = heddle_recv_wait(rank.worker, &receive, 0);
      if (posted == HEDDLE_ERR_TIMEOUT) posted = HEDDLE_POSTED;
    }
    check(posted >= 0, "a receive");
    if (posted == HEDDLE_DONE) {
      check(data.back() == std::byte{0x5A}, "a message's content");
      ++received;
      posted = HEDDLE_AGAIN;
      continue;
    }
    taken.idle();
  }
  if (posted == HEDDLE_POSTED) done(heddle_recv_cancel(rank.worker, &receive), "cancel");
  check(received + rank.handled.load() + stats_of(rank).dropped == accepted, "a message is counted twice");
  say("received", static_cast<long long>(received));
  say("handled", static_cast<long long>(rank.handled.load()));
  say("dropped", static_cast<long long>(stats_of(rank).dropped));
}

void run(Rank& rank) {
  done(heddle_context_join(nullptr, &rank.context), "join");
  done(heddle_context_rank(rank.context, &rank.rank), "rank");
  done(heddle_am_register(rank.context, kUser, on_user, &rank), "handler");
  done(heddle_worker_open(rank.context, nullptr, &rank.worker), "worker");
  heddle_region region{};
  done(heddle_region_alloc(rank.context, sizeof(Board), &region), "alloc");
  void* address = nullptr;
  done(heddle_region_address(region, &address, nullptr), "address");
  rank.board = static_cast<Board*>(address);
  done(heddle_region_exchange(rank.context, region, rank.boards.data()), "exchange");
  done(heddle_context_barrier(rank.context, rank.worker, Deadline::kNs), "barrier");
  rank.rank == 0 ? flood(rank) : suffer(rank);
  done(heddle_context_barrier(rank.context, rank.worker, Deadline::kNs), "barrier");
  done(heddle_context_leave(rank.context), "leave");
  say("left", rank.rank);
}

}  // namespace
}  // namespace heddle::tests

int main(int, char**) {
  heddle::tests::Rank rank;
  heddle::tests::run(rank);
  return 0;
}
