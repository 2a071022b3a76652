#include "openshmem/memory/allocator.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace heddle::shmem::memory::allocator_test {
namespace {

constexpr std::size_t kBegin = 4096;
constexpr std::size_t kEnd = kBegin + (std::size_t{1} << 16U);

// Each allocated block must lie in the range, be aligned, and not overlap another.
struct Model {
  std::map<std::size_t, std::size_t> blocks;  // offset → bytes

  void add(std::size_t offset, std::size_t bytes, std::size_t alignment) {
    ASSERT_EQ(offset % alignment, 0U);
    ASSERT_GE(offset, kBegin);
    ASSERT_LE(offset + bytes, kEnd);
    const auto after = blocks.lower_bound(offset);
    if (after != blocks.end()) {
      ASSERT_LE(offset + bytes, after->first);
    }
    if (after != blocks.begin()) {
      const auto before = std::prev(after);
      ASSERT_LE(before->first + before->second, offset);
    }
    blocks.emplace(offset, bytes);
  }
};

TEST(SymmetricAllocator, RandomCallsKeepBlocksApartAndTwoAllocatorsAgree) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    SymmetricAllocator here(kBegin, kEnd);
    SymmetricAllocator there(kBegin, kEnd);
    Model model;
    std::vector<std::size_t> live;
    for (int step = 0; step < 2000; ++step) {
      if (live.empty() || random() % 100 < 55) {
        const std::size_t bytes = 1 + random() % 3000;
        const std::size_t alignment = std::size_t{16} << (random() % 5);
        const auto offset = here.allocate(bytes, alignment);
        ASSERT_EQ(offset, there.allocate(bytes, alignment));
        if (!offset) continue;
        ASSERT_NO_FATAL_FAILURE(model.add(*offset, bytes, alignment));
        ASSERT_EQ(here.bytes_at(*offset), bytes);
        live.push_back(*offset);
      } else {
        const std::size_t which = random() % live.size();
        ASSERT_TRUE(here.release(live[which]));
        ASSERT_TRUE(there.release(live[which]));
        model.blocks.erase(live[which]);
        live[which] = live.back();
        live.pop_back();
      }
    }
    for (const std::size_t offset : live) ASSERT_TRUE(here.release(offset));
    EXPECT_EQ(here.free_bytes(), kEnd - kBegin) << "freed pieces are joined";
    EXPECT_EQ(here.largest_free(), kEnd - kBegin);
  }
}

TEST(SymmetricAllocator, AllOfItCanBeHadAtOnceAndNoMore) {
  SymmetricAllocator allocator(kBegin, kEnd);
  EXPECT_EQ(allocator.allocate(kEnd - kBegin + 1, 16), std::nullopt);
  EXPECT_EQ(allocator.allocate(SIZE_MAX, 16), std::nullopt);
  EXPECT_EQ(allocator.allocate(kEnd - kBegin, 16), kBegin);
  EXPECT_EQ(allocator.allocate(1, 16), std::nullopt);
  EXPECT_TRUE(allocator.release(kBegin));
  EXPECT_EQ(allocator.allocate(kEnd - kBegin, 4096), kBegin);
}

TEST(SymmetricAllocator, ABlockIsFoundFromEveryPlaceInIt) {
  SymmetricAllocator allocator(kBegin, kEnd);
  const auto first = allocator.allocate(100, 64);
  const auto second = allocator.allocate(16, 16);
  ASSERT_TRUE(first && second);
  const auto expect = [&](std::size_t offset, std::size_t begin, std::size_t end) {
    const SymmetricAllocator::Extent found = allocator.block_around(offset);
    EXPECT_EQ(found.begin, begin) << offset;
    EXPECT_EQ(found.end, end) << offset;
  };
  expect(*first, *first, *first + 100);
  expect(*first + 99, *first, *first + 100);
  expect(*first + 100, 0, 0);  // the padding to the granule belongs to no block
  expect(*second + 15, *second, *second + 16);
  expect(*second + 16, 0, 0);
  expect(kBegin - 1, 0, 0);
  EXPECT_TRUE(allocator.release(*first));
  expect(*first, 0, 0);
  expect(*second, *second, *second + 16);
}

TEST(SymmetricAllocator, WhatIsNoBlockIsRefused) {
  SymmetricAllocator allocator(kBegin, kEnd);
  const auto offset = allocator.allocate(100, 64);
  ASSERT_TRUE(offset);
  EXPECT_FALSE(allocator.release(*offset + 16));
  EXPECT_FALSE(allocator.release(0));
  EXPECT_TRUE(allocator.release(*offset));
  EXPECT_FALSE(allocator.release(*offset)) << "twice";
  EXPECT_EQ(allocator.bytes_at(*offset), std::nullopt);
}

}  // namespace
}  // namespace heddle::shmem::memory::allocator_test
