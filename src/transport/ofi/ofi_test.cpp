// Tests of this transport alone: the helper serves the peers of a rank that makes no calls.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "base/test_waits.hpp"
#include "transport/conformance.hpp"
#include "transport/test_ofi.hpp"

// libfabric 1.17 loses a fi_info with some connections that are cut off.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:libfabric.so";
}

namespace heddle::transport::ofi {
namespace {

using conformance::message_to;
using conformance::pattern;
using conformance::Port;
using conformance::Setting;
using conformance::World;

class Ofi : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_ofi(); !why.empty()) GTEST_SKIP() << why;
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

// Put and get, both for the first time, by `port`.
void use(World& world, Port& port, const LocalMemory& target, std::uint64_t seed) {
  auto memory = world.transport(port.rank()).import(1, target.key);
  ASSERT_TRUE(memory.ok()) << base::last_message();
  std::vector<std::byte> data = pattern(seed, target.bytes);
  std::vector<std::byte> back(target.bytes);
  ASSERT_EQ(run_alone(port, transfer(Opcode::put, *memory, &data)), HEDDLE_DONE);
  ASSERT_EQ(run_alone(port, transfer(Opcode::get, *memory, &back)), HEDDLE_DONE);
  EXPECT_TRUE(data == back);
  world.transport(port.rank()).release(*memory);
}

TEST_P(Ofi, ARankThatMakesNoCallsIsReachedForTheFirstTime) {
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
TEST_P(Ofi, WhatIsPostedLeavesWithoutItsOwner) {
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

// A message is done when its target has it, not when libfabric has accepted it.
TEST_P(Ofi, AMessageThatDoesNotArriveFails) {
  World world(GetParam(), 2, 1);
  Token token = 0;
  ASSERT_TRUE(alone(world.port(0), [&] { return (token = world.port(0).post_one(message_to(1, 3, {}))) != 0; }));
  EXPECT_FALSE(world.port(0).done(token)) << "nobody has opened worker 3 of rank 1";
  world.fail(1);
  EXPECT_TRUE(alone(world.port(0), [&] { return world.port(0).done(token); }));
  EXPECT_EQ(world.port(0).status(token), HEDDLE_ERR_PEER_FAILED);
}

// The helper hands nothing out: messages that arrived while nobody polled wait for the first poll.
TEST_P(Ofi, MessagesWaitForTheirOwner) {
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

// A message waits, stays for one poll, comes in order, and is freed with its worker if nobody has
// fetched it.
TEST_P(Ofi, LongAndShortMessagesWaitInTheirOrder) {
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
TEST_P(Ofi, HelpersSleepWhenNothingHappens) {
  World world(GetParam(), 2, 1);
  if (sleeps_in(test::this_thread()).empty()) GTEST_SKIP() << "skipped: the kernel does not show system calls";
  auto target = world.transport(1).allocate(64);
  ASSERT_TRUE(target.ok()) << base::last_message();
  use(world, world.port(0), *target, 3);
  const std::vector<pid_t> helpers = test::threads_named("heddle-ofi");
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
TEST_P(Ofi, OwnersAndHelpersTakeTurns) {
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

bool is_connection(int descriptor) {
  int protocol = 0;
  socklen_t bytes = sizeof protocol;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_PROTOCOL, &protocol, &bytes) != 0 || protocol != IPPROTO_TCP)
    return false;
  tcp_info about{};
  bytes = sizeof about;
  return ::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &about, &bytes) == 0 && about.tcpi_state == TCP_ESTABLISHED;
}

int cut_all_connections() {
  int cut = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    if (is_connection(descriptor) && ::shutdown(descriptor, SHUT_RDWR) == 0) ++cut;
  }
  return cut;
}

// libfabric connects anew and tells nobody, and what was on its way is lost: who waits is told
// nevertheless, and what arrives has no gap.
TEST_P(Ofi, WhatIsUnderWayEndsWhenConnectionsBreak) {
  Setting setting = GetParam();
  setting.variables["HEDDLE_OFI_TIMEOUT"] = "1s";
  base::Random random(3);
  std::size_t failed = 0;
  for (int round = 0; round < conformance::scaled(12); ++round) {
    World world(setting, 2, 1);
    auto target = world.transport(1).allocate(1 << 20);
    ASSERT_TRUE(target.ok()) << base::last_message();
    auto memory = world.transport(0).import(1, target->key);
    ASSERT_TRUE(memory.ok()) << base::last_message();
    std::vector<std::byte> data = pattern(1, 1 << 20);
    std::vector<std::vector<std::byte>> sent;
    std::vector<Token> tokens;
    const auto send_some = [&](std::uint64_t count) {
      for (; count > 0; --count) {
        std::vector<std::byte> payload = pattern(sent.size(), 8 * (1 + random.below(40)));
        const Token token = world.port(0).post_one(message_to(1, 0, payload));
        if (token == 0) return;
        tokens.push_back(token);
        sent.push_back(std::move(payload));
      }
    };
    ASSERT_TRUE(world.until([&] { return send_some(1), !sent.empty(); }));
    ASSERT_TRUE(world.quiet());
    if (random.below(2) == 0) {
      const Command put = transfer(random.below(2) == 0 ? Opcode::put : Opcode::get, *memory, &data);
      if (const Token token = world.port(0).post_one(put); token != 0) tokens.push_back(token);
    }
    send_some(random.below(100));
    for (std::uint64_t polls = random.below(3); polls > 0; --polls) world.pump();
    EXPECT_GT(cut_all_connections(), 0);
    if (random.below(2) == 0) send_some(random.below(100));
    EXPECT_TRUE(world.until([&] { return world.port(0).outstanding() == 0; })) << "round " << round;
    for (const Token token : tokens) failed += world.port(0).status(token) == HEDDLE_DONE ? 0 : 1;
    const auto& arrivals = world.port(1).arrivals;
    ASSERT_LE(arrivals.size(), sent.size());
    for (std::size_t i = 0; i < arrivals.size(); ++i) EXPECT_TRUE(arrivals[i].data == sent[i]) << i;
    world.transport(0).release(*memory);
    world.transport(1).free(*target);
  }
  EXPECT_GT(failed, 0U) << "nothing was under way when the connections broke";
}

INSTANTIATE_TEST_SUITE_P(
    Ways, Ofi,
    testing::Values(Setting{"tcp", "ofi", {{"HEDDLE_OFI_DOMAIN", "lo"}}},
                    Setting{"rxm", "ofi", {{"HEDDLE_OFI_DOMAIN", "lo"}, {"HEDDLE_OFI_PROVIDER", "tcp;ofi_rxm"}}}),
    [](const auto& setting) { return conformance::name_of(setting.param); });

}  // namespace
}  // namespace heddle::transport::ofi
