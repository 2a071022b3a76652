#include "memory/region_table.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace heddle::memory {
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
  table.remove(first);  // a stale number takes nothing away
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

}  // namespace
}  // namespace heddle::memory
