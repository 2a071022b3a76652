// A rank for unattended_test.cpp: rank 0 waits in a read from a pipe and calls nothing, while rank
// 1 puts, gets, updates and sends to it for the first time; rank 1 then wakes it.
//   unattended_rank [plain]   plain: without updates, signals among them, which over some
//                             transports a thread of the target carries out
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "rank_support.hpp"

namespace heddle::tests {
namespace {

constexpr std::uint32_t kHandler = 9;
constexpr std::size_t kBytes = std::size_t{256} << 10;
constexpr std::uint64_t kTag = 77;
constexpr std::size_t kSignalAt = kBytes;
constexpr std::size_t kCounterAt = kBytes + 8;
constexpr std::uint64_t kMessages = 20;

struct Meeting {
  pid_t pid;
  int pipe;  // where to write
};

struct Rank {
  heddle_context context{};
  heddle_worker worker{};
  std::uint32_t rank = 0;
  std::vector<std::byte> memory = std::vector<std::byte>(kBytes + 64);
  std::array<heddle_remote_region, 2> regions{};  // registered
  std::array<heddle_remote_region, 2> allocated{};
  heddle_region own_allocated{};
  std::uint64_t messages = 0;
  bool plain = false;
};

std::byte pattern(std::size_t i) {
  return static_cast<std::byte>(i * 13 + 5);
}

void on_message(const heddle_am_arrival* message, void* arg) {
  check(message->payload_bytes == 100 && *static_cast<const std::byte*>(message->payload) == pattern(0), "a message");
  ++static_cast<Rank*>(arg)->messages;
}

void sleep_through(Rank& rank, const std::array<int, 2>& pipe) {
  char byte = 0;
  check(::read(pipe[0], &byte, 1) == 1 && byte == 'w', "the pipe");
  // All that needed nobody is here already.
  for (std::size_t i = 0; i < kBytes; ++i) check(rank.memory[i] == pattern(i), "what was put");
  std::uint64_t counter = 0;
  std::memcpy(&counter, rank.memory.data() + kCounterAt, sizeof counter);
  check(counter == 1000 + (rank.plain ? 0 : 3 * 7), "what was added");
  const Deadline deadline("the messages do not come");
  while (rank.messages < kMessages) {
    check(heddle_worker_progress(rank.worker) >= 0, "progress");
    deadline.idle();
  }
  std::vector<std::byte> got(500);
  heddle_receive receive{};
  const heddle_wanted wanted{{1, 0}, kTag, UINT64_MAX};
  accepted(heddle_recv(rank.worker, &wanted, got.data(), got.size(), &receive, nullptr), "recv");
  done(heddle_recv_wait(rank.worker, &receive, Deadline::kNs), "recv_wait");
  check(receive.bytes == got.size() && got[499] == pattern(499), "what was sent");
}

void work_alone(Rank& rank, const Meeting& sleeper) {
  const heddle_worker worker = rank.worker;
  std::vector<std::byte> data(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) data[i] = pattern(i);
  const heddle_signal signal{{rank.regions[0], kSignalAt}, 1, HEDDLE_SIGNAL_SET};
  const heddle_remote whole{rank.regions[0], 0};
  accepted(rank.plain ? heddle_put(worker, data.data(), kBytes, whole, nullptr)
                      : heddle_put_signal(worker, data.data(), kBytes, whole, &signal, nullptr),
           "put");
  done(heddle_flush(worker, 0), "flush");
  std::vector<std::byte> back(kBytes);
  accepted(heddle_get(worker, back.data(), kBytes, {rank.regions[0], 0}, nullptr), "get");
  done(heddle_flush(worker, 0), "flush");
  check(back == data, "what was got");
  for (std::uint64_t i = 0; i < 3 && !rank.plain; ++i) {
    std::uint64_t before = 0;
    const heddle_fetch fetch{7, 0, &before};
    accepted(heddle_fetch_atomic(worker, HEDDLE_ADD64, {rank.regions[0], kCounterAt}, &fetch, nullptr), "fetch");
    done(heddle_flush(worker, 0), "flush");
    check(before == 1000 + 7 * i, "what was there before");
  }
  std::uint64_t word = 0;
  accepted(heddle_get(worker, &word, sizeof word, {rank.allocated[0], 0}, nullptr), "get");
  done(heddle_flush(worker, 0), "flush");
  check(word == 4711, "what is in allocated memory");
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    const heddle_am_message message{kHandler, 0, nullptr, data.data(), 100};
    accepted(heddle_am(worker, {0, 0}, &message, nullptr), "am");
  }
  accepted(heddle_send(worker, {0, 0}, kTag, data.data(), 500, nullptr), "send");
  done(heddle_flush(worker, 0), "flush");  // so it is there, though nobody has looked
  const std::string path = "/proc/" + std::to_string(sleeper.pid) + "/fd/" + std::to_string(sleeper.pipe);
  const int pipe = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  check(pipe >= 0 && ::write(pipe, "w", 1) == 1, "the sleeper's pipe");
  ::close(pipe);
}

void run(bool plain) {
  Rank rank;
  rank.plain = plain;
  std::uint32_t size = 0;
  done(heddle_context_join(nullptr, &rank.context), "join");
  done(heddle_context_rank(rank.context, &rank.rank), "rank");
  done(heddle_context_size(rank.context, &size), "size");
  check(size == 2, "two ranks");
  done(heddle_am_register(rank.context, kHandler, on_message, &rank), "handler");
  done(heddle_worker_open(rank.context, nullptr, &rank.worker), "worker");
  const std::uint64_t start = 1000;
  std::memcpy(rank.memory.data() + kCounterAt, &start, sizeof start);
  heddle_region registered{};
  done(heddle_region_register(rank.context, rank.memory.data(), rank.memory.size(), &registered), "register");
  done(heddle_region_alloc(rank.context, 4096, &rank.own_allocated), "alloc");
  void* allocated = nullptr;
  done(heddle_region_address(rank.own_allocated, &allocated, nullptr), "memory");
  const std::uint64_t known = 4711;
  std::memcpy(allocated, &known, sizeof known);
  done(heddle_region_exchange(rank.context, registered, rank.regions.data()), "exchange");
  done(heddle_region_exchange(rank.context, rank.own_allocated, rank.allocated.data()), "exchange");
  std::array<int, 2> pipe{};
  check(::pipe2(pipe.data(), O_CLOEXEC) == 0, "pipe");
  const Meeting mine{::getpid(), pipe[1]};
  std::array<Meeting, 2> all{};
  done(heddle_context_exchange(rank.context, &mine, sizeof mine, all.data()), "exchange");
  rank.rank == 0 ? sleep_through(rank, pipe) : work_alone(rank, all[0]);
  done(heddle_context_barrier(rank.context, rank.worker, Deadline::kNs), "barrier");
  done(heddle_context_leave(rank.context), "leave");
  say("left", rank.rank);
}

}  // namespace
}  // namespace heddle::tests

int main(int argc, char** argv) {
  ::alarm(90);  // a call that blocks for ever ends the rank, and with it the job
  heddle::tests::run(argc > 1 && std::string_view(argv[1]) == "plain");
  return 0;
}
