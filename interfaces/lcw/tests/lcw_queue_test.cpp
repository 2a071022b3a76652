// Completion queues and records by themselves, without Heddle: what ThreadSanitizer can judge on
// its own. Owners come and go, rings run over, and records are given back by other threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "lcw/completion.hpp"
#include "lcw/record.hpp"
#include "support.hpp"

namespace heddle::for_lcw::queue_test {
namespace {

::lcw::request_t numbered(std::int64_t number) {
  return {::lcw::op_t::SEND, nullptr, number, number + 1, nullptr, number + 2, nullptr};
}

// Number of a request whose fields belong together.
std::int64_t number_of(const ::lcw::request_t& request) {
  REQUIRE(request.tag == request.rank + 1 && request.length == request.rank + 2);
  return request.rank;
}

void run(int threads, const std::function<void(int)>& work) {
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) all.emplace_back(work, t);
  for (std::thread& thread : all) thread.join();
}

// One thread: in order, beyond what the buffer and the ring hold.
void alone(std::int64_t many) {
  RequestQueue queue;
  ::lcw::request_t request{};
  REQUIRE(!queue.pop(&request));
  std::vector<bool> seen(static_cast<std::size_t>(many));
  for (std::int64_t i = 0; i < many; ++i) queue.push(numbered(i));
  for (std::int64_t i = 0; i < many; ++i) {
    REQUIRE(queue.pop(&request));
    const auto number = static_cast<std::size_t>(number_of(request));
    REQUIRE(!seen[number]);
    seen[number] = true;
  }
  REQUIRE(!queue.pop(&request));
}

// `pushers` fill, `poppers` empty, and the poppers fill too, as threads do that post and poll.
void together(int pushers, int poppers, std::int64_t each) {
  RequestQueue queue;
  const std::int64_t all = (pushers + poppers) * each;
  std::vector<std::atomic<int>> seen(static_cast<std::size_t>(all));
  std::atomic<std::int64_t> popped{0};
  run(pushers + poppers, [&](int t) {
    ::lcw::request_t request{};
    const auto pop = [&] {
      if (!queue.pop(&request)) return false;
      ++seen[static_cast<std::size_t>(number_of(request))];
      ++popped;
      return true;
    };
    for (std::int64_t i = 0; i < each; ++i) {
      queue.push(numbered(t * each + i));
      if (t >= pushers && i % 3 == 0) pop();
    }
    while (t >= pushers && popped < all) {
      if (!pop()) std::this_thread::yield();
    }
  });
  for (const auto& times : seen) REQUIRE(times == 1);
}

// Threads that use the queue one after the other, more than there are ownerships; each finds what
// the previous one has left.
void owners_in_turn() {
  RequestQueue queue;
  for (std::int64_t turn = 0; turn < 20; ++turn) {
    std::thread([&] {
      ::lcw::request_t request{};
      REQUIRE(queue.pop(&request) == (turn > 0));
      REQUIRE(turn == 0 || number_of(request) == turn - 1);
      REQUIRE(!queue.pop(&request));
      queue.push(numbered(turn));
    }).join();
  }
}

// Records that one thread takes and another gives back, through a queue.
void records(std::int64_t many) {
  RequestQueue queue;
  std::thread giver([&] {
    ::lcw::request_t request{};
    for (std::int64_t i = 0; i < many;) {
      if (!queue.pop(&request)) {
        std::this_thread::yield();
        continue;
      }
      auto* record = static_cast<OperationRecord*>(request.user_context);
      REQUIRE(number_of(record->request) == request.rank);
      OperationRecords::give(record);
      ++i;
    }
  });
  for (std::int64_t i = 0; i < many; ++i) {
    OperationRecord* record = OperationRecords::take();
    record->request = numbered(i);
    record->request.user_context = record;
    queue.push(record->request);
  }
  giver.join();
}

constexpr int kTimes = 20;

TEST(LcwQueue, OneThreadBeyondBufferAndRing) {
  for (const std::int64_t many : {1, 100, 128, 129, 1000, 1152, 1153, 10000}) alone(many);
}

TEST(LcwQueue, ThreadsFillAndEmptyAtOnce) {
  for (int i = 0; i < kTimes; ++i) {
    together(0, 1, 2000);
    together(1, 1, 2000);
    together(3, 1, 1000);
    together(1, 3, 1000);
    together(0, 4, 500);
  }
}

TEST(LcwQueue, MoreOwnersThanOwnerships) {
  for (int i = 0; i < kTimes; ++i) owners_in_turn();
}

TEST(LcwQueue, RecordsGivenBackByAnotherThread) {
  for (int i = 0; i < kTimes; ++i) records(20000);
}

}  // namespace
}  // namespace heddle::for_lcw::queue_test
