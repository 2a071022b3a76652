// A rank for oversub_test.cpp: many threads, on a worker each or all on one, in the sharing mode of
// HEDDLE_SHARING. Each thread puts, updates and sends to its like in other ranks and waits for
// theirs. Arguments: workers (1 or threads), threads, rounds.
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rank_support.hpp"

namespace heddle::tests {
namespace {

constexpr std::uint32_t kHandler = 1;
constexpr std::uint32_t kMostThreads = 16;

// In the allocated region, written by peers: by thread.
struct alignas(64) Shared {
  std::uint64_t signal;
  std::uint64_t sum;
  std::array<std::uint64_t, 6> data;
};

struct Job {
  heddle_context context{};
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint32_t threads = 0;
  std::uint64_t rounds = 0;
  std::vector<heddle_worker> workers;
  std::vector<heddle_remote_region> remote;
  Shared* shared = nullptr;
  // release by handlers, acquire in signal_wait
  std::array<std::atomic<std::uint64_t>, kMostThreads> messages{};
};

void count(const heddle_am_arrival* message, void* arg) {
  std::uint64_t thread = 0;
  check(message->payload_bytes == sizeof thread, "a message's size");
  std::memcpy(&thread, message->payload, sizeof thread);
  check(thread < kMostThreads, "a message's thread");
  static_cast<Job*>(arg)->messages[thread].fetch_add(1, std::memory_order_release);
}

const std::uint64_t* word_of(const std::atomic<std::uint64_t>& word) {
  return reinterpret_cast<const std::uint64_t*>(&word);
}

void exchange_tagged(const Job& job, std::uint32_t thread, std::uint64_t round) {
  const std::uint32_t index = thread % static_cast<std::uint32_t>(job.workers.size());
  const heddle_worker worker = job.workers[index];
  const std::uint32_t partner = job.rank ^ 1U;
  const std::uint64_t tag = std::uint64_t{thread} << 32 | round;
  const heddle_wanted wanted{{partner, index}, tag, UINT64_MAX};
  heddle_receive receive{};
  std::uint64_t got = 0;
  const std::uint64_t mine = round * job.size + job.rank;
  accepted(heddle_recv(worker, &wanted, &got, sizeof got, &receive, nullptr), "recv");
  accepted(heddle_send(worker, {partner, index}, tag, &mine, sizeof mine, nullptr), "send");
  done(heddle_recv_wait(worker, &receive, Deadline::kNs), "recv_wait");
  check(got == round * job.size + partner, "a tagged message's content");
}

void work(Job& job, std::uint32_t thread) {
  const std::uint32_t index = thread % static_cast<std::uint32_t>(job.workers.size());
  const heddle_worker worker = job.workers[index];
  const std::uint32_t next = (job.rank + 1) % job.size;
  const heddle_remote_region there = job.remote[next];
  const std::uint64_t base = thread * sizeof(Shared);
  const std::uint64_t number = thread;
  std::array<std::uint64_t, 6> data{};
  for (std::uint64_t round = 1; round <= job.rounds; ++round) {
    data.fill(round);
    accepted(heddle_put(worker, data.data(), sizeof data, {there, base + offsetof(Shared, data)}, nullptr), "put");
    accepted(heddle_atomic(worker, HEDDLE_ADD64, {there, base + offsetof(Shared, sum)}, round, nullptr), "atomic");
    const heddle_am_message message{kHandler, 0, nullptr, &number, sizeof number};
    accepted(heddle_am(worker, {next, index}, &message, nullptr), "am");
    exchange_tagged(job, thread, round);
    done(heddle_fence(worker), "fence");
    const heddle_signal signal{{there, base + offsetof(Shared, signal)}, round, HEDDLE_SIGNAL_SET};
    accepted(heddle_put_signal(worker, nullptr, 0, {there, base}, &signal, nullptr), "put_signal");
    done(heddle_signal_wait(worker, &job.shared[thread].signal, HEDDLE_GE, round, Deadline::kNs), "signal_wait");
  }
  done(heddle_flush(worker, next), "flush");
  done(heddle_signal_wait(worker, word_of(job.messages[thread]), HEDDLE_EQ, job.rounds, Deadline::kNs), "messages");
}

void run(Job& job, std::uint32_t workers) {
  done(heddle_context_join(nullptr, &job.context), "join");
  done(heddle_context_rank(job.context, &job.rank), "rank");
  done(heddle_context_size(job.context, &job.size), "size");
  check(job.size % 2 == 0, "an odd number of ranks");
  done(heddle_am_register(job.context, kHandler, count, &job), "handler");
  job.workers.resize(workers);
  for (heddle_worker& worker : job.workers) done(heddle_worker_open(job.context, nullptr, &worker), "worker");
  heddle_region region{};
  done(heddle_region_alloc(job.context, job.threads * sizeof(Shared), &region), "region");
  void* address = nullptr;
  done(heddle_region_address(region, &address, nullptr), "address");
  job.shared = static_cast<Shared*>(address);
  job.remote.resize(job.size);
  done(heddle_region_exchange(job.context, region, job.remote.data()), "region_exchange");
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < job.threads; ++i) threads.emplace_back(work, std::ref(job), i);
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 20; ++i) {
    done(heddle_context_barrier(job.context, job.workers[0], Deadline::kNs), "barrier");
  }
  for (std::uint32_t i = 0; i < job.threads; ++i) {
    check(job.shared[i].sum == job.rounds * (job.rounds + 1) / 2, "updates were lost or doubled");
    for (const std::uint64_t word : job.shared[i].data) check(word == job.rounds, "the last put is not there");
  }
  done(heddle_context_leave(job.context), "leave");
  say("left", job.rank);
}

}  // namespace
}  // namespace heddle::tests

int main(int argc, char** argv) {
  using namespace heddle::tests;  // NOLINT
  ::alarm(85);                    // a call that blocks for ever ends the rank, and with it the job
  check(argc == 4, "arguments: workers threads rounds");
  const auto job = std::make_unique<Job>();
  job->threads = static_cast<std::uint32_t>(std::stoul(argv[2]));
  check(job->threads <= kMostThreads, "too many threads");
  job->rounds = std::stoull(argv[3]);
  run(*job, static_cast<std::uint32_t>(std::stoul(argv[1])));
  return 0;
}
