// heddle_worker_descriptor and heddle_worker_arm: loops that wait for a descriptor, in every mode.
#include <gtest/gtest.h>
#include <poll.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/test_job.hpp"
#include "base/fence.hpp"

namespace heddle::test::worker_descriptor_test {
namespace {

struct Case {
  const char* transport;
  heddle_sharing sharing;
};

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.transport;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name + "_" + name_of_mode(info.param.sharing);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const heddle_sharing mode : all_modes()) all.push_back({"shm", mode});
  for (const char* transport : {"loopback", "fault+shm", "shm,loopback-messages"}) {
    all.push_back({transport, HEDDLE_SHARING_EXCLUSIVE});
  }
  return all;
}

bool readable(int descriptor, int timeout_ms) {
  pollfd one{descriptor, POLLIN, 0};
  return ::poll(&one, 1, timeout_ms) == 1;
}

constexpr int kFaultMs = static_cast<int>(std::chrono::milliseconds(kFaultTime).count());

// The loop that heddle.h shows. It counts how often the descriptor was waited for.
struct Loop {
  heddle_worker worker;
  int descriptor;
  std::atomic<std::uint64_t> waits{0};

  template <class Finished>
  void until(const Finished& finished) {
    for (;;) {
      int events = 0;
      while ((events = heddle_worker_progress(worker)) > 0) {
      }
      ASSERT_EQ(events, 0) << heddle_last_error();
      if (finished()) return;
      const heddle_status armed = heddle_worker_arm(worker);
      ASSERT_GE(armed, 0) << heddle_last_error();
      if (armed != HEDDLE_DONE) continue;
      ++waits;
      ASSERT_TRUE(readable(descriptor, kFaultMs)) << "nobody has told it";
    }
  }
};

class Descriptors : public testing::TestWithParam<Case> {
 protected:
  // Each rank with a worker of its own (number 1), a loop, and a handler that counts.
  void each(const std::function<void(Context&, Loop&)>& body) {
    const Case given = GetParam();
    std::vector<std::pair<const char*, const char*>> variables;
    // two nodes
    if (std::strchr(given.transport, ',') != nullptr) variables = {{"HEDDLE_NODE_RANKS", "1"}};
    const Variables set(variables);
    Job(2, given.transport).run([&](Context& context, Worker&) {
      heddle_worker_options options{};
      options.size = sizeof options;
      options.sharing = given.sharing;
      Loop& loop = loops_[context.rank()];
      ASSERT_EQ(heddle_worker_open(context.handle(), &options, &loop.worker), HEDDLE_DONE) << heddle_last_error();
      ASSERT_EQ(heddle_worker_descriptor(loop.worker, &loop.descriptor), HEDDLE_DONE) << heddle_last_error();
      ASSERT_EQ(heddle_am_register(
                    context.handle(), 3,
                    [](const heddle_am_arrival* message, void* arg) {
                      static_cast<std::atomic<std::uint64_t>*>(arg)[1 - message->source.rank].fetch_add(1);
                    },
                    arrived_.data()),
                HEDDLE_DONE);
      context.barrier();
      body(context, loop);
      context.barrier();
      EXPECT_EQ(heddle_worker_close(loop.worker), HEDDLE_DONE) << heddle_last_error();
    });
  }
  static void send(const Context& context, Loop& loop) {
    const heddle_am_message message{3, 0, nullptr, nullptr, 0};
    ASSERT_GE(heddle_am(loop.worker, {1 - context.rank(), 1}, &message, nullptr), 0) << heddle_last_error();
  }
  // Messages that have come to a rank.
  std::uint64_t arrived(const Context& context) { return arrived_[context.rank()].load(); }

  // The other rank's loop has slept, or sleeps.
  void wait_until_other_sleeps(const Context& context, const Loop& loop) {
    const Loop& other = loops_[1 - context.rank()];
    ASSERT_TRUE(within_time([&] { return other.waits.load() != 0; }, [&] { heddle_worker_progress(loop.worker); }));
  }

  std::array<std::atomic<std::uint64_t>, 2> arrived_{};
  std::array<Loop, 2> loops_{};
};
INSTANTIATE_TEST_SUITE_P(Modes, Descriptors, testing::ValuesIn(cases()), case_name);

TEST_P(Descriptors, MessagesThatComeAndGoWakeTheLoop) {
  constexpr std::uint64_t kRounds = base::kThreadSanitizer ? 200 : 2000;
  each([&](Context& context, Loop& loop) {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      for (const std::uint32_t sender : {0U, 1U}) {
        if (context.rank() != sender) {
          loop.until([&] { return arrived(context) == round; });
        } else {
          if (round == 1) wait_until_other_sleeps(context, loop);
          send(context, loop);
        }
        if (HasFatalFailure()) return;
      }
    }
  });
}

TEST_P(Descriptors, LongMessagesEndByTheLoopAlone) {
  constexpr std::size_t kBytes = 3 << 20;
  each([&](Context& context, Loop& loop) {
    std::vector<char> mine(kBytes, static_cast<char>('a' + context.rank()));
    std::vector<char> theirs(kBytes);
    heddle_receive receive{};
    const std::uint32_t peer = 1 - context.rank();
    const heddle_wanted wanted{{peer, 1}, 5, UINT64_MAX};
    std::atomic<int> ended{0};
    const heddle_completion end{[](void* arg, heddle_status status) {
                                  EXPECT_EQ(status, HEDDLE_DONE);
                                  static_cast<std::atomic<int>*>(arg)->fetch_add(1);
                                },
                                &ended,
                                {},
                                HEDDLE_WHEN_REMOTE};
    for (int round = 1; round <= 4; ++round) {
      int due = 2;
      const heddle_status received = heddle_recv(loop.worker, &wanted, theirs.data(), kBytes, &receive, &end);
      const heddle_status sent = heddle_send(loop.worker, {peer, 1}, 5, mine.data(), kBytes, &end);
      ASSERT_GE(received, 0) << heddle_last_error();
      ASSERT_GE(sent, 0) << heddle_last_error();
      due -= (received == HEDDLE_DONE ? 1 : 0) + (sent == HEDDLE_DONE ? 1 : 0);
      loop.until([&] { return ended.load() == due; });
      if (HasFatalFailure()) return;
      ended = 0;
      EXPECT_EQ(theirs.back(), static_cast<char>('a' + peer));
      context.barrier();
    }
  });
}

double process_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Processor time is counted, so others on the machine do not matter.
TEST_P(Descriptors, WhoWaitsForLongSleeps) {
  constexpr int kWaitMs = 500;
  each([&](Context& context, Loop& loop) {
    while (heddle_worker_progress(loop.worker) > 0) {
    }
    context.barrier();
    const double before = process_seconds();
    if (context.rank() == 0) {
      const auto begun = std::chrono::steady_clock::now();
      int told = 0;
      for (;;) {
        const std::chrono::duration<double, std::milli> waited = std::chrono::steady_clock::now() - begun;
        if (waited.count() >= kWaitMs) break;
        while (heddle_worker_progress(loop.worker) > 0) {
        }
        if (heddle_worker_arm(loop.worker) == HEDDLE_DONE && readable(loop.descriptor, kWaitMs)) ++told;
      }
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begun;
      EXPECT_LT(process_seconds() - before, 0.2 * waited.count() * (base::kThreadSanitizer ? 4 : 1)) << told;
    }
    context.barrier();  // its thread sleeps as well
  });
}

std::vector<Case> cases_for_several_threads() {
  std::vector<Case> all = cases();
  std::erase_if(all, [](const Case& one) { return one.sharing == HEDDLE_SHARING_EXCLUSIVE; });
  return all;
}
class SharedDescriptors : public Descriptors {};
INSTANTIATE_TEST_SUITE_P(Modes, SharedDescriptors, testing::ValuesIn(cases_for_several_threads()), case_name);

// The thread that moves the worker wakes the one that waits.
TEST_P(SharedDescriptors, WhatAnotherThreadHasMovedIsTold) {
  constexpr std::uint64_t kRounds = base::kThreadSanitizer ? 50 : 500;
  each([&](Context& context, Loop& loop) {
    std::atomic<bool> over{false};
    std::thread other([&] {
      while (!over.load()) {
        ASSERT_GE(heddle_worker_progress(loop.worker), 0) << heddle_last_error();
        std::this_thread::yield();
      }
    });
    for (std::uint64_t round = 1; round <= kRounds && !HasFatalFailure(); ++round) {
      if (context.rank() == 0) send(context, loop);
      loop.until([&] { return arrived(context) == round; });
      if (context.rank() == 1) send(context, loop);
    }
    over = true;
    other.join();
  });
}

std::vector<Case> cases_of_death() {
  std::vector<Case> all = cases_for_several_threads();
  all.push_back({"shm", HEDDLE_SHARING_EXCLUSIVE});
  all.push_back({"loopback", HEDDLE_SHARING_EXCLUSIVE});
  return all;
}
class DyingDescriptors : public Descriptors {};
INSTANTIATE_TEST_SUITE_P(Modes, DyingDescriptors, testing::ValuesIn(cases_of_death()), case_name);

TEST_P(DyingDescriptors, TheDeathOfAPeerIsTold) {
  const Case given = GetParam();
  Job job(2, given.transport);
  std::atomic<int> armed{0};
  std::vector<std::thread> ranks;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Context context = job.join(rank);
      heddle_worker_options options{};
      options.size = sizeof options;
      options.sharing = given.sharing;
      Loop loop{};
      ASSERT_EQ(heddle_worker_open(context.handle(), &options, &loop.worker), HEDDLE_DONE);
      ASSERT_EQ(heddle_worker_descriptor(loop.worker, &loop.descriptor), HEDDLE_DONE);
      context.barrier();
      if (rank == 0) {
        char byte = 0;
        heddle_receive receive{};
        const heddle_wanted wanted{{1, HEDDLE_ANY}, 0, 0};
        ASSERT_EQ(heddle_recv(loop.worker, &wanted, &byte, 1, &receive, nullptr), HEDDLE_POSTED);
        while (heddle_worker_arm(loop.worker) != HEDDLE_DONE) {
        }
        armed = 1;
        ASSERT_TRUE(readable(loop.descriptor, kFaultMs));
        // By its own loop it learns the rest.
        loop.until([&] { return heddle_recv_wait(loop.worker, &receive, 0) != HEDDLE_ERR_TIMEOUT; });
        EXPECT_EQ(receive.status, HEDDLE_ERR_PEER_FAILED);
      } else {
        ASSERT_TRUE(within_time([&] { return armed.load() == 1; }));
        ASSERT_EQ(heddle_inproc_fail(job.handle(), 1), HEDDLE_DONE);
      }
    });
  }
  for (std::thread& one : ranks) one.join();
}

TEST(Descriptor, IsOneAndClosesWithItsWorker) {
  Job(1, "loopback").run([](Context& context, Worker&) {
    Worker worker = context.open_worker();
    EXPECT_EQ(heddle_worker_arm(worker.handle()), HEDDLE_ERR_STATE) << "there is none yet";
    EXPECT_NE(std::strstr(heddle_last_error(), "heddle_worker_descriptor"), nullptr) << heddle_last_error();
    const int descriptor = worker.descriptor();
    EXPECT_GE(descriptor, 0);
    EXPECT_EQ(worker.descriptor(), descriptor);
    const auto threads = [] { return threads_named("heddle-wakeup").size(); };
    EXPECT_EQ(threads(), 1U);
    while (worker.arm() != HEDDLE_DONE) {
    }
    EXPECT_FALSE(readable(descriptor, 0));
    EXPECT_EQ(worker.arm(), HEDDLE_DONE) << "again";
    const heddle_worker closed = worker.handle();
    EXPECT_EQ(heddle_worker_close(worker.release()), HEDDLE_DONE);
    EXPECT_TRUE(within_time([&] { return threads() == 0; }));
    pollfd one{descriptor, POLLIN, 0};
    EXPECT_EQ(::poll(&one, 1, 0), 1);
    EXPECT_NE(one.revents & POLLNVAL, 0);
    int again = 0;
    EXPECT_EQ(heddle_worker_descriptor(closed, &again), HEDDLE_ERR_HANDLE);
    EXPECT_EQ(heddle_worker_arm(closed), HEDDLE_ERR_HANDLE);
    EXPECT_EQ(heddle_worker_descriptor(closed, nullptr), HEDDLE_ERR_HANDLE);
  });
}

// A rank that dies before the arming: progress would find the death, so arming returns AGAIN.
TEST(Descriptor, ADeathBeforeTheArmingIsWork) {
  Job job(2, "shm");
  std::atomic<int> met{0};
  std::thread other([&] {
    Context context = job.join(1);
    Worker worker = context.open_worker();
    context.barrier(worker);
    ASSERT_TRUE(within_time([&] { return met.load() == 1; }));
  });
  Context context = job.join(0);
  heddle_worker_options options{};
  options.size = sizeof options;
  options.no_help = 1;  // nobody else makes its progress
  Worker worker = context.open_worker(options);
  const int descriptor = worker.descriptor();
  context.barrier(worker);
  ASSERT_TRUE(within_time([&] { return worker.arm() == HEDDLE_DONE; }, [&] { turn(worker); }));
  ASSERT_EQ(heddle_inproc_fail(job.handle(), 1), HEDDLE_DONE);
  EXPECT_EQ(worker.arm(), HEDDLE_AGAIN) << "progress has not dealt with the death yet";
  EXPECT_GT(worker.progress(), 0);
  ASSERT_TRUE(within_time([&] { return worker.arm() == HEDDLE_DONE; }, [&] { turn(worker); }));
  EXPECT_FALSE(readable(descriptor, 0));
  met = 1;
  other.join();
}

TEST(Descriptor, IsNotArmedInAHandler) {
  Job(1, "loopback").run([](Context& context, Worker& worker) {
    const int descriptor = worker.descriptor();
    EXPECT_GE(descriptor, 0);
    struct In {
      heddle_worker worker;
      heddle_status armed = HEDDLE_DONE;
      int descriptor = -1;
    } in{worker.handle()};
    ASSERT_EQ(heddle_am_register(
                  context.handle(), 1,
                  [](const heddle_am_arrival*, void* arg) {
                    auto* given = static_cast<In*>(arg);
                    EXPECT_EQ(heddle_worker_descriptor(given->worker, &given->descriptor), HEDDLE_DONE);
                    given->armed = heddle_worker_arm(given->worker);
                  },
                  &in),
              HEDDLE_DONE);
    const heddle_am_message message{1, 0, nullptr, nullptr, 0};
    ASSERT_GE(heddle_am(worker.handle(), {0, 0}, &message, nullptr), 0);
    ASSERT_TRUE(within_time([&] { return in.armed != HEDDLE_DONE; }, [&] { turn(worker); }));
    EXPECT_EQ(in.armed, HEDDLE_ERR_STATE);
    EXPECT_EQ(in.descriptor, descriptor);
  });
}

}  // namespace
}  // namespace heddle::test::worker_descriptor_test
