// A rank for crowd_test.cpp.
//   crowd_rank known             only joins
//   crowd_rank all               sends a message to every other rank, and gets one from each
//   crowd_rank incast MESSAGES   the others send so many messages of 4 KiB to rank 0, which does
//                                not receive before nobody can send any more, and is slow then.
//                                A wait receives on workers of its thread, so rank 0 meets the
//                                others in another thread until then
// Rank 0 says "anon BYTES", the memory of a rank when all have joined; "took MS", the longest of
// them, "peer BYTES", what the memory of a rank has grown by for each peer that it has met (both of
// the middle one of all ranks: one that needs a library's next pool of 20 MB says nothing about
// peers); "stuck NUMBER", messages sent before rank 0 received; "receiver BYTES" and "sender
// BYTES": by how much rank 0's memory has grown at the most, and that of the sender that needs
// most.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "rank_support.hpp"

namespace heddle::tests {
namespace {

constexpr std::uint32_t kHandler = 1;
constexpr std::size_t kPayload = 4096;

struct Job {
  heddle_context context{};
  heddle_worker worker{};
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::vector<std::uint64_t> next;  // by source: the number that its next message has
  std::uint64_t arrived = 0;
  bool slow = false;
  std::array<std::uint64_t, kPayload / 8> payload{};
  std::uint64_t read = 0;
};

void on_message(const heddle_am_arrival* message, void* arg) {
  Job& job = *static_cast<Job*>(arg);
  std::uint64_t number = 0;
  check(message->header_bytes == sizeof number, "a message's header");
  std::memcpy(&number, message->header, sizeof number);
  check(message->source.rank < job.size && job.next[message->source.rank] == number, "a message is lost or doubled");
  ++job.next[message->source.rank];
  ++job.arrived;
  if (!job.slow) return;
  check(message->payload_bytes == kPayload, "a message's size");
  check(std::memcmp(message->payload, job.payload.data(), kPayload) == 0, "a message's bytes");
  // Some work for each.
  const auto* words = static_cast<const unsigned char*>(message->payload);
  for (int turn = 0; turn < 4; ++turn) {
    for (std::size_t i = 0; i < kPayload; ++i) job.read += words[i] * (i + number);
  }
}

std::uint64_t memory_of_this_process() {
  std::uint64_t bytes = 0;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::uint64_t kib = 0;
    if ((word == "RssAnon:" || word == "RssShmem:") && status >> kib) bytes += kib * 1024;
  }
  check(bytes > 0, "/proc/self/status tells no RssAnon");
  return bytes;
}

// Since then. Pages that were swapped out meanwhile are not counted, so it may have shrunk: then it
// has not grown.
std::uint64_t grown_since(std::uint64_t before) {
  const std::uint64_t now = memory_of_this_process();
  return now > before ? now - before : 0;
}

template <class T>
std::vector<T> exchange(const Job& job, const T& mine) {
  std::vector<T> all(job.size);
  done(heddle_context_exchange(job.context, &mine, sizeof mine, all.data()), "exchange");
  return all;
}

std::uint64_t median(std::vector<std::uint64_t> of) {
  const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

void open(Job& job) {
  for (std::size_t i = 0; i < job.payload.size(); ++i) job.payload[i] = i * 0x9E3779B97F4A7C15U;
  done(heddle_context_join(nullptr, &job.context), "join");
  done(heddle_context_rank(job.context, &job.rank), "rank");
  done(heddle_context_size(job.context, &job.size), "size");
  job.next.resize(job.size);
  done(heddle_am_register(job.context, kHandler, on_message, &job), "handler");
  heddle_worker_options options{};
  options.size = sizeof options;
  options.sharing = HEDDLE_SHARING_EXCLUSIVE;
  options.no_help = 1;
  done(heddle_worker_open(job.context, &options, &job.worker), "worker");
  const auto anon = exchange(job, memory_of_this_process());
  if (job.rank == 0) say("anon", static_cast<long long>(median(anon)));
}

void meet_all(Job& job) {
  const std::uint64_t before = memory_of_this_process();
  const std::int64_t begin = now_ns();
  const Deadline deadline("not all ranks are met");
  // Each begins with its neighbour, so that nobody is met by all at once.
  for (std::uint32_t i = 1; i < job.size; ++i) {
    const std::uint32_t to = (job.rank + i) % job.size;
    const std::uint64_t number = 0;
    const heddle_am_message message{kHandler, sizeof number, &number, nullptr, 0};
    heddle_status status{};
    while ((status = heddle_try_am(job.worker, {to, 0}, &message, nullptr)) == HEDDLE_AGAIN) {
      check(heddle_worker_progress(job.worker) >= 0, "progress");
      deadline.idle();
    }
    accepted(status, "am");
  }
  while (job.arrived < job.size - 1) {
    check(heddle_worker_progress(job.worker) >= 0, "progress");
    deadline.idle();
  }
  done(heddle_quiet(job.worker), "quiet");
  const auto took = exchange(job, now_ns() - begin);
  const auto grown = exchange(job, grown_since(before) / (job.size - 1));
  if (job.rank != 0) return;
  say("took", *std::max_element(took.begin(), took.end()) / 1'000'000);
  say("peer", static_cast<long long>(median(grown)));
}

// Sends from number `sent` on, until there are `messages` or `turns` in a row have sent none.
// Returns how many went, `sent` those before.
std::uint64_t send_some(Job& job, std::uint64_t sent, std::uint64_t messages, std::uint64_t turns) {
  const Deadline deadline("messages cannot be sent");
  for (std::uint64_t idle = 0; sent < messages && idle < turns;) {
    const heddle_am_message message{kHandler, sizeof sent, &sent, job.payload.data(), kPayload};
    const heddle_status status = heddle_try_am(job.worker, {0, 0}, &message, nullptr);
    if (status == HEDDLE_AGAIN) {
      ++idle;
      check(heddle_worker_progress(job.worker) >= 0, "progress");
      deadline.idle();
      continue;
    }
    accepted(status, "am");
    idle = 0;
    ++sent;
  }
  return sent;
}

// Until nobody has sent anything more for several rounds of all. What each has sent.
std::vector<std::uint64_t> send_until_stuck(Job& job, std::uint64_t messages) {
  std::vector<std::uint64_t> sent(job.size);
  for (int alike = 0; alike < 5;) {
    const std::uint64_t mine = job.rank == 0 ? 0 : send_some(job, sent[job.rank], messages, 1000);
    auto now = exchange(job, mine);
    alike = now == sent ? alike + 1 : 0;
    sent = std::move(now);
  }
  return sent;
}

void receive_slowly(Job& job, std::uint64_t messages, std::uint64_t before, std::uint64_t* most) {
  job.slow = true;
  const Deadline deadline("messages do not arrive");
  for (std::uint64_t turn = 0; job.arrived < messages * (job.size - 1); ++turn) {
    check(heddle_worker_progress(job.worker) >= 0, "progress");
    if (turn % 256 == 0) *most = std::max(*most, grown_since(before));
    deadline.idle();
  }
}

void incast(Job& job, std::uint64_t messages) {
  const std::uint64_t before = memory_of_this_process();
  std::vector<std::uint64_t> stuck;
  if (job.rank == 0) {
    std::thread([&] { stuck = send_until_stuck(job, messages); }).join();
  } else {
    stuck = send_until_stuck(job, messages);
  }
  std::uint64_t most = grown_since(before);
  if (job.rank == 0) {
    check(*std::max_element(stuck.begin(), stuck.end()) < messages, "a sender is held up by who does not receive");
    receive_slowly(job, messages, before, &most);
    for (std::uint32_t rank = 1; rank < job.size; ++rank) check(job.next[rank] == messages, "messages of each");
  } else {
    check(send_some(job, stuck[job.rank], messages, UINT64_MAX) == messages, "all are sent");
    done(heddle_quiet(job.worker), "quiet");
    most = std::max(most, grown_since(before));
  }
  const auto grown = exchange(job, most);
  if (job.rank != 0) return;
  say("stuck", std::accumulate(stuck.begin(), stuck.end(), 0LL));
  say("receiver", static_cast<long long>(grown[0]));
  say("sender", static_cast<long long>(*std::max_element(grown.begin() + 1, grown.end())));
}

}  // namespace
}  // namespace heddle::tests

int main(int argc, char** argv) {
  using namespace heddle::tests;
  // Tables of a row for each rank are zeros that nobody has written, whatever was freed before:
  // without this, malloc learns from what is freed where to take them, and clears used memory.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 13);
  ::alarm(100);  // a call that blocks for ever ends the rank, and with it the job
  const std::string_view mode = argc > 1 ? argv[1] : "";
  check(mode == "known" || mode == "all" || (mode == "incast" && argc == 3),
        "usage: crowd_rank known|all|incast MESSAGES");
  Job job;
  open(job);
  if (mode == "all") meet_all(job);
  if (mode == "incast") incast(job, std::stoull(argv[2]));
  done(heddle_context_barrier(job.context, {}, Deadline::kNs), "barrier");
  done(heddle_context_leave(job.context), "leave");
  say("left", job.rank);
  return 0;
}
