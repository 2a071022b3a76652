#include "memory/regions.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "base/test_support.hpp"

namespace heddle::memory::region_table_test {
namespace {

TEST(RegionTable, FindsWhatIsInsideAndNothingElse) {
  RegionTable table;
  std::vector<std::byte> memory(100);
  const auto number = table.add(memory.data(), memory.size());
  ASSERT_TRUE(table.find(number, 0, 100));
  EXPECT_EQ(table.find(number, 40, 60)->address, memory.data() + 40);
  EXPECT_FALSE(table.find(number, 41, 60));
  EXPECT_FALSE(table.find(number, ~std::uint64_t{0}, 2));
  EXPECT_FALSE(table.find(0, 0, 0));
  EXPECT_FALSE(table.find(number + (1 << 20), 0, 1));
  EXPECT_FALSE(table.find(~std::uint64_t{0}, 0, 1));
  table.remove(number);
  EXPECT_FALSE(table.find(number, 0, 1));
}

TEST(RegionTable, ANumberIsNotUsedTwice) {
  RegionTable table;
  std::byte byte{};
  const auto first = table.add(&byte, 1);
  table.remove(first);
  const auto second = table.add(&byte, 1);
  EXPECT_NE(first, second);
  EXPECT_FALSE(table.known(first));
  EXPECT_TRUE(table.known(second));
  table.remove(first);  // a stale number removes nothing
  EXPECT_TRUE(table.known(second));
}

TEST(RegionTable, TenThousandRegions) {
  RegionTable table;
  std::vector<std::byte> memory(10000);
  std::vector<std::uint64_t> numbers;
  for (auto& byte : memory) numbers.push_back(table.add(&byte, 1));
  for (std::size_t i = 0; i < memory.size(); ++i) ASSERT_EQ(table.find(numbers[i], 0, 1)->address, &memory[i]);
}

TEST(RegionTable, ReadersSeeWholeSlotsWhileOthersAreAdded) {
  RegionTable table;
  std::atomic<std::uint64_t> newest{0};
  std::atomic<bool> stop{false};
  std::vector<std::byte> memory(4096);
  std::thread reader([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      // Relaxed on purpose: the table itself must make the slot visible.
      const auto number = newest.load(std::memory_order_relaxed);
      if (const auto span = table.find(number, 0, 1)) {
        ASSERT_GE(span->address, memory.data());
      }
    }
  });
  for (int round = 0; round < 20000; ++round) {
    newest.store(table.add(&memory[static_cast<std::size_t>(round) % memory.size()], 1), std::memory_order_relaxed);
  }
  stop = true;
  reader.join();
}

// Slots are reused while a reader reads. Region i begins at byte i and has i + 1 bytes: a reader
// that finds another pair has mixed two regions.
TEST(RegionTable, ReadersNeverSeeTwoRegionsMixed) {
  RegionTable table;
  std::vector<std::byte> memory(64);
  std::array<std::atomic<std::uint64_t>, 4> numbers{};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> found{0};
  std::thread reader([&] {
    for (std::size_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
      const std::uint64_t number = numbers[i % numbers.size()].load(std::memory_order_relaxed);
      const auto first = table.find(number, 0, 0);
      if (!first) continue;
      const auto bytes = static_cast<std::uint64_t>(first->address - memory.data()) + 1;
      // The region is gone meanwhile, or has the right length.
      const bool whole = table.find(number, 0, bytes).has_value();
      EXPECT_FALSE(table.find(number, 0, bytes + 1));
      EXPECT_TRUE(whole || !table.known(number));
      found.fetch_add(1, std::memory_order_relaxed);
    }
  });
  base::Random random(7);
  const test::Deadline deadline;
  for (int round = 0; round < 20000 || (found.load() < 1000 && !deadline.over()); ++round) {
    auto& number = numbers[random.below(numbers.size())];
    table.remove(number.load());
    const std::uint64_t at = random.below(memory.size());
    number.store(table.add(&memory[at], at + 1), std::memory_order_relaxed);
    if (round % 256 == 0) std::this_thread::yield();
  }
  stop.store(true);
  reader.join();
  EXPECT_GE(found.load(), 1000U);
}

}  // namespace
}  // namespace heddle::memory::region_table_test
