// Tests of this transport alone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "transport/test/conformance.hpp"
#include "transport/test/ucx_available.hpp"

namespace heddle::transport::ucx::ucx_test {
namespace {

using conformance::pattern;
using conformance::run_alone;
using conformance::Setting;
using conformance::transfer;
using conformance::World;

class Ucx : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_ucx(); !why.empty()) GTEST_SKIP() << why;
  }
};

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

// The parts of UCX's shared memory that this process maps.
std::string own_memory_of_ucx() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("ucx_shm") != std::string::npos || line.find("/SYSV") != std::string::npos) return line;
  return "";
}

bool leaves_its_memory_out(World& world) {
  return world.transport(0).describe().find("as UCX chooses without its shared memory") != std::string::npos;
}

// Ranks 0 and 1 are one node.
const Setting kPairs{"pairs", "shm,ucx", {{"HEDDLE_NODE_RANKS", "2"}}};

TEST(UcxBesideShm, HasNoSharedMemoryOfItsOwn) {
  if (const std::string why = why_no_ucx(); !why.empty()) GTEST_SKIP() << why;
  ::unsetenv("UCX_TLS");
  World world(kPairs, 3);
  EXPECT_TRUE(leaves_its_memory_out(world)) << world.transport(0).describe();
  auto target = *world.transport(2).allocate(4096);
  auto memory = world.transport(0).import(2, target.key);
  ASSERT_TRUE(memory.ok()) << base::last_message();
  std::vector<std::byte> data = pattern(1, 4096);
  EXPECT_EQ(run_alone(world.port(0), transfer(Opcode::put, *memory, &data)), HEDDLE_DONE);
  EXPECT_EQ(own_memory_of_ucx(), "");
  world.transport(0).release(*memory);
  world.transport(2).free(target);
}

TEST(UcxBesideShm, TakesWhatTheUserNames) {
  if (const std::string why = why_no_ucx(); !why.empty()) GTEST_SKIP() << why;
  ASSERT_EQ(::setenv("UCX_TLS", "all", 1), 0);
  World world(kPairs, 1);
  EXPECT_FALSE(leaves_its_memory_out(world)) << world.transport(0).describe();
  EXPECT_NE(own_memory_of_ucx(), "") << "how the other test finds it";
  ::unsetenv("UCX_TLS");
  Setting named = kPairs;
  named.variables["HEDDLE_UCX_TLS"] = "tcp,posix";
  World other(named, 1);
  EXPECT_NE(other.transport(0).describe().find("transports tcp,posix,"), std::string::npos)
      << other.transport(0).describe();
}

TEST(UcxAlone, LeavesTheChoiceToUcx) {
  if (const std::string why = why_no_ucx(); !why.empty()) GTEST_SKIP() << why;
  World world({"alone", "ucx", {}}, 1);
  EXPECT_NE(world.transport(0).describe().find("transports as UCX chooses,"), std::string::npos)
      << world.transport(0).describe();
}

INSTANTIATE_TEST_SUITE_P(Settings, Ucx,
                         testing::Values(Setting{"tcp", "ucx", {{"HEDDLE_UCX_TLS", "tcp"}}},
                                         Setting{"posix", "ucx", {{"HEDDLE_UCX_TLS", "posix,self"}}},
                                         Setting{"sysv", "ucx", {{"HEDDLE_UCX_TLS", "sysv,self"}}}),
                         [](const auto& setting) { return conformance::name_of(setting.param); });

}  // namespace
}  // namespace heddle::transport::ucx::ucx_test
