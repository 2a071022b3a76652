// A rank for hang_test.cpp: does well, or hangs in the way that the argument names. Says its
// process first, so that the test can ask about it.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include "rank_support.hpp"

namespace heddle::tests {
namespace {

struct Rank {
  heddle_context context{};
  heddle_worker worker{};
  std::uint32_t number = 0;
};

void meet(const Rank& rank) {
  done(heddle_context_barrier(rank.context, rank.worker, HEDDLE_FOREVER), "barrier");
}

// Seconds in which the job moves, though two ranks always wait for the third.
template <class Round>
void go_on(const Rank& rank, Round&& round) {
  for (int i = 0; i < 120; ++i) {
    if (rank.number == 1) ::usleep(20'000);
    round();
  }
}

void meet_often(const Rank& rank) {
  go_on(rank, [&] { meet(rank); });
}

void meet_often_in_team(const Rank& rank) {
  heddle_team team{};
  done(heddle_team_world(rank.context, &team), "team");
  go_on(rank, [&] { done(heddle_barrier(team), "team's barrier"); });
  done(heddle_team_free(team), "free");
}

// Rank 1 writes to the others, and they wait for that.
void write_often(const Rank& rank) {
  heddle_region region{};
  done(heddle_region_alloc(rank.context, 4096, &region), "alloc");
  std::array<heddle_remote_region, 3> all{};
  done(heddle_region_exchange(rank.context, region, all.data()), "exchange");
  void* memory = nullptr;
  done(heddle_region_address(region, &memory, nullptr), "memory");
  std::uint64_t next = 1;
  go_on(rank, [&] {
    if (rank.number == 1) {
      for (const std::uint32_t to : {0U, 2U}) {
        accepted(heddle_put(rank.worker, &next, sizeof next, {all[to], 0}, nullptr), "put");
        done(heddle_flush(rank.worker, to), "flush");
      }
    } else {
      const auto* word = static_cast<const std::uint64_t*>(memory);
      done(heddle_signal_wait(rank.worker, word, HEDDLE_GE, next, HEDDLE_FOREVER), "signal_wait");
    }
    ++next;
  });
}

// Rank 0 sends another tag than rank 1 waits for; the others wait for both.
void mistake_tag(const Rank& rank) {
  std::uint64_t word = 0;
  if (rank.number == 0) accepted(heddle_send(rank.worker, {1, 0}, 8, &word, sizeof word, nullptr), "send");
  if (rank.number == 1) {
    heddle_receive receive{};
    const heddle_wanted wanted{{0, 0}, 7, UINT64_MAX};
    accepted(heddle_recv(rank.worker, &wanted, &word, sizeof word, &receive, nullptr), "recv");
    done(heddle_recv_wait(rank.worker, &receive, HEDDLE_FOREVER), "recv_wait");
  }
  meet(rank);
}

// Rank 0 sends to a worker that rank 1 has not opened, and does not know it; each waits for the
// other then.
void send_to_unopened(const Rank& rank) {
  std::uint64_t word = 0;
  if (rank.number == 0) {
    const heddle_am_message message{1, 0, nullptr, &word, sizeof word};
    accepted(heddle_am(rank.worker, {1, 3}, &message, nullptr), "am");
    accepted(heddle_send(rank.worker, {1, 3}, 7, &word, sizeof word, nullptr), "send");
    done(heddle_quiet(rank.worker), "quiet");
  }
  if (rank.number == 1) {
    heddle_receive receive{};
    const heddle_wanted wanted{{0, 0}, 7, UINT64_MAX};
    accepted(heddle_recv(rank.worker, &wanted, &word, sizeof word, &receive, nullptr), "recv");
    done(heddle_recv_wait(rank.worker, &receive, HEDDLE_FOREVER), "recv_wait");
  }
  meet(rank);
}

void compute(const Rank& rank) {
  volatile std::uint64_t sum = 0;
  while (rank.number == 1) sum = sum + 1;
  meet(rank);
}

void stop(const Rank& rank) {
  if (rank.number == 1) ::raise(SIGSTOP);
  meet(rank);
}

// Three seconds later than the others.
void come_late(const Rank& rank) {
  if (rank.number == 1) ::usleep(3'000'000);
  meet(rank);
}

// In a loop of its own, for a word that nobody writes.
void wait_in_loop(const Rank& rank) {
  const heddle_tell_wait tell = [](void*, heddle_wait_facts* facts) {
    facts->call = "my_wait";
    facts->cause = HEDDLE_WAIT_MESSAGE;
    facts->rank = 2;
    std::snprintf(facts->tag, sizeof facts->tag, "colour red");
    std::snprintf(facts->text, sizeof facts->text, "colour red from rank 2");
  };
  while (rank.number == 1) {
    done(heddle_wait_note(rank.worker, tell, nullptr), "note");
    check(heddle_worker_progress(rank.worker) >= 0, "progress");
    ::usleep(1000);
  }
  meet(rank);
}

struct Case {
  const char* name;
  void (*run)(const Rank& rank);
};
constexpr std::array kCases = {
    Case{"barriers", meet_often}, Case{"team", meet_often_in_team}, Case{"puts", write_often},
    Case{"tag", mistake_tag},     Case{"compute", compute},         Case{"stop", stop},
    Case{"late", come_late},      Case{"loop", wait_in_loop},       Case{"unopened", send_to_unopened}};

void run(const std::string& name) {
  Rank rank;
  done(heddle_context_join(nullptr, &rank.context), "join");
  done(heddle_context_rank(rank.context, &rank.number), "rank");
  done(heddle_worker_open(rank.context, nullptr, &rank.worker), "worker");
  meet(rank);
  std::printf("rank %u pid %d\n", rank.number, static_cast<int>(::getpid()));
  std::fflush(stdout);
  const Case* found = std::find_if(kCases.begin(), kCases.end(), [&](const Case& one) { return name == one.name; });
  check(found != kCases.end(), "no such case");
  found->run(rank);
  done(heddle_context_leave(rank.context), "leave");
  say("left", rank.number);
}

}  // namespace
}  // namespace heddle::tests

int main(int argc, char** argv) {
  ::alarm(120);  // what is never asked to end ends all the same
  heddle::tests::run(argc > 1 ? argv[1] : "barriers");
  return 0;
}
