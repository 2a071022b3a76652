// Session mode compared with a model of ten lines, in single steps.
#include <gtest/gtest.h>
#include <utofu_emulator.h>

#include <deque>
#include <limits>
#include <thread>

#include "base/random.hpp"
#include "tofu/tests/world_of.hpp"

namespace tofu_emulator::test::sps_test {
namespace {

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                                    \
    }                                                                              \
  } while (false)

constexpr unsigned kDepth = 16;

// A command is a number; each takes some slots.
struct SessionModel {
  struct Command {
    std::uintptr_t number;
    unsigned slots;
  };
  std::deque<Command> waiting;
  std::deque<Command> done;
  unsigned credits = 0;
  unsigned used = 0;  // slots between posted and reaped

  bool post(Command command) {
    if (used + command.slots > kDepth) return false;
    used += command.slots;
    waiting.push_back(command);
    return run();
  }
  bool run() {
    for (; !waiting.empty() && waiting.front().slots <= credits; waiting.pop_front()) {
      credits -= waiting.front().slots;
      done.push_back(waiting.front());
    }
    return true;
  }
};

// Steps until nothing has happened for longer than strict mode's longest delay.
void step_until_quiet(bool strict) {
  const int patience = strict ? 1200 : 4;
  for (int idle = 0; idle < patience; ++idle)
    if (utofu_emu_step() > 0) idle = 0;
}

struct Trial {
  utofu_vcq_hdl_t session = 0;
  utofu_vcq_hdl_t normal = 0;
  utofu_vcq_id_t session_id = 0;
  utofu_vcq_id_t normal_id = 0;
  std::array<std::uint64_t, 8> memory{};
  utofu_stadd_t at_session = 0;
  utofu_stadd_t at_normal = 0;
  SessionModel model;
  std::uintptr_t posted = 0;

  int open() {
    CHECK(utofu_create_vcq(1, UTOFU_VCQ_FLAG_SESSION_MODE, &session) == UTOFU_SUCCESS);
    CHECK(utofu_create_vcq(2, UTOFU_VCQ_FLAG_EXCLUSIVE, &normal) == UTOFU_SUCCESS);
    CHECK(utofu_query_vcq_id(session, &session_id) == UTOFU_SUCCESS);
    CHECK(utofu_query_vcq_id(normal, &normal_id) == UTOFU_SUCCESS);
    CHECK(utofu_reg_mem(session, memory.data(), sizeof memory, 0, &at_session) == UTOFU_SUCCESS);
    CHECK(utofu_reg_mem(normal, memory.data(), sizeof memory, 0, &at_normal) == UTOFU_SUCCESS);
    return 0;
  }

  // Posts a command that writes its number.
  int post(unsigned slots) {
    const std::uint64_t number = posted + 1;
    constexpr unsigned long kFlags = UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
    void* mark = reinterpret_cast<void*>(number);
    std::array<std::uint64_t, 4> data{number, number, number, number};
    const int status = slots == 1
                           ? utofu_put_piggyback8(session, normal_id, number, at_normal, 8, 0, kFlags, mark)
                           : utofu_put_piggyback(session, normal_id, data.data(), at_normal, 32, 0, kFlags, mark);
    const bool accepted = model.post({number, slots});
    CHECK(status == (accepted ? UTOFU_SUCCESS : UTOFU_ERR_BUSY));
    posted += accepted ? 1 : 0;
    return 0;
  }

  int credit(unsigned count) {
    const unsigned long flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_SPS(count);
    void* none = nullptr;
    CHECK(utofu_put_piggyback8(normal, session_id, 0, at_session + 56, 8, 0, flags, nullptr) == UTOFU_SUCCESS);
    CHECK(utofu_poll_tcq(normal, 0, &none) == UTOFU_ERR_NOT_FOUND);
    model.credits += count;
    (void)model.run();
    return 0;
  }

  int poll() {
    void* mark = nullptr;
    const int status = utofu_poll_tcq(session, 0, &mark);
    CHECK(status == (model.done.empty() ? UTOFU_ERR_NOT_FOUND : UTOFU_SUCCESS));
    if (status != UTOFU_SUCCESS) return 0;
    CHECK(reinterpret_cast<std::uintptr_t>(mark) == model.done.front().number);
    model.used -= model.done.front().slots;
    model.done.pop_front();
    return 0;
  }

  int compare() {
    std::size_t unread = 0;
    CHECK(utofu_query_num_unread_tcq(session, &unread) == UTOFU_SUCCESS);
    CHECK(unread == model.done.size());
    const std::uintptr_t last = posted - model.waiting.size();
    CHECK(memory[0] == last);
    return 0;
  }

  int close() {
    while (!model.waiting.empty() && credit(1) == 0) step_until_quiet(true);
    while (!model.done.empty()) {
      if (poll() != 0) return 1;
    }
    CHECK(utofu_dereg_mem(session, at_session, 0) == UTOFU_SUCCESS);
    CHECK(utofu_dereg_mem(normal, at_normal, 0) == UTOFU_SUCCESS);
    return 0;
  }
};

int trial(Place& /*place*/, bool strict, std::uint64_t seed) {
  Trial it;
  heddle::base::Random random(seed);
  if (it.open() != 0) return 1;
  for (int step = 0; step < (strict ? 150 : 600); ++step) {
    const std::uint64_t what = random.below(10);
    int bad = 0;
    if (what < 5) {
      bad = it.post(random.below(4) == 0 ? 2 : 1);
    } else if (what < 7) {
      bad = it.credit(static_cast<unsigned>(random.below(random.below(3) == 0 ? 16 : 4)));
    } else {
      step_until_quiet(strict);
      bad = it.poll();
    }
    step_until_quiet(strict);
    if (bad != 0 || it.compare() != 0) {
      std::fprintf(stderr, "seed %llu, step %d\n", static_cast<unsigned long long>(seed), step);
      return 1;
    }
  }
  return it.close();
}

// In the timing model a command runs from the time of its own credit, not of the last credit that
// the engine has found.
int two_credits(Place& /*place*/) {
  constexpr int kCalls = 100;
  Trial it;
  CHECK(it.open() == 0);
  CHECK(it.credit(1) == 0);
  const std::uint64_t before = utofu_emu_model_now_ns();
  for (int call = 0; call < kCalls; ++call)
    CHECK(utofu_put_piggyback8(it.normal, it.normal_id, 0, it.at_normal + 48, 8, 0, 0, nullptr) == UTOFU_SUCCESS);
  const std::uint64_t between = utofu_emu_model_now_ns() - before;
  CHECK(between > 0);
  CHECK(it.credit(1) == 0);
  step_until_quiet(false);
  // Another thread: its time begins at 0.
  std::array<std::uint64_t, 2> ends{};
  int bad = 0;
  std::thread([&] {
    bad = it.post(1) + it.post(1);
    step_until_quiet(false);
    for (std::uint64_t& end : ends) {
      bad += it.poll();
      end = utofu_emu_model_now_ns();
    }
  }).join();
  CHECK(bad == 0);
  CHECK(ends[1] - ends[0] >= between);
  return it.close();
}

TEST(Session, InTheTimingModelEachCommandHasItsOwnCredit) {
  EXPECT_EQ(run_world(1, {{"UTOFU_EMU_STEP", "1"}, {"UTOFU_EMU_MODEL", "1"}}, two_credits), std::vector<int>{0});
}

TEST(Session, RunsAsTheModelSays) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    EXPECT_EQ(run_world(1, {{"UTOFU_EMU_STEP", "1"}, {"UTOFU_EMU_TOQ", std::to_string(kDepth)}},
                        [seed](Place& place) { return trial(place, false, seed); }),
              std::vector<int>{0});
  }
}

TEST(Session, RunsAsTheModelSaysInStrictMode) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const Variables variables{{"UTOFU_EMU_STEP", "1"},
                              {"UTOFU_EMU_TOQ", std::to_string(kDepth)},
                              {"UTOFU_EMU_MODE", "strict"},
                              {"UTOFU_EMU_SEED", std::to_string(seed)}};
    EXPECT_EQ(run_world(1, variables, [seed](Place& place) { return trial(place, true, seed); }), std::vector<int>{0});
  }
}

}  // namespace
}  // namespace tofu_emulator::test::sps_test
