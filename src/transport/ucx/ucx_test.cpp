// Tests of this transport alone.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "transport/conformance.hpp"
#include "transport/network/test_alone.hpp"
#include "transport/test_ucx.hpp"

namespace heddle::transport::ucx {
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

INSTANTIATE_TEST_SUITE_P(Settings, Ucx,
                         testing::Values(Setting{"tcp", "ucx", {{"HEDDLE_UCX_TLS", "tcp"}}},
                                         Setting{"posix", "ucx", {{"HEDDLE_UCX_TLS", "posix,self"}}},
                                         Setting{"sysv", "ucx", {{"HEDDLE_UCX_TLS", "sysv,self"}}}),
                         [](const auto& setting) { return conformance::name_of(setting.param); });

}  // namespace
}  // namespace heddle::transport::ucx
