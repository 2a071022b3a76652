#include "tofu/emulator/memory.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "base/test_support.hpp"

namespace tofu_emulator::stags_test {
namespace {

EmulatorSettings world() {
  EmulatorSettings settings;
  settings.shape = {2, 1, 1, 1, 1, 1};
  settings.processes = 2;
  return settings;
}

class StagsTest : public ::testing::Test {
 protected:
  EmulatorSettings settings_ = world();
  Machine machine_{settings_};
  Stags stags_{settings_, machine_, {0, 1, 2, 0, kNoPath}};
  alignas(256) std::array<std::byte, 4096> memory_{};

  utofu_stadd_t add(std::size_t at, std::size_t size, bool read_only = false) {
    utofu_stadd_t stadd = 0;
    EXPECT_EQ(stags_.add(&memory_.at(at), size, read_only, &stadd), UTOFU_SUCCESS);
    return stadd;
  }
  std::uint32_t remove(utofu_stadd_t stadd) {
    std::uint32_t in_flight = 0;
    EXPECT_EQ(stags_.remove(stadd, &in_flight), UTOFU_SUCCESS);
    return in_flight;
  }
  Denied denied(utofu_stadd_t stadd, std::size_t length, Access access) {
    const Hold hold = stags_.hold(stadd, length, access);
    if (hold.denied == Denied::none) stags_.release(hold);
    return hold.denied;
  }
};

TEST_F(StagsTest, ByteKIsAtAddressPlusK) {
  const utofu_stadd_t stadd = add(100, 1000);
  for (const std::size_t k : {0U, 1U, 999U}) {
    const Hold hold = stags_.hold(stadd + k, 1, Access::write);
    ASSERT_EQ(hold.denied, Denied::none);
    EXPECT_EQ(hold.data, &memory_.at(100 + k));
    EXPECT_EQ(hold.before, k);
    EXPECT_EQ(hold.after, 999 - k);
    stags_.release(hold);
  }
}

// Programs compute a peer's address from their own one.
TEST(StagsOfTheVendor, AStagHasTheSameAddressEverywhere) {
  EmulatorSettings settings = world();
  settings.numbering = Numbering::vendor;
  const Machine machine(settings);
  alignas(256) static std::array<std::byte, 4096> memory;
  Stags here(settings, machine, {0, 1, 2, 0, kNoPath});
  Stags there(settings, machine, {1, 4, 7, 0, kNoPath});
  std::array<utofu_stadd_t, 2> stadds{};
  ASSERT_EQ(here.add_fixed(memory.data(), 1024, 17, false, stadds.data()), UTOFU_SUCCESS);
  ASSERT_EQ(there.add_fixed(&memory.at(2048), 2048, 17, false, &stadds.at(1)), UTOFU_SUCCESS);
  EXPECT_EQ(stadds[0], stadds[1]);
  EXPECT_EQ(stadds[0] >> 40U, 17U);
  EXPECT_EQ(Stags::fixed_address(machine, {1, 0, 0, 0, kNoPath}, 17), stadds[0]);
  const Hold hold = there.hold(stadds[1] + 100, 8, Access::write);
  ASSERT_EQ(hold.denied, Denied::none);
  EXPECT_EQ(hold.data, &memory.at(2148));
  there.release(hold);
  utofu_stadd_t any = 0;
  ASSERT_EQ(here.add(&memory.at(1000), 24, false, &any), UTOFU_SUCCESS);
  EXPECT_EQ(any & 0xFFFFU, reinterpret_cast<std::uintptr_t>(&memory.at(1000)) & 0xFFFFU);
  EXPECT_EQ(here.hold(any, 25, Access::read).denied, Denied::length);
}

TEST_F(StagsTest, TheRangeIsExact) {
  const utofu_stadd_t stadd = add(100, 1000);
  EXPECT_EQ(denied(stadd, 1000, Access::write), Denied::none);
  EXPECT_EQ(denied(stadd, 1001, Access::read), Denied::length);
  EXPECT_EQ(denied(stadd + 1, 1000, Access::read), Denied::length);
  EXPECT_EQ(denied(stadd - 1, 2, Access::read), Denied::length);
  EXPECT_EQ(denied(stadd + 1000, 1, Access::read), Denied::length);
  EXPECT_EQ(denied(stadd, ~std::size_t{0}, Access::read), Denied::length);
}

TEST_F(StagsTest, ReadOnlyMemoryIsNotWritten) {
  const utofu_stadd_t stadd = add(0, 64, true);
  EXPECT_EQ(denied(stadd, 8, Access::read), Denied::none);
  EXPECT_EQ(denied(stadd, 8, Access::write), Denied::memory);
  EXPECT_EQ(denied(stadd, 8, Access::atomic), Denied::memory);
}

TEST_F(StagsTest, AtomicsAreAligned) {
  const utofu_stadd_t stadd = add(0, 64);
  EXPECT_EQ(denied(stadd + 4, 4, Access::atomic), Denied::none);
  EXPECT_EQ(denied(stadd + 4, 8, Access::atomic), Denied::memory);
}

TEST_F(StagsTest, TheSameRangeAgainIsTheSameAddressCounted) {
  const utofu_stadd_t stadd = add(0, 64);
  EXPECT_EQ(add(0, 64), stadd);
  EXPECT_NE(add(0, 64, true), stadd) << "read-only is another kind";
  EXPECT_NE(add(0, 65), stadd);
  EXPECT_EQ(stags_.size(), 3U);
  remove(stadd);
  EXPECT_EQ(denied(stadd, 64, Access::write), Denied::none) << "one holder is left";
  remove(stadd);
  EXPECT_EQ(denied(stadd, 64, Access::write), Denied::stadd);
  std::uint32_t in_flight = 0;
  EXPECT_EQ(stags_.remove(stadd, &in_flight), UTOFU_ERR_INVALID_STADD);
  EXPECT_EQ(stags_.size(), 2U);
}

TEST_F(StagsTest, OnlyTheBeginningOfARegistrationEndsIt) {
  const utofu_stadd_t stadd = add(0, 64);
  std::uint32_t in_flight = 0;
  EXPECT_EQ(stags_.remove(stadd + 1, &in_flight), UTOFU_ERR_INVALID_STADD);
  EXPECT_TRUE(stags_.would_end(stadd, stadd + 63));
  EXPECT_FALSE(stags_.would_end(stadd, stadd + 64));
  EXPECT_FALSE(stags_.would_end(stadd + 1, stadd));
  remove(stadd);
}

TEST_F(StagsTest, AnAddressThatEndedIsNotGivenOutAgainSoon) {
  std::set<utofu_stadd_t> seen;
  for (int i = 0; i < 5000; ++i) {
    const utofu_stadd_t stadd = add(0, 64);
    EXPECT_TRUE(seen.insert(stadd).second);
    remove(stadd);
  }
}

TEST_F(StagsTest, FixedStagsCanBeComputed) {
  utofu_stadd_t stadd = 0;
  ASSERT_EQ(stags_.add_fixed(memory_.data(), 512, 7, false, &stadd), UTOFU_SUCCESS);
  EXPECT_EQ(stadd, Stags::fixed_address(machine_, {0, 1, 2, 5, kNoPath}, 7)) << "whatever VCQ of the CQ is asked for";
  EXPECT_EQ(stadd % kLineBytes, 0U);
  EXPECT_EQ(denied(stadd + 511, 1, Access::write), Denied::none);
  utofu_stadd_t other = 0;
  EXPECT_EQ(stags_.add_fixed(memory_.data(), 512, 7, false, &other), UTOFU_ERR_USED);
  ASSERT_EQ(stags_.add_fixed(memory_.data(), 512, 8, false, &other), UTOFU_SUCCESS);
  EXPECT_NE(other, stadd);
  const utofu_stadd_t automatic = add(0, 512);
  remove(stadd);
  EXPECT_EQ(add(0, 512), automatic) << "the end of the fixed one is not the end of the other";
  ASSERT_EQ(stags_.add_fixed(memory_.data(), 512, 7, false, &stadd), UTOFU_SUCCESS) << "free again";
}

// An address of one CQ is invalid for other CQs, of this node and of others.
TEST_F(StagsTest, AnAddressBelongsToItsQueue) {
  std::vector<utofu_stadd_t> mine{add(0, 64), add(64, 64), add(0, 64, true)};
  for (std::uint32_t stag = 0; stag < kFixedStags; ++stag) {
    utofu_stadd_t stadd = 0;
    ASSERT_EQ(stags_.add_fixed(memory_.data(), 64, stag, false, &stadd), UTOFU_SUCCESS);
    mine.push_back(stadd);
  }
  for (const std::uint32_t node : {0U, 1U}) {
    for (std::uint16_t tni = 0; tni < kTnis; ++tni) {
      for (std::uint16_t cq = 0; cq < kCqs; ++cq) {
        if (node == 0 && tni == 1 && cq == 2) continue;
        Stags other(settings_, machine_, {node, tni, cq, 0, kNoPath});
        for (std::uint32_t stag = 0; stag < kFixedStags; ++stag) {
          utofu_stadd_t stadd = 0;
          ASSERT_EQ(other.add_fixed(memory_.data(), 64, stag, false, &stadd), UTOFU_SUCCESS);
        }
        for (const utofu_stadd_t stadd : mine) {
          const Hold hold = other.hold(stadd, 1, Access::read);
          EXPECT_NE(hold.denied, Denied::none);
          if (hold.denied == Denied::none) other.release(hold);
        }
      }
    }
  }
}

TEST_F(StagsTest, StagsRunOutAndComeBack) {
  std::vector<std::byte> bytes(20'000);
  std::vector<utofu_stadd_t> all;
  utofu_stadd_t stadd = 0;
  int status = UTOFU_SUCCESS;
  for (std::byte& byte : bytes) {
    status = stags_.add(&byte, 1, false, &stadd);
    if (status != UTOFU_SUCCESS) break;
    all.push_back(stadd);
  }
  EXPECT_EQ(status, UTOFU_ERR_FULL);
  EXPECT_EQ(all.size(), 8192U);
  remove(all.back());
  EXPECT_EQ(stags_.add(&bytes.back(), 1, false, &stadd), UTOFU_SUCCESS);
}

TEST_F(StagsTest, WhatIsInFlightIsTold) {
  const utofu_stadd_t stadd = add(0, 64);
  stags_.began(stadd + 8);
  stags_.began(stadd + 16);
  stags_.finished(stadd + 8);
  EXPECT_EQ(remove(stadd), 1U);
  stags_.finished(stadd + 16);  // too late, and harmless
  EXPECT_EQ(remove(add(0, 64)), 0U);
}

TEST_F(StagsTest, RemovingWaitsForWhoHoldsTheRange) {
  const utofu_stadd_t stadd = add(0, 64);
  const Hold hold = stags_.hold(stadd, 64, Access::write);
  ASSERT_EQ(hold.denied, Denied::none);
  std::atomic<pid_t> waiter{0};
  std::atomic<bool> removed{false};
  std::thread thread([&] {
    waiter = heddle::test::this_thread();
    remove(stadd);
    removed = true;
  });
  EXPECT_TRUE(heddle::test::within_time([&] { return waiter != 0; }));
  EXPECT_TRUE(heddle::test::within_time([&] { return denied(stadd, 64, Access::read) == Denied::stadd; }));
  EXPECT_TRUE(heddle::test::await_asleep(waiter));
  EXPECT_FALSE(removed);
  stags_.release(hold);
  thread.join();
  EXPECT_TRUE(removed);
}

}  // namespace
}  // namespace tofu_emulator::stags_test
