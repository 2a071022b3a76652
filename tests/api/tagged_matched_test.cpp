// Sends that end when a receive has matched them (HEDDLE_WHEN_MATCHED), in every sharing mode:
// never before, whatever their length, and in the order of all messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <tuple>

#include "api/test_job.hpp"

namespace heddle::test::tagged_matched_test {
namespace {

using Parameter = std::tuple<const char*, Setting>;

constexpr std::int64_t kLong = 120'000'000'000;
constexpr std::array<std::size_t, 6> kLengths = {0, 1, 8, 56, 1'000, 40'000};

struct Ends {
  std::atomic<int> done{0};
  std::atomic<int> failed{0};
  std::atomic<Status> last{HEDDLE_AGAIN};
  static void tell(void* arg, Status status) {
    auto* self = static_cast<Ends*>(arg);
    self->last = status;
    ++(status == HEDDLE_DONE ? self->done : self->failed);
  }
  [[nodiscard]] int all() const { return done + failed; }
  heddle_completion completion(heddle_when when = HEDDLE_WHEN_MATCHED) { return {&tell, this, {}, when}; }
};

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 31 + seed * 17 + (i >> 8));
  return data;
}

heddle_wanted exactly(std::uint32_t rank, std::uint64_t tag) {
  return {{rank, 0}, tag, UINT64_MAX};
}

// Until `done`, with progress.
template <class Done>
void turn_until(Worker& worker, Done&& done) {
  while (!done() && !testing::Test::HasFatalFailure()) turn(worker);
}

class Matched : public testing::TestWithParam<Parameter> {
 protected:
  void run(std::uint32_t ranks, const std::function<void(Context&, Worker&)>& body) {
    const auto& [sharing, setting] = GetParam();
    auto all = setting.variables;
    all.emplace_back("HEDDLE_SHARING", sharing);
    const Variables variables(all);
    Job(ranks, setting.transport).run(body);
  }
};

TEST_P(Matched, ASendEndsWhenItsReceiveHasComeAndNotBefore) {
  for (const std::size_t bytes : kLengths) {
    const std::vector<std::byte> data = pattern(bytes, 3);
    std::atomic<bool> looked{false};
    Ends ends;
    run(2, [&](Context& context, Worker& worker) {
      if (context.rank() == 0) {
        const heddle_completion completion = ends.completion();
        const void* source = bytes == 0 ? nullptr : data.data();
        ASSERT_EQ(heddle_send(worker.handle(), {1, 0}, 9, source, bytes, &completion), HEDDLE_POSTED)
            << heddle_last_error();
        turn_until(worker, [&] { return looked.load(); });
        turn_until(worker, [&] { return ends.all() != 0; });
        EXPECT_EQ(worker.quiet(), HEDDLE_DONE) << heddle_last_error();
        return;
      }
      heddle_receive found{};
      turn_until(worker, [&] { return worker.try_probe(exactly(0, 9), &found) == HEDDLE_DONE; });
      EXPECT_EQ(found.bytes, bytes);
      for (int i = 0; i < 100; ++i) turn(worker);
      EXPECT_EQ(ends.all(), 0) << "nobody has received it: " << bytes << " bytes";
      looked = true;
      std::vector<std::byte> room(bytes + 8, std::byte{0xEE});
      heddle_receive receive{};
      ASSERT_GE(worker.recv(exactly(0, 9), room, &receive), 0) << heddle_last_error();
      ASSERT_EQ(worker.wait(receive, kLong), HEDDLE_DONE) << heddle_last_error();
      EXPECT_EQ(receive.bytes, bytes);
      EXPECT_TRUE(std::ranges::equal(std::span(room).first(bytes), data));
      EXPECT_EQ(room[bytes], std::byte{0xEE});
      // the sender may need an answer of ours
      turn_until(worker, [&] { return ends.all() != 0; });
    });
    EXPECT_EQ(ends.done, 1) << heddle_status_name(ends.last);
    EXPECT_EQ(ends.failed, 0);
  }
}

TEST_P(Matched, FlushAndQuietWaitForTheReceiveAndCountersCountIt) {
  std::atomic<bool> looked{false};
  run(2, [&](Context& context, Worker& worker) {
    const std::uint64_t value = 5;
    if (context.rank() == 0) {
      const Counter counter = context.counter();
      const heddle_completion counted = counter.completion(HEDDLE_WHEN_MATCHED);
      const heddle_completion untold{nullptr, nullptr, {}, HEDDLE_WHEN_MATCHED};
      ASSERT_EQ(worker.send({1, 0}, 1, bytes_of(value), &counted), HEDDLE_POSTED);
      ASSERT_EQ(worker.send({1, 0}, 2, bytes_of(value), &untold), HEDDLE_POSTED);
      for (int i = 0; i < 50; ++i) turn(worker);
      EXPECT_EQ(heddle_try_flush(worker.handle(), 1), HEDDLE_AGAIN);
      EXPECT_EQ(counter.value(), 0U);
      looked = true;
      EXPECT_EQ(worker.quiet(), HEDDLE_DONE) << heddle_last_error();
      EXPECT_EQ(counter.value(), 1U);
      return;
    }
    turn_until(worker, [&] { return looked.load(); });
    for (std::uint64_t tag = 1; tag <= 2; ++tag) {
      std::uint64_t room = 0;
      heddle_receive receive{};
      ASSERT_GE(worker.recv(exactly(0, tag), writable_bytes_of(room), &receive), 0);
      ASSERT_EQ(worker.wait(receive, kLong), HEDDLE_DONE);
      EXPECT_EQ(room, value);
    }
  });
}

// Messages of all kinds to one receive after the other, which are posted before and after them.
TEST_P(Matched, TheOrderAmongAllMessagesStays) {
  constexpr int kMessages = 60;
  const auto length = [](int i) { return i % 7 == 3 ? std::size_t{20'000} : static_cast<std::size_t>(8 + i % 5 * 40); };
  run(2, [&](Context& context, Worker& worker) {
    const std::uint32_t peer = 1 - context.rank();
    std::deque<std::vector<std::byte>> rooms;
    std::deque<heddle_receive> receives;
    const auto post = [&] {
      std::vector<std::byte>& room = rooms.emplace_back(30'000);
      ASSERT_GE(worker.recv(exactly(peer, 4), room, &receives.emplace_back()), 0) << heddle_last_error();
    };
    Ends ends;
    const std::array<heddle_completion, 3> completions = {ends.completion(), ends.completion(HEDDLE_WHEN_LOCAL),
                                                          ends.completion(HEDDLE_WHEN_REMOTE)};
    for (int i = 0; i < kMessages / 2; ++i) post();
    std::deque<std::vector<std::byte>> sources;
    int posted = 0;
    for (int i = 0; i < kMessages; ++i) {
      const std::vector<std::byte>& source = sources.emplace_back(pattern(length(i), static_cast<std::uint64_t>(i)));
      const Status status = worker.send({peer, 0}, 4, source, &completions.at(static_cast<std::size_t>(i % 3)));
      ASSERT_GE(status, 0) << heddle_last_error();
      if (status == HEDDLE_POSTED) ++posted;
      if (i % 2 == 0) post();
    }
    for (int i = 0; i < kMessages; ++i) {
      const auto at = static_cast<std::size_t>(i);
      ASSERT_EQ(worker.wait(receives[at], kLong), HEDDLE_DONE) << heddle_last_error();
      ASSERT_EQ(receives[at].bytes, length(i)) << "message " << i;
      ASSERT_EQ(std::memcmp(rooms[at].data(), sources[at].data(), length(i)), 0) << "message " << i;
    }
    turn_until(worker, [&] { return ends.all() == posted; });
    EXPECT_EQ(ends.failed, 0);
    EXPECT_EQ(worker.quiet(), HEDDLE_DONE);
  });
}

TEST_P(Matched, ASendToOneselfEndsLikewise) {
  run(1, [&](Context&, Worker& worker) {
    for (const std::size_t bytes : kLengths) {
      const std::vector<std::byte> data = pattern(bytes, 4);
      std::vector<std::byte> room(bytes);
      Ends ends;
      const heddle_completion completion = ends.completion();
      ASSERT_EQ(worker.send({0, 0}, 2, data, &completion), HEDDLE_POSTED) << heddle_last_error();
      heddle_receive receive{};
      for (int i = 0; i < 20; ++i) turn(worker);
      EXPECT_EQ(ends.all(), 0);
      ASSERT_GE(worker.recv(exactly(0, 2), room, &receive), 0);
      ASSERT_EQ(worker.wait(receive, kLong), HEDDLE_DONE) << heddle_last_error();
      EXPECT_EQ(room, data);
      turn_until(worker, [&] { return ends.all() != 0; });
      EXPECT_EQ(ends.done, 1);
      // a receive that is there before
      ASSERT_EQ(worker.recv(exactly(0, 2), room, &receive), HEDDLE_POSTED);
      ASSERT_EQ(worker.send({0, 0}, 2, data, &completion), HEDDLE_POSTED);
      ASSERT_EQ(worker.wait(receive, kLong), HEDDLE_DONE);
      turn_until(worker, [&] { return ends.all() == 2; });
      EXPECT_EQ(ends.done, 2);
    }
  });
}

// A claimed message is not received yet; dropped, or cut short, it is.
TEST_P(Matched, ClaimedDroppedAndTruncatedOnesEnd) {
  for (const std::size_t bytes : kLengths) {
    const std::vector<std::byte> data = pattern(bytes, 5);
    std::array<Ends, 4> ends;
    std::atomic<int> stage{0};
    run(2, [&](Context& context, Worker& worker) {
      if (context.rank() == 0) {
        for (std::size_t i = 0; i < ends.size(); ++i) {
          const heddle_completion completion = ends.at(i).completion();
          ASSERT_EQ(worker.send({1, 0}, i, data, &completion), HEDDLE_POSTED) << heddle_last_error();
        }
        turn_until(worker, [&] { return stage == 1; });
        EXPECT_EQ(worker.quiet(), HEDDLE_DONE) << heddle_last_error();
        return;
      }
      std::array<heddle_receive, 4> claimed{};
      for (std::size_t i = 0; i < ends.size(); ++i)
        turn_until(worker, [&] { return worker.try_claim(exactly(0, i), &claimed.at(i)) == HEDDLE_DONE; });
      for (int i = 0; i < 50; ++i) turn(worker);
      for (const Ends& each : ends) EXPECT_EQ(each.all(), 0) << "it is claimed, not received";
      stage = 1;
      std::vector<std::byte> room(bytes);
      // dropped, or no data
      ASSERT_GE(worker.recv_claimed({}, &claimed[0]), 0) << heddle_last_error();
      ASSERT_GE(worker.recv_claimed(room, &claimed[1]), 0) << heddle_last_error();
      ASSERT_EQ(worker.wait(claimed[1], kLong), HEDDLE_DONE);
      EXPECT_EQ(room, data);
      for (std::size_t i = 2; i < claimed.size(); ++i) {
        const std::size_t length = i == 2 ? bytes / 2 : 1;
        std::vector<std::byte> small(length + 1);
        static_cast<void>(worker.recv_claimed(std::span(small).first(length), &claimed.at(i)));
        EXPECT_EQ(worker.wait(claimed.at(i), kLong), bytes > length ? HEDDLE_ERR_TRUNCATED : HEDDLE_DONE);
        const std::size_t arrived = std::min(length, bytes);
        EXPECT_TRUE(std::ranges::equal(std::span(small).first(arrived), std::span(data).first(arrived)));
        EXPECT_EQ(small.back(), std::byte{0});
      }
      for (Ends& each : ends) turn_until(worker, [&] { return each.all() != 0; });
    });
    for (const Ends& each : ends) {
      EXPECT_EQ(each.done, 1) << heddle_status_name(each.last);
      EXPECT_EQ(each.failed, 0);
    }
  }
}

// Both ranks send before they receive, from several threads where the mode permits it.
TEST_P(Matched, ManyThreadsSendAndReceiveAtOnce) {
  const bool one_thread = std::string(std::get<0>(GetParam())) == "exclusive";
  const std::uint32_t threads = one_thread ? 1 : 3;
  constexpr std::uint64_t kEach = 40;
  run(2, [&](Context& context, Worker& worker) {
    const std::uint32_t peer = 1 - context.rank();
    std::vector<std::thread> all;
    for (std::uint64_t thread = 0; thread < threads; ++thread) {
      all.emplace_back([&, thread] {
        for (std::uint64_t i = 0; i < kEach; ++i) {
          const std::uint64_t value = thread * 1000 + i;
          Ends ends;
          const heddle_completion completion = ends.completion();
          ASSERT_EQ(worker.send({peer, 0}, thread, bytes_of(value), &completion), HEDDLE_POSTED) << heddle_last_error();
          std::uint64_t room = 0;
          heddle_receive receive{};
          ASSERT_GE(worker.recv(exactly(peer, thread), writable_bytes_of(room), &receive), 0) << heddle_last_error();
          ASSERT_EQ(worker.wait(receive, kLong), HEDDLE_DONE) << heddle_last_error();
          ASSERT_EQ(room, value);
          turn_until(worker, [&] { return ends.all() != 0; });
          ASSERT_EQ(ends.done, 1);
        }
      });
    }
    for (std::thread& thread : all) thread.join();
    EXPECT_EQ(worker.quiet(), HEDDLE_DONE) << heddle_last_error();
  });
}

// As many as long messages may be under way; then AGAIN, until one is received.
TEST_P(Matched, TheyTakeTheRoomOfLongMessages) {
  const std::vector<std::pair<const char*, const char*>> little = {{"HEDDLE_WORKER_OPERATIONS", "16"}};
  const Variables few(little);
  std::atomic<int> accepted{-1};
  run(2, [&](Context& context, Worker& worker) {
    const std::uint64_t value = 6;
    if (context.rank() == 0) {
      Ends ends;
      const heddle_completion completion = ends.completion();
      int sent = 0;
      for (int refused = 0; refused < 100;) {
        const Status status = worker.try_send({1, 0}, 1, bytes_of(value), &completion);
        ASSERT_TRUE(status == HEDDLE_POSTED || status == HEDDLE_AGAIN) << heddle_last_error();
        status == HEDDLE_POSTED ? ++sent : ++refused;
        turn(worker);
      }
      EXPECT_EQ(sent, 12);
      EXPECT_EQ(ends.all(), 0);
      accepted = sent;
      // waits for room
      ASSERT_EQ(worker.send({1, 0}, 1, bytes_of(value), &completion), HEDDLE_POSTED);
      turn_until(worker, [&] { return ends.all() == sent + 1; });
      EXPECT_EQ(ends.done, sent + 1);
      return;
    }
    turn_until(worker, [&] { return accepted >= 0; });
    for (int i = 0; i <= accepted; ++i) {
      std::uint64_t room = 0;
      heddle_receive receive{};
      ASSERT_GE(worker.recv(exactly(0, 1), writable_bytes_of(room), &receive), 0);
      ASSERT_EQ(worker.wait(receive, kLong), HEDDLE_DONE);
    }
  });
}

std::vector<Setting> few_settings() {
  std::vector<Setting> chosen;
  for (const Setting& setting : all_settings()) {
    const std::string name = setting.name;
    if (name == "shm" || name == "shm_commands" || name == "loopback_messages" || name == "fault_loopback" ||
        name == "given") {
      chosen.push_back(setting);
    }
  }
  return chosen;
}

INSTANTIATE_TEST_SUITE_P(Modes, Matched,
                         testing::Combine(testing::ValuesIn(names_of(all_modes())), testing::ValuesIn(few_settings())),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param).name;
                         });

// ---- what ends badly, and what is refused -------------------------------------------------------

// Two ranks of this thread. They are closed in threads of their own, since leaving is collective.
struct Pair {
  explicit Pair(const char* transport) : job(2, transport) {
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
  void progress() {
    for (Worker& worker : workers) {
      if (worker) turn(worker);
    }
  }
  Job job;
  std::vector<Context> contexts;
  std::vector<Worker> workers;
};

class MatchedEnds : public testing::TestWithParam<Setting> {
 protected:
  Variables variables_{GetParam().variables};
};
INSTANTIATE_TEST_SUITE_P(Over, MatchedEnds, testing::ValuesIn(all_settings()), name_of);

TEST_P(MatchedEnds, WithoutAReceiveTheyEndWithTheTargetsWorker) {
  for (const std::size_t bytes : kLengths) {
    const std::vector<std::byte> data = pattern(bytes, 6);
    for (const bool claims : {false, true}) {
      Pair pair(GetParam().transport);
      Ends ends;
      const heddle_completion completion = ends.completion();
      ASSERT_EQ(pair.workers[0].try_send({1, 0}, 7, data, &completion), HEDDLE_POSTED);
      heddle_receive found{};
      while (pair.workers[1].try_probe(exactly(0, 7), &found) != HEDDLE_DONE) pair.progress();
      if (claims) {
        ASSERT_EQ(pair.workers[1].try_claim(exactly(0, 7), &found), HEDDLE_DONE);
      }
      EXPECT_EQ(ends.all(), 0);
      pair.workers[1] = {};
      while (ends.all() == 0) pair.progress();
      EXPECT_EQ(ends.last, HEDDLE_ERR_CANCELLED);
      EXPECT_EQ(ends.failed, 1);
    }
  }
}

TEST_P(MatchedEnds, WithoutAReceiveTheyEndWithTheirTarget) {
  for (const std::size_t bytes : kLengths) {
    const std::vector<std::byte> data = pattern(bytes, 6);
    Pair pair(GetParam().transport);
    Ends ends;
    const heddle_completion completion = ends.completion();
    ASSERT_EQ(pair.workers[0].try_send({1, 0}, 7, data, &completion), HEDDLE_POSTED);
    for (int i = 0; i < 20; ++i) pair.progress();
    EXPECT_EQ(ends.all(), 0);
    check(heddle_inproc_fail(pair.job.handle(), 1));
    while (ends.all() == 0) turn(pair.workers[0]);
    EXPECT_EQ(ends.last, HEDDLE_ERR_PEER_FAILED);
    EXPECT_EQ(ends.failed, 1);
    const Status later = pair.workers[0].try_send({1, 0}, 7, data, &completion);
    ASSERT_TRUE(later == HEDDLE_POSTED || later == HEDDLE_ERR_PEER_FAILED) << heddle_status_name(later);
    while (later == HEDDLE_POSTED && ends.all() == 1) turn(pair.workers[0]);
    EXPECT_EQ(ends.done, 0);
    EXPECT_EQ(ends.last, HEDDLE_ERR_PEER_FAILED);
    check(heddle_inproc_fail(pair.job.handle(), 0));
  }
}

// A receive that is cancelled matches nothing.
TEST_P(MatchedEnds, ACancelledReceiveLeavesThemToTheNext) {
  Pair pair(GetParam().transport);
  std::uint64_t room = 0;
  heddle_receive cancelled{};
  ASSERT_EQ(pair.workers[1].try_recv(exactly(0, 7), writable_bytes_of(room), &cancelled), HEDDLE_POSTED);
  ASSERT_EQ(pair.workers[1].try_cancel(&cancelled), HEDDLE_DONE);
  Ends ends;
  const heddle_completion completion = ends.completion();
  const std::uint64_t value = 8;
  ASSERT_EQ(pair.workers[0].try_send({1, 0}, 7, bytes_of(value), &completion), HEDDLE_POSTED);
  for (int i = 0; i < 50; ++i) pair.progress();
  EXPECT_EQ(ends.all(), 0);
  heddle_receive receive{};
  ASSERT_GE(pair.workers[1].try_recv(exactly(0, 7), writable_bytes_of(room), &receive), 0);
  while (ends.all() == 0 || receive.status == HEDDLE_POSTED) pair.progress();
  EXPECT_EQ(ends.done, 1);
  EXPECT_EQ(room, 8U);
  EXPECT_EQ(cancelled.status, HEDDLE_ERR_CANCELLED);
}

TEST(MatchedArguments, OnlySendsWaitForAReceive) {
  Pair pair("loopback-messages");
  Worker& worker = pair.workers[0];
  const heddle_worker handle = worker.handle();
  Ends ends;
  const heddle_completion completion = ends.completion();
  const auto refused = [](Status status) {
    EXPECT_EQ(status, HEDDLE_ERR_ARGUMENT) << heddle_status_name(status);
    EXPECT_NE(std::string(heddle_last_error()).find("HEDDLE_WHEN_MATCHED is for heddle_send"), std::string::npos)
        << heddle_last_error();
  };
  const Region region = pair.contexts[1].alloc(64);
  const RemoteRegion remote = pair.contexts[0].unpack(region.pack());
  std::uint64_t value = 0;
  // it is met
  while (heddle_try_get(handle, &value, 8, remote.at(0), nullptr) == HEDDLE_AGAIN) pair.progress();
  refused(heddle_try_put(handle, &value, 8, remote.at(0), &completion));
  refused(heddle_try_get(handle, &value, 8, remote.at(0), &completion));
  heddle_receive receive{};
  const heddle_wanted wanted = exactly(1, 1);
  refused(heddle_try_recv(handle, &wanted, &value, 8, &receive, &completion));
  EXPECT_EQ(receive.status, HEDDLE_ERR_ARGUMENT);
  const heddle_am_message message{1, 0, nullptr, &value, 8};
  refused(heddle_try_am(handle, {1, 0}, &message, &completion));
  refused(heddle_try_run_on_engine(handle, [](void*) {}, nullptr, &completion));
  while (heddle_try_quiet(handle) == HEDDLE_AGAIN) pair.progress();
  EXPECT_EQ(ends.all(), 0);
  // Errors of the counter are reported for these sends, too.
  const heddle_completion foreign{nullptr, nullptr, {12345}, HEDDLE_WHEN_MATCHED};
  EXPECT_EQ(worker.try_send({1, 0}, 1, bytes_of(value), &foreign), HEDDLE_ERR_HANDLE);
}

}  // namespace
}  // namespace heddle::test::tagged_matched_test
