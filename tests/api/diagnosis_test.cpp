// The facts that programs add to reports about jobs that hang (heddle/diagnosis.h). The tests take
// a rank's answer to its launcher from the context itself: jobs of threads have no launcher.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/test_job.hpp"
#include "tap/snapshot.hpp"
#include "worker/context.hpp"
#include "worker/worker.hpp"

namespace heddle::test::diagnosis_test {
namespace {

using tap::Cause;
using tap::Snapshot;

// The awaited event of a program's loop, and how often it was asked for.
struct Loop {
  heddle_wait_facts facts{};
  std::atomic<int> asked{0};
  std::size_t size = 0;  // as given
  std::uint32_t rank = 0;
};

void tell(void* arg, heddle_wait_facts* facts) {
  Loop& loop = *static_cast<Loop*>(arg);
  loop.size = facts->size;
  loop.rank = facts->rank;
  *facts = loop.facts;
  ++loop.asked;
}

template <std::size_t kBytes>
void set(char (&text)[kBytes], const char* value) {
  std::snprintf(text, kBytes, "%s", value);
}

heddle_status note(const Worker& worker, Loop& loop) {
  return heddle_wait_note(worker.handle(), tell, &loop);
}

void name_tag(std::uint64_t tag, std::uint64_t mask, char* text, std::size_t bytes) {
  std::snprintf(text, bytes, mask == UINT64_MAX ? "the word %llu" : "any word like %llu",
                static_cast<unsigned long long>(tag));
}

class Diagnosis : public testing::Test {
 protected:
  ~Diagnosis() override {
    worker_ = {};
    peer_ = {};
    std::thread other([this] { peer_context_ = {}; });
    context_ = {};
    other.join();
  }
  Snapshot snapshot() {
    ++snapshots_;
    auto decoded = tap::decode(engine::find_handle<worker::Context>(context_.handle().id)->inspection().snapshot());
    EXPECT_TRUE(decoded) << heddle_last_error();
    return decoded ? std::move(*decoded) : Snapshot{};
  }
  // The report of the wait while a thread of its own waits.
  Snapshot told_of(Loop& loop) {
    std::atomic<bool> ends{false};
    std::atomic<bool> begun{false};
    std::thread thread([&] {
      while (!ends.load()) {
        EXPECT_EQ(note(worker_, loop), HEDDLE_DONE);
        turn(worker_);
        begun.store(true);
      }
      EXPECT_EQ(heddle_wait_end(worker_.handle(), &loop), HEDDLE_DONE);
    });
    EXPECT_TRUE(within_time([&] { return begun.load(); }));
    // Again if the thread has got no core meanwhile.
    Snapshot told;
    EXPECT_TRUE(within_time([&] {
      told = snapshot();
      return told.waits.size() == 1 && !told.waits[0].call.empty();
    }));
    ends.store(true);
    thread.join();
    return told;
  }
  // The output of rank 0 while it waits in vain for a message, a little longer than a second.
  std::string report_of_receive(std::uint64_t tag, std::uint64_t mask) {
    heddle_receive receive{};
    EXPECT_EQ(worker_.try_recv({{1, 0}, tag, mask}, {}, &receive), HEDDLE_POSTED);
    testing::internal::CaptureStderr();
    EXPECT_EQ(worker_.wait(receive, 1'300'000'000), HEDDLE_ERR_TIMEOUT);
    EXPECT_EQ(worker_.try_cancel(&receive), HEDDLE_DONE);
    return testing::internal::GetCapturedStderr();
  }

  const Variables variables_{{{"HEDDLE_HANG_SECONDS", "1"}, {"HEDDLE_PROGRESS", "none"}}};
  Job job_{2, "loopback-messages"};
  Context context_ = job_.join(0);
  Context peer_context_ = job_.join(1);
  Worker worker_ = context_.open_worker(HEDDLE_SHARING_SHARED);
  Worker peer_ = peer_context_.open_worker(HEDDLE_SHARING_SHARED);
  int snapshots_ = 0;
};

TEST_F(Diagnosis, ArgumentsAreChecked) {
  Loop loop;
  Worker closed = context_.open_worker();
  const heddle_worker was = closed.handle();
  closed = {};
  for (const heddle_worker bad : {heddle_worker{}, was, heddle_worker{context_.handle().id}}) {
    EXPECT_EQ(heddle_wait_note(bad, tell, &loop), HEDDLE_ERR_HANDLE);
    EXPECT_EQ(heddle_wait_end(bad, &loop), HEDDLE_ERR_HANDLE);
  }
  for (const heddle_context bad : {heddle_context{}, heddle_context{worker_.handle().id}}) {
    EXPECT_EQ(heddle_context_name_tags(bad, name_tag), HEDDLE_ERR_HANDLE);
    EXPECT_EQ(heddle_context_list_held(bad, nullptr), HEDDLE_ERR_HANDLE);
  }
  EXPECT_EQ(heddle_wait_note(worker_.handle(), nullptr, &loop), HEDDLE_ERR_ARGUMENT);
  EXPECT_NE(std::string(heddle_last_error()).find("tell"), std::string::npos) << heddle_last_error();
  EXPECT_EQ(heddle_wait_end(worker_.handle(), &loop), HEDDLE_DONE) << "a wait that never began";
  EXPECT_EQ(heddle_wait_end(worker_.handle(), &loop), HEDDLE_DONE);
  EXPECT_EQ(loop.asked.load(), 0);
}

TEST_F(Diagnosis, AWaitIsToldInItsOwnWords) {
  Loop loop;
  loop.facts.call = "shmem_wait_until";
  loop.facts.cause = HEDDLE_WAIT_MESSAGE;
  loop.facts.rank = 1;
  set(loop.facts.text, "tag 7 from PE 1");
  set(loop.facts.tag, "tag 7");
  const Snapshot told = told_of(loop);
  ASSERT_EQ(told.waits.size(), 1U);
  const tap::Wait& wait = told.waits[0];
  EXPECT_EQ(wait.call, "shmem_wait_until");
  EXPECT_EQ(wait.awaited, "tag 7 from PE 1");
  EXPECT_EQ(wait.worker, 0U);
  ASSERT_EQ(wait.things.size(), 1U);
  EXPECT_EQ(wait.things[0].cause, Cause::receive);
  EXPECT_EQ(wait.things[0].rank, 1U);
  EXPECT_EQ(wait.things[0].tag, "tag 7");
  EXPECT_EQ(loop.size, sizeof(heddle_wait_facts));
  EXPECT_EQ(loop.rank, HEDDLE_ANY) << "before it has said anything";
  EXPECT_LT(loop.asked.load(), snapshots_ + 10) << "not in each round";
  ASSERT_FALSE(told.lines.empty());
  EXPECT_NE(told.lines[0].find("waits in shmem_wait_until on worker 0 for "), std::string::npos) << told.lines[0];
  EXPECT_TRUE(snapshot().waits.empty()) << "it is over";
}

TEST_F(Diagnosis, ALockAndACollectiveAreToldByTheirNumbers) {
  Loop lock;
  lock.facts.cause = HEDDLE_WAIT_LOCK;
  lock.facts.rank = HEDDLE_ANY;
  lock.facts.number = 0x5EA1;
  Snapshot told = told_of(lock);
  ASSERT_EQ(told.waits.size(), 1U);
  EXPECT_EQ(told.waits[0].call, "a loop of the program");
  ASSERT_EQ(told.waits[0].things.size(), 1U);
  EXPECT_EQ(told.waits[0].things[0].bytes, 0x5EA1U);
  EXPECT_EQ(told.waits[0].things[0].rank, tap::kNobody);
  Loop collective;
  collective.facts.cause = HEDDLE_WAIT_COLLECTIVE;
  collective.facts.rank = HEDDLE_ANY;
  collective.facts.team = 9;
  collective.facts.number = 3;
  collective.facts.members = 2;
  set(collective.facts.team_name, "MPI_COMM_WORLD");
  set(collective.facts.operation, "allreduce");
  told = told_of(collective);
  ASSERT_EQ(told.waits.size(), 1U);
  ASSERT_TRUE(told.waits[0].step.has_value());
  EXPECT_EQ(*told.waits[0].step, (tap::Step{9, 3, 2, "MPI_COMM_WORLD", "allreduce"}));
}

// Texts without an end, and causes that there are not.
TEST_F(Diagnosis, WhatMakesNoSenseIsNotBelieved) {
  for (const int cause : {2, 5, 99, -1}) {
    Loop loop;
    loop.facts.cause = static_cast<heddle_wait_cause>(cause);
    std::memset(loop.facts.text, 'x', sizeof loop.facts.text);
    std::memset(loop.facts.tag, 'y', sizeof loop.facts.tag);
    const Snapshot told = told_of(loop);
    ASSERT_EQ(told.waits.size(), 1U);
    EXPECT_EQ(told.waits[0].awaited, std::string(HEDDLE_WAIT_TEXT - 1, 'x'));
  }
}

TEST_F(Diagnosis, SeveralThreadsMayWaitAtOnce) {
  constexpr int kThreads = 6;
  std::array<Loop, kThreads> loops;
  std::array<std::atomic<int>, kThreads> rounds{};
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    set(loops[i].facts.text, ("loop " + std::to_string(i)).c_str());
    threads.emplace_back([&, i] {
      while (!ends.load()) {
        EXPECT_EQ(note(worker_, loops[i]), HEDDLE_DONE);
        turn(worker_);
        if (i % 2 == 1) {  // some waits end and begin anew all the time
          EXPECT_EQ(heddle_wait_end(worker_.handle(), &loops[i]), HEDDLE_DONE);
        }
        ++rounds[i];
      }
      EXPECT_EQ(heddle_wait_end(worker_.handle(), &loops[i]), HEDDLE_DONE);
    });
  }
  EXPECT_TRUE(within_time([&] { return std::ranges::all_of(rounds, [](auto& count) { return count.load() > 0; }); }));
  // Each thread that goes on waiting is in the report once. A thread that gets no core for long may
  // be missing.
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(within_time([&] {
      std::multiset<std::string> texts;
      for (const tap::Wait& wait : snapshot().waits) texts.insert(wait.awaited);
      return texts.count("loop 0") == 1 && texts.count("loop 2") == 1 && texts.count("loop 4") == 1;
    }));
  }
  ends.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(snapshot().waits.empty());
}

// If waits are nested, the report has the outer one, until it ends.
TEST_F(Diagnosis, TheOutermostWaitCounts) {
  Loop outer;
  Loop inner;
  set(outer.facts.text, "the outer one");
  set(inner.facts.text, "the inner one");
  std::atomic<bool> outer_ends{false};
  std::atomic<bool> ends{false};
  std::thread waits([&] {
    while (!outer_ends.load()) {
      EXPECT_EQ(note(worker_, outer), HEDDLE_DONE);
      EXPECT_EQ(note(worker_, inner), HEDDLE_DONE);
      EXPECT_EQ(heddle_wait_end(worker_.handle(), &inner), HEDDLE_DONE);
    }
    EXPECT_EQ(heddle_wait_end(worker_.handle(), &outer), HEDDLE_DONE);
    while (!ends.load()) EXPECT_EQ(note(worker_, inner), HEDDLE_DONE);
    EXPECT_EQ(heddle_wait_end(worker_.handle(), &inner), HEDDLE_DONE);
  });
  const auto told = [&](const char* text) {
    return within_time([&] {
      const Snapshot all = snapshot();
      return all.waits.size() == 1 && all.waits[0].awaited == text;
    });
  };
  EXPECT_TRUE(told("the outer one"));
  outer_ends.store(true);
  EXPECT_TRUE(told("the inner one"));
  ends.store(true);
  waits.join();
}

// Without a launcher that watches, a noted wait reports itself, as Heddle's own waits do.
TEST_F(Diagnosis, WithoutALauncherANotedWaitIsReported) {
  Loop loop;
  set(loop.facts.text, "a word of nobody's");
  testing::internal::CaptureStderr();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1300);
  int rounds = 0;
  for (; std::chrono::steady_clock::now() < end; ++rounds) {
    EXPECT_EQ(note(worker_, loop), HEDDLE_DONE);
    turn(worker_);
  }
  EXPECT_EQ(heddle_wait_end(worker_.handle(), &loop), HEDDLE_DONE);
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find(" has waited 1 s: a word of nobody's\n"), std::string::npos) << told;
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  EXPECT_LT(loop.asked.load() * 4, rounds) << "not in each round";
}

TEST_F(Diagnosis, LocksThatAreHeldAreListed) {
  EXPECT_TRUE(snapshot().held.empty());
  const auto two = [](std::uint64_t* keys, std::size_t most) -> std::size_t {
    EXPECT_GE(most, 2U);
    keys[0] = 11;
    keys[1] = 12;
    return 2;
  };
  ASSERT_EQ(heddle_context_list_held(context_.handle(), two), HEDDLE_DONE);
  EXPECT_EQ(snapshot().held, (std::vector<std::uint64_t>{11, 12}));
  // A rank with more locks than there is room for says so.
  const auto many = [](std::uint64_t* keys, std::size_t most) -> std::size_t {
    std::fill_n(keys, most, 5);
    return most + 1000;
  };
  ASSERT_EQ(heddle_context_list_held(context_.handle(), many), HEDDLE_DONE);
  EXPECT_EQ(snapshot().held, std::vector<std::uint64_t>(tap::kMostListed, 5));
  ASSERT_EQ(heddle_context_list_held(context_.handle(), nullptr), HEDDLE_DONE);
  EXPECT_TRUE(snapshot().held.empty());
}

TEST_F(Diagnosis, TagsAreNamedAsTheProgramWants) {
  ASSERT_EQ(heddle_context_name_tags(context_.handle(), name_tag), HEDDLE_DONE);
  std::string told = report_of_receive(23, UINT64_MAX);
  EXPECT_NE(told.find(": a message with the word 23 from rank 1\n"), std::string::npos) << told;
  EXPECT_NE(told.find("  receive of the word 23 from worker 0 of rank 1, 0 bytes: "), std::string::npos) << told;
  told = report_of_receive(0x20, 0xF0);
  EXPECT_NE(told.find("  receive of any word like 32 from worker 0 of rank 1, "), std::string::npos) << told;
  ASSERT_EQ(heddle_context_name_tags(context_.handle(), nullptr), HEDDLE_DONE);
  told = report_of_receive(23, UINT64_MAX);
  EXPECT_NE(told.find("  receive of tag 23 from worker 0 of rank 1, "), std::string::npos) << told;
}

// The name fills all the room and has no end.
TEST_F(Diagnosis, ANameOfATagThatIsTooLongIsCut) {
  const auto endless = [](std::uint64_t, std::uint64_t, char* text, std::size_t bytes) {
    std::memset(text, 'z', bytes);
  };
  ASSERT_EQ(heddle_context_name_tags(context_.handle(), endless), HEDDLE_DONE);
  const std::string told = report_of_receive(1, UINT64_MAX);
  EXPECT_NE(told.find("receive of zzzz"), std::string::npos) << told;
}

TEST_F(Diagnosis, MessagesThatNobodyReceivesAreCounted) {
  ASSERT_EQ(heddle_context_name_tags(context_.handle(), name_tag), HEDDLE_DONE);
  const std::uint64_t word = 1;
  for (int i = 0; i < 3; ++i) ASSERT_GE(peer_.send({0, 0}, 8, bytes_of(word)), 0);
  const auto kept = [&] {
    turn(worker_);
    turn(peer_);
    const Snapshot told = snapshot();
    return told.workers.size() == 1 && told.workers[0].kept.size() == 1 && told.workers[0].kept[0].messages == 3;
  };
  ASSERT_TRUE(within_time(kept));
  const tap::Kept all = snapshot().workers[0].kept[0];
  EXPECT_EQ(all.rank, 1U);
  EXPECT_EQ(all.tag, "the word 8");
}

}  // namespace
}  // namespace heddle::test::diagnosis_test
