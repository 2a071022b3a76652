// Messages to callers and in the log: they name the wrong values, and mention nothing that is
// correct.
#include <gtest/gtest.h>

#include <array>

#include "api/test_job.hpp"

namespace heddle::test::messages_test {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

template <class... Args>
std::string text(const char* format, Args... args) {
  std::array<char, 512> out;
  std::snprintf(out.data(), out.size(), format, args...);
  return out.data();
}

// Collects standard error while it lives.
class Caught {
 public:
  Caught() { testing::internal::CaptureStderr(); }
  std::string end() { return testing::internal::GetCapturedStderr(); }
};

// Two ranks of this thread. They are closed in threads of their own, since leaving is collective.
struct Two {
  explicit Two(const char* transport = "shm") : job(2, transport), contexts{job.join(0), job.join(1)} {
    for (std::size_t rank : {0U, 1U}) workers[rank] = contexts[rank].open_worker();
  }
  ~Two() {
    std::thread other([this] { contexts[1] = {}; });
    contexts[0] = {};
    other.join();
  }
  void progress(int times) {
    for (int i = 0; i < times; ++i) {
      EXPECT_GE(workers[0].progress(), 0);
      EXPECT_GE(workers[1].progress(), 0);
    }
  }

  Job job;
  std::array<Context, 2> contexts;
  std::array<Worker, 2> workers;
};

TEST(Messages, AWaitThatTimesOutSaysWhatItSaw) {
  Two two;
  alignas(8) const std::uint64_t word = 3;
  EXPECT_EQ(heddle_signal_wait(two.workers[0].handle(), &word, HEDDLE_LE, 1, 1000), HEDDLE_ERR_TIMEOUT);
  EXPECT_EQ(heddle_last_error(), text("heddle_signal_wait: after 1000 ns the word at %p is 3, awaited HEDDLE_LE 1",
                                      static_cast<const void*>(&word)));
  const Counter counter = two.contexts[0].counter();
  EXPECT_EQ(heddle_counter_wait(two.workers[0].handle(), counter.handle(), 2, 1000), HEDDLE_ERR_TIMEOUT);
  EXPECT_STREQ(heddle_last_error(), "heddle_counter_wait: after 1000 ns the counter is 0, awaited 2");
}

// Its memory is given back meanwhile.
TEST(Messages, AWaitForACounterThatACallbackFreesSaysSo) {
  Two two;
  heddle_counter counter{};
  ASSERT_EQ(heddle_counter_create(two.contexts[0].handle(), nullptr, &counter), HEDDLE_DONE);
  const auto free_it = [](const heddle_am_arrival*, void* which) {
    EXPECT_EQ(heddle_counter_free(*static_cast<heddle_counter*>(which)), HEDDLE_DONE);
  };
  ASSERT_EQ(heddle_am_register(two.contexts[0].handle(), 1, free_it, &counter), HEDDLE_DONE);
  const heddle_am_message message{1, 0, nullptr, nullptr, 0};
  ASSERT_GE(two.workers[1].am({0, 0}, message), 0);
  EXPECT_EQ(heddle_counter_wait(two.workers[0].handle(), counter, 1, 60'000'000'000), HEDDLE_ERR_HANDLE);
}

TEST(Messages, ProgressFromInsideNamesTheOtherClass) {
  Two two;
  std::string why;
  two.contexts[1].register_am(
      1,
      [](const heddle_am_arrival* arrival, void* arg) {
        EXPECT_EQ(heddle_worker_progress(arrival->worker), HEDDLE_ERR_STATE);
        *static_cast<std::string*>(arg) = heddle_last_error();
      },
      &why);
  ASSERT_GE(two.workers[0].try_am({1, 0}, {1, 0, nullptr, nullptr, 0}), 0);
  two.progress(100);
  EXPECT_TRUE(has(why, "give the handler a number of class USER (HEDDLE_AM_USER + n)")) << why;
}

TEST(Messages, AMessageWithoutAHandlerIsReportedWithItsNumber) {
  Caught caught;
  {
    Two two;
    ASSERT_GE(two.workers[0].try_am({1, 0}, {23, 0, nullptr, nullptr, 0}), 0);
    two.progress(100);
  }
  const std::string log = caught.end();
  EXPECT_TRUE(has(log, "no handler is registered for its number, 23")) << log;
}

// The other rank serves it, which knows its regions; the kernel only knows mappings.
TEST(Messages, AnOperationOnAReleasedRegionSaysSo) {
  const std::vector<std::pair<const char*, const char*>> settings = {{"HEDDLE_SHM_CMA", "0"}};
  const Variables variables(settings);
  Two two;
  std::vector<std::byte> memory(1 << 16);
  Region region = two.contexts[1].register_memory(memory);
  const RemoteRegion remote = two.contexts[0].unpack(region.pack());
  region = {};
  const std::vector<std::byte> data(1 << 16);
  ASSERT_EQ(two.workers[0].try_put(data, remote.at(0)), HEDDLE_POSTED);
  Status status = HEDDLE_AGAIN;
  within_time([&] { return (status = two.workers[0].try_quiet()) != HEDDLE_AGAIN; }, [&] { two.progress(1); });
  EXPECT_EQ(status, HEDDLE_ERR_RANGE);
  EXPECT_STREQ(heddle_last_error(),
               "an operation to rank 1 that had no completion ended with HEDDLE_ERR_RANGE: the owner has released "
               "the region or unmapped its memory");
}

TEST(Messages, ARegionThatIsTooLargeIsToldTheLimit) {
  Two two;
  heddle_region region{};
  EXPECT_EQ(heddle_region_alloc(two.contexts[0].handle(), std::uint64_t{1} << 50, &region), HEDDLE_ERR_NO_MEMORY);
  EXPECT_TRUE(has(heddle_last_error(), "which can hold 70368744177664 in all")) << heddle_last_error();
}

// An answer that was under way when its sender died, and is found after the operation has ended
// with PEER_FAILED.
TEST(Messages, TheLateAnswerOfADeadRankIsCountedAndNotReported) {
  Caught caught;
  std::uint64_t dropped = 0;
  {
    Two two;
    std::vector<std::uint64_t> memory(8);
    const Region region = two.contexts[1].register_memory(std::as_writable_bytes(std::span(memory)));
    const RemoteRegion remote = two.contexts[0].unpack(region.pack());
    const heddle_am_handler nothing = [](const heddle_am_arrival*, void*) {};
    two.contexts[0].register_am(1, nothing, nullptr);
    // has met rank 0, and can answer it
    ASSERT_GE(two.workers[1].try_am({0, 0}, {1, 0, nullptr, nullptr, 0}), 0);
    two.progress(10);
    ASSERT_EQ(two.workers[0].try_atomic(HEDDLE_ADD64, remote.at(0), 1), HEDDLE_POSTED);
    ASSERT_EQ(heddle_inproc_fail(two.job.handle(), 1), HEDDLE_DONE);
    ASSERT_GE(two.workers[0].progress(), 0);
    ASSERT_EQ(two.workers[0].try_quiet(), HEDDLE_ERR_PEER_FAILED);
    // the dead rank's last answer
    for (int i = 0; i < 100; ++i) ASSERT_GE(two.workers[1].progress(), 0);
    two.progress(100);
    EXPECT_EQ(memory[0], 1U);
    dropped = two.workers[0].stats().dropped;
  }
  EXPECT_EQ(caught.end(), "");
  EXPECT_EQ(dropped, 1U);
}

TEST(Messages, TheLogTellsAtInfoWhatWasJoinedAndAtDebugWhoWasMet) {
  for (const char* level : {"warn", "info", "debug"}) {
    const Variables variables({{"HEDDLE_LOG", level}, {"HEDDLE_SHM_RING_BYTES", "8K"}});
    Caught caught;
    {
      Two two;
      int received = 0;
      two.contexts[1].register_am(1, [](const heddle_am_arrival*, void* arg) { ++*static_cast<int*>(arg); }, &received);
      ASSERT_GE(two.workers[0].try_am({1, 0}, {1, 0, nullptr, nullptr, 0}), 0);
      two.progress(100);
      EXPECT_EQ(received, 1);
    }
    const std::string log = caught.end();
    const bool info = std::string(level) != "warn";
    const bool debug = std::string(level) == "debug";
    EXPECT_EQ(has(log, "heddle[1] info: rank 1 of 2 joined by inproc; transport shm (direct on, CMA allowed"), info)
        << log;
    EXPECT_EQ(has(log, "rings of 8192 bytes"), info) << log;
    EXPECT_EQ(has(log, "hardware threads to run on\n"), info) << log;
    EXPECT_EQ(has(log, "heddle[0] debug: first contact with rank 1, process "), debug) << log;
    EXPECT_EQ(has(log, "heddle[0] debug: worker 0 opens a ring of 8192 bytes to rank 1 worker 0"), debug) << log;
  }
}

}  // namespace
}  // namespace heddle::test::messages_test
