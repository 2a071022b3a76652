// A rank for ranks_test.cpp: how ranks meet, late or not at all. The first argument is the mode.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rank_support.hpp"

namespace heddle::tests {
namespace {

constexpr std::uint32_t kVictim = 1;
constexpr std::size_t kBytes = 4096;

struct Rank {
  heddle_context context{};
  heddle_worker worker{};
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  heddle_region mine{};
  std::uint64_t* words = nullptr;
  std::vector<heddle_remote_region> all;
};

void barrier(const Rank& rank, heddle_worker worker) {
  done(heddle_context_barrier(rank.context, worker, Deadline::kNs), "barrier");
}

void join(Rank& rank) {
  done(heddle_context_join(nullptr, &rank.context), "join");
  done(heddle_context_rank(rank.context, &rank.rank), "rank");
  done(heddle_context_size(rank.context, &rank.size), "size");
  done(heddle_worker_open(rank.context, nullptr, &rank.worker), "worker");
}

void exchange_regions(Rank& rank) {
  done(heddle_region_alloc(rank.context, kBytes, &rank.mine), "region");
  void* address = nullptr;
  done(heddle_region_address(rank.mine, &address, nullptr), "address");
  rank.words = static_cast<std::uint64_t*>(address);
  rank.all.resize(rank.size);
  done(heddle_region_exchange(rank.context, rank.mine, rank.all.data()), "region exchange");
}

void release_regions(Rank& rank) {
  for (const heddle_remote_region& remote : rank.all) done(heddle_remote_region_release(remote), "release");
  done(heddle_region_release(rank.mine), "release");
}

long sleeps() {
  rusage usage{};
  check(::getrusage(RUSAGE_SELF, &usage) == 0, "getrusage");
  return usage.ru_nvcsw;
}

// A descriptor for each peer that has been met, and others.
long descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<long>(std::distance(begin(all), end(all)));
}

// Rank 0 says the sum of all ranks' numbers.
void say_sum(const Rank& rank, const char* word, long number) {
  std::vector<long> everyone(rank.size);
  done(heddle_context_exchange(rank.context, &number, sizeof number, everyone.data()), "exchange");
  if (rank.rank == 0) say(word, std::accumulate(everyone.begin(), everyone.end(), 0L));
}

// The first access in a handler: the results of waiting calls there.
struct InHandler {
  heddle_worker worker;
  heddle_remote there;
  heddle_status pointer = HEDDLE_AGAIN;
  heddle_status get = HEDDLE_AGAIN;
  heddle_status atomic = HEDDLE_AGAIN;
  bool ran = false;

  void expect_all(heddle_status wanted) const {
    expect(atomic, wanted, "atomic in a handler");
    expect(get, wanted, "get in a handler");
    expect(pointer, wanted, "pointer in a handler");
  }
};

void access_in_handler(const heddle_am_arrival*, void* arg) {
  InHandler& in = *static_cast<InHandler*>(arg);
  std::uint64_t value = 0;
  void* pointer = nullptr;
  const heddle_fetch fetch{1, 0, &value};
  // the first of them meets the owner, where that needs no wait
  in.atomic = heddle_fetch_atomic_wait(in.worker, HEDDLE_ADD64, in.there, &fetch);
  in.get = heddle_get_wait(in.worker, &value, sizeof value, in.there);
  in.pointer = heddle_remote_pointer(in.there, &pointer);
  in.ran = true;
}

InHandler in_handler(const Rank& rank, heddle_remote there) {
  constexpr std::uint32_t kHandler = 4;
  InHandler in{rank.worker, there};
  done(heddle_am_register(rank.context, kHandler, access_in_handler, &in), "handler");
  const heddle_am_message message{kHandler, 0, nullptr, nullptr, 0};
  accepted(heddle_am(rank.worker, {rank.rank, 0}, &message, nullptr), "message to itself");
  const Deadline run("the handler does not run");
  while (!in.ran) {
    check(heddle_worker_progress(rank.worker) >= 0, "progress");
    run.idle();
  }
  return in;
}

// From start to end: three barriers, a region exchange, and a put to the next ranks, which some
// have not met.
void whole() {
  constexpr std::uint32_t kNext = 2;
  Rank rank;
  join(rank);
  for (int i = 0; i < 3; ++i) barrier(rank, rank.worker);
  long before = sleeps();
  long open = descriptors();
  exchange_regions(rank);
  const long for_exchange = sleeps() - before;
  const long met_by_exchange = descriptors() - open;
  barrier(rank, rank.worker);
  before = sleeps();
  open = descriptors();
  for (std::uint32_t next = 1; next <= kNext; ++next) {
    const std::uint64_t value = rank.rank + 1;
    const heddle_remote there{rank.all[(rank.rank + next) % rank.size], next * sizeof value};
    done(heddle_put(rank.worker, &value, sizeof value, there, nullptr), "put");
  }
  const long for_puts = sleeps() - before;
  const long met_by_puts = descriptors() - open;
  barrier(rank, rank.worker);
  for (std::uint32_t next = 1; next <= kNext; ++next) {
    check(rank.words[next] == (rank.rank + rank.size - next) % rank.size + 1, "what a rank has put");
  }
  say_sum(rank, "exchange", for_exchange);
  say_sum(rank, "puts", for_puts);
  say_sum(rank, "peers", met_by_exchange);
  say_sum(rank, "more", met_by_puts);
  release_regions(rank);
  done(heddle_context_leave(rank.context), "leave");
  say("left", rank.rank);
}

// The first access to a region whose owner has died since the exchange: each way to access it says
// so. In all ranks but the victim.
void between() {
  Rank rank;
  join(rank);
  exchange_regions(rank);
  barrier(rank, rank.worker);
  if (rank.rank == kVictim) ::raise(SIGKILL);
  const Deadline told("the death is not told");
  while (heddle_context_peer_status(rank.context, kVictim) == HEDDLE_DONE) told.idle();
  const heddle_remote there{rank.all[kVictim], 8};
  std::uint64_t value = 1;
  const heddle_segment segment{&value, sizeof value, there};
  const heddle_strided shape{8, 1, 8, 8};
  const heddle_signal signal{there, 1, HEDDLE_SIGNAL_SET};
  const heddle_fetch fetch{1, 0, &value};
  void* pointer = nullptr;
  const auto refused = [](heddle_status status, const char* what) {
    expect(status, HEDDLE_ERR_PEER_FAILED, what);
    check(std::strstr(heddle_last_error(), "rank 1") != nullptr, what);
  };
  // the pointer first in one rank, last in the other: what is met or refused first is the same
  if (rank.rank == 0) refused(heddle_remote_pointer(there, &pointer), "pointer");
  refused(heddle_put(rank.worker, &value, sizeof value, there, nullptr), "put");
  refused(heddle_get(rank.worker, &value, sizeof value, there, nullptr), "get");
  refused(heddle_put(rank.worker, &value, 3, there, nullptr), "short put");
  refused(heddle_put_list(rank.worker, &segment, 1, nullptr), "put list");
  refused(heddle_get_strided(rank.worker, &value, there, &shape, nullptr), "get strided");
  refused(heddle_put_signal(rank.worker, &value, sizeof value, there, &signal, nullptr), "put signal");
  refused(heddle_atomic(rank.worker, HEDDLE_ADD64, there, 1, nullptr), "atomic");
  refused(heddle_fetch_atomic(rank.worker, HEDDLE_ADD64, there, &fetch, nullptr), "fetch atomic");
  refused(heddle_remote_pointer(there, &pointer), "pointer");
  in_handler(rank, there).expect_all(HEDDLE_ERR_PEER_FAILED);
  // the same when the regions of the dead have been closed
  check(heddle_worker_progress(rank.worker) >= 0, "progress");
  refused(heddle_remote_pointer(there, &pointer), "pointer to what is closed");
  in_handler(rank, there).expect_all(HEDDLE_ERR_PEER_FAILED);
  // the others are met as ever
  const heddle_remote alive{rank.all[rank.size - 1 - rank.rank], 8};
  value = 7;
  done(heddle_put(rank.worker, &value, sizeof value, alive, nullptr), "put to the living");
  say("survived", rank.rank);
  static_cast<void>(heddle_context_leave(rank.context));
}

// Threads meet one peer at once, region after region.
void threads() {
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint64_t kRounds = 30;
  Rank rank;
  join(rank);
  std::array<heddle_worker, kThreads> workers{};
  for (heddle_worker& worker : workers) done(heddle_worker_open(rank.context, nullptr, &worker), "worker");
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    exchange_regions(rank);
    std::atomic<std::uint32_t> ready{0};
    std::vector<std::thread> all;
    for (const heddle_worker worker : workers) {
      all.emplace_back([&, worker] {
        ready.fetch_add(1);
        const Deadline starting("the threads do not start");
        while (ready.load() < kThreads) starting.idle();
        for (std::uint32_t next = 1; next < rank.size; ++next) {
          const heddle_remote there{rank.all[(rank.rank + next) % rank.size], 64};
          accepted(heddle_atomic(worker, HEDDLE_ADD64, there, 1, nullptr), "atomic");
        }
        done(heddle_quiet(worker), "quiet");
      });
    }
    for (std::thread& thread : all) thread.join();
    barrier(rank, rank.worker);
    check(std::atomic_ref(rank.words[8]).load() == std::uint64_t{kThreads} * (rank.size - 1), "an update was lost");
    barrier(rank, rank.worker);
    release_regions(rank);
  }
  done(heddle_context_leave(rank.context), "leave");
  say("left", rank.rank);
}

// The state of the launcher, as ps(1) says it.
char launcher_state() {
  std::ifstream stat("/proc/" + std::to_string(::getppid()) + "/stat");
  std::string line;
  std::getline(stat, line);
  const std::size_t end = line.rfind(')');
  return end == std::string::npos || end + 2 >= line.size() ? '?' : line[end + 2];
}

// A thread waits for a peer, and another one releases the region.
void release_while_it_waits(heddle_remote_region region) {
  std::thread waits([&] {
    void* pointer = nullptr;
    expect(heddle_remote_pointer({region, 0}, &pointer), HEDDLE_ERR_HANDLE, "pointer to what is released");
  });
  ::usleep(20'000);
  done(heddle_remote_region_release(region), "release while another thread waits");
  waits.join();
}

// The first access while the launcher, which passes the cards on, is stopped: a try says AGAIN, a
// wait waits, or is refused in a handler; which meets the peer by and by.
void stopped() {
  Rank rank;
  join(rank);
  exchange_regions(rank);
  std::vector<heddle_remote_region> more(rank.size);
  std::vector<heddle_remote_region> released(rank.size);
  done(heddle_region_exchange(rank.context, rank.mine, more.data()), "second exchange");
  done(heddle_region_exchange(rank.context, rank.mine, released.data()), "third exchange");
  barrier(rank, rank.worker);
  say("ready", rank.rank);
  const Deadline stop("the launcher is not stopped");
  while (launcher_state() != 'T') stop.idle();
  const std::uint64_t value = rank.rank + 1;
  // not rank 0, which all have met for their barriers
  const std::uint32_t next = (rank.rank + 1) % rank.size == 0 ? 1 : rank.rank + 1;
  const std::uint32_t far = next % (rank.size - 1) + 1;
  const heddle_remote there{rank.all[next], 8 * (rank.rank + 1)};
  for (int i = 0; i < 100; ++i) {
    expect(heddle_try_put(rank.worker, &value, sizeof value, there, nullptr), HEDDLE_AGAIN, "try while it is stopped");
  }
  // only a handler meets that one; memory that nobody checks
  const heddle_remote late{more[far], kBytes - 8};
  in_handler(rank, late).expect_all(HEDDLE_ERR_STATE);
  release_while_it_waits(std::exchange(released[next], {}));
  say("waiting", rank.rank);
  done(heddle_put(rank.worker, &value, sizeof value, there, nullptr), "put");
  const Deadline meeting("what is refused in a handler is refused for ever");
  while (in_handler(rank, late).atomic == HEDDLE_ERR_STATE) meeting.idle();
  in_handler(rank, late).expect_all(HEDDLE_DONE);
  barrier(rank, rank.worker);
  for (const auto* all : {&more, &released}) {
    for (const heddle_remote_region& remote : *all) {
      if (remote.id != 0) done(heddle_remote_region_release(remote), "release");
    }
  }
  for (std::uint64_t from = 0; from < rank.size; ++from) {
    const bool mine = rank.rank != 0 && (from + 1 == rank.rank || (rank.rank == 1 && from + 1 == rank.size));
    check(rank.words[from + 1] == (mine ? from + 1 : 0), "what a rank has put");
  }
  release_regions(rank);
  done(heddle_context_leave(rank.context), "leave");
  say("left", rank.rank);
}

void ignore(const heddle_am_arrival*, void*) {}

// The victim does not join. The others send to it, so they wait for its card; then it is killed, or
// ends, or stays.
void absent(const std::string& how) {
  constexpr std::uint32_t kHandler = 3;
  if (std::atoi(std::getenv("HEDDLE_LOCAL_RANK")) == static_cast<int>(kVictim)) {
    ::usleep(300'000);
    if (how == "killed") ::raise(SIGKILL);
    if (how == "ended") std::_Exit(0);
    for (;;) ::pause();
  }
  Rank rank;
  join(rank);
  done(heddle_am_register(rank.context, kHandler, ignore, nullptr), "handler");
  const heddle_am_message message{kHandler, 0, nullptr, nullptr, 0};
  if (how == "stays") {
    const Deadline no("");
    for (const std::int64_t end = now_ns() + 200'000'000; now_ns() < end; no.idle()) {
      expect(heddle_try_am(rank.worker, {kVictim, 0}, &message, nullptr), HEDDLE_AGAIN, "message to the absent");
    }
    expect(heddle_context_barrier(rank.context, rank.worker, 200'000'000), HEDDLE_ERR_TIMEOUT, "barrier");
    check(std::strstr(heddle_last_error(), "not all ranks have arrived") != nullptr, "the time-out's text");
    say("survived", rank.rank);
    ::usleep(300'000);
    heddle_context_abort(rank.context, 5, "one rank has not joined");
  }
  const heddle_status status = heddle_am(rank.worker, {kVictim, 0}, &message, nullptr);
  const heddle_status flushed = status == HEDDLE_POSTED ? heddle_flush(rank.worker, kVictim) : status;
  expect(flushed, HEDDLE_ERR_PEER_FAILED, "message to the absent");
  expect(heddle_context_barrier(rank.context, rank.worker, Deadline::kNs), HEDDLE_ERR_PEER_FAILED, "barrier");
  say("survived", rank.rank);
  static_cast<void>(heddle_context_leave(rank.context));  // or not: one is dead
}

// Says how its joining ends.
void settings() {
  Rank rank;
  if (heddle_context_join(nullptr, &rank.context) == HEDDLE_DONE) return say("joined", rank.rank);
  std::fprintf(stderr, "%s\n", heddle_last_error());
  std::exit(3);
}

}  // namespace
}  // namespace heddle::tests

int main(int argc, char** argv) {
  using namespace heddle::tests;  // NOLINT
  ::alarm(85);                    // a call that blocks for ever ends the rank, and with it the job
  check(argc >= 2, "arguments: mode …");
  const std::string mode = argv[1];
  if (mode == "whole") whole();
  if (mode == "between") between();
  if (mode == "threads") threads();
  if (mode == "stopped") stopped();
  if (mode == "settings") settings();
  if (mode == "absent") absent(argc > 2 ? argv[2] : "");
  return 0;
}
