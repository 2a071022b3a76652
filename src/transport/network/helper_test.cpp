// A rank that makes no calls is served by its helper, over each network.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "base/test_support.hpp"
#include "transport/test/conformance.hpp"
#include "transport/test/ofi_available.hpp"
#include "transport/test/ucx_available.hpp"

namespace heddle::transport::network::helper_test {
namespace {

using conformance::alone;
using conformance::message_to;
using conformance::pattern;
using conformance::Port;
using conformance::run_alone;
using conformance::Setting;
using conformance::transfer;
using conformance::World;

// The longest head of a message where it waits.
constexpr std::uint64_t kHead = 64;

class Served : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (!GetParam().why_not.empty()) GTEST_SKIP() << GetParam().why_not;
  }
};

void add(Port& port, const RemoteMemory& memory, std::vector<std::byte> before, const LocalMemory& target) {
  std::uint64_t old = 0;
  Command add = transfer(Opcode::atomic, memory, &before);
  add.local = &old;
  add.bytes = 8;
  add.atomic_op = HEDDLE_ADD64;
  add.operand = 5;
  ASSERT_EQ(run_alone(port, add), HEDDLE_DONE);
  EXPECT_EQ(std::memcmp(&old, before.data(), 8), 0);
  std::uint64_t now = 0;
  std::memcpy(&now, target.address, 8);
  EXPECT_EQ(now, old + 5);
}

// Put, get, and fetch-and-add where the network has it, all for the first time, by `port`.
void use(World& world, Port& port, const LocalMemory& target, std::uint64_t seed) {
  auto memory = world.transport(port.rank()).import(1, target.key);
  ASSERT_TRUE(memory.ok()) << base::last_message();
  std::vector<std::byte> data = pattern(seed, target.bytes);
  std::vector<std::byte> back(target.bytes);
  ASSERT_EQ(run_alone(port, transfer(Opcode::put, *memory, &data)), HEDDLE_DONE);
  ASSERT_EQ(run_alone(port, transfer(Opcode::get, *memory, &back)), HEDDLE_DONE);
  EXPECT_TRUE(data == back);
  if ((world.capabilities().opcodes & bit(Opcode::atomic)) != 0) add(port, *memory, data, target);
  world.transport(port.rank()).release(*memory);
}

TEST_P(Served, ARankThatMakesNoCallsIsReachedForTheFirstTime) {
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
TEST_P(Served, WhatIsPostedLeavesWithoutItsOwner) {
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

// A message is done when its target has it, not when the library has accepted it.
TEST_P(Served, AMessageThatDoesNotArriveFails) {
  World world(GetParam(), 2, 1);
  Token token = 0;
  ASSERT_TRUE(alone(world.port(0), [&] { return (token = world.port(0).post_one(message_to(1, 3, {}))) != 0; }));
  EXPECT_FALSE(world.port(0).done(token)) << "nobody has opened worker 3 of rank 1";
  world.fail(1);
  EXPECT_TRUE(alone(world.port(0), [&] { return world.port(0).done(token); }));
  EXPECT_EQ(world.port(0).status(token), HEDDLE_ERR_PEER_FAILED);
}

// The helper hands nothing out: messages that arrived while nobody polled wait for the first poll.
TEST_P(Served, MessagesWaitForTheirOwner) {
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

// A message that is kept in the library's buffer, or copied, waits, stays for one poll, comes in
// order, and is freed with its worker if nobody has fetched it.
TEST_P(Served, LongAndShortMessagesWaitInTheirOrder) {
  for (const bool fetched : {true, false}) {
    World world(GetParam(), 2, 1);
    std::vector<std::vector<std::byte>> payloads;
    // no more than a window holds, since nobody consumes them
    std::uint64_t left = world.capabilities().memory_per_peer - world.capabilities().max_message - 8 * kHead;
    for (const std::size_t bytes : {4096U, 8U, 1024U, 1023U, 0U, 2048U, 8192U, 6000U}) {
      if (bytes > left) continue;
      left -= bytes;
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

// Short messages behind many that have not arrived may be gathered, and leave although their owner
// makes no more calls; a long one among them keeps its place.
TEST_P(Served, ABurstLeavesWithoutItsOwner) {
  World world(GetParam(), 2, 1);
  ASSERT_TRUE(alone(world.port(0), [&] { return world.port(0).send(message_to(1, 0, pattern(0, 8))); }));
  ASSERT_TRUE(alone(world.port(0), [&] { return world.port(0).outstanding() == 0; })) << "it is connected";
  constexpr std::size_t kMessages = 120;  // less than a window, and than what may be under way
  for (std::size_t i = 1; i <= kMessages; ++i) {
    const auto payload = pattern(i, i % 50 == 0 ? 1000 : 8);
    while (!world.port(0).send(message_to(1, 0, payload))) {  // the helper is inside
      ASSERT_LT(world.port(0).outstanding(), kMessages);
    }
  }
  ASSERT_TRUE(alone(world.port(1), [&] { return world.port(1).arrivals.size() == kMessages + 1; }));
  for (std::size_t i = 0; i <= kMessages; ++i) {
    EXPECT_TRUE(world.port(1).arrivals[i].data == pattern(i, i != 0 && i % 50 == 0 ? 1000 : 8)) << "message " << i;
  }
  EXPECT_TRUE(alone(world.port(0), [&] { return world.port(0).outstanding() == 0; }));
}

// Messages that were gathered for a worker that has closed meanwhile leave too, and are lost or
// arrive. They end, and nothing waits for them.
TEST_P(Served, ABurstToAClosedWorkerEnds) {
  World world(GetParam(), 2, 2);
  const auto payload = pattern(1, 100);
  const auto all_end = [&] { return alone(world.port(0), [&] { return world.port(0).outstanding() == 0; }); };
  ASSERT_TRUE(alone(world.port(0), [&] { return world.port(0).send(message_to(1, 1, payload)); }));
  ASSERT_TRUE(all_end());
  world.close_port(1, 1);
  // Until ten messages in a row have ended within the call.
  const auto known_after_a_burst = [&] {
    std::size_t ended = 0;
    while (ended < 10) {
      const std::size_t before = world.port(0).outstanding();
      if (!world.port(0).send(message_to(1, 1, payload))) break;
      ended = world.port(0).outstanding() == before ? ended + 1 : 0;
    }
    EXPECT_TRUE(all_end());
    return ended == 10;
  };
  EXPECT_TRUE(alone(world.port(0), known_after_a_burst)) << "it never learns that the worker is closed";
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
TEST_P(Served, HelpersSleepWhenNothingHappens) {
  World world(GetParam(), 2, 1);
  if (sleeps_in(test::this_thread()).empty()) GTEST_SKIP() << "skipped: the kernel does not show system calls";
  auto target = world.transport(1).allocate(64);
  ASSERT_TRUE(target.ok()) << base::last_message();
  use(world, world.port(0), *target, 3);
  const std::vector<pid_t> helpers = test::threads_named("heddle-" + GetParam().transport);
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
TEST_P(Served, OwnersAndHelpersTakeTurns) {
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

std::vector<Setting> networks() {
  const std::string no_ucx = ucx::why_no_ucx();
  const std::string no_ofi = ofi::why_no_ofi();
  return {
      {"ucx tcp", "ucx", {{"HEDDLE_UCX_TLS", "tcp"}}, no_ucx},
      {"ucx posix", "ucx", {{"HEDDLE_UCX_TLS", "posix,self"}}, no_ucx},
      {"ucx sysv", "ucx", {{"HEDDLE_UCX_TLS", "sysv,self"}}, no_ucx},
      {"ofi tcp", "ofi", {{"HEDDLE_NET_DEVICES", "lo"}}, no_ofi},
      {"ofi rxm", "ofi", {{"HEDDLE_NET_DEVICES", "lo"}, {"HEDDLE_OFI_PROVIDER", "tcp;ofi_rxm"}}, no_ofi},
#ifdef HEDDLE_IDLE_VERBS
      {"verbs idle", "verbs", {{"HEDDLE_LIBRARIES", "verbs=" HEDDLE_IDLE_VERBS}}},
#endif
  };
}

INSTANTIATE_TEST_SUITE_P(Networks, Served, testing::ValuesIn(networks()),
                         [](const auto& setting) { return conformance::name_of(setting.param); });

}  // namespace
}  // namespace heddle::transport::network::helper_test
