// A rank for kill_storm.py: one rank dies, and every call of the others that needs it ends with
// PEER_FAILED.
//
//   call_death_rank CALL VICTIM MICROSECONDS busy|idle
//
// Rank VICTIM kills itself MICROSECONDS after all are here, at any instruction. Before, it does its
// part in the call (busy), or sleeps (idle). The others repeat the call until it says that the
// victim has failed; then they leave ("survived RANK").
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string_view>
#include <vector>

#include "rank_support.hpp"

namespace heddle::tests {
namespace {

constexpr std::uint32_t kNetwork = 1;
constexpr std::uint32_t kUser = HEDDLE_AM_USER + 1;
constexpr std::uint64_t kTag = 3;
constexpr std::size_t kShort = 64;
constexpr std::size_t kLong = std::size_t{100} << 10;
constexpr std::size_t kRegionBytes = std::size_t{256} << 10;
constexpr std::uint32_t kParts = 4;
// between two checks by a call that does not notice deaths by itself
constexpr std::int64_t kLookNs = 1'000'000;

struct Job {
  heddle_context context{};
  heddle_worker worker{};
  heddle_team team{};
  heddle_counter counter{};
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint32_t victim = 0;
  std::uint64_t round = 0;
  std::uint64_t counted = 0;
  heddle_collective collective{};         // persistent
  std::vector<heddle_partitioned> parts;  // with each peer of this call
  heddle_region own{};
  std::uint64_t* own_words = nullptr;  // word 0 is for signals
  std::vector<heddle_remote_region> regions;
  std::vector<std::byte> data = std::vector<std::byte>(kRegionBytes, std::byte{7});
  std::vector<std::byte> other = std::vector<std::byte>(kRegionBytes);
};

struct Ended {
  std::atomic<bool> is{false};  // release by the callback, which runs on any thread
  heddle_status status = HEDDLE_DONE;
};
void on_end(void* arg, heddle_status status) {
  auto* ended = static_cast<Ended*>(arg);
  ended->status = status;
  ended->is.store(true, std::memory_order_release);
}

// post(completion), and its outcome.
template <class Post>
heddle_status outcome(Job& job, const Post& post) {
  Ended ended;
  const heddle_completion completion{on_end, &ended, {}, HEDDLE_WHEN_REMOTE};
  const heddle_status status = post(&completion);
  if (status != HEDDLE_POSTED) return status;
  while (!ended.is.load(std::memory_order_acquire)) {
    const heddle_status waited = heddle_worker_wait(job.worker, HEDDLE_FOREVER);
    if (waited < 0) return waited;
  }
  return ended.status;
}

heddle_remote at_victim(const Job& job, std::uint64_t offset = 64) {
  return {job.regions[job.victim], offset};
}

// ---- the calls of a survivor --------------------------------------------------------------------

heddle_status context_barrier(Job& job) {
  return heddle_context_barrier(job.context, job.worker, HEDDLE_FOREVER);
}
heddle_status context_exchange(Job& job) {
  return heddle_context_exchange(job.context, job.data.data(), kShort, job.other.data());
}
heddle_status region_exchange(Job& job) {
  std::vector<heddle_remote_region> all(job.size);
  const heddle_status status = heddle_region_exchange(job.context, job.own, all.data());
  if (status != HEDDLE_DONE) return status;
  for (const heddle_remote_region& one : all) done(heddle_remote_region_release(one), "release");
  return status;
}
heddle_status quiet(Job& job) {
  const heddle_status status = heddle_put(job.worker, job.data.data(), kShort, at_victim(job), nullptr);
  return status < 0 ? status : heddle_quiet(job.worker);
}
heddle_status flush(Job& job) {
  return heddle_flush(job.worker, job.victim);
}
heddle_status put(Job& job) {
  return outcome(job, [&](const heddle_completion* completion) {
    return heddle_put(job.worker, job.data.data(), kLong, at_victim(job), completion);
  });
}
heddle_status get(Job& job) {
  return outcome(job, [&](const heddle_completion* completion) {
    return heddle_get(job.worker, job.other.data(), kLong, at_victim(job), completion);
  });
}
heddle_status atomic(Job& job) {
  return outcome(job, [&](const heddle_completion* completion) {
    return heddle_atomic(job.worker, HEDDLE_ADD64, at_victim(job, 8), 1, completion);
  });
}
heddle_status fetch(Job& job) {
  std::uint64_t result = 0;
  const heddle_fetch fetch{1, 0, &result};
  return outcome(job, [&](const heddle_completion* completion) {
    return heddle_fetch_atomic(job.worker, HEDDLE_ADD64, at_victim(job, 8), &fetch, completion);
  });
}
heddle_status put_signal(Job& job) {
  const heddle_signal signal{at_victim(job, 0), 1, HEDDLE_SIGNAL_ADD};
  return outcome(job, [&](const heddle_completion* completion) {
    return heddle_put_signal(job.worker, job.data.data(), kShort, at_victim(job), &signal, completion);
  });
}
template <std::uint32_t kHandler, std::size_t kBytes>
heddle_status am(Job& job) {
  const heddle_am_message message{kHandler, 0, nullptr, job.data.data(), kBytes};
  return outcome(job, [&](const heddle_completion* completion) {
    return heddle_am(job.worker, {job.victim, 0}, &message, completion);
  });
}
template <std::size_t kBytes>
heddle_status send(Job& job) {
  return outcome(job, [&](const heddle_completion* completion) {
    return heddle_send(job.worker, {job.victim, 0}, kTag, job.data.data(), kBytes, completion);
  });
}
heddle_status receive_from(Job& job, heddle_peer source) {
  const heddle_wanted wanted{source, kTag, UINT64_MAX};
  heddle_receive receive{};
  const heddle_status status = heddle_recv(job.worker, &wanted, job.other.data(), job.other.size(), &receive, nullptr);
  return status == HEDDLE_POSTED ? heddle_recv_wait(job.worker, &receive, HEDDLE_FOREVER) : status;
}
heddle_status receive(Job& job) {
  return receive_from(job, {job.victim, 0});
}
heddle_status probe(Job& job) {
  const heddle_wanted wanted{{job.victim, 0}, kTag, UINT64_MAX};
  heddle_receive found{};
  heddle_status status = HEDDLE_AGAIN;
  while ((status = heddle_try_probe(job.worker, &wanted, &found)) == HEDDLE_AGAIN) {
    const heddle_status waited = heddle_worker_wait(job.worker, HEDDLE_FOREVER);
    if (waited < 0) return waited;
  }
  return status < 0 ? status : receive(job);
}
heddle_status counter(Job& job) {
  const heddle_completion completion{nullptr, nullptr, job.counter, HEDDLE_WHEN_REMOTE};
  const heddle_am_message message{kNetwork, 0, nullptr, job.data.data(), kShort};
  const heddle_status status = heddle_am(job.worker, {job.victim, 0}, &message, &completion);
  if (status < 0) return status;
  return heddle_counter_wait(job.worker, job.counter, ++job.counted, HEDDLE_FOREVER);
}
heddle_status signal_wait(Job& job) {
  for (;;) {
    const heddle_status status = heddle_signal_wait(job.worker, job.own_words, HEDDLE_GE, job.round, kLookNs);
    if (status != HEDDLE_ERR_TIMEOUT) return status;
    if (heddle_context_peer_status(job.context, job.victim) != HEDDLE_DONE) return HEDDLE_ERR_PEER_FAILED;
  }
}

heddle_reduction sum() {
  heddle_reduction how{};
  how.type = HEDDLE_DOUBLE;
  how.op = HEDDLE_SUM;
  return how;
}
heddle_status team_barrier(Job& job) {
  return heddle_barrier(job.team);
}
heddle_status broadcast(Job& job) {
  return heddle_broadcast(job.team, job.data.data(), kLong, static_cast<std::uint32_t>(job.round % job.size));
}
heddle_status allreduce(Job& job) {
  const heddle_reduction how = sum();
  return heddle_allreduce(job.team, job.data.data(), job.other.data(), kLong / sizeof(double), &how);
}
heddle_status alltoall(Job& job) {
  return heddle_alltoall(job.team, job.data.data(), job.other.data(), kShort);
}
heddle_status collective_test(Job& job) {
  const heddle_reduction how = sum();
  heddle_collective run{};
  heddle_status status = heddle_allreduce_start(job.team, job.data.data(), job.other.data(), 8, &how, &run);
  if (status < 0) return status;
  while ((status = heddle_collective_test(run)) == HEDDLE_AGAIN) sched_yield();
  return status;
}
heddle_status persistent(Job& job) {
  if (job.round == 1) {
    const heddle_reduction how = sum();
    const heddle_status made =
        heddle_allreduce_init(job.team, job.data.data(), job.other.data(), 8, &how, nullptr, &job.collective);
    if (made < 0) return made;
  }
  const heddle_status status = heddle_collective_start(job.collective);
  return status < 0 ? status : heddle_collective_wait(job.collective, HEDDLE_FOREVER);
}
heddle_status split(Job& job) {
  heddle_team made{};
  const heddle_status status = heddle_team_split(job.team, 0, job.rank, &made);
  if (status < 0) return status;
  const heddle_status met = heddle_barrier(made);
  return met < 0 ? met : heddle_team_free(made);
}
// From the victim.
heddle_status partitioned(Job& job) {
  if (job.parts.empty()) {
    heddle_partitioned made{};
    const heddle_status status =
        heddle_precv_init(job.worker, job.other.data(), kParts, kShort, {job.victim, 0}, kTag, &made);
    if (status < 0) return status;
    job.parts.push_back(made);
  }
  const heddle_status status = heddle_partitioned_start(job.parts[0]);
  return status < 0 ? status : heddle_partitioned_wait(job.parts[0], HEDDLE_FOREVER);
}

// ---- the victim's part --------------------------------------------------------------------------

void serve(Job& job) {
  check(heddle_run_tasks(job.worker, 4, kLookNs) >= 0, "run_tasks");
}
void take(Job& job) {
  done(receive_from(job, {HEDDLE_ANY, HEDDLE_ANY}), "the victim's receive");
}
template <class Each>
void to_the_others(Job& job, const Each& each) {
  for (std::uint32_t rank = 0; rank < job.size; ++rank)
    if (rank != job.rank) each(rank);
}
void give(Job& job) {
  to_the_others(job, [&](std::uint32_t rank) {
    accepted(heddle_send(job.worker, {rank, 0}, kTag, job.data.data(), kShort, nullptr), "the victim's send");
  });
}
void tell(Job& job) {
  to_the_others(job, [&](std::uint32_t rank) {
    const heddle_signal signal{{job.regions[rank], 0}, 1, HEDDLE_SIGNAL_ADD};
    accepted(heddle_put_signal(job.worker, job.data.data(), kShort, {job.regions[rank], 64}, &signal, nullptr),
             "signal");
  });
}
void give_parts(Job& job) {
  if (job.parts.empty()) {
    to_the_others(job, [&](std::uint32_t rank) {
      done(heddle_psend_init(job.worker, job.data.data(), kParts, kShort, {rank, 0}, kTag, &job.parts.emplace_back()),
           "psend_init");
    });
  }
  for (const heddle_partitioned& part : job.parts) {
    done(heddle_partitioned_start(part), "start");
    done(heddle_pready_range(part, 0, kParts - 1), "pready");
  }
  for (const heddle_partitioned& part : job.parts)
    done(heddle_partitioned_wait(part, HEDDLE_FOREVER), "the victim's wait");
}

struct Call {
  const char* name;
  heddle_status (*survivor)(Job&);
  void (*victim)(Job&);  // null: the same
};
constexpr auto kCalls = std::to_array<Call>({
    {"barrier", context_barrier, nullptr},
    {"exchange", context_exchange, nullptr},
    {"region_exchange", region_exchange, nullptr},
    {"quiet", quiet, serve},
    {"flush", flush, serve},
    {"put", put, serve},
    {"get", get, serve},
    {"atomic", atomic, serve},
    {"fetch", fetch, serve},
    {"put_signal", put_signal, serve},
    {"am", am<kNetwork, kShort>, serve},
    {"am_user", am<kUser, kShort>, serve},
    {"am_large", am<kUser, kLong>, serve},
    {"send", send<kShort>, take},
    {"send_large", send<kLong>, take},
    {"recv", receive, give},
    {"probe", probe, give},
    {"counter", counter, serve},
    {"signal_wait", signal_wait, tell},
    {"team_barrier", team_barrier, nullptr},
    {"broadcast", broadcast, nullptr},
    {"allreduce", allreduce, nullptr},
    {"alltoall", alltoall, nullptr},
    {"collective_test", collective_test, nullptr},
    {"persistent", persistent, nullptr},
    {"split", split, nullptr},
    {"partitioned", partitioned, give_parts},
});

const Call* find(std::string_view name) {
  for (const Call& call : kCalls)
    if (name == call.name) return &call;
  return nullptr;
}

void ignore(const heddle_am_arrival*, void*) {}

void open(Job& job) {
  done(heddle_context_join(nullptr, &job.context), "join");
  done(heddle_context_rank(job.context, &job.rank), "rank");
  done(heddle_context_size(job.context, &job.size), "size");
  done(heddle_am_register(job.context, kNetwork, ignore, nullptr), "handler");
  done(heddle_am_register(job.context, kUser, ignore, nullptr), "handler");
  done(heddle_worker_open(job.context, nullptr, &job.worker), "worker");
  done(heddle_team_world(job.context, &job.team), "world");
  heddle_counter_options options{};
  options.size = sizeof options;
  options.counts_done = 1;
  done(heddle_counter_create(job.context, &options, &job.counter), "counter");
  void* address = nullptr;
  std::size_t bytes = 0;
  done(heddle_region_alloc(job.context, kRegionBytes, &job.own), "alloc");
  done(heddle_region_address(job.own, &address, &bytes), "address");
  job.own_words = static_cast<std::uint64_t*>(address);
  job.regions.resize(job.size);
  done(heddle_region_exchange(job.context, job.own, job.regions.data()), "exchange");
  done(context_barrier(job), "barrier");
}

void die(int) {
  ::kill(::getpid(), SIGKILL);
}

[[noreturn]] void end_here(Job& job, const Call& call, long microseconds, bool busy) {
  const itimerval timer{{0, 0}, {microseconds / 1'000'000, microseconds % 1'000'000}};
  if (microseconds == 0) die(0);
  ::signal(SIGALRM, die);
  check(::setitimer(ITIMER_REAL, &timer, nullptr) == 0, "timer");
  while (!busy) ::pause();
  for (job.round = 1;; ++job.round) {
    if (call.victim != nullptr) {
      call.victim(job);
    } else {
      done(call.survivor(job), "the victim's call");
    }
  }
}

}  // namespace
}  // namespace heddle::tests

int main(int argc, char** argv) {
  using namespace heddle::tests;
  check(argc == 5, "usage: call_death_rank CALL VICTIM MICROSECONDS busy|idle");
  const Call* const call = find(argv[1]);
  check(call != nullptr, "no such call");
  Job job;
  job.victim = static_cast<std::uint32_t>(std::strtoul(argv[2], nullptr, 10));
  open(job);
  if (job.rank == job.victim)
    end_here(job, *call, std::strtol(argv[3], nullptr, 10), std::string_view(argv[4]) == "busy");
  heddle_status status = HEDDLE_DONE;
  while (status >= 0) {
    ++job.round;
    status = call->survivor(job);
    // Mapped memory is read and written without a check that its owner lives.
    check(heddle_worker_progress(job.worker) >= 0, "progress");
  }
  expect(status, HEDDLE_ERR_PEER_FAILED, call->name);
  if (job.collective.id != 0) done(heddle_collective_free(job.collective), "free");
  for (const heddle_partitioned& part : job.parts) done(heddle_partitioned_free(part), "free");
  done(heddle_context_leave(job.context), "leave");
  say("survived", job.rank);
  return 0;
}
