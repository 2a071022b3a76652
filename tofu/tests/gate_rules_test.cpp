// Strict mode, barrier gates: each test is a small program that breaks a rule, and is caught.
#include <gtest/gtest.h>
#include <utofu.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <thread>

namespace {

constexpr utofu_vbg_id_t kNone = UTOFU_VBG_ID_NULL;

// Two start gates of one process act as two ranks': each feeds itself and the other.
struct Two {
  explicit Two(unsigned long flags = 0) {
    EXPECT_EQ(utofu_alloc_vbg(0, 1, flags, &gates[0]), UTOFU_SUCCESS);
    EXPECT_EQ(utofu_alloc_vbg(0, 1, flags, &gates[1]), UTOFU_SUCCESS);
  }
  int set(std::size_t which, utofu_vbg_id_t source) {
    utofu_vbg_setting setting{gates[which], gates[which], source, gates[which], gates[1 - which], {0xFF, 0xFF, 0xFF}};
    return utofu_set_vbg(&setting, 1);
  }
  void set_both() {
    EXPECT_EQ(set(0, gates[1]), UTOFU_SUCCESS);
    EXPECT_EQ(set(1, gates[0]), UTOFU_SUCCESS);
  }
  void finish(std::size_t which) {
    int code = UTOFU_ERR_NOT_COMPLETED;
    while ((code = utofu_poll_barrier(gates[which], 0)) == UTOFU_ERR_NOT_COMPLETED) std::this_thread::yield();
    EXPECT_EQ(code, UTOFU_SUCCESS);
  }
  std::array<utofu_vbg_id_t, 2> gates{};
};

// The parent never calls the library, so that each test's child starts with its own world.
template <class Program>
void expect_caught(Program&& program, const char* message) {
  const auto run = [&] {
    program();
    std::exit(0);
  };
  EXPECT_EXIT(run(), ::testing::KilledBySignal(SIGABRT), message);
}

template <class Program>
void expect_clean(Program&& program) {
  const auto run = [&] {
    program();
    std::exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

TEST(GateRules, WhoKeepsThemIsLeftAlone) {
  expect_clean([] {
    Two two;
    two.set_both();
    for (int round = 0; round < 10; round++) {
      for (const utofu_vbg_id_t gate : two.gates) EXPECT_EQ(utofu_barrier(gate, 0), UTOFU_SUCCESS);
      for (const std::size_t which : {0U, 1U}) two.finish(which);
    }
    EXPECT_EQ(utofu_free_vbg(two.gates.data(), 2), UTOFU_SUCCESS);
  });
}

TEST(GateRules, EveryGateIsSetBeforeAnyOperation) {
  expect_caught(
      [] {
        Two two;
        EXPECT_EQ(two.set(0, two.gates[1]), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_barrier(two.gates[0], 0), UTOFU_SUCCESS);
        two.finish(0);
      },
      "broken rule: a barrier gate's signal was lost");
}

TEST(GateRules, WhatOneSendsTheOtherExpects) {
  expect_caught(
      [] {
        Two two;
        EXPECT_EQ(two.set(0, two.gates[1]), UTOFU_SUCCESS);
        EXPECT_EQ(two.set(1, kNone), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_barrier(two.gates[0], 0), UTOFU_SUCCESS);
        two.finish(0);
      },
      "broken rule: a barrier gate's signal was lost");
}

TEST(GateRules, AGateIsNotFreedInTheMiddle) {
  expect_caught(
      [] {
        Two two;
        two.set_both();
        EXPECT_EQ(utofu_barrier(two.gates[0], 0), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_free_vbg(two.gates.data(), 1), UTOFU_SUCCESS);
      },
      "broken rule: a barrier gate was freed whose operation is not over");
}

TEST(GateRules, AGateIsNotSetInTheMiddle) {
  expect_caught(
      [] {
        Two two;
        two.set_both();
        EXPECT_EQ(utofu_barrier(two.gates[0], 0), UTOFU_SUCCESS);
        EXPECT_EQ(two.set(0, two.gates[1]), UTOFU_SUCCESS);
      },
      "broken rule: a barrier gate was set whose operation is not over");
}

TEST(GateRules, WhatIsPolledWasStarted) {
  expect_caught(
      [] {
        Two two;
        two.set_both();
        EXPECT_EQ(utofu_poll_barrier(two.gates[0], 0), UTOFU_ERR_BARRIER_OTHER);
      },
      "broken rule: a barrier gate was polled at which no operation was started");
}

// Both threads poll until their calls coincide; the operation never completes, since the other gate
// takes no part.
TEST(GateRules, OneThreadAtATimeWithoutTheFlag) {
  expect_caught(
      [] {
        Two two;
        two.set_both();
        EXPECT_EQ(utofu_barrier(two.gates[0], 0), UTOFU_SUCCESS);
        const auto poll = [&] {
          while (utofu_poll_barrier(two.gates[0], 0) == UTOFU_ERR_NOT_COMPLETED) {
          }
        };
        std::thread other(poll);
        poll();
        other.join();
      },
      "broken rule: two threads are in calls on barrier gate");
}

TEST(GateRules, ManyThreadsWithTheFlag) {
  expect_clean([] {
    Two two(UTOFU_VBG_FLAG_THREAD_SAFE);
    two.set_both();
    EXPECT_EQ(utofu_barrier(two.gates[0], 0), UTOFU_SUCCESS);
    const auto poll = [&] {
      for (int polls = 0; polls < 20'000; polls++)
        EXPECT_EQ(utofu_poll_barrier(two.gates[0], 0), UTOFU_ERR_NOT_COMPLETED);
    };
    std::thread other(poll);
    poll();
    other.join();
    EXPECT_EQ(utofu_barrier(two.gates[1], 0), UTOFU_SUCCESS);
    for (const std::size_t which : {0U, 1U}) two.finish(which);
    EXPECT_EQ(utofu_free_vbg(two.gates.data(), 2), UTOFU_SUCCESS);
  });
}

}  // namespace
