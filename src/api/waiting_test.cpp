// Who waits for long sleeps, in every mode, and is woken by what arrives.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>

#include "api/test_job.hpp"
#include "base/fence.hpp"

namespace heddle::test {
namespace {

constexpr std::chrono::milliseconds kWait{500};

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Case {
  const char* transport;
  heddle_sharing sharing;
};

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.transport;
  std::replace(name.begin(), name.end(), '+', '_');
  return name + "_" + std::to_string(info.param.sharing);
}

class Waiting : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Modes, Waiting,
                         testing::Values(Case{"shm", HEDDLE_SHARING_EXCLUSIVE}, Case{"shm", HEDDLE_SHARING_SHARED},
                                         Case{"shm", HEDDLE_SHARING_OFFLOAD}, Case{"shm", HEDDLE_SHARING_DELEGATE},
                                         Case{"shm", HEDDLE_SHARING_MUTEX}, Case{"loopback", HEDDLE_SHARING_EXCLUSIVE},
                                         Case{"fault+shm", HEDDLE_SHARING_EXCLUSIVE}),
                         case_name);

// Processor time is counted, so others on the machine do not matter. Each kind of wait, ended by rank 1 after a while.
TEST_P(Waiting, ForLongCostsLittleAndEndsWithWhatArrives) {
  const Case given = GetParam();
  std::atomic<std::uint64_t> raised{0};
  Job(2, given.transport).run([&](Context& context, Worker&) {
    heddle_worker_options options{};
    options.size = sizeof options;
    options.sharing = given.sharing;
    heddle_worker worker{};
    ASSERT_EQ(heddle_worker_open(context.handle(), &options, &worker), HEDDLE_DONE) << heddle_last_error();
    ASSERT_EQ(
        heddle_am_register(
            context.handle(), 3,
            [](const heddle_am_arrival*, void* arg) { static_cast<std::atomic<std::uint64_t>*>(arg)->fetch_add(1); },
            &raised),
        HEDDLE_DONE);
    const auto meet = [&] { ASSERT_EQ(heddle_context_barrier(context.handle(), worker, HEDDLE_FOREVER), HEDDLE_DONE); };
    for (int i = 0; i < 3; ++i) meet();
    std::uint64_t got = 0;
    const std::uint64_t sent = 7;
    const heddle_peer waiter{0, 1};  // worker 0 is the job's
    const heddle_am_message message{3, 0, nullptr, nullptr, 0};
    const std::array<std::pair<std::function<void()>, std::function<void()>>, 3> kinds = {{
        {[&] {
           const auto* word = reinterpret_cast<const std::uint64_t*>(&raised);
           EXPECT_EQ(heddle_signal_wait(worker, word, HEDDLE_EQ, 1, HEDDLE_FOREVER), HEDDLE_DONE);
         },
         [&] { EXPECT_GE(heddle_am(worker, waiter, &message, nullptr), 0) << heddle_last_error(); }},
        {[&] {
           const heddle_wanted wanted{{1, HEDDLE_ANY}, 1, UINT64_MAX};
           heddle_receive receive{};
           ASSERT_GE(heddle_recv(worker, &wanted, &got, sizeof got, &receive, nullptr), 0);
           EXPECT_EQ(heddle_recv_wait(worker, &receive, HEDDLE_FOREVER), HEDDLE_DONE);
           EXPECT_EQ(got, sent);
         },
         [&] { EXPECT_GE(heddle_send(worker, waiter, 1, &sent, sizeof sent, nullptr), 0) << heddle_last_error(); }},
        {meet, meet},
    }};
    for (const auto& [wait, end] : kinds) {
      const double before = thread_seconds();
      if (context.rank() == 0) {
        const auto begun = std::chrono::steady_clock::now();
        wait();
        const double used = thread_seconds() - before;
        // Whom it waits for may be away for longer.
        const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begun;
        const double bound = 0.1 * std::max<double>(waited.count(), std::chrono::duration<double>(kWait).count()) *
                             (base::kThreadSanitizer ? 4 : 1);
        EXPECT_LT(used, bound) << "it did not sleep";
      } else {
        std::this_thread::sleep_for(kWait);  // the wait that is measured, not a synchronisation
        end();
      }
      meet();
    }
    EXPECT_EQ(heddle_worker_close(worker), HEDDLE_DONE);
    context.barrier();
  });
}

}  // namespace
}  // namespace heddle::test
