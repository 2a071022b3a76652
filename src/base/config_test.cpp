#include "base/config.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace heddle::base::config_test {
namespace {

// `allowed`: the accepted values, as the message states them.
void expect_rejected(const char* name, const char* value, const char* allowed) {
  const auto config = Config::read({{name, value}});
  ASSERT_FALSE(config.ok()) << name << "=" << value;
  EXPECT_EQ(config.status(), HEDDLE_ERR_CONFIG);
  const std::string message = last_message();
  EXPECT_EQ(message.find(std::string(name) + "=\"" + value + "\" is "), 0U) << message;
  EXPECT_NE(message.find(allowed), std::string::npos) << message;
}

void expect_read(const char* name, const char* value, Var var, std::uint64_t number) {
  const auto config = Config::read({{name, value}});
  ASSERT_TRUE(config.ok()) << last_message();
  EXPECT_EQ(config->number(var), number);
}

TEST(Config, BothEndsOfARangeAreInsideAndWhatIsBeyondIsRejected) {
  expect_read("HEDDLE_MAX_WORKERS", "1", Var::max_workers, 1);
  expect_read("HEDDLE_MAX_WORKERS", "256", Var::max_workers, 256);
  expect_rejected("HEDDLE_MAX_WORKERS", "0", " 1-256 ");
  expect_rejected("HEDDLE_MAX_WORKERS", "257", " 1-256 ");
  expect_rejected("HEDDLE_MAX_WORKERS", "4294967297", " 1-256 ");
  expect_read("HEDDLE_TAG_CREDIT_BYTES", "64K", Var::tag_credit_bytes, 65536);
  expect_read("HEDDLE_TAG_CREDIT_BYTES", "1G", Var::tag_credit_bytes, 1U << 30);
  expect_rejected("HEDDLE_TAG_CREDIT_BYTES", "65535", " 64K-1G ");
  expect_rejected("HEDDLE_TAG_CREDIT_BYTES", "2G", " 64K-1G ");
  expect_read("HEDDLE_FAULT_LATENCY", "1s", Var::fault_latency, 1'000'000'000);
  expect_rejected("HEDDLE_FAULT_LATENCY", "1001ms", " 0-1s ");
  expect_rejected("HEDDLE_FAULT_AGAIN", "96", " 0-95 ");
  expect_rejected("HEDDLE_FAULT_DELAY", "1000001", " 0-1000000 ");
  // in nanoseconds it does not fit into 64 bits
  expect_rejected("HEDDLE_HANG_SECONDS", "18446744074", " 0-1000000 ");
}

TEST(Config, SomeNumbersAreMultiples) {
  expect_read("HEDDLE_SHM_RING_BYTES", "2112", Var::shm_ring_bytes, 2112);
  expect_rejected("HEDDLE_SHM_RING_BYTES", "2100", " 0 or 2K-16M, a multiple of 64 ");
  expect_read("HEDDLE_SHM_RING_BYTES", "0", Var::shm_ring_bytes, 0);
}

TEST(Config, WhatIsNoNumberIsRejectedWithWhatWouldBe) {
  expect_rejected("HEDDLE_SHM_RING_BYTES", "many", "64K");
  expect_rejected("HEDDLE_MAX_WORKERS", "-1", "whole number");
  expect_rejected("HEDDLE_MAX_WORKERS", "", "whole number");
  expect_rejected("HEDDLE_SHM_BOUNCE_PATIENCE_NS", "5 years", "500ns");
  expect_rejected("HEDDLE_CLOSE_TIMEOUT", "2", "a whole number with a unit of time");
  expect_rejected("HEDDLE_CLOSE_TIMEOUT", "1.5s", "a whole number with a unit of time");
  expect_read("HEDDLE_CLOSE_TIMEOUT", "0", Var::close_timeout, 0);
  expect_read("HEDDLE_CLOSE_TIMEOUT", "5min", Var::close_timeout, 300'000'000'000);
  expect_rejected("HEDDLE_STATS", "maybe", "0 or 1");
  expect_rejected("HEDDLE_AM_MAX_BYTES", "99999999999T", "64K");
}

// A row whose default is rejected would make every program fail.
TEST(Config, EveryDefaultIsInsideItsRange) {
  for (const Variable& variable : variables()) unsetenv(variable.name);
  const auto config = Config::read();
  ASSERT_TRUE(config.ok()) << last_message();
  for (const Variable& variable : variables()) {
    EXPECT_EQ(config->text(variable.var), variable.default_value);
    EXPECT_TRUE(variable.range.has(config->number(variable.var))) << variable.name;
  }
}

TEST(Nearest, MisspellingsAndBeginnings) {
  const std::vector<std::string_view> names = {"limit",     "pingpong",    "rate",
                                               "bandwidth", "network_tcp", "network_posix"};
  const std::pair<const char*, const char*> cases[] = {{"pingpogn", "pingpong"},
                                                       {"pinpong", "pingpong"},
                                                       {"RATE", "rate"},
                                                       {"rte", "rate"},
                                                       {"bandwith", "bandwidth"},
                                                       {"band", "bandwidth"},
                                                       {"network", ""},
                                                       {"network_", "network_tcp"},
                                                       {"xyz", ""},
                                                       {"", ""},
                                                       {"latency", ""},
                                                       {"network_tpc", "network_tcp"}};
  for (const auto& [word, meant] : cases) EXPECT_EQ(nearest(word, names), meant) << word;
  EXPECT_EQ(nearest(std::string(100'000, 'r'), names), "");
  EXPECT_EQ(nearest("--siz", {"--size", "--time"}), "--size");
  EXPECT_EQ(nearest("--xy", {"--op", "--ab"}), "") << "what all have in common counts for none";
  EXPECT_EQ(options_in("usage: x [options]\n  -n, --np N  --\n  --json FILE; as in --total-words=1"),
            (std::vector<std::string_view>{"--np", "--json", "--total-words"}));
  EXPECT_TRUE(options_in("").empty());
  EXPECT_EQ(did_you_mean("rat", names), "; did you mean rate?");
  EXPECT_EQ(did_you_mean("quux", names), "");
}

TEST(Config, TheEnvironmentCountsAndOverridesCountMore) {
  setenv("HEDDLE_MAX_WORKERS", "3", 1);
  setenv("HEDDLE_NO_SUCH_THING", "1", 1);
  auto config = Config::read();
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->number(Var::max_workers), 3U);
  ASSERT_EQ(config->unknown().size(), 1U);
  EXPECT_EQ(config->unknown()[0], "HEDDLE_NO_SUCH_THING");
  EXPECT_EQ(nearest_variable("HEDDLE_MAX_WORKER"), "HEDDLE_MAX_WORKERS");
  EXPECT_EQ(nearest_variable("HEDDLE_TRANSPROT"), "HEDDLE_TRANSPORT");
  EXPECT_EQ(nearest_variable("HEDDLE_NO_SUCH_THING"), "");
  expect_read("HEDDLE_MAX_WORKERS", "4", Var::max_workers, 4);
  unsetenv("HEDDLE_MAX_WORKERS");
  unsetenv("HEDDLE_NO_SUCH_THING");
}

}  // namespace
}  // namespace heddle::base::config_test
