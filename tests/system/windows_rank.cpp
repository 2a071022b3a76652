// Counts how often threads sleep while the threads of two neighbouring ranks exchange windows of
// tagged messages, each window answered by a message of 8 bytes, as programs do.
//
// windows_rank THREADS WINDOWS [MESSAGES BYTES]; without the last two a window has 64 messages of 8
// bytes. The sharing mode is HEDDLE_SHARING. In exclusive mode each thread
// has a worker, in the others all have one. Says how often the process gave its core away, by its
// own will (it slept in the kernel) and otherwise (it yielded, or its time was over).
#include <sys/resource.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "rank_support.hpp"

namespace {

using heddle::tests::accepted;
using heddle::tests::check;
using heddle::tests::done;

constexpr std::size_t kMostMessages = 64;
constexpr std::size_t kAnswerBytes = sizeof(std::uint64_t);

struct Window {
  std::size_t messages = kMostMessages;
  std::size_t bytes = kAnswerBytes;
};

struct Lane {
  heddle_worker worker{};
  heddle_peer peer{};
  heddle_counter counter{};
  std::uint64_t posted = 0;
  std::vector<std::uint64_t> sent;      // one message, all words of which are the tag
  std::vector<std::uint64_t> received;  // a window
};

void send(Lane& lane, std::uint64_t tag, const Window& window) {
  std::fill_n(lane.sent.begin(), window.bytes / sizeof tag, tag);
  const heddle_completion completion{nullptr, nullptr, lane.counter, HEDDLE_WHEN_LOCAL};
  for (std::size_t i = 0; i < window.messages; ++i) {
    const heddle_status status = heddle_send(lane.worker, lane.peer, tag, lane.sent.data(), window.bytes, &completion);
    accepted(status, "heddle_send");
    if (status == HEDDLE_POSTED) ++lane.posted;
  }
  done(heddle_counter_wait(lane.worker, lane.counter, lane.posted, HEDDLE_FOREVER), "heddle_counter_wait");
}

void receive(Lane& lane, std::uint64_t tag, const Window& window) {
  heddle_receive receives[kMostMessages];
  bool waits[kMostMessages];
  const heddle_wanted wanted{lane.peer, tag, UINT64_MAX};
  const std::size_t words = window.bytes / sizeof tag;
  for (std::size_t i = 0; i < window.messages; ++i) {
    const heddle_status status =
        heddle_recv(lane.worker, &wanted, &lane.received[i * words], window.bytes, &receives[i], nullptr);
    accepted(status, "heddle_recv");
    waits[i] = status == HEDDLE_POSTED;
  }
  for (std::size_t i = 0; i < window.messages; ++i) {
    if (waits[i]) done(heddle_recv_wait(lane.worker, &receives[i], HEDDLE_FOREVER), "heddle_recv_wait");
    check(lane.received[i * words] == tag && lane.received[(i + 1) * words - 1] == tag, "the message of this lane");
  }
}

void exchange(Lane& lane, std::uint32_t rank, std::uint64_t tag, const Window& window, long windows) {
  lane.sent.resize(window.bytes / sizeof tag);
  lane.received.resize(window.messages * window.bytes / sizeof tag);
  const Window answer{1, kAnswerBytes};
  for (long i = 0; i < windows; ++i) {
    if (rank % 2 == 0) {
      send(lane, tag, window);
      receive(lane, tag + 1, answer);
    } else {
      receive(lane, tag, window);
      send(lane, tag + 1, answer);
    }
  }
}

}  // namespace

int main(int count, char** words) {
  check(count == 3 || count == 5, "windows_rank THREADS WINDOWS [MESSAGES BYTES]");
  const long threads = std::strtol(words[1], nullptr, 10);
  const long windows = std::strtol(words[2], nullptr, 10);
  Window window;
  if (count == 5) window = {std::strtoull(words[3], nullptr, 10), std::strtoull(words[4], nullptr, 10)};
  check(window.messages > 0 && window.messages <= kMostMessages && window.bytes >= kAnswerBytes, "1 to 64 messages");
  heddle_context context{};
  std::uint32_t rank = 0;
  done(heddle_context_join(nullptr, &context), "heddle_context_join");
  done(heddle_context_rank(context, &rank), "heddle_context_rank");
  std::vector<Lane> lanes(static_cast<std::size_t>(threads));
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    Lane& lane = lanes[i];
    heddle_sharing mode = HEDDLE_SHARING_DEFAULT;
    if (i > 0) done(heddle_worker_mode(lanes[0].worker, &mode), "heddle_worker_mode");
    if (i == 0 || mode == HEDDLE_SHARING_EXCLUSIVE) {
      done(heddle_worker_open(context, nullptr, &lane.worker), "heddle_worker_open");
    } else {
      lane.worker = lanes[0].worker;
    }
    std::uint32_t index = 0;
    done(heddle_worker_index(lane.worker, &index), "heddle_worker_index");
    lane.peer = {rank ^ 1U, index};
    done(heddle_counter_create(context, nullptr, &lane.counter), "heddle_counter_create");
  }
  const auto all = [&](long of) {
    std::vector<std::thread> running;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      running.emplace_back([&, i] { exchange(lanes[i], rank, 16 + 4 * i, window, of); });
    }
    for (std::thread& one : running) one.join();
  };
  all(20);  // contacts
  done(heddle_context_barrier(context, lanes[0].worker, HEDDLE_FOREVER), "heddle_context_barrier");
  rusage before{};
  rusage after{};
  getrusage(RUSAGE_SELF, &before);
  all(windows);
  getrusage(RUSAGE_SELF, &after);
  done(heddle_context_barrier(context, lanes[0].worker, HEDDLE_FOREVER), "heddle_context_barrier");
  heddle::tests::say("slept", after.ru_nvcsw - before.ru_nvcsw);
  heddle::tests::say("yielded", after.ru_nivcsw - before.ru_nivcsw);
  for (const Lane& lane : lanes) done(heddle_counter_free(lane.counter), "heddle_counter_free");
  done(heddle_context_leave(context), "heddle_context_leave");
  return 0;
}
