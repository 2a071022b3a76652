// A rank for trace_test.cpp: sends messages of all kinds, and prints the number of each kind from
// its own statistics. With "die", rank 1 is killed in the middle.
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

constexpr std::uint32_t kMessages = 40;
constexpr std::uint32_t kTasks = 5;
constexpr std::uint64_t kLong = 300'000;

std::atomic<std::uint32_t> g_arrived{0};

void count(const heddle_am_arrival*, void*) {
  g_arrived.fetch_add(1, std::memory_order_relaxed);
}

struct Rank {
  heddle_context context{};
  heddle_worker worker{};
  std::uint32_t number = 0;
  std::uint32_t size = 0;
  [[nodiscard]] heddle_peer next() const { return {(number + 1) % size, 0}; }
  [[nodiscard]] heddle_peer previous() const { return {(number + size - 1) % size, 0}; }
};

void send_actively(const Rank& rank) {
  std::uint64_t word = 7;
  heddle_am_message message{};
  message.payload = &word;
  message.payload_bytes = sizeof word;
  for (std::uint32_t i = 0; i < kMessages + kTasks; ++i) {
    message.handler = i < kMessages ? 1 : HEDDLE_AM_USER;
    accepted(heddle_am(rank.worker, rank.next(), &message, nullptr), "am");
  }
  const Deadline deadline("messages");
  while (g_arrived.load(std::memory_order_relaxed) < kMessages + kTasks) {
    static_cast<void>(heddle_run_tasks(rank.worker, 16, 0));
    deadline.idle();
  }
  done(heddle_quiet(rank.worker), "quiet");
}

// The second half comes before its receives are posted.
void send_tagged(const Rank& rank) {
  std::vector<std::uint64_t> room(kMessages);
  std::vector<heddle_receive> receives(kMessages + 1);  // the last is the long message's
  std::vector<char> sent(kLong, 'a');
  std::vector<char> taken(kLong);
  const auto post = [&](std::uint32_t i) {
    const heddle_wanted wanted{rank.previous(), i, UINT64_MAX};
    accepted(heddle_recv(rank.worker, &wanted, &room[i], sizeof room[i], &receives[i], nullptr), "recv");
  };
  for (std::uint32_t i = 0; i < kMessages / 2; ++i) post(i);
  done(heddle_context_barrier(rank.context, rank.worker, HEDDLE_FOREVER), "barrier");
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    accepted(heddle_send(rank.worker, rank.next(), i, &i, sizeof i, nullptr), "send");
  }
  done(heddle_context_barrier(rank.context, rank.worker, HEDDLE_FOREVER), "barrier");
  for (std::uint32_t i = kMessages / 2; i < kMessages; ++i) post(i);
  const heddle_wanted wanted{rank.previous(), 1000, UINT64_MAX};
  accepted(heddle_recv(rank.worker, &wanted, taken.data(), kLong, &receives[kMessages], nullptr), "long recv");
  heddle_counter sends{};
  done(heddle_counter_create(rank.context, nullptr, &sends), "counter");
  const heddle_completion completion{nullptr, nullptr, sends, HEDDLE_WHEN_REMOTE};
  accepted(heddle_send(rank.worker, rank.next(), 1000, sent.data(), kLong, &completion), "long send");
  for (heddle_receive& receive : receives) {
    done(heddle_recv_wait(rank.worker, &receive, HEDDLE_FOREVER), "recv_wait");
  }
  check(taken == sent, "the long message");
  done(heddle_quiet(rank.worker), "quiet");
  done(heddle_counter_free(sends), "counter");
}

void reduce(const Rank& rank) {
  heddle_team team{};
  done(heddle_team_world(rank.context, &team), "team");
  const std::int64_t mine = 1;
  std::int64_t sum = 0;
  const heddle_reduction add{HEDDLE_INT64, HEDDLE_SUM, nullptr, nullptr, 0};
  done(heddle_allreduce(team, &mine, &sum, 1, &add), "allreduce");
  check(sum == rank.size, "the sum");
  done(heddle_team_free(team), "free");
}

void run(std::string_view what) {
  Rank rank;
  done(heddle_context_join(nullptr, &rank.context), "join");
  done(heddle_context_rank(rank.context, &rank.number), "rank");
  done(heddle_context_size(rank.context, &rank.size), "size");
  done(heddle_worker_open(rank.context, nullptr, &rank.worker), "worker");
  done(heddle_am_register(rank.context, 1, &count, nullptr), "register");
  done(heddle_am_register(rank.context, HEDDLE_AM_USER, &count, nullptr), "register USER");
  done(heddle_context_barrier(rank.context, rank.worker, HEDDLE_FOREVER), "barrier");
  say("traced", heddle_trace_begin(rank.context, "all of it", "of a test"));
  send_actively(rank);
  if (what == "die") {
    done(heddle_context_barrier(rank.context, rank.worker, HEDDLE_FOREVER), "barrier");
    if (rank.number == 1) ::raise(SIGKILL);
  }
  send_tagged(rank);
  reduce(rank);
  done(heddle_trace_end(rank.context, "all of it"), "trace_end");
  done(heddle_context_barrier(rank.context, rank.worker, HEDDLE_FOREVER), "barrier");
  heddle_worker_stats stats{};
  stats.size = sizeof stats;
  done(heddle_worker_stats_read(rank.worker, &stats), "stats");
  std::printf("rank %u process %d messages %llu sends %llu receives %llu kept %llu tasks %llu\n", rank.number,
              ::getpid(), static_cast<unsigned long long>(stats.messages), static_cast<unsigned long long>(stats.sends),
              static_cast<unsigned long long>(stats.receives), static_cast<unsigned long long>(stats.kept),
              static_cast<unsigned long long>(stats.tasks));
  std::fflush(stdout);
  done(heddle_context_leave(rank.context), "leave");
}

}  // namespace
}  // namespace heddle::tests

int main(int argc, char** argv) {
  heddle::tests::run(argc > 1 ? argv[1] : "");
  return 0;
}
