// Two ranks that one thread drives, so that a test determines the time of each step, and their long
// tagged messages.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "api/test_job.hpp"
#include "base/wait.hpp"

namespace heddle::test {

inline constexpr std::uint32_t kSender = 0;
inline constexpr std::uint32_t kReceiver = 1;

inline std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 31 + seed * 17 + (i >> 8));
  return data;
}

struct Outcome {
  int times = 0;
  Status status = HEDDLE_AGAIN;
  static void tell(void* arg, Status status) {
    auto* self = static_cast<Outcome*>(arg);
    self->status = status;
    std::atomic_ref(self->times).fetch_add(1, std::memory_order_release);  // helpers may tell it
  }
  heddle_completion completion() { return {&tell, this, {}, HEDDLE_WHEN_REMOTE}; }
};

inline heddle_wanted wanted_of(std::uint64_t tag) {
  return {{kSender, 0}, tag, UINT64_MAX};
}

// A receive with memory of its own, which must stay where it is.
struct Receipt {
  explicit Receipt(std::size_t bytes) : data(bytes, std::byte{0xEE}) {}
  std::vector<std::byte> data;
  heddle_receive receive{};
  Outcome outcome;
};

// Two ranks of this thread. They are closed in threads of their own, since leaving is collective.
struct Pair {
  explicit Pair(const char* transport = "shm") : job(2, transport) {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      contexts.push_back(job.join(rank));
      workers.push_back(contexts.back().open_worker());
    }
  }
  ~Pair() {
    std::vector<std::thread> leaving;
    for (Context& context : contexts) leaving.emplace_back([&context] { context = {}; });
    for (std::thread& thread : leaving) thread.join();
  }
  Worker& sender() { return workers[kSender]; }
  Worker& receiver() { return workers[kReceiver]; }
  void progress(std::uint32_t rank) { ASSERT_GE(workers[rank].progress(), 0) << heddle_last_error(); }

  // Progress of the one rank, or of both, till it is so.
  template <class Done>
  bool until(std::initializer_list<std::uint32_t> ranks, Done done) {
    return within_time(done, [&] {
      for (const std::uint32_t rank : ranks) progress(rank);
    });
  }
  void post(Receipt& receipt, std::uint64_t tag) { post(receipt, wanted_of(tag)); }
  void post(Receipt& receipt, const heddle_wanted& wanted) {
    const heddle_completion completion = receipt.outcome.completion();
    const Status status = receiver().try_recv(wanted, receipt.data, &receipt.receive, &completion);
    if (status != HEDDLE_POSTED) receipt.outcome = {1, status};
  }
  void send(std::span<const std::byte> data, std::uint64_t tag, Outcome* outcome) {
    const heddle_completion completion = outcome->completion();
    Status status = HEDDLE_AGAIN;
    // if there is no room, both make some
    ASSERT_TRUE(within_time([&] { return status != HEDDLE_AGAIN; },
                            [&] {
                              status = sender().try_send({kReceiver, 0}, tag, data, &completion);
                              if (status != HEDDLE_AGAIN) return;
                              progress(kReceiver);
                              progress(kSender);
                            }));
    ASSERT_GE(status, 0) << heddle_last_error();
    if (status == HEDDLE_DONE) *outcome = {1, status};
  }
  // Offered messages whose data the receiver has asked the sender for.
  std::uint64_t taken() { return sender().stats().taken; }

  Job job;
  std::vector<Context> contexts;
  std::vector<Worker> workers;
};

}  // namespace heddle::test
