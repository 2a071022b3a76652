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
  expect_read("HEDDLE_NETWORK_TIMEOUT", "240s", Var::network_timeout, 240'000'000'000);
  expect_rejected("HEDDLE_NETWORK_TIMEOUT", "240001ms", " 0-240s ");
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
  expect_rejected("HEDDLE_NETWORK_TIMEOUT", "5 years", "500ns");
  expect_rejected("HEDDLE_CLOSE_TIMEOUT", "2", "a whole number with a unit of time");
  expect_rejected("HEDDLE_CLOSE_TIMEOUT", "1.5s", "a whole number with a unit of time");
  expect_read("HEDDLE_CLOSE_TIMEOUT", "0", Var::close_timeout, 0);
  expect_read("HEDDLE_CLOSE_TIMEOUT", "5min", Var::close_timeout, 300'000'000'000);
  expect_rejected("HEDDLE_STATS", "maybe", "0 or 1");
  expect_rejected("HEDDLE_AM_MAX_BYTES", "99999999999T", "64K");
}

TEST(Config, AVariableOfPartsIsAList) {
  const auto config = Config::read({{"HEDDLE_FAULT", "latency=1s,again=95"}, {"HEDDLE_REG_CACHE", "0,entries=7"}});
  ASSERT_TRUE(config.ok()) << last_message();
  EXPECT_EQ(config->number(Var::fault_latency), 1'000'000'000U);
  EXPECT_EQ(config->number(Var::fault_again), 95U);
  EXPECT_EQ(config->number(Var::fault_seed), 1U) << "the default of what is not named";
  EXPECT_TRUE(config->is_set(Var::fault) && config->is_set(Var::fault_again) && !config->is_set(Var::fault_seed));
  EXPECT_FALSE(config->flag(Var::reg_cache));
  EXPECT_EQ(config->number(Var::reg_cache_entries), 7U);
  EXPECT_TRUE(config->flag(Var::reg_cache_watch));
  const auto libraries = Config::read({{"HEDDLE_LIBRARIES", "verbs=/a=b/lib.so,ucx="}});
  ASSERT_TRUE(libraries.ok()) << last_message();
  EXPECT_EQ(libraries->text(Var::library_verbs), "/a=b/lib.so");
  EXPECT_EQ(libraries->text(Var::library_ucx), "");
  EXPECT_EQ(libraries->text(Var::library_ofi), "libfabric.so.1");
  const auto alone = Config::read({{"HEDDLE_REG_CACHE", "watch=0"}});
  ASSERT_TRUE(alone.ok()) << last_message();
  EXPECT_TRUE(alone->flag(Var::reg_cache)) << "its own default";
  EXPECT_FALSE(alone->flag(Var::reg_cache_watch));
  EXPECT_TRUE(Config::read({{"HEDDLE_FAULT", ""}}).ok());
}

// `told`: what the message says.
void expect_no_list(const char* name, const char* value, const char* told) {
  const auto config = Config::read({{name, value}});
  ASSERT_FALSE(config.ok()) << name << "=" << value;
  EXPECT_EQ(config.status(), HEDDLE_ERR_CONFIG);
  EXPECT_NE(std::string(last_message()).find(told), std::string::npos) << last_message();
}

TEST(Config, PartsThatAreWrongAreRejectedByName) {
  expect_no_list("HEDDLE_FAULT", "again=96", "HEDDLE_FAULT.again=\"96\" is outside its range, 0-95");
  expect_no_list("HEDDLE_FAULT", "delay=1000001", " 0-1000000 ");
  expect_no_list("HEDDLE_FAULT", "agin=9,delay=1",
                 "\"agin=9\" is none of its parts, seed, delay, reorder, again, latency");
  expect_no_list("HEDDLE_FAULT", "again", "\"again\" is none of its parts");
  expect_no_list("HEDDLE_FAULT", "delay=1,,again=1", "\"\" is none of its parts");
  expect_no_list("HEDDLE_FAULT", "delay=1,", "\"\" is none of its parts");
  expect_no_list("HEDDLE_FAULT", "delay=1,delay=2", "\"delay=2\" twice");
  expect_no_list("HEDDLE_REG_CACHE", "", "HEDDLE_REG_CACHE=\"\" is not 0 or 1");
  expect_no_list("HEDDLE_REG_CACHE", "0,1", "\"1\" twice");
  expect_no_list("HEDDLE_FAULT", "=1", "\"=1\" is none of its parts");
  expect_no_list("HEDDLE_FAULT", "delay=", "a whole number");
  expect_no_list("HEDDLE_REG_CACHE", "2", "HEDDLE_REG_CACHE=\"2\" is not 0 or 1");
  expect_no_list("HEDDLE_REG_CACHE", "1,bites=1G", "\"bites=1G\" is none of its parts");
  expect_no_list("HEDDLE_LIBRARIES", "/usr/lib/libucp.so", "is none of its parts, ucx, ofi, verbs, utofu");
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
  EXPECT_EQ(nearest_variable("HEDDLE_FAULT_DELAY"), "HEDDLE_FAULT=delay=…");
  EXPECT_EQ(nearest_variable("HEDDLE_UCX_TIMEOUT"), "HEDDLE_NETWORK_TIMEOUT");
  EXPECT_EQ(nearest_variable("HEDDLE_NO_SUCH_THING"), "");
  expect_read("HEDDLE_MAX_WORKERS", "4", Var::max_workers, 4);
  unsetenv("HEDDLE_MAX_WORKERS");
  unsetenv("HEDDLE_NO_SUCH_THING");
}

}  // namespace
}  // namespace heddle::base::config_test
