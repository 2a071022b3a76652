// Tests of this transport alone: connections that break.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "transport/test/conformance.hpp"
#include "transport/test/ofi_available.hpp"

namespace heddle::transport::ofi::ofi_test {
namespace {

using conformance::message_to;
using conformance::pattern;
using conformance::Setting;
using conformance::transfer;
using conformance::World;

class Ofi : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_ofi(); !why.empty()) GTEST_SKIP() << why;
  }
};

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

// libfabric connects anew and tells nobody, and messages on their way are lost. Nevertheless the
// waiting sender is told, and the messages that arrive have no gap.
TEST_P(Ofi, WhatIsUnderWayEndsWhenConnectionsBreak) {
  Setting setting = GetParam();
  setting.variables["HEDDLE_NETWORK_TIMEOUT"] = "1s";
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
    Settings, Ofi,
    testing::Values(Setting{"tcp", "ofi", {{"HEDDLE_NET_DEVICES", "lo"}}},
                    Setting{"rxm", "ofi", {{"HEDDLE_NET_DEVICES", "lo"}, {"HEDDLE_OFI_PROVIDER", "tcp;ofi_rxm"}}}),
    [](const auto& setting) { return conformance::name_of(setting.param); });

}  // namespace
}  // namespace heddle::transport::ofi::ofi_test
