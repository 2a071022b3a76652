// Handlers that change while messages arrive, and handlers that try to close the worker or context
// that they run on.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "api/test_job.hpp"
#include "base/test_memory.hpp"

namespace heddle::test::handlers_test {
namespace {

constexpr std::uint32_t kNetwork = 3;
constexpr std::uint32_t kUser = HEDDLE_AM_USER + 3;

// ---- registering while messages arrive ----------------------------------------------------------

struct Seen {
  std::atomic<std::uint64_t> first{0};
  std::atomic<std::uint64_t> second{0};
  std::atomic<std::uint64_t> torn{0};
};
struct Argument {
  int of;
  Seen* seen;
};

void first(const heddle_am_arrival* /*message*/, void* arg) {
  const auto& argument = *static_cast<Argument*>(arg);
  (argument.of == 1 ? argument.seen->first : argument.seen->torn)++;
}

void second(const heddle_am_arrival* /*message*/, void* arg) {
  const auto& argument = *static_cast<Argument*>(arg);
  (argument.of == 2 ? argument.seen->second : argument.seen->torn)++;
}

class Registering : public testing::TestWithParam<std::uint32_t> {};

TEST_P(Registering, EachMessageMeetsAHandlerWithItsOwnArgument) {
  constexpr std::uint64_t kEach = 20'000;
  const std::uint32_t number = GetParam();
  Context context = Context::join();
  Worker worker = context.open_worker();
  Seen seen;
  Argument of_first{1, &seen};
  Argument of_second{2, &seen};
  context.register_am(number, first, &of_first);
  std::atomic<bool> over{false};
  const auto registers = [&] {
    while (!over.load()) {
      context.register_am(number, second, &of_second);
      context.register_am(number, first, &of_first);
      context.register_am(number, nullptr, nullptr);
      context.register_am(number, first, &of_first);
    }
  };
  std::thread one(registers);
  std::thread other(registers);
  const auto enough = [&] { return seen.first >= kEach && seen.second >= kEach; };
  EXPECT_TRUE(within_time([&] { return enough() || seen.torn > 0; },
                          [&] {
                            for (int i = 0; i < 64; ++i) {
                              EXPECT_GE(worker.try_am({0, 0}, {number, 0, nullptr, nullptr, 0}), 0);
                            }
                            EXPECT_GE(number >= HEDDLE_AM_USER ? worker.run_tasks(1000) : worker.progress(), 0);
                          }));
  over = true;
  one.join();
  other.join();
  EXPECT_EQ(seen.torn, 0U);
}

// Nothing is allocated, so nothing is kept of the handlers that were replaced, and there is nothing
// to search.
TEST_P(Registering, TakesNoMemoryHoweverOften) {
  constexpr std::size_t kTimes = 100'000;
  const std::uint32_t number = GetParam();
  Context context = Context::join();
  Worker worker = context.open_worker();
  static void* met = nullptr;
  const auto fn = [](const heddle_am_arrival*, void* arg) { met = arg; };
  std::vector<char> arguments(kTimes);
  for (std::size_t i = 0; i < kTimes; ++i) {
    {
      const Exhausted memory(0);
      ASSERT_EQ(heddle_am_register(context.handle(), number, fn, &arguments[i]), HEDDLE_DONE) << heddle_last_error();
    }
    ASSERT_FALSE(allocation_failed) << "registration " << i;
    if (i % 1000 != 999) continue;
    ASSERT_GE(worker.try_am({0, 0}, {number, 0, nullptr, nullptr, 0}), 0);
    ASSERT_TRUE(
        within_time([&] { return met == &arguments[i]; },
                    [&] { EXPECT_GE(number >= HEDDLE_AM_USER ? worker.run_tasks(1000) : worker.progress(), 0); }));
  }
}

INSTANTIATE_TEST_SUITE_P(Classes, Registering, testing::Values(kNetwork, kUser),
                         [](const auto& test) { return test.param == kNetwork ? "network" : "user"; });

// ---- settings by which both ends count ----------------------------------------------------------

class Differing : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Differing, WindowsAreAnErrorAndNoSilence) {
  const auto& [transport, variable] = GetParam();
  const Job job(2, transport);
  Context mine = job.join(0);
  const std::vector<std::pair<const char*, const char*>> other_value{{variable, "321K"}};
  Context theirs;
  {
    const Variables variables(other_value);
    theirs = job.join(1);
  }
  Worker worker = mine.open_worker();
  Worker peer = theirs.open_worker();
  const Status posted = worker.try_am({1, 0}, {kUser, 0, nullptr, nullptr, 0});
  Status status = posted < 0 ? posted : HEDDLE_AGAIN;
  EXPECT_TRUE(within_time([&] { return status != HEDDLE_AGAIN || (status = worker.try_quiet()) != HEDDLE_AGAIN; },
                          [&] {
                            worker.progress();
                            peer.progress();
                          }));
  EXPECT_EQ(status, HEDDLE_ERR_VERSION) << heddle_status_name(status);
  worker = {};
  std::thread other([&] {
    peer = {};
    theirs = {};
  });
  mine = {};
  other.join();
}

INSTANTIATE_TEST_SUITE_P(Windows, Differing,
                         testing::Combine(testing::Values("shm", "loopback"),
                                          testing::Values("HEDDLE_TAG_CREDIT_BYTES", "HEDDLE_AM_USER_BYTES")));

// ---- handlers that would end what they run on ---------------------------------------------------

// Runs a function in the USER handler of `worker`.
struct InHandler {
  std::function<void()> function;
  int ran = 0;

  void run(Context& context, Worker& worker) {
    context.register_am(
        kUser,
        [](const heddle_am_arrival*, void* arg) {
          auto& self = *static_cast<InHandler*>(arg);
          ++self.ran;
          self.function();
        },
        this);
    std::uint32_t index = 0;
    ASSERT_EQ(heddle_worker_index(worker.handle(), &index), HEDDLE_DONE);
    ASSERT_GE(worker.try_am({0, index}, {kUser, 0, nullptr, nullptr, 0}), 0);
    ASSERT_EQ(worker.run_tasks(1, HEDDLE_FOREVER), 1);
    ASSERT_EQ(ran, 1);
  }
};

class Ending : public testing::TestWithParam<heddle_sharing> {
 protected:
  Worker open() { return context_.open_worker(GetParam()); }
  Context context_ = Context::join();
};

TEST_P(Ending, AUserHandlerCannotCloseItsWorkerNorLeaveItsContext) {
  Worker worker = open();
  Worker other = open();
  InHandler in;
  in.function = [&] {
    EXPECT_EQ(heddle_worker_close(worker.handle()), HEDDLE_ERR_STATE);
    EXPECT_NE(std::string(heddle_last_error()).find("heddle_worker_close from a USER handler"), std::string::npos);
    EXPECT_EQ(heddle_context_leave(context_.handle()), HEDDLE_ERR_STATE);
    EXPECT_NE(std::string(heddle_last_error()).find("heddle_context_leave from a USER handler"), std::string::npos);
    other = {};  // another worker it may close
  };
  in.run(context_, worker);
  EXPECT_EQ(other.handle().id, 0U);
  // Both are as they were.
  EXPECT_EQ(worker.run_tasks(1), 0);
  worker = {};
}

TEST_P(Ending, AHandlerWithinAHandlerCanEndNeitherOfTheirWorkers) {
  Worker outer = open();
  Worker inner = open();
  InHandler in_inner;
  in_inner.function = [&] {
    EXPECT_EQ(heddle_worker_close(inner.handle()), HEDDLE_ERR_STATE);
    EXPECT_EQ(heddle_worker_close(outer.handle()), HEDDLE_ERR_STATE);
    EXPECT_EQ(heddle_context_leave(context_.handle()), HEDDLE_ERR_STATE);
  };
  InHandler in_outer;
  in_outer.function = [&] {
    in_inner.run(context_, inner);
    inner = {};  // its handler has ended
  };
  in_outer.run(context_, outer);
  EXPECT_EQ(in_inner.ran, 1);
  EXPECT_EQ(inner.handle().id, 0U);
}

TEST_P(Ending, AUserHandlerMayLeaveAnotherContext) {
  Worker worker = open();
  Context other = Context::join();
  Worker of_other = other.open_worker(GetParam());
  InHandler in;
  in.function = [&] {
    of_other = {};
    other = {};
  };
  in.run(context_, worker);
  EXPECT_EQ(other.handle().id, 0U);
}

INSTANTIATE_TEST_SUITE_P(Modes, Ending, testing::ValuesIn(all_modes()),
                         [](const auto& mode) { return name_of_mode(mode.param); });

// ---- what belongs to the worker -----------------------------------------------------------------

// A handler has one argument for all workers; each worker has its own, from its first message on.
TEST(WorkersUser, IsFoundByHandlersOfBothClassesOnEachWorker) {
  for (const heddle_sharing mode : all_modes()) {
    Context context = Context::join();
    std::array<std::atomic<std::uint64_t>, 3> counts{};
    std::vector<Worker> workers;
    for (std::atomic<std::uint64_t>& count : counts) {
      heddle_worker_options options{};
      options.size = sizeof options;
      options.sharing = mode;
      options.user = &count;
      workers.push_back(context.open_worker(options));
      EXPECT_EQ(workers.back().user(), &count);
    }
    const heddle_am_handler handler = [](const heddle_am_arrival* message, void*) {
      void* user = nullptr;
      ASSERT_EQ(heddle_worker_user(message->worker, &user), HEDDLE_DONE);
      ++*static_cast<std::atomic<std::uint64_t>*>(user);
    };
    for (const std::uint32_t number : {kNetwork, kUser}) {
      context.register_am(number, handler, nullptr);
      for (std::uint32_t i = 0; i < counts.size(); ++i) {
        for (std::uint32_t times = 0; times <= i; ++times) {
          ASSERT_GE(workers[0].am({0, i}, {number, 0, nullptr, nullptr, 0}), 0);
        }
      }
    }
    EXPECT_TRUE(within_time([&] { return counts[0] == 2 && counts[1] == 4 && counts[2] == 6; },
                            [&] {
                              for (Worker& worker : workers) EXPECT_GE(worker.run_tasks(), 0);
                            }))
        << name_of_mode(mode);
  }
}

TEST(WorkersUser, IsNullWithoutAndOfTheFirstVersion) {
  Context context = Context::join();
  const Worker worker = context.open_worker();
  EXPECT_EQ(worker.user(), nullptr);
  heddle_worker_options options{};
  options.size = offsetof(heddle_worker_options, user);  // a program compiled before it was there
  options.user = &options;
  EXPECT_EQ(context.open_worker(options).user(), nullptr);
  void* user = nullptr;
  EXPECT_EQ(heddle_worker_user(worker.handle(), nullptr), HEDDLE_ERR_ARGUMENT);
  EXPECT_EQ(heddle_worker_user({}, &user), HEDDLE_ERR_HANDLE);
}

}  // namespace
}  // namespace heddle::test::handlers_test
