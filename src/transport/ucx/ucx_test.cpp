// Tests of this transport alone: the helper serves the peers of a rank that makes no calls.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/test_waits.hpp"
#include "transport/conformance.hpp"
#include "transport/test_ucx.hpp"

namespace heddle::transport::ucx {
namespace {

using conformance::message_to;
using conformance::pattern;
using conformance::Port;
using conformance::Setting;
using conformance::World;

class Ucx : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_ucx(); !why.empty()) GTEST_SKIP() << why;
  }
};

// Polls only this port until the condition holds.
bool alone(Port& port, const std::function<bool()>& condition) {
  return test::within_time(condition, [&port] { port.poll(); });
}

base::Status run_alone(Port& port, const Command& command) {
  Token token = 0;
  if (!alone(port, [&] { return (token = port.post_one(command)) != 0; })) {
    ADD_FAILURE() << "never accepted";
    return HEDDLE_AGAIN;
  }
  if (!alone(port, [&] { return port.done(token); })) {
    ADD_FAILURE() << "never done";
    return HEDDLE_AGAIN;
  }
  return port.status(token);
}

Command transfer(Opcode opcode, const RemoteMemory& memory, std::vector<std::byte>* local) {
  Command command;
  command.opcode = opcode;
  command.rank = memory.rank;
  command.remote = &memory;
  command.local = local->data();
  command.bytes = local->size();
  return command;
}

// Two imports of a region share one key, as long as one of the two is used.
TEST_P(Ucx, ImportsOfOneRegionShareItsKey) {
  World world(GetParam(), 2);
  auto target = *world.transport(1).allocate(4096);
  auto first = world.transport(0).import(1, target.key);
  auto second = world.transport(0).import(1, target.key);
  ASSERT_TRUE(first.ok() && second.ok()) << base::last_message();
  EXPECT_EQ(first->handle, second->handle);
  auto other = *world.transport(1).allocate(4096);
  auto third = world.transport(0).import(1, other.key);
  ASSERT_TRUE(third.ok()) << base::last_message();
  EXPECT_NE(first->handle[0], third->handle[0]);
  std::vector<std::byte> data = pattern(1, 4096);
  EXPECT_EQ(run_alone(world.port(0), transfer(Opcode::put, *first, &data)), HEDDLE_DONE);
  world.transport(0).release(*first);
  std::vector<std::byte> back(4096);
  EXPECT_EQ(run_alone(world.port(0), transfer(Opcode::get, *second, &back)), HEDDLE_DONE);
  EXPECT_TRUE(data == back);
  world.transport(0).release(*second);
  EXPECT_EQ(run_alone(world.port(0), transfer(Opcode::get, *third, &back)), HEDDLE_DONE);
  auto again = world.transport(0).import(1, target.key);
  ASSERT_TRUE(again.ok());
  EXPECT_NE(again->handle[1], first->handle[1]) << "what is known of the released one is not used";
  EXPECT_EQ(run_alone(world.port(0), transfer(Opcode::get, *again, &back)), HEDDLE_DONE);
  EXPECT_TRUE(data == back);
  world.transport(0).release(*again);
  world.transport(0).release(*third);
  world.transport(1).free(target);
  world.transport(1).free(other);
}

// Put, get, fetch-and-add, all for the first time, by `port`.
void use(World& world, Port& port, const LocalMemory& target, std::uint64_t seed) {
  auto memory = world.transport(port.rank()).import(1, target.key);
  ASSERT_TRUE(memory.ok()) << base::last_message();
  std::vector<std::byte> data = pattern(seed, target.bytes);
  std::vector<std::byte> back(target.bytes);
  ASSERT_EQ(run_alone(port, transfer(Opcode::put, *memory, &data)), HEDDLE_DONE);
  ASSERT_EQ(run_alone(port, transfer(Opcode::get, *memory, &back)), HEDDLE_DONE);
  EXPECT_TRUE(data == back);
  std::uint64_t old = 0;
  Command add = transfer(Opcode::atomic, *memory, &back);
  add.local = &old;
  add.bytes = 8;
  add.atomic_op = HEDDLE_ADD64;
  add.operand = 5;
  ASSERT_EQ(run_alone(port, add), HEDDLE_DONE);
  EXPECT_EQ(std::memcmp(&old, data.data(), 8), 0);
  std::uint64_t now = 0;
  std::memcpy(&now, target.address, 8);
  EXPECT_EQ(now, old + 5);
  world.transport(port.rank()).release(*memory);
}

TEST_P(Ucx, ARankThatMakesNoCallsIsReachedForTheFirstTime) {
  World world(GetParam(), 2, 2);
  for (const std::uint64_t bytes : {8U, 5000U, 300'000U}) {
    auto target = world.transport(1).allocate(bytes);
    ASSERT_TRUE(target.ok()) << base::last_message();
    for (const std::uint32_t worker : {0U, 1U}) use(world, world.port(0, worker), *target, bytes + worker);
    world.transport(1).free(*target);
  }
}

// A posted command leaves although its own rank makes no call any more: the first contact needs
// answers.
TEST_P(Ucx, WhatIsPostedLeavesWithoutItsOwner) {
  World world(GetParam(), 2, 1);
  auto target = world.transport(1).allocate(4096);
  ASSERT_TRUE(target.ok()) << base::last_message();
  auto memory = world.transport(0).import(1, target->key);
  ASSERT_TRUE(memory.ok()) << base::last_message();
  std::vector<std::byte> data = pattern(1, 8);
  Token token = 0;
  ASSERT_TRUE(alone(world.port(0),
                    [&] { return (token = world.port(0).post_one(transfer(Opcode::put, *memory, &data))) != 0; }));
  auto* word = static_cast<std::uint64_t*>(target->address);
  std::uint64_t sent = 0;
  std::memcpy(&sent, data.data(), 8);
  EXPECT_TRUE(test::within_time([&] { return std::atomic_ref(*word).load(std::memory_order_acquire) == sent; }));
  EXPECT_TRUE(alone(world.port(0), [&] { return world.port(0).done(token); }));
  world.transport(0).release(*memory);
  world.transport(1).free(*target);
}

// A message is done when its target has it, not when UCX has accepted it.
TEST_P(Ucx, AMessageThatDoesNotArriveFails) {
  World world(GetParam(), 2, 1);
  Token token = 0;
  ASSERT_TRUE(alone(world.port(0), [&] { return (token = world.port(0).post_one(message_to(1, 3, {}))) != 0; }));
  EXPECT_FALSE(world.port(0).done(token)) << "nobody has opened worker 3 of rank 1";
  world.fail(1);
  EXPECT_TRUE(alone(world.port(0), [&] { return world.port(0).done(token); }));
  EXPECT_EQ(world.port(0).status(token), HEDDLE_ERR_PEER_FAILED);
}

// The helper hands nothing out: messages that arrived while nobody polled wait for the first poll.
TEST_P(Ucx, MessagesWaitForTheirOwner) {
  World world(GetParam(), 2, 1);
  constexpr std::size_t kMessages = 100;
  const std::vector<std::byte> payload = pattern(7, 40);
  for (std::size_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(alone(world.port(0), [&] { return world.port(0).send(message_to(1, 0, payload)); }));
  }
  ASSERT_TRUE(alone(world.port(0), [&] { return world.port(0).outstanding() == 0; }))
      << "it does not say that it has them";
  EXPECT_TRUE(alone(world.port(1), [&] { return world.port(1).arrivals.size() == kMessages; }));
  for (const auto& arrival : world.port(1).arrivals) EXPECT_TRUE(arrival.data == payload);
}

// A long message stays in UCX's buffer, if UCX allows it; a short one is copied. In either case it
// waits, stays for one poll, comes in order, and is freed with its worker if nobody has fetched it.
TEST_P(Ucx, LongAndShortMessagesWaitInTheirOrder) {
  for (const bool fetched : {true, false}) {
    World world(GetParam(), 2, 1);
    std::vector<std::vector<std::byte>> payloads;
    for (const std::size_t bytes : {4096U, 8U, 1024U, 1023U, 8192U, 0U, 2048U, 6000U}) {
      payloads.push_back(pattern(bytes, bytes));
      ASSERT_TRUE(alone(world.port(0), [&] { return world.port(0).send(message_to(1, 0, payloads.back())); }));
    }
    ASSERT_TRUE(alone(world.port(0), [&] { return world.port(0).outstanding() == 0; }));
    world.port(1).poll(1);
    if (!fetched) continue;  // some are queued, and one is lent
    ASSERT_TRUE(test::within_time([&] { return world.port(1).arrivals.size() == payloads.size(); },
                                  [&] { world.port(1).poll(1); }));
    for (std::size_t i = 0; i < payloads.size(); ++i) {
      EXPECT_TRUE(world.port(1).arrivals[i].data == payloads[i]) << payloads[i].size() << " bytes";
    }
  }
}

// The system call that a thread sleeps in, as the kernel shows it: its number, then its arguments.
// Empty: not available.
std::vector<std::string> sleeps_in(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/syscall");
  std::vector<std::string> words;
  for (std::string word; file >> word;) words.push_back(word);
  return words;
}

// Without a time-out, except that of the silence check, which is seconds.
TEST_P(Ucx, HelpersSleepWhenNothingHappens) {
  World world(GetParam(), 2, 1);
  if (sleeps_in(test::this_thread()).empty()) GTEST_SKIP() << "skipped: the kernel does not show system calls";
  auto target = world.transport(1).allocate(64);
  ASSERT_TRUE(target.ok()) << base::last_message();
  use(world, world.port(0), *target, 3);
  const std::vector<pid_t> helpers = test::threads_named("heddle-ucx");
  EXPECT_EQ(helpers.size(), 2U);
  for (const pid_t helper : helpers) {
    EXPECT_TRUE(test::within_time([&] {
      const auto words = sleeps_in(helper);
      return words.size() > 4 && std::stoul(words[4], nullptr, 16) % (std::uint64_t{1} << 32) > 1000;
    }));
  }
  world.transport(1).free(*target);
}

// Owners enter and leave while the helpers are at work.
TEST_P(Ucx, OwnersAndHelpersTakeTurns) {
  World world(GetParam(), 2, 1);
  auto target = world.transport(1).allocate(1024);
  ASSERT_TRUE(target.ok()) << base::last_message();
  auto memory = world.transport(0).import(1, target->key);
  ASSERT_TRUE(memory.ok()) << base::last_message();
  base::Random random(11);
  const std::vector<std::byte> payload = pattern(9, 64);
  std::size_t sent = 0;
  for (std::uint64_t round = 0; round < 300; ++round) {
    std::vector<std::byte> data = pattern(round, 1024);
    std::vector<std::byte> back(1024);
    ASSERT_EQ(run_alone(world.port(0), transfer(Opcode::put, *memory, &data)), HEDDLE_DONE);
    if (random.below(2) == 0) {
      ASSERT_TRUE(alone(world.port(0), [&] { return world.port(0).send(message_to(1, 0, payload)); }));
      ++sent;
    }
    for (std::uint64_t polls = random.below(4); polls > 0; --polls) world.port(1).poll();
    ASSERT_EQ(run_alone(world.port(0), transfer(Opcode::get, *memory, &back)), HEDDLE_DONE);
    ASSERT_TRUE(data == back) << "round " << round;
  }
  EXPECT_TRUE(alone(world.port(1), [&] { return world.port(1).arrivals.size() == sent; }));
  EXPECT_TRUE(world.quiet());
  world.transport(0).release(*memory);
  world.transport(1).free(*target);
}

INSTANTIATE_TEST_SUITE_P(Ways, Ucx,
                         testing::Values(Setting{"tcp", "ucx", {{"HEDDLE_UCX_TLS", "tcp"}}},
                                         Setting{"posix", "ucx", {{"HEDDLE_UCX_TLS", "posix,self"}}},
                                         Setting{"sysv", "ucx", {{"HEDDLE_UCX_TLS", "sysv,self"}}}),
                         [](const auto& setting) { return conformance::name_of(setting.param); });

}  // namespace
}  // namespace heddle::transport::ucx
