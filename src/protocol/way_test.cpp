#include "protocol/way.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace heddle::protocol::way_test {
namespace {

using Settings = base::Config::Overrides;

constexpr std::uint64_t kKi = 1024;
constexpr std::uint64_t kMi = kKi * kKi;

transport::Capabilities shm() {
  transport::Capabilities can;
  can.opcodes = transport::bit(transport::Opcode::message) | transport::bit(transport::Opcode::get);
  can.direct = true;
  can.ordered_messages = true;
  can.max_message = 33'592;
  can.fetch_bytes = 33'592;
  return can;
}

transport::Capabilities network() {
  transport::Capabilities can = shm();
  can.direct = false;
  can.max_message = 8 * kKi;
  can.fetch_bytes = 64 * kKi;
  return can;
}

base::Config config_of(const Settings& settings) {
  return *base::Config::read(settings);
}

std::string way(const WayLimits& limits, std::uint64_t bytes, bool matched = false) {
  return name_of(way_of(limits, bytes, matched));
}

TEST(Way, TaggedMessagesByLength) {
  struct Row {
    std::uint64_t bytes;
    const char* near;
    const char* far;
  };
  const Row rows[] = {
      {0, "inline", "inline"},
      {8, "inline", "inline"},
      {56, "inline", "inline"},
      {57, "eager", "eager"},
      {4096, "eager", "eager"},
      {4097, "eager", "eager"},
      {8184, "eager", "eager"},
      {8185, "eager", "fetched"},
      {16 * kKi, "eager", "fetched"},
      {16 * kKi + 1, "piped", "fetched"},
      {33'584, "piped", "fetched"},
      {512 * kKi, "piped", "fetched"},
      {512 * kKi + 1, "pulled", "fetched"},
      {kMi, "pulled", "fetched"},
      {kMi * kMi, "pulled", "fetched"},
  };
  const base::Config config = config_of({});
  const WayLimits near = tagged_limits(shm(), config, true);
  const WayLimits far = tagged_limits(network(), config, false);
  for (const Row& row : rows) {
    EXPECT_EQ(way(near, row.bytes), row.near) << row.bytes;
    EXPECT_EQ(way(far, row.bytes), row.far) << row.bytes;
    EXPECT_EQ(way(near, row.bytes, true), "pulled") << row.bytes;
    EXPECT_EQ(way(far, row.bytes, true), "fetched") << row.bytes;
  }
}

TEST(Way, ActiveMessagesByLength) {
  const base::Config config = config_of({});
  const WayLimits limits = active_limits(network(), config);
  EXPECT_EQ(way(limits, 64), "inline");
  EXPECT_EQ(way(limits, 65), "eager");
  EXPECT_EQ(way(limits, 8 * kKi), "eager");
  EXPECT_EQ(way(limits, 8 * kKi + 1), "piped");
  EXPECT_EQ(way(limits, 64 * kKi), "piped");
  EXPECT_EQ(way(limits, 64 * kKi + 1), "fetched");
  EXPECT_EQ(way(active_limits(network(), config_of({{"HEDDLE_AM_EAGER_BYTES", "1M"}})), kMi), "piped");
  transport::Capabilities no_gets = network();
  no_gets.opcodes = transport::bit(transport::Opcode::message);
  EXPECT_EQ(way(active_limits(no_gets, config), WayLimits::kAll), "piped");
}

// Whatever the settings and the transport: longer messages never go by an earlier way, each length
// goes by one, and what goes without being asked for fits half the credit.
TEST(Way, EveryLengthHasOneWayWhateverTheSettings) {
  for (const char* credit : {"64K", "1M", "4M", "1G"}) {
    for (const char* eager : {"0", "1", "57", "4K", "100K", "1G"}) {
      for (const std::uint32_t packet : {128U, 4096U, 33'592U, 1U << 20}) {
        for (const bool direct : {false, true}) {
          for (const bool ordered : {false, true}) {
            transport::Capabilities can = shm();
            can.max_message = packet;
            can.direct = direct;
            can.ordered_messages = ordered;
            const base::Config config =
                config_of({{"HEDDLE_TAG_CREDIT_BYTES", credit}, {"HEDDLE_TAG_EAGER_BYTES", eager}});
            const std::uint64_t half = config.number(base::Var::tag_credit_bytes) / 2;
            const std::uint64_t asked = config.number(base::Var::tag_eager_bytes);
            const WayLimits far = tagged_limits(can, config, false);
            const WayLimits near = tagged_limits(can, config, true);
            EXPECT_EQ(near == far, !(direct && ordered));
            EXPECT_LE(near.eager, far.eager) << "a message of a pipe's peers fits its packet";
            for (const bool mapped : {false, true}) {
              const WayLimits& limits = mapped ? near : far;
              std::vector<std::uint64_t> lengths = {0, limits.inlined, limits.eager, limits.piped, packet, half, kMi};
              for (std::size_t i = 0, count = lengths.size(); i < count; ++i) lengths.push_back(lengths[i] + 1);
              std::ranges::sort(lengths);
              Way before = Way::inlined;
              for (const std::uint64_t bytes : lengths) {
                const Way now = way_of(limits, bytes, false);
                EXPECT_GE(now, before) << bytes;
                if (now <= Way::eager) {
                  EXPECT_LE(bytes + sizeof(std::uint64_t), packet);
                }
                if (now <= Way::piped) {
                  EXPECT_LT(bytes, half);
                  EXPECT_LE(bytes, asked == 0 ? WayLimits::kAll : asked);
                }
                if (now == Way::piped || now == Way::pulled) {
                  EXPECT_TRUE(mapped && direct && ordered);
                }
                before = now;
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::protocol::way_test
