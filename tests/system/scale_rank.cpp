// A rank for scale_test.cpp. Each worker, driven by a thread of its own or all by one, sends
// numbered messages to the same worker of its neighbours in a ring and to worker 0 of rank 0.
// Arguments: workers, threads (workers or 1), messages.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "rank_support.hpp"

namespace heddle::tests {
namespace {

constexpr std::uint32_t kNeighbourHandler = 1;
constexpr std::uint32_t kRootHandler = 2;
constexpr std::array<std::int32_t, 4> kNeighbours = {-2, -1, 1, 2};

struct Header {
  std::uint32_t rank;
  std::uint32_t worker;
  std::uint64_t number;
};

// The arrivals at one worker; only the thread that drives it accesses them.
struct Arrived {
  std::uint64_t neighbours = 0;
  std::uint64_t root = 0;
  // By source rank and worker: the sum of (number + 1), which a lost or doubled message changes.
  std::vector<std::uint64_t> sums;
};

struct Job {
  heddle_context context{};
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint32_t workers_per_rank = 0;
  std::uint64_t messages = 0;
  std::vector<heddle_worker> workers;
  std::vector<Arrived> arrived;
  std::array<std::uint64_t, 8> payload{};
};

void count(Job& job, const heddle_am_arrival* message, std::uint64_t Arrived::* kind) {
  Header header{};
  check(message->header_bytes == sizeof header && message->payload_bytes == sizeof job.payload, "a message's sizes");
  std::memcpy(&header, message->header, sizeof header);
  check(header.rank == message->source.rank && header.worker == message->source.worker, "a message's source");
  check(header.number < job.messages, "a message's number");
  check(std::memcmp(message->payload, job.payload.data(), sizeof job.payload) == 0, "a message's payload");
  std::uint32_t index = 0;
  done(heddle_worker_index(message->worker, &index), "index");
  Arrived& here = job.arrived[index];
  ++(here.*kind);
  here.sums[header.rank * job.workers_per_rank + header.worker] += header.number + 1;
}
void from_neighbour(const heddle_am_arrival* message, void* arg) {
  count(*static_cast<Job*>(arg), message, &Arrived::neighbours);
}
void at_root(const heddle_am_arrival* message, void* arg) {
  count(*static_cast<Job*>(arg), message, &Arrived::root);
}

std::uint32_t neighbour(const Job& job, std::uint32_t rank, std::int32_t distance) {
  return (rank + job.size + static_cast<std::uint32_t>(distance)) % job.size;
}

std::uint64_t root_messages(const Job& job, std::uint32_t worker) {
  return job.rank == 0 && worker == 0 ? job.messages * job.size * job.workers_per_rank : 0;
}

// The workers from `first` on, by this thread: a message from each in turn, so that all have some
// in flight.
void drive(Job& job, std::uint32_t first, std::uint32_t count) {
  const auto progress = [&] {
    int events = 0;
    for (std::uint32_t i = first; i < first + count; ++i) {
      const int moved = heddle_worker_progress(job.workers[i]);
      check(moved >= 0, "progress");
      events += moved;
    }
    return events;
  };
  const Deadline sending("messages cannot be sent");
  const auto send = [&](std::uint32_t worker, heddle_peer target, std::uint32_t handler, std::uint64_t number) {
    const Header header{job.rank, worker, number};
    const heddle_am_message message{handler, sizeof header, &header, job.payload.data(), sizeof job.payload};
    for (;;) {
      const heddle_status status = heddle_try_am(job.workers[worker], target, &message, nullptr);
      if (status != HEDDLE_AGAIN) return accepted(status, "am");
      if (progress() == 0) sending.idle();
    }
  };
  for (std::uint64_t number = 0; number < job.messages; ++number) {
    for (std::uint32_t i = first; i < first + count; ++i) {
      for (const std::int32_t distance : kNeighbours) {
        send(i, {neighbour(job, job.rank, distance), i}, kNeighbourHandler, number);
      }
      send(i, {0, 0}, kRootHandler, number);
    }
  }
  const Deadline receiving("messages do not arrive");
  for (std::uint32_t i = first; i < first + count; ++i) {
    while (job.arrived[i].neighbours < kNeighbours.size() * job.messages ||
           job.arrived[i].root < root_messages(job, i)) {
      if (progress() == 0) receiving.idle();
    }
    done(heddle_quiet(job.workers[i]), "quiet");
  }
}

// Every message came exactly once, and nothing else did.
void verify(const Job& job) {
  const std::uint64_t sum = job.messages * (job.messages + 1) / 2;
  for (std::uint32_t i = 0; i < job.workers_per_rank; ++i) {
    std::vector<std::uint64_t> wanted(job.arrived[i].sums.size(), root_messages(job, i) > 0 ? sum : 0);
    for (const std::int32_t distance : kNeighbours) {
      wanted[neighbour(job, job.rank, distance) * job.workers_per_rank + i] += sum;
    }
    check(job.arrived[i].sums == wanted, "messages were lost, doubled or sent elsewhere");
  }
}

struct Memory {
  // RssAnon + RssShmem: shared pages count once for each that has touched them
  std::uint64_t mapped = 0;

  // of memfds that are open here: all of a machine share one numbering
  std::array<std::uint64_t, 128> inodes{};
  std::array<std::uint64_t, 128> bytes{};
  std::uint64_t files = 0;
};

Memory memory_of_this_process() {
  Memory memory;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::uint64_t kib = 0;
    if ((word == "RssAnon:" || word == "RssShmem:") && status >> kib) memory.mapped += kib * 1024;
  }
  check(memory.mapped > 0, "/proc/self/status tells no RssAnon");
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (gone || target.compare(0, 7, "/memfd:") != 0) continue;
    struct stat file{};
    check(::fstat(std::stoi(entry.path().filename().string()), &file) == 0, "fstat");
    check(memory.files < memory.inodes.size(), "more memfds than a rank should have");
    memory.inodes[memory.files] = file.st_ino;
    memory.bytes[memory.files++] = static_cast<std::uint64_t>(file.st_blocks) * 512;
  }
  return memory;
}

// Rank 0 says what all ranks have together: "mapped", "files" (each memfd once), "bytes" (of
// those).
void say_memory(const Job& job) {
  const Memory mine = memory_of_this_process();
  std::vector<Memory> all(job.size);
  done(heddle_context_exchange(job.context, &mine, sizeof mine, all.data()), "exchange");
  if (job.rank != 0) return;
  std::vector<std::uint64_t> seen;
  std::uint64_t mapped = 0;
  std::uint64_t bytes = 0;
  for (const Memory& one : all) {
    mapped += one.mapped;
    for (std::uint64_t i = 0; i < one.files; ++i) {
      if (std::find(seen.begin(), seen.end(), one.inodes[i]) != seen.end()) continue;
      seen.push_back(one.inodes[i]);
      bytes += one.bytes[i];
    }
  }
  say("mapped", static_cast<long long>(mapped));
  say("files", static_cast<long long>(seen.size()));
  say("bytes", static_cast<long long>(bytes));
}

// Every rank imports a region of every other, which is their first contact. Rank 0 says how often
// the ranks slept for that, all together.
void meet(const Job& job) {
  constexpr std::size_t kBytes = 64;
  heddle_region mine{};
  done(heddle_region_alloc(job.context, kBytes, &mine), "region");
  const auto sleeps = [] {
    rusage usage{};
    check(::getrusage(RUSAGE_SELF, &usage) == 0, "getrusage");
    return usage.ru_nvcsw;
  };
  const long before = sleeps();
  std::vector<heddle_remote_region> all(job.size);
  done(heddle_region_exchange(job.context, mine, all.data()), "region exchange");
  const long slept = sleeps() - before;
  for (std::uint32_t rank = 0; rank < job.size; ++rank) {
    std::uint32_t owner = 0;
    std::uint64_t bytes = 0;
    done(heddle_remote_region_rank(all[rank], &owner), "rank of a region");
    done(heddle_remote_region_bytes(all[rank], &bytes), "bytes of a region");
    check(owner == rank && bytes == kBytes, "a region of another rank");
    done(heddle_remote_region_release(all[rank]), "release");
  }
  std::vector<long> everyone(job.size);
  done(heddle_context_exchange(job.context, &slept, sizeof slept, everyone.data()), "exchange");
  if (job.rank == 0) say("slept", std::accumulate(everyone.begin(), everyone.end(), 0L));
  done(heddle_region_release(mine), "release");
}

void run(Job& job, bool threads) {
  done(heddle_context_join(nullptr, &job.context), "join");
  done(heddle_context_rank(job.context, &job.rank), "rank");
  done(heddle_context_size(job.context, &job.size), "size");
  check(job.size > kNeighbours.size(), "too few ranks for distinct neighbours");
  for (std::size_t i = 0; i < job.payload.size(); ++i) job.payload[i] = i * 0x9E3779B97F4A7C15U;
  job.arrived.resize(job.workers_per_rank);
  for (Arrived& arrived : job.arrived) arrived.sums.resize(std::size_t{job.size} * job.workers_per_rank);
  done(heddle_am_register(job.context, kNeighbourHandler, from_neighbour, &job), "handler");
  done(heddle_am_register(job.context, kRootHandler, at_root, &job), "handler");
  job.workers.resize(job.workers_per_rank);
  for (heddle_worker& worker : job.workers) done(heddle_worker_open(job.context, nullptr, &worker), "worker");
  done(heddle_context_barrier(job.context, {}, Deadline::kNs), "barrier");
  meet(job);
  if (threads) {
    std::vector<std::thread> drivers;
    for (std::uint32_t i = 0; i < job.workers_per_rank; ++i) drivers.emplace_back(drive, std::ref(job), i, 1);
    for (std::thread& driver : drivers) driver.join();
  } else {
    drive(job, 0, job.workers_per_rank);
  }
  done(heddle_context_barrier(job.context, job.workers[0], Deadline::kNs), "barrier");
  for (const heddle_worker worker : job.workers) check(heddle_worker_progress(worker) >= 0, "progress");
  verify(job);
  say_memory(job);
  done(heddle_context_leave(job.context), "leave");
  say("left", job.rank);
}

}  // namespace
}  // namespace heddle::tests

int main(int argc, char** argv) {
  using namespace heddle::tests;  // NOLINT
  ::alarm(85);                    // a call that blocks for ever ends the rank, and with it the job
  check(argc == 4, "arguments: workers threads messages");
  Job job;
  job.workers_per_rank = static_cast<std::uint32_t>(std::stoul(argv[1]));
  job.messages = std::stoull(argv[3]);
  run(job, std::stoul(argv[2]) > 1);
  return 0;
}
