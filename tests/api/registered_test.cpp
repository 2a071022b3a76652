// Small-message offload: posting only registers a message; a helper or a waiting thread submits it.
// All operations keep their meaning.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "api/test_job.hpp"
#include "base/random.hpp"

namespace heddle::test::registered_test {
namespace {

struct Way {
  const char* name;
  const char* sharing;
  const char* progress;
  const char* offload;
  bool several;  // threads may post
};

std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.name;
}

const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {"exclusive_dedicated", "exclusive", "dedicated:1", "on", false},
      {"exclusive_adaptive", "exclusive", "adaptive", "on", false},
      {"exclusive_dedicated_auto", "exclusive", "dedicated:2", "auto", false},
      {"shared_none", "shared", "none", "on", true},
      {"shared_dedicated", "shared", "dedicated:1", "on", true},
      {"delegate_none", "delegate", "none", "on", true},
      {"delegate_adaptive", "delegate", "adaptive", "on", true},
      {"delegate_dedicated_auto", "delegate", "dedicated:2", "auto", true},
      {"offload", "offload", "none", "on", true},
  };
  return all;
}

Variables variables_of(const Way& way) {
  return Variables(
      {{"HEDDLE_SHARING", way.sharing}, {"HEDDLE_PROGRESS", way.progress}, {"HEDDLE_SMALL_OFFLOAD", way.offload}});
}

// The arrivals that handlers have seen; handlers run one at a time, perhaps on a helper.
struct Seen {
  std::uint64_t wrong = 0;
  // release; partners: the acquire loads of who reads the rest
  std::atomic<std::uint64_t> count{0};
};

// Every byte of a payload is the number in its header.
void take(const heddle_am_arrival* arrival, void* arg) {
  auto& seen = *static_cast<Seen*>(arg);
  std::uint64_t number = 0;
  std::memcpy(&number, arrival->header, sizeof number);
  const auto* payload = static_cast<const unsigned char*>(arrival->payload);
  const auto expected = static_cast<unsigned char>(number);
  if (!std::all_of(payload, payload + arrival->payload_bytes, [=](unsigned char c) { return c == expected; })) {
    ++seen.wrong;
  }
  seen.count.fetch_add(1, std::memory_order_release);
}

// The source of a message, overwritten as soon as it may be.
struct Source {
  std::vector<unsigned char> bytes;
  std::atomic<int> ends{0};  // release; partner: who waits for it
  Status status = HEDDLE_AGAIN;

  static void tell(void* arg, Status status) {
    auto* self = static_cast<Source*>(arg);
    std::fill(self->bytes.begin(), self->bytes.end(), static_cast<unsigned char>(0xEE));
    self->status = status;
    self->ends.fetch_add(1, std::memory_order_release);
  }
  heddle_completion completion(heddle_when when) { return {&tell, this, {}, when}; }
  [[nodiscard]] bool ended() const { return ends.load(std::memory_order_acquire) > 0; }
};

class SmallOffloading : public testing::TestWithParam<Way> {
 protected:
  Variables variables_ = variables_of(GetParam());
};

void send_some(Worker& worker, std::uint32_t peer, std::uint64_t thread, std::uint64_t count) {
  base::Random random(thread + 1);
  std::vector<Source> sources(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t number = thread * 1000 + i;
    Source& source = sources[i];
    source.bytes.assign(random.below(4) == 0 ? random.below(900) : 1000 + random.below(15'000),
                        static_cast<unsigned char>(number));
    const heddle_completion completion = source.completion(i % 2 == 0 ? HEDDLE_WHEN_LOCAL : HEDDLE_WHEN_REMOTE);
    const heddle_am_message message{3, sizeof number, &number, source.bytes.data(), source.bytes.size()};
    const Status status = worker.am({peer, 0}, message, &completion);
    ASSERT_GE(status, 0) << heddle_last_error();
    if (status == HEDDLE_DONE) Source::tell(&source, status);
    if (i % 16 != 15) continue;
    for (std::uint64_t k = i - 15; k <= i; ++k) {
      while (!sources[k].ended()) turn(worker);
      EXPECT_EQ(sources[k].status, HEDDLE_DONE);
    }
  }
  for (const Source& source : sources) {
    while (!source.ended()) turn(worker);
    EXPECT_EQ(source.ends.load(), 1);
  }
}

TEST_P(SmallOffloading, MessagesArriveOnceAndWhole) {
  constexpr std::uint64_t kEach = 160;
  const std::uint64_t threads = GetParam().several ? 4 : 1;
  Job(2, "shm").run([&](Context& context, Worker& worker) {
    Seen seen;
    context.register_am(3, take, &seen);
    context.barrier(worker);
    std::vector<std::thread> posters;
    for (std::uint64_t thread = 0; thread < threads; ++thread) {
      posters.emplace_back([&, thread] { send_some(worker, 1 - context.rank(), thread, kEach); });
    }
    for (std::thread& poster : posters) poster.join();
    while (seen.count.load(std::memory_order_acquire) < threads * kEach) turn(worker);
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    EXPECT_EQ(seen.wrong, 0U);
    const heddle_worker_stats stats = worker.stats();
    EXPECT_LE(stats.helped, stats.registered);
    const bool always = std::string(GetParam().offload) == "on" && std::string(GetParam().sharing) != "offload";
    if (always) {
      EXPECT_GT(stats.registered, 0U);
    }
    context.barrier(worker);
  });
}

TEST_P(SmallOffloading, TaggedMessagesKeepTheirOrder) {
  constexpr std::uint64_t kMessages = 600;
  Job(2, "shm").run([&](Context& context, Worker& worker) {
    const std::uint32_t peer = 1 - context.rank();
    if (context.rank() == 0) {
      std::vector<Source> sources(kMessages);
      for (std::uint64_t i = 0; i < kMessages; ++i) {
        // Registered, submitted, and offered ones in turn.
        const std::size_t bytes = i % 7 == 0 ? 40'000 : i % 3 == 0 ? 16 : 2000 + i;
        sources[i].bytes.assign(bytes, static_cast<unsigned char>(i));
        const heddle_completion completion = sources[i].completion(HEDDLE_WHEN_LOCAL);
        const Status status = worker.send({peer, 0}, 9, std::as_bytes(std::span(sources[i].bytes)), &completion);
        ASSERT_GE(status, 0) << heddle_last_error();
        if (status == HEDDLE_DONE) Source::tell(&sources[i], status);
      }
      for (const Source& source : sources) {
        while (!source.ended()) turn(worker);
      }
    } else {
      std::vector<unsigned char> room(40'000);
      for (std::uint64_t i = 0; i < kMessages; ++i) {
        heddle_receive receive;
        ASSERT_GE(worker.recv({{peer, 0}, 9, UINT64_MAX}, std::as_writable_bytes(std::span(room)), &receive), 0);
        ASSERT_EQ(worker.wait(receive), HEDDLE_DONE) << heddle_last_error();
        ASSERT_EQ(receive.bytes, i % 7 == 0 ? 40'000U : i % 3 == 0 ? 16U : 2000U + i);
        ASSERT_EQ(room[0], static_cast<unsigned char>(i));
        ASSERT_EQ(room[receive.bytes - 1], static_cast<unsigned char>(i));
      }
    }
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    context.barrier(worker);
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, SmallOffloading, testing::ValuesIn(ways()),
                         [](const auto& way) { return std::string(way.param.name); });

// Two ranks of this thread; only this thread and helpers, if there are some, move them.
struct Pair {
  explicit Pair(const Way& way) : variables(variables_of(way)) {
    contexts.push_back(job.join(0));
    contexts.push_back(job.join(1));
    for (Context& context : contexts) workers.push_back(context.open_worker());
    contexts[1].register_am(3, take, &seen);
  }
  ~Pair() {
    workers.clear();
    std::vector<std::thread> leaving;
    for (Context& context : contexts) leaving.emplace_back([&context] { context = {}; });
    for (std::thread& thread : leaving) thread.join();
  }
  Status post(Source* source) {
    const std::uint64_t number = 7;
    source->bytes.assign(4000, 7);
    const heddle_completion completion = source->completion(HEDDLE_WHEN_REMOTE);
    return workers[0].try_am({1, 0}, {3, sizeof number, &number, source->bytes.data(), source->bytes.size()},
                             &completion);
  }
  [[nodiscard]] std::uint64_t arrived() const { return seen.count.load(std::memory_order_acquire); }

  Variables variables;
  Job job{2, "loopback"};
  std::vector<Context> contexts;
  std::vector<Worker> workers;
  Seen seen;
};

TEST(SmallOffloadAlone, WithoutHelpersWhoWaitsSubmits) {
  for (const char* sharing : {"shared", "delegate"}) {
    Pair pair({"", sharing, "none", "on", true});
    Source source;
    ASSERT_EQ(pair.post(&source), HEDDLE_POSTED) << sharing;
    for (int i = 0; i < 100; ++i) turn(pair.workers[1]);
    EXPECT_EQ(pair.arrived(), 0U) << "it was only registered";
    EXPECT_FALSE(source.ended());
    EXPECT_EQ(pair.workers[0].flush(1), HEDDLE_DONE);
    while (!source.ended()) turn(pair.workers[0]);
    while (pair.arrived() == 0) turn(pair.workers[1]);
    EXPECT_EQ(pair.seen.wrong, 0U);
    const heddle_worker_stats stats = pair.workers[0].stats();
    EXPECT_EQ(stats.registered, 1U);
    EXPECT_EQ(stats.helped, 0U);
  }
}

TEST(SmallOffloadAlone, AHelperSubmitsWhileThePosterComputes) {
  for (const char* sharing : {"exclusive", "shared", "delegate"}) {
    for (const char* progress : {"dedicated:1", "adaptive"}) {
      Pair pair({"", sharing, progress, "on", true});
      Source source;
      ASSERT_EQ(pair.post(&source), HEDDLE_POSTED) << sharing;
      // The poster does nothing for it.
      ASSERT_TRUE(within_time([&] { return pair.arrived() == 1 && source.ended(); }, [] {})) << sharing << progress;
      EXPECT_EQ(source.status, HEDDLE_DONE);
      const heddle_worker_stats stats = pair.workers[0].stats();
      EXPECT_EQ(stats.registered, 1U);
      EXPECT_EQ(stats.helped, 1U);
    }
  }
}

TEST(SmallOffloadAlone, WhatNobodyObservesIsSubmittedAtOnce) {
  Pair pair({"", "shared", "none", "on", true});
  const std::vector<std::byte> payload(4000, std::byte{0});
  const std::uint64_t number = 0;
  ASSERT_EQ(pair.workers[0].try_am({1, 0}, {3, sizeof number, &number, payload.data(), payload.size()}), HEDDLE_DONE);
  while (pair.arrived() == 0) turn(pair.workers[1]);
  EXPECT_EQ(pair.workers[0].stats().registered, 0U);
}

TEST(SmallOffloadAlone, ClosingSubmitsWhatIsRegistered) {
  Pair pair({"", "delegate", "none", "on", true});
  Source source;
  ASSERT_EQ(pair.post(&source), HEDDLE_POSTED);
  pair.workers[0] = {};
  EXPECT_TRUE(source.ended());
  EXPECT_EQ(source.status, HEDDLE_DONE);
  while (pair.arrived() == 0) turn(pair.workers[1]);
}

TEST(SmallOffloadAlone, WhatIsRegisteredForTheDeadEndsOnce) {
  for (const char* progress : {"none", "dedicated:1"}) {
    Pair pair({"", "shared", progress, "on", true});
    check(heddle_inproc_fail(pair.job.handle(), 1));
    Source source;
    const Status status = pair.post(&source);
    if (status < 0) continue;  // the helper has handled the death already, and the call reports it
    ASSERT_EQ(status, HEDDLE_POSTED);
    ASSERT_TRUE(within_time([&] { return source.ended(); }, [&] { turn(pair.workers[0]); }));
    EXPECT_EQ(source.status, HEDDLE_ERR_PEER_FAILED);
    for (int i = 0; i < 100; ++i) turn(pair.workers[0]);
    EXPECT_EQ(source.ends.load(), 1);
  }
}

TEST(SmallOffloadAlone, AnUnknownWordIsRefused) {
  const std::vector<std::pair<const char*, const char*>> wrong = {{"HEDDLE_SMALL_OFFLOAD", "maybe"}};
  const Variables variables(wrong);
  heddle_context context{};
  EXPECT_EQ(heddle_context_join(nullptr, &context), HEDDLE_ERR_CONFIG);
  EXPECT_NE(std::string(heddle_last_error()).find("HEDDLE_SMALL_OFFLOAD"), std::string::npos);
}

}  // namespace
}  // namespace heddle::test::registered_test
