// Large active messages that their receiver fetches: lengths about the threshold against a plain
// model, bounds of memory and of operations, deaths and closed workers in each stage.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>

#include "api/test_job.hpp"
#include "base/random.hpp"
#include "base/test_support.hpp"

namespace heddle::test::am_rendezvous_test {
namespace {

constexpr std::uint32_t kNetwork = 5;
constexpr std::uint32_t kUser = HEDDLE_AM_USER + 5;
constexpr std::size_t kEager = 20'000;  // longer than a packet of any transport here

using Variable = std::pair<const char*, const char*>;

Setting with(Setting setting, std::initializer_list<Variable> more) {
  setting.variables.insert(setting.variables.end(), more);
  return setting;
}

// This thread drives all ranks. They are closed in threads of their own, since leaving is
// collective.
struct Ranks {
  Ranks(const char* transport, std::uint32_t count) : job(count, transport) {
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      contexts.push_back(job.join(rank));
      workers.push_back(contexts.back().open_worker());
    }
  }
  ~Ranks() {
    std::vector<std::thread> leaving;
    for (Context& context : contexts) leaving.emplace_back([&context] { context = {}; });
    for (std::thread& thread : leaving) thread.join();
  }
  void progress() {
    for (Worker& worker : workers) {
      if (worker.handle().id != 0) {
        EXPECT_GE(worker.progress(), 0) << heddle_last_error();
      }
    }
  }
  void fail(std::uint32_t rank) const { check(heddle_inproc_fail(job.handle(), rank)); }
  template <class Condition>
  bool until(Condition&& condition) {
    return within_time(condition, [this] { progress(); });
  }

  Job job;
  std::vector<Context> contexts;
  std::vector<Worker> workers;
};

struct Outcome {
  std::atomic<int> times{0};
  std::atomic<int> done{0};
  std::atomic<Status> status{HEDDLE_AGAIN};  // of the last
  static void tell(void* arg, Status status) {
    auto* self = static_cast<Outcome*>(arg);
    if (status == HEDDLE_DONE) ++self->done;
    self->status = status;
    ++self->times;
  }
  heddle_completion completion() { return {&tell, this, {}, HEDDLE_WHEN_REMOTE}; }
};

// The value of byte `at` of message `number`.
std::byte expected(std::uint64_t number, std::size_t at) {
  return static_cast<std::byte>(number * 31 + at * 7 + (at >> 9));
}

// ---- the model: each message arrives once, whole, at its handler, and each completion comes once

struct Message {
  std::uint64_t number = 0;
  std::uint32_t header_bytes = 0;  // with the number
  std::size_t bytes = 0;
  std::uint32_t handler = 0;
};

Message random_message(base::Random& random, std::uint64_t number) {
  constexpr std::array<std::size_t, 10> kLengths = {0,      1,          kEager - 1, kEager,  kEager + 1,
                                                    30'000, kEager + 9, 70'001,     200'000, 500'000};
  Message message;
  message.number = number;
  message.header_bytes = 8 + static_cast<std::uint32_t>(random.below(HEDDLE_AM_HEADER_BYTES - 8 + 1));
  message.bytes = random.below(4) == 0 ? random.below(3 * kEager) : kLengths.at(random.below(kLengths.size()));
  message.handler = random.below(3) == 0 ? kUser : kNetwork;
  return message;
}

// The messages of one rank to one rank, on both sides: made of the same seed.
struct Flow {
  explicit Flow(std::uint64_t seed, std::size_t count) : arrived(count) {
    base::Random random(seed);
    for (std::uint64_t i = 0; i < count; ++i) messages.push_back(random_message(random, i));
  }
  std::vector<Message> messages;
  std::vector<std::atomic<int>> arrived;
  std::atomic<std::uint64_t> total{0};
  std::atomic<std::uint64_t> wrong{0};
};

void take(const heddle_am_arrival* arrival, void* arg) {
  Flow& flow = *static_cast<Flow*>(arg);
  std::uint64_t number = 0;
  std::memcpy(&number, arrival->header, sizeof number);
  if (number >= flow.messages.size()) {
    ++flow.wrong;
    return;
  }
  const Message& message = flow.messages[number];
  const auto* payload = static_cast<const std::byte*>(arrival->payload);
  const auto* header = static_cast<const std::byte*>(arrival->header);
  bool right = arrival->payload_bytes == message.bytes && arrival->header_bytes == message.header_bytes &&
               arrival->handler == message.handler;
  for (std::uint32_t i = 8; right && i < message.header_bytes; ++i) right = header[i] == expected(number, i);
  for (std::size_t i = 0; right && i < message.bytes; ++i) right = payload[i] == expected(number, i);
  if (!right || flow.arrived[number].fetch_add(1) != 0) ++flow.wrong;
  ++flow.total;
}

// A message on its way: its memory is changed as soon as the library reports that it is free.
struct Sent {
  std::vector<std::byte> payload;
  std::array<std::byte, HEDDLE_AM_HEADER_BYTES> header{};
  Outcome outcome;
  bool posted = false;
};

using Parameter = std::tuple<Setting, const char*>;  // transport, sharing mode

class AmRendezvous : public testing::TestWithParam<Parameter> {
 protected:
  static constexpr std::size_t kMessages = 120;
  static constexpr std::size_t kInFlight = 24;

  static void fill(const Message& message, Sent* sent) {
    sent->payload.resize(message.bytes);
    for (std::size_t i = 0; i < message.bytes; ++i) sent->payload[i] = expected(message.number, i);
    for (std::size_t i = 0; i < sent->header.size(); ++i) sent->header.at(i) = expected(message.number, i);
    std::memcpy(sent->header.data(), &message.number, sizeof message.number);
  }
  static void turn_tasks(Worker& worker) {
    ASSERT_GE(worker.run_tasks(8), 0) << heddle_last_error();
    std::this_thread::yield();
  }
  static void send_all(Worker& worker, std::uint32_t to, const Flow& flow) {
    std::vector<std::unique_ptr<Sent>> flying;
    const auto collect = [&](std::size_t most) {
      return within_time(
          [&] {
            std::erase_if(flying, [](const auto& sent) {
              if (sent->posted && sent->outcome.times.load() == 0) return false;
              std::fill(sent->payload.begin(), sent->payload.end(), std::byte{0xEE});
              EXPECT_TRUE(!sent->posted || (sent->outcome.times == 1 && sent->outcome.status == HEDDLE_DONE));
              return true;
            });
            return flying.size() <= most;
          },
          [&] { turn_tasks(worker); });
    };
    for (const Message& message : flow.messages) {
      auto sent = std::make_unique<Sent>();
      fill(message, sent.get());
      const heddle_completion completion = sent->outcome.completion();
      const heddle_am_message am{message.handler, message.header_bytes, sent->header.data(), sent->payload.data(),
                                 message.bytes};
      Status status = HEDDLE_AGAIN;
      ASSERT_TRUE(within_time([&] { return (status = worker.try_am({to, 0}, am, &completion)) != HEDDLE_AGAIN; },
                              [&] { turn_tasks(worker); }));
      ASSERT_GE(status, 0) << heddle_last_error();
      sent->posted = status == HEDDLE_POSTED;
      flying.push_back(std::move(sent));
      ASSERT_TRUE(collect(kInFlight)) << "completions are missing";
    }
    ASSERT_TRUE(collect(0)) << "completions are missing";
  }
};

TEST_P(AmRendezvous, EachMessageArrivesOnceAndWhole) {
  const auto& [setting, sharing] = GetParam();
  auto variables = setting.variables;
  variables.emplace_back("HEDDLE_SHARING", sharing);
  variables.emplace_back("HEDDLE_AM_EAGER_BYTES", "20000");
  const Variables set(variables);
  for (std::uint64_t seed = 1; seed <= base::few_if_sanitized<std::uint64_t>(1, 2); ++seed) {
    std::array<Flow, 2> towards{Flow(2 * seed, kMessages), Flow(2 * seed + 1, kMessages)};
    Job(2, setting.transport).run([&](Context& context, Worker& worker) {
      Flow& mine = towards.at(context.rank());
      context.register_am(kNetwork, take, &mine);
      context.register_am(kUser, take, &mine);
      context.barrier(worker);
      send_all(worker, 1 - context.rank(), towards.at(1 - context.rank()));
      EXPECT_TRUE(within_time([&] { return mine.total.load() >= kMessages; }, [&] { turn_tasks(worker); }))
          << mine.total.load() << " of " << kMessages << " arrived";
      EXPECT_EQ(worker.quiet(), HEDDLE_DONE) << heddle_last_error();
      EXPECT_EQ(worker.stats().dropped, 0U);
      // The other rank still runs its tasks: it may wait for an answer of ours.
      context.barrier(worker);
      EXPECT_EQ(mine.wrong.load(), 0U);
      EXPECT_EQ(mine.total.load(), kMessages);
    });
  }
}

std::vector<Parameter> all_parameters() {
  std::vector<Parameter> all;
  for (const Setting& setting : all_settings()) all.emplace_back(setting, "exclusive");
  const Setting shm{"shm", "shm", {}};
  for (const char* sharing : names_of(shared_modes())) all.emplace_back(shm, sharing);
  all.emplace_back(with({"shm_small_offload", "shm", {}}, {{"HEDDLE_SMALL_OFFLOAD", "on"}}), "delegate");
  all.emplace_back(with({"shm_adaptive", "shm", {}}, {{"HEDDLE_PROGRESS", "adaptive"}}), "exclusive");
  all.emplace_back(with({"shm_little_memory", "shm", {}}, {{"HEDDLE_AM_REASSEMBLY_BYTES", "600K"}}), "exclusive");
  all.emplace_back(with({"loopback", "loopback", {}}, {{"HEDDLE_WORKER_OPERATIONS", "16"}}), "offload");
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, AmRendezvous, testing::ValuesIn(all_parameters()),
                         [](const testing::TestParamInfo<Parameter>& one) {
                           return std::string(std::get<0>(one.param).name) + "_" + std::get<1>(one.param);
                         });

// ---- several threads of each rank on one worker -------------------------------------------------

class AmThreads : public testing::TestWithParam<const char*> {};

// The stores are too small for the messages on their way: the thread that ends a task goes on with
// the fetches.
TEST_P(AmThreads, SendAndRunTasksSideBySide) {
  constexpr std::uint64_t kThreads = 3;
  constexpr std::uint64_t kEach = 20;
  const Variables set({{"HEDDLE_SHARING", GetParam()},
                       {"HEDDLE_AM_REASSEMBLY_BYTES", "300K"},
                       {"HEDDLE_AM_USER_BYTES", "2M"},
                       {"HEDDLE_WORKER_OPERATIONS", "32"}});
  const std::vector<std::byte> payload(100'000, std::byte{3});
  Job(2, "shm").run([&](Context& context, Worker& worker) {
    std::array<std::atomic<std::uint64_t>, 2> arrived{};
    const auto count = [](const heddle_am_arrival* arrival, void* arg) {
      const auto* bytes = static_cast<const std::byte*>(arrival->payload);
      const bool right = arrival->payload_bytes == 100'000 && bytes[0] == std::byte{3} && bytes[99'999] == std::byte{3};
      if (right) ++*static_cast<std::atomic<std::uint64_t>*>(arg);
    };
    context.register_am(kNetwork, count, &arrived[0]);
    context.register_am(kUser, count, &arrived[1]);
    context.barrier(worker);
    Outcome outcome;
    const heddle_completion completion = outcome.completion();
    std::atomic<std::uint64_t> posted{0};
    const auto turn_once = [&] { ASSERT_GE(worker.run_tasks(1), 0) << heddle_last_error(); };
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&] {
        for (std::uint64_t i = 0; i < kEach; ++i) {
          const heddle_am_message message{i % 2 == 0 ? kNetwork : kUser, 0, nullptr, payload.data(), payload.size()};
          Status status = HEDDLE_AGAIN;
          EXPECT_TRUE(within_time(
              [&] {
                status = worker.try_am({1 - context.rank(), 0}, message, &completion);
                return status != HEDDLE_AGAIN;
              },
              turn_once));
          EXPECT_EQ(status, HEDDLE_POSTED) << heddle_last_error();
          ++posted;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    constexpr std::uint64_t kHalf = kThreads * kEach / 2;
    EXPECT_TRUE(within_time(
        [&] {
          return arrived[0] == kHalf && arrived[1] == kHalf &&
                 static_cast<std::uint64_t>(outcome.times.load()) == posted.load();
        },
        turn_once))
        << arrived[0] << " and " << arrived[1] << " arrived, " << outcome.times << " ended";
    EXPECT_EQ(outcome.done.load(), outcome.times.load());
    context.barrier(worker);
    EXPECT_EQ(worker.stats().dropped, 0U);
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, AmThreads, testing::ValuesIn(names_of(shared_modes())));

// ---- bounds -------------------------------------------------------------------------------------

class AmBounds : public testing::TestWithParam<Setting> {
 protected:
  Variables variables_{GetParam().variables};

  static void count(const heddle_am_arrival*, void* arg) { ++*static_cast<int*>(arg); }
  std::vector<std::byte> payload_ = std::vector<std::byte>(300'000);
  [[nodiscard]] heddle_am_message large(std::uint32_t handler = kNetwork) const {
    return {handler, 0, nullptr, payload_.data(), payload_.size()};
  }
};

// Each rank has the highest number of offers to the other: it still has operations left for
// fetching.
TEST_P(AmBounds, OffersLeaveOperationsToFetchWith) {
  const Variables few(std::vector<Variable>{{"HEDDLE_WORKER_OPERATIONS", "16"}});
  int handled = 0;
  Ranks ranks(GetParam().transport, 2);
  for (Context& context : ranks.contexts) context.register_am(kNetwork, count, &handled);
  int posted = 0;
  Outcome outcome;
  const heddle_completion completion = outcome.completion();
  for (std::uint32_t rank : {0U, 1U}) {
    while (ranks.workers[rank].try_am({1 - rank, 0}, large(), &completion) == HEDDLE_POSTED) ++posted;
    EXPECT_EQ(ranks.workers[rank].try_am({1 - rank, 0}, large(), &completion), HEDDLE_AGAIN);
  }
  EXPECT_EQ(posted, 24);
  EXPECT_TRUE(ranks.until([&] { return outcome.times.load() == posted && handled == posted; }))
      << outcome.times.load() << " ended, " << handled << " handled";
}

// More messages than the receiver may hold: those without room wait, and arrive later.
TEST_P(AmBounds, WhatThereIsNoRoomForWaits) {
  const Variables little(std::vector<Variable>{{"HEDDLE_AM_REASSEMBLY_BYTES", "700K"}, {"HEDDLE_AM_MAX_BYTES", "1M"}});
  int handled = 0;
  Ranks ranks(GetParam().transport, 3);
  ranks.contexts[0].register_am(kNetwork, count, &handled);
  Outcome outcome;
  const heddle_completion completion = outcome.completion();
  for (int i = 0; i < 10; ++i) {
    for (std::uint32_t rank : {1U, 2U}) {
      ASSERT_EQ(ranks.workers[rank].try_am({0, 0}, large(), &completion), HEDDLE_POSTED);
    }
  }
  EXPECT_TRUE(ranks.until([&] { return outcome.times.load() == 20 && handled == 20; })) << outcome.times.load();
  EXPECT_EQ(outcome.status.load(), HEDDLE_DONE);
  // A message that alone exceeds the bound is refused.
  const std::vector<std::byte> longest(900'000);
  Outcome refused;
  const heddle_completion refusal = refused.completion();
  ASSERT_EQ(ranks.workers[1].try_am({0, 0}, {kNetwork, 0, nullptr, longest.data(), longest.size()}, &refusal),
            HEDDLE_POSTED);
  EXPECT_TRUE(ranks.until([&] { return refused.times.load() == 1; }));
  EXPECT_EQ(refused.status.load(), HEDDLE_ERR_NO_MEMORY);
  EXPECT_EQ(ranks.workers[0].stats().dropped, 1U);
  EXPECT_EQ(handled, 20);
}

// The store of USER messages is full: further ones wait for handlers, and nothing else waits for
// them.
TEST_P(AmBounds, AFullStoreHoldsUpItsClassOnly) {
  const Variables little(
      std::vector<Variable>{{"HEDDLE_AM_REASSEMBLY_BYTES", "700K"}, {"HEDDLE_AM_USER_BYTES", "64M"}});
  int network = 0;
  int user = 0;
  Ranks ranks(GetParam().transport, 2);
  ranks.contexts[0].register_am(kNetwork, count, &network);
  ranks.contexts[0].register_am(kUser, count, &user);
  Outcome users;
  Outcome networks;
  const heddle_completion of_user = users.completion();
  const heddle_completion of_network = networks.completion();
  for (int i = 0; i < 6; ++i) {
    ASSERT_EQ(ranks.workers[1].try_am({0, 0}, large(kUser), &of_user), HEDDLE_POSTED) << heddle_last_error();
  }
  ASSERT_EQ(ranks.workers[1].try_am({0, 0}, large(), &of_network), HEDDLE_POSTED);
  ASSERT_TRUE(ranks.until([&] { return networks.times.load() == 1 && users.times.load() == 2; }));
  EXPECT_EQ(network, 1);
  EXPECT_EQ(ranks.workers[0].stats().stored, 2U);
  for (int i = 0; i < 200; ++i) ranks.progress();
  EXPECT_EQ(users.times.load(), 2) << "more than the store may hold";
  ASSERT_TRUE(within_time([&] { return user == 6 && users.times.load() == 6; },
                          [&] {
                            ranks.progress();
                            ASSERT_GE(ranks.workers[0].run_tasks(1), 0);
                          }))
      << user << " handled, " << users.times.load() << " ended";
  EXPECT_EQ(users.status.load(), HEDDLE_DONE);
  EXPECT_EQ(ranks.workers[0].stats().dropped, 0U);
}

// ---- ends ---------------------------------------------------------------------------------------

TEST_P(AmBounds, AReceiverThatDiesInAnyStageEndsTheOperation) {
  bool arrived = false;
  for (int steps = 0; steps < 40 && !arrived; ++steps) {
    int handled = 0;
    Outcome outcome;
    Ranks ranks(GetParam().transport, 2);
    ranks.contexts[1].register_am(kNetwork, count, &handled);
    const heddle_completion completion = outcome.completion();
    ASSERT_EQ(ranks.workers[0].try_am({1, 0}, large(), &completion), HEDDLE_POSTED);
    for (int i = 0; i < steps && outcome.times == 0; ++i) {
      ASSERT_GE(ranks.workers[1].progress(), 0);
      ASSERT_GE(ranks.workers[0].progress(), 0);
    }
    arrived = outcome.times == 1;
    ranks.fail(1);
    ASSERT_TRUE(
        within_time([&] { return outcome.times.load() > 0; }, [&] { ASSERT_GE(ranks.workers[0].progress(), 0); }));
    // The answer may have been on its way.
    const Status status = outcome.status.load();
    EXPECT_TRUE(status == HEDDLE_DONE ? handled == 1 : !arrived && status == HEDDLE_ERR_PEER_FAILED)
        << heddle_status_name(status) << " after " << steps << " steps";
    EXPECT_EQ(ranks.workers[0].try_quiet(), HEDDLE_DONE);
    EXPECT_EQ(outcome.times.load(), 1);
    ranks.fail(0);  // so that the dead rank's worker, which is still here, waits for nobody
    ranks.workers[1] = {};
  }
  EXPECT_TRUE(arrived) << "the last stage was not reached";
}

// The dead rank's message is handled whole or not at all; messages of others are handled.
TEST_P(AmBounds, ASenderThatDiesInAnyStageHoldsUpNobody) {
  const Variables little(std::vector<Variable>{{"HEDDLE_AM_REASSEMBLY_BYTES", "700K"}});
  bool arrived = false;
  for (int steps = 0; steps < 40 && !arrived; ++steps) {
    int handled = 0;
    Outcome outcome;
    Outcome alive;
    Ranks ranks(GetParam().transport, 3);
    ranks.contexts[1].register_am(kNetwork, count, &handled);
    const heddle_completion completion = outcome.completion();
    const heddle_completion of_alive = alive.completion();
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(ranks.workers[0].try_am({1, 0}, large(), &completion), HEDDLE_POSTED);
    }
    for (int i = 0; i < steps && outcome.times < 4; ++i) {
      ASSERT_GE(ranks.workers[1].progress(), 0);
      ASSERT_GE(ranks.workers[0].progress(), 0);
    }
    arrived = outcome.times == 4;
    const int told = outcome.times;
    ASSERT_EQ(ranks.workers[2].try_am({1, 0}, large(), &of_alive), HEDDLE_POSTED);
    ranks.fail(0);
    ASSERT_TRUE(within_time([&] { return alive.times.load() == 1 && ranks.workers[1].try_quiet() == HEDDLE_DONE; },
                            [&] {
                              ASSERT_GE(ranks.workers[1].progress(), 0);
                              ASSERT_GE(ranks.workers[2].progress(), 0);
                            }));
    EXPECT_EQ(alive.status.load(), HEDDLE_DONE);
    EXPECT_GE(handled, told + 1);
    EXPECT_LE(handled, 5);
    ranks.fail(1);  // so that the dead rank's worker, which is still here, waits for nobody
    ranks.fail(2);
    ranks.workers[0] = {};
    EXPECT_EQ(outcome.times.load(), 4);
  }
  EXPECT_TRUE(arrived) << "the last stage was not reached";
}

// Messages that the closing worker has offered are fetched before. Messages offered to it are
// handled or cancelled, and nobody waits for it.
TEST_P(AmBounds, ClosingAWorkerEndsItsOffersAndThoseToIt) {
  const Variables little(std::vector<Variable>{{"HEDDLE_AM_REASSEMBLY_BYTES", "700K"}});
  for (int steps = 0; steps < 4; ++steps) {
    std::array<std::atomic<int>, 2> handled{};
    std::array<Outcome, 2> outcomes;
    Ranks ranks(GetParam().transport, 2);
    for (std::uint32_t rank : {0U, 1U}) {
      ranks.contexts[rank].register_am(
          kNetwork, [](const heddle_am_arrival*, void* arg) { ++*static_cast<std::atomic<int>*>(arg); },
          &handled.at(rank));
    }
    for (std::uint32_t rank : {0U, 1U}) {
      const heddle_completion completion = outcomes.at(rank).completion();
      for (int i = 0; i < 5; ++i) {
        ASSERT_EQ(ranks.workers[rank].try_am({1 - rank, 0}, large(), &completion), HEDDLE_POSTED);
      }
    }
    for (int i = 0; i < steps; ++i) ranks.progress();
    std::atomic<bool> closed{false};
    std::thread closing([&] {  // it waits for the messages that it has offered
      ranks.workers[1] = {};
      closed = true;
    });
    EXPECT_TRUE(within_time([&] { return closed.load() && outcomes[0].times.load() == 5; },
                            [&] { ASSERT_GE(ranks.workers[0].progress(), 0); }))
        << outcomes[0].times.load() << " of those to it have ended";
    closing.join();
    EXPECT_EQ(outcomes[1].times.load(), 5);
    EXPECT_EQ(outcomes[1].done.load(), 5);
    EXPECT_EQ(handled[0].load(), 5);
    EXPECT_GE(handled[1].load(), outcomes[0].done.load());
    const Status last = outcomes[0].status.load();
    EXPECT_TRUE(last == HEDDLE_ERR_CANCELLED || last == HEDDLE_DONE) << heddle_status_name(last);
    EXPECT_EQ(ranks.workers[0].try_quiet(), HEDDLE_DONE) << heddle_last_error();
  }
}

TEST_P(AmBounds, AMessageToItselfArrives) {
  int handled = 0;
  Ranks ranks(GetParam().transport, 1);
  ranks.contexts[0].register_am(kNetwork, count, &handled);
  Outcome outcome;
  const heddle_completion completion = outcome.completion();
  ASSERT_EQ(ranks.workers[0].try_am({0, 0}, large(), &completion), HEDDLE_POSTED);
  EXPECT_TRUE(ranks.until([&] { return outcome.times.load() == 1 && handled == 1; }));
  EXPECT_EQ(outcome.status.load(), HEDDLE_DONE);
}

TEST_P(AmBounds, WithoutAHandlerItIsDroppedAndCounted) {
  Ranks ranks(GetParam().transport, 2);
  Outcome outcome;
  const heddle_completion completion = outcome.completion();
  ASSERT_EQ(ranks.workers[0].try_am({1, 0}, large(), &completion), HEDDLE_POSTED);
  EXPECT_TRUE(ranks.until([&] { return outcome.times.load() == 1; }));
  EXPECT_EQ(outcome.status.load(), HEDDLE_DONE);
  EXPECT_EQ(ranks.workers[1].stats().dropped, 1U);
}

INSTANTIATE_TEST_SUITE_P(
    Transports, AmBounds,
    testing::Values(Setting{"shm", "shm", {}}, Setting{"shm_no_cma", "shm", {{"HEDDLE_SHM_CMA", "0"}}},
                    Setting{"loopback", "loopback", {}},
                    Setting{"fault_loopback", "fault+loopback", {{"HEDDLE_FAULT", "delay=5,reorder=1"}}}),
    name_of);

}  // namespace
}  // namespace heddle::test::am_rendezvous_test
